"""A GGUF file as a checkpoint that transformers loads, and the gate that compares the two."""
