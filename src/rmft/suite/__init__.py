"""`rmft eval`: measure any model on a suite of frozen games, without a line of params.yaml."""

FILE = "eval.json"  # the results of a measurement
LEVEL, PART = "quick", "bandit-gaussian"  # of the suite, where none is named
# Games of one's own: the processes, d, T and number of games, where an option does not say otherwise, and the most
PROCESS, ACTIONS, HORIZON, INSTANCES = "gaussian", 3, 25, 50
MOST_ACTIONS, MOST_ROUNDS, MOST_GAMES = 127, 1000, 10_000
