"""What made an artifact: code fingerprints before a job runs, records and receipts after it, and their verification."""
