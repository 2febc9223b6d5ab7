"""Sub-commands of `rmft` beside the stages: to look at results, to ask what made them, to play."""
