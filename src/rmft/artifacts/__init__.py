"""The files that rmft writes and reads back: each appears whole or not at all, with a receipt of the job that wrote it.

Only this package writes artifacts. Each module imports the libraries of its own format alone, so that a job's code
fingerprint covers what the job uses.
"""
