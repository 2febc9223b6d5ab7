"""The embedded language model: its corpus, its tokenizer, its pre-training, and the gate it must pass."""
