"""The client side of an endpoint of the OpenAI protocol: requests, retries, journal, budget, fine-tuning jobs."""
