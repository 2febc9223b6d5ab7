"""The results of the players of an evaluation as arrays, and each training seed's model beside its base model.

Symbols: S training seeds, n instances, T rounds, d actions.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rmft.metrics.comparison import ks_p


@dataclass(frozen=True)
class PlayerResults:
    """One player's games in one evaluation.

    regret: (S, n, T), Regret(t) by training seed (S = 1 for reference algorithms), instance and round.
    actions, best_actions: (S, n, T), 0-based, or None on the ball. policies: (S, n, T, d) of games in words, else None.
    invalid: (S, n), replies without a valid decision.
    """

    d: int
    regret: np.ndarray
    actions: np.ndarray | None
    best_actions: np.ndarray | None
    policies: np.ndarray | None
    invalid: np.ndarray

    @property
    def curve(self) -> np.ndarray:
        """Return the mean regret (T,) over training seeds and instances."""
        return self.regret.mean(axis=(0, 1))

    @property
    def by_instance(self) -> np.ndarray:
        """Return the regret (n, T) averaged over training seeds."""
        return self.regret.mean(axis=0)

    @property
    def final(self) -> np.ndarray:
        """Return the final regret (S, n)."""
        return self.regret[:, :, -1]


def ks_by_seed(trained: PlayerResults, base: PlayerResults) -> list[float]:
    """Return the p-value of the Kolmogorov-Smirnov test of each training seed's trained model against its base model.

    NaN where all instances are alike, as under adaptive rewards: n copies of one game are a sample of one.
    """
    pairs = pairs_of_seeds(trained, base)
    return [math.nan if np.ptp(after) < 1e-9 else ks_p(after, before) for after, before in pairs]


def pairs_of_seeds(trained: PlayerResults, base: PlayerResults) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the final regrets (n,) of each training seed's trained model and of its base model.

    The base model of language models has played once, or once for each training seed.
    """
    return zip(trained.final, np.broadcast_to(base.final, trained.final.shape), strict=True)
