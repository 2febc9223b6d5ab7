"""An endpoint of the OpenAI protocol around a local language model: chat completions, files, fine-tuning jobs."""
