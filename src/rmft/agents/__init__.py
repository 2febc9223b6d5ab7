"""What a model needs to play. Never imports `rmft.training`."""
