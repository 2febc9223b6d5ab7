"""Decision problems told in words: prompts, and the meaning of replies. Needs no torch."""
