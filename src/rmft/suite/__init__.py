"""`rmft eval`: measure any model on a suite of frozen games, without a line of params.yaml."""

from typing import NamedTuple

FILE = "eval.json"  # the results of a measurement
DEFAULT_LEVEL, DEFAULT_PART = "quick", "bandit-gaussian"  # of the suite, where none is named
MOST_ACTIONS, MOST_ROUNDS, MOST_GAMES = 127, 1000, 10_000  # of games of one's own


class OwnGames(NamedTuple):
    """Games of one's own, as options name them. process: with commas. instances: how many games."""

    process: str
    actions: int
    horizon: int
    instances: int


DEFAULTS = OwnGames("gaussian", 3, 25, 50)
