"""rmft: iterative regret-minimization fine-tuning, rebuilt as a reproducible workflow."""
