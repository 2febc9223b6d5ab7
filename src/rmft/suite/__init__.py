"""`rmft eval`: measure any model on a suite of frozen games, without a line of params.yaml."""
