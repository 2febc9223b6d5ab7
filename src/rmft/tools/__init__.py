"""Sub-commands of `rmft` beside the stages: to look at results, to see what made them, to play."""
