"""The client's side of an endpoint that speaks the OpenAI protocol: requests, failures, journal, budget, fine-tuning."""
