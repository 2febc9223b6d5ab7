"""A confidence sequence: intervals of a mean that hold all together, so that one may look, and stop, at any time."""

import numpy as np

from rmft.metrics.comparison import LEVEL

MEANS = 1000  # equally wide parts of the range, of which each is kept or refuted as a whole
LARGEST_BET = 0.75  # share of the capital that a bet may lose


def confidence_sequence(values: np.ndarray, low: float, high: float, level: float = LEVEL) -> np.ndarray:
    """Return for each number of values so far the interval (n, 2) of their mean.

    level: the largest probability that any of the intervals misses the mean. values: (n,), in their order; those
    outside of [low, high] count as its ends. Intervals only shrink, unless no mean is left: then they are [low, high].

    The hedged capital process of Waudby-Smith & Ramdas, Estimating means of bounded random variables by betting (J. R.
    Statist. Soc. B 86, 2024), Theorem 3, with their predictable plug-in bets. For every possible mean there are two
    capitals of 1: one is bet on larger values, the other on smaller ones. Where the mean is true, each of them ever
    reaches 2 / level with a probability of at most level / 2 (Ville's inequality). The interval holds those means
    against which neither capital has reached it.
    """
    x = (np.clip(values, low, high) - low) / (high - low)
    t = np.arange(1, len(x) + 1)
    mean = (0.5 + x.cumsum()) / (t + 1)
    variance = np.concatenate([[0.25], (0.25 + ((x - mean) ** 2).cumsum()) / (t + 1)])[:-1]  # before each value
    bet = np.sqrt(2 * np.log(2 / level) / (variance * t * np.log(t + 1)))[:, None]
    edges = np.linspace(0.0, 1.0, MEANS + 1)
    below, above = edges[:-1], edges[1:]
    # Of the means in [below, above], bets on larger values win least against the last, others against the first.
    larger = _largest_so_far(np.minimum(bet, LARGEST_BET / above) * (x[:, None] - above))
    smaller = _largest_so_far(np.minimum(bet, LARGEST_BET / (1 - below)) * (below - x[:, None]))
    kept = np.maximum(larger, smaller) < np.log(2 / level)
    first, last = kept.argmax(axis=1), MEANS - 1 - kept[:, ::-1].argmax(axis=1)
    return low + (high - low) * np.stack([below[first], above[last]], axis=1)


def _largest_so_far(gains: np.ndarray) -> np.ndarray:
    """Return the logarithm of the largest capital up to each value. gains: shares of the capital, by value and mean."""
    return np.maximum.accumulate(np.log1p(gains).cumsum(axis=0), axis=0)
