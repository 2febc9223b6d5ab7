"""Decision problems in words: scenarios, prompts, and the decisions in replies. Needs no torch."""
