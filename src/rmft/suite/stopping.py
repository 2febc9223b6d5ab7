"""`--stop-when decided`: when a part of a measurement has been played often enough.

It is decided when the anytime-valid intervals of all differences of regret leave out 0: that to uniform play and, where
the measurement is compared with another one, that to the other model, as long as the other one has games. Symbols: n
instances, T rounds, d actions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rmft.environments import ENVIRONMENTS, draw_rewards
from rmft.metrics.comparison import LEVEL, below_zero
from rmft.metrics.sequential import confidence_sequence
from rmft.suite.parts import Suite

UNIFORM, COMPARED = "uniform", "compared"
BLOCK = 16  # games that are played between two looks
DRAWN = 4000  # instances of their own that tell how far two regrets can differ


@dataclass(frozen=True)
class StoppingRule:
    """When a part of the suite is decided. compared: final regrets of the other model, or None."""

    suite: Suite
    part: str
    compared: Sequence[float] | None = None

    def intervals(self, ours: np.ndarray, uniform: np.ndarray) -> dict[str, list[float]]:
        """Return the anytime-valid interval of each difference: low, mean, high.

        ours, uniform: final regrets (n,) of the model and of uniform play, in the order of the instances.
        """
        pairs = {UNIFORM: (ours, uniform)}
        if self.compared is not None:
            n = min(len(ours), len(self.compared))
            pairs[COMPARED] = (ours[:n], np.array(self.compared[:n]))
        ranges = self.ranges
        return {name: anytime_interval(first - second, *ranges[name]) for name, (first, second) in pairs.items()}

    def decided(self, intervals: Mapping[str, list[float]], played: int) -> bool:
        """Return whether all intervals (low, mean, high) leave out 0 that more games could change. played: games."""
        open_ = [name for name in intervals if name != COMPARED or played < len(self.compared)]
        return all(below_zero(intervals[name]) is not None for name in open_)

    @cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Return between which values each difference lies; see `ranges_of`."""
        return ranges_of(self.suite, self.part)


def ranges_of(suite: Suite, part: str) -> dict[str, tuple[float, float]]:
    """Return between which values each difference of a part lies, as instances show that no one plays.

    No player earns more than with the best action of every round, or less than with the worst. Of the instances that
    are played, about one in DRAWN allows more; a difference beyond these values counts as the nearer of them.
    """
    of = suite.parts[part]
    drawn = draw_rewards(suite.seed, f"{suite.stream(part)}/range", of.process, (DRAWN, of.T, of.d))
    values = drawn.rewards if ENVIRONMENTS[of.environment].comparator == "hindsight" else drawn.means
    best, mean, worst = (each.sum(axis=1) for each in (values.max(2), values.mean(2), values.min(2)))
    widest = float((best - worst).max())
    return {
        UNIFORM: (float((mean - best).min()), float((mean - worst).max())),
        COMPARED: (-widest, widest),
    }


def anytime_interval(differences: np.ndarray, least: float, most: float, level: float = LEVEL) -> list[float]:
    """Return low, mean and high of an interval that holds whenever one stops, but for a chance of `level`."""
    low, high = confidence_sequence(differences, least, most, level)[-1]
    return [float(low), float(differences.mean()), float(high)]
