"""The statistics of a player's regret, with their errors by resampling training seeds and instances.

Symbols: S training seeds, n instances, T rounds, B resamples; m, the number of instances in the paper.
"""

import math
from dataclasses import dataclass

import numpy as np

from rmft.metrics.comparison import (
    bootstrap_error,
    error_of_one_run,
    expected_largest,
    paired_difference,
    smallest_sample,
    t_quantile,
)
from rmft.metrics.exploration import LATE, in_round, share_with_error, suffix_failure
from rmft.metrics.growth import growth, growth_of_each
from rmft.metrics.players import PlayerResults
from rmft.tables.layout import Estimation

Statistics = dict[str, float]
Resampled = dict[str, np.ndarray]  # (B,) by statistic
FAILURES = "suff_fail_freq"
MAXIMA = ("max", "max_of_all")  # statistics that have no standard error by resampling


@dataclass(frozen=True)
class RegretStatistics:
    """The statistics of a player's regret on n instances, and the same resampled.

    final: (S, n), the final regrets. The paper's values come from a single training on m instances. For the error
    of such a value, over_instances: resampled on m instances, in the same training seeds; by_seed: the statistics of
    each training seed (S,) on m instances.
    """

    final: np.ndarray
    values: Statistics
    resampled: Resampled
    over_instances: Resampled
    by_seed: Resampled

    @property
    def instances(self) -> int:
        """Return the number of instances."""
        return self.final.shape[1]

    @property
    def runs(self) -> int:
        """Return the number of training seeds."""
        return len(self.final)

    def error(self, statistic: str) -> float:
        """Return the standard error over instances and, if there are several, training seeds; NaN of one instance."""
        return self._spread(statistic, self.resampled[statistic])

    def error_to_paper(self, statistic: str) -> float:
        """Return the standard error of the difference between our value and the paper's, which is one run's."""
        over_instances = self._spread(statistic, self.over_instances[statistic])
        return math.hypot(self.error(statistic), error_of_one_run(over_instances, self.by_seed[statistic]))

    def above(self, other: "RegretStatistics", statistic: str) -> tuple[float, float]:
        """Return this player's statistic less another's on the same instances, and half of its 95% interval.

        Of means, it is the interval of `paired_difference`, which metrics.json has too. Otherwise the degrees of
        freedom are those of the smallest sample: of the instances, or of several training seeds of a player. Where no
        game of one player fails, or every one, its resamples show no error: the shares are compared as if unpaired.
        """
        if statistic == "mean":
            difference = paired_difference(self.final, other.final)
            return difference.mean, difference.margin
        if statistic == FAILURES and (self.fails_always_or_never or other.fails_always_or_never):
            error = math.hypot(self.error(statistic), other.error(statistic))
        else:
            error = self._spread(statistic, self.resampled[statistic] - other.resampled[statistic])
        margin = t_quantile(smallest_sample(self.instances, self.runs, other.runs)) * error
        return self.values[statistic] - other.values[statistic], margin

    @property
    def fails_always_or_never(self) -> bool:
        """Return whether SuffFailFreq is 0 or 1, so that each resample is the same."""
        return self.values.get(FAILURES) in (0, 1)

    def _spread(self, statistic: str, resampled: np.ndarray) -> float:
        """Return the standard error that resampled values (B,) show.

        NaN for one instance, and for maxima, whose bootstrap does not converge (Bickel and Freedman, 1981), unless all
        games are alike. Where no game or every one fails, the same is drawn always, and the error is that of
        `share_with_error`.
        """
        if statistic == FAILURES and self.fails_always_or_never and self.instances > 1:
            return share_with_error(self.values[statistic], self.instances)[1]
        spread = bootstrap_error(resampled, self.instances)
        return math.nan if spread and statistic in MAXIMA else spread


def regret_statistics(
    estimation: Estimation, reward: str, player: str, played: PlayerResults, m: int
) -> list[RegretStatistics]:
    """Return a player's statistics on the first m instances and, if there are more, on all n of them.

    All players share the resampled instances, so that players stay paired. S - 1 of S seeds are drawn, which makes
    the variance of their mean unbiased (Rao and Wu, 1988).
    """
    regret = played.regret
    failed = np.zeros((*regret.shape[:2], 0)) if played.actions is None else late_failures(played)[..., None]
    seeds, n, _ = regret.shape
    m = min(m, n)
    instances = estimation.stream(reward).integers(n, size=(estimation.resamples, n))
    runs = estimation.stream(reward, player).integers(seeds, size=(estimation.resamples, max(seeds - 1, 1)))

    def resample(runs: np.ndarray, size: int) -> Resampled:
        each, curves = [], []
        for run, chosen in zip(runs, instances[:, :size], strict=True):
            games = regret[run][:, chosen]
            each.append(_without_growth(games[:, :, -1], failed[run][:, chosen], m))
            curves.append(games.mean(axis=(0, 1)))
        of_games = {name: np.array([statistics[name] for statistics in each]) for name in each[0]}
        return of_games | vars(growth_of_each(np.array(curves), estimation.floor))

    over_instances = resample(np.broadcast_to(np.arange(seeds), (estimation.resamples, seeds)), m)
    of_seeds = [_statistics(regret[[s], :m], failed[[s], :m], m, estimation.floor) for s in range(seeds)]
    by_seed = {name: np.array([of[name] for of in of_seeds]) for name in of_seeds[0]}
    return [
        RegretStatistics(
            regret[:, :size, -1],
            _statistics(regret[:, :size], failed[:, :size], m, estimation.floor),
            over_instances if (seeds, size) == (1, m) else resample(runs, size),
            over_instances,
            by_seed,
        )
        for size in dict.fromkeys((m, n))
    ]


def late_failures(played: PlayerResults) -> np.ndarray:
    """Return (S, n): whether the player never plays a round's best action from round ⌊0.98 T⌋ on."""
    games = zip(played.actions, played.best_actions, strict=True)
    return np.stack([in_round(suffix_failure(actions, best), LATE) for actions, best in games])


def _statistics(regret: np.ndarray, failed: np.ndarray, m: int, floor: float | None) -> Statistics:
    """Return the statistics of regret (S, n, T) and late failures: (S, n, 1), or (S, n, 0) on the ball.

    max: the mean of the largest final regret of m instances, over all ways to take m of n; max_of_all: the largest of
    n. Both are averages over training seeds.
    """
    fit = growth(regret.mean(axis=(0, 1)), floor)
    growing = {"exponent": fit.exponent, "slope": fit.slope, "dropped": fit.dropped}
    return _without_growth(regret[:, :, -1], failed, m) | growing


def _without_growth(final: np.ndarray, failed: np.ndarray, m: int) -> Statistics:
    """Return the statistics of final regrets (S, n) and of late failures."""
    return {
        "max": float(np.mean([expected_largest(of_seed, m) for of_seed in final])),
        "max_of_all": float(final.max(axis=1).mean()),
        "mean": float(final.mean()),
        **({FAILURES: float(failed.mean())} if failed.size else {}),
    }
