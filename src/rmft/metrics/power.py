"""How many instances a comparison needs: the power of the one-sided t-test, paired or of two samples.

Symbols: n instances, R replicates of each, S trainings; y_ir, the final regret of a player in replicate r of
instance i.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rmft.metrics.comparison import sd_of_games

ALPHA = 0.01  # the test's level
POWER = 0.9  # the probability of detecting the difference
MOST = 10**7  # instances, at most
MOST_REPLICATES = 100


def power(n: int, effect: float, alpha: float = ALPHA, *, paired: bool = True) -> float:
    """Return the power of the test on n pairs for a mean difference of `effect` standard deviations of differences.

    Under that difference t has the noncentral t distribution with n - 1 degrees of freedom and noncentrality
    effect · √n; the test rejects where t exceeds the 1 - alpha quantile of the central distribution. For two
    independent samples of n, with effects in their common standard deviation, these are 2n - 2 and effect · √(n/2).
    """
    from scipy import stats

    freedom, noncentrality = (n - 1, effect * math.sqrt(n)) if paired else (2 * n - 2, effect * math.sqrt(n / 2))
    return float(stats.nct.sf(stats.t.isf(alpha, freedom), freedom, noncentrality))


def instances_needed(effect: float, alpha: float = ALPHA, wanted: float = POWER, *, paired: bool = True) -> int | None:
    """Return the fewest instances with which the test has the wanted power; None where MOST do not suffice."""
    if not 0 < effect < math.inf:
        return None
    too_few, enough = 1, 2
    while power(enough, effect, alpha, paired=paired) < wanted:
        if enough == MOST:
            return None
        too_few, enough = enough, min(2 * enough, MOST)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        suffices = power(middle, effect, alpha, paired=paired) >= wanted
        too_few, enough = (too_few, middle) if suffices else (middle, enough)
    return enough


def mean_sd_of_normal(n: int) -> float:
    """Return the mean standard deviation of n normal values as a share of the true one (c₄): .89 for three."""
    return math.sqrt(2 / (n - 1)) * math.exp(math.lgamma(n / 2) - math.lgamma((n - 1) / 2))


def replicates_needed(
    fall: float, sd: Callable[[int], float], instances: int, alpha: float = ALPHA, wanted: float = POWER
) -> int | None:
    """Return the fewest replicates of each instance with which the paired test detects a fall of mean regret.

    sd: returns, for a number of replicates, the sd over instances of differences of means over the replicates.
    Return None where MOST_REPLICATES do not suffice.
    """
    if fall <= 0 or sd(1) <= 0:
        return None
    enough = (each for each in range(1, MOST_REPLICATES + 1) if power(instances, fall / sd(each), alpha) >= wanted)
    return next(enough, None)


@dataclass(frozen=True)
class RegretSpread:
    """The parts of the variance of final regrets y_ir = mean + instance_i + replicate_r + game_ir.

    mean: over instances and replicates. setting_sd: the mean over instances of the standard deviation over replicates,
    as the paper reports it. replicate_sd: the root of the mean variance over replicates. game_sd: the same without
    replicate_r, by which a training differs on all instances. task_sd: the standard deviation over instances of
    single games, as in the paper's tables; it includes that of games.
    """

    mean: float
    setting_sd: float
    replicate_sd: float
    game_sd: float
    task_sd: float

    @property
    def setting_over_task(self) -> float:
        """Return the mean sd over replicates as a share of that over tasks: NaN where all tasks are equal."""
        return self.setting_sd / self.task_sd if self.task_sd > 0 else math.nan

    @property
    def between_sd(self) -> float:
        """Return the sd over instances of instance_i alone."""
        return math.sqrt(max(self.task_sd**2 - self.game_sd**2, 0.0))

    @property
    def replicate_above_between(self) -> float:
        """Return replicate_sd minus between_sd: negative where replicates differ less than tasks do.

        setting_over_task does not show this: task_sd includes the replicates' variance, so that the ratio stays below 1
        even where all tasks are equal.
        """
        return self.replicate_sd - self.between_sd


def spread(final: np.ndarray) -> RegretSpread:
    """Return the parts of the variance of final regrets (R, n), R ≥ 2."""
    over_replicates = final.std(axis=0, ddof=1)
    within = math.sqrt(float((over_replicates**2).mean()))
    return RegretSpread(
        float(final.mean()), float(over_replicates.mean()), within, math.sqrt(_game_variance(final)), sd_of_games(final)
    )


def paired_sd(base: np.ndarray, trained: np.ndarray, replicates: int) -> float:
    """Return the sd over instances of differences of means over `replicates`, from regrets (R, n) of each player.

    Var = τ² + σ² / replicates. σ²: the variance of base_ir - trained_ir, which share random numbers, over replicates,
    without what all instances of a replicate share; more replicates average out this noise. τ²: the variance of the
    gain between instances, estimated as the observed variance minus σ² / R, and at least 0.
    """
    differences = base - trained
    noise, observed = _game_variance(differences), float(differences.mean(axis=0).var(ddof=1))
    return math.sqrt(max(observed - noise / len(base), 0.0) + noise / replicates)


def _game_variance(values: np.ndarray) -> float:
    """Return the residual mean square of values (R, n) after their means over instances and over replicates."""
    n = values.shape[1]
    own = values - values.mean(axis=1, keepdims=True)
    return float(own.var(axis=0, ddof=1).mean()) * n / (n - 1) if n > 1 else math.nan
