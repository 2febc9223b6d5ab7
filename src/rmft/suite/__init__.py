"""`rmft eval`: measure any model on a suite of frozen games, without a line of params.yaml."""

FILE = "eval.json"  # the results of a measurement
