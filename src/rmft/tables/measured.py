"""The statistics of a player's regret, with their errors by resampling training seeds and instances.

Symbols: S training seeds, n instances, T rounds; m, the instances that the paper has.
"""

import math
from dataclasses import dataclass

import numpy as np

from rmft.metrics.exploration import suffix_failure
from rmft.metrics.extremes import expected_largest
from rmft.metrics.growth import growth
from rmft.results import PlayerResults
from rmft.streams import stream
from rmft.workflow.records import TableJob

Statistics = dict[str, float]
Resampled = dict[str, np.ndarray]
LATE = 0.98  # of T: where the paper's tables take SuffFailFreq


@dataclass(frozen=True)
class Measured:
    """The statistics of a player's first n instances, and the same resampled.

    one_run: resampled as the paper would have them, of a single training run on m instances.
    """

    instances: int
    runs: int
    values: Statistics
    resampled: Resampled
    one_run: Resampled

    def error(self, statistic: str) -> float:
        """Return the standard error over instances and, where there are several, training seeds."""
        return float(np.nanstd(self.resampled[statistic], ddof=1))

    def error_to_paper(self, statistic: str) -> float:
        """Return the standard error of the difference between ours and a value that is as the paper's."""
        share = (self.runs - 1) / self.runs if self.runs > 1 else 1  # of the variance that S - 1 of S seeds show
        return math.hypot(self.error(statistic), float(np.nanstd(self.one_run[statistic], ddof=1)) / math.sqrt(share))

    def above(self, other: "Measured", statistic: str) -> tuple[float, float]:
        """Return by how much this player exceeds another on the same instances, and the error of that."""
        resampled = self.resampled[statistic] - other.resampled[statistic]
        return self.values[statistic] - other.values[statistic], float(np.nanstd(resampled, ddof=1))


def measure(job: TableJob, reward: str, player: str, played: PlayerResults, m: int) -> list[Measured]:
    """Measure a player's games on the first m instances and, if there are more, on all of them.

    All players' instances are resampled alike, so that players stay paired. Of S seeds S - 1 are drawn, which makes
    the variance of their mean unbiased (Rao and Wu, 1988).
    """
    regret = played.regret
    failed = np.zeros((*regret.shape[:2], 0)) if played.actions is None else late_failures(played)[..., None]
    seeds, n, _ = regret.shape
    m, words = min(m, n), (job.label, reward)
    instances = stream(job.seed, "bootstrap", *words).integers(n, size=(job.resamples, n))
    runs = stream(job.seed, "bootstrap", *words, player).integers(seeds, size=(job.resamples, max(seeds - 1, 1)))

    def resample(runs: np.ndarray, size: int) -> Resampled:
        drawn = zip(runs, instances[:, :size], strict=True)
        found = [_statistics(regret[run][:, chosen], failed[run][:, chosen], m, job.floor) for run, chosen in drawn]
        return {name: np.array([statistics[name] for statistics in found]) for name in found[0]}

    one_run = resample(runs[:, :1], m)
    return [
        Measured(
            size,
            seeds,
            _statistics(regret[:, :size], failed[:, :size], m, job.floor),
            one_run if (seeds, size) == (1, m) else resample(runs, size),
            one_run,
        )
        for size in dict.fromkeys((m, n))
    ]


def late_failures(played: PlayerResults) -> np.ndarray:
    """Return (S, n): whether, from round ⌊0.98 T⌋ on, nobody plays what is best in its round."""
    round_of = math.floor(LATE * played.regret.shape[2]) - 1
    games = zip(played.actions, played.best_actions, strict=True)
    return np.stack([suffix_failure(actions, best)[:, max(round_of, 0)] for actions, best in games])


def _statistics(regret: np.ndarray, failed: np.ndarray, m: int, floor: float | None) -> Statistics:
    """Return the statistics of regret (S, n, T) and of late failures (S, n, 1), (S, n, 0) where there are no actions.

    max: the mean of the largest final regret of m instances, over all ways to take m of n; max_of_all: the largest of
    n. Both are those of one training seed, averaged over seeds.
    """
    final, fit = regret[:, :, -1], growth(regret.mean(axis=(0, 1)), floor)
    return {
        "max": float(np.mean([expected_largest(of_seed, m) for of_seed in final])),
        "max_of_all": float(final.max(axis=1).mean()),
        "mean": float(final.mean()),
        "exponent": fit.exponent,
        "slope": fit.slope,
        "dropped": fit.dropped,
        **({"suff_fail_freq": float(failed.mean())} if failed.size else {}),
    }
