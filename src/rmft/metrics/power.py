"""How many instances a comparison needs: the power of the one-sided t-test, paired or of two samples.

Symbols: n instances, R replicates of each, S training runs; y_ir, the final regret of a player in replicate r of
instance i.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

ALPHA = 0.01  # the test's level
POWER = 0.9  # how likely it is to see the difference
MOST = 10**7  # instances that anyone would play
MOST_REPLICATES = 100


def power(n: int, effect: float, alpha: float = ALPHA, *, paired: bool = True) -> float:
    """Return how likely the test on n pairs sees a mean difference of `effect` standard deviations of differences.

    Under such a difference t has the noncentral t distribution with n - 1 degrees of freedom and noncentrality
    effect · √n; the test says yes where t exceeds the 1 - alpha quantile of the central one. Of two independent samples
    of n, and effects in their common standard deviation, it is 2n - 2 and effect · √(n/2).
    """
    from scipy import stats

    freedom, noncentrality = (n - 1, effect * math.sqrt(n)) if paired else (2 * n - 2, effect * math.sqrt(n / 2))
    return float(stats.nct.sf(stats.t.isf(alpha, freedom), freedom, noncentrality))


def instances_needed(effect: float, alpha: float = ALPHA, wanted: float = POWER, *, paired: bool = True) -> int | None:
    """Return the fewest instances with which the test sees `effect` with the wanted power: None where none suffice."""
    if not 0 < effect < math.inf:
        return None
    too_few, enough = 1, 2
    while power(enough, effect, alpha, paired=paired) < wanted:
        too_few, enough = enough, 2 * enough
        if enough > MOST:
            return None
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        suffices = power(middle, effect, alpha, paired=paired) >= wanted
        too_few, enough = (too_few, middle) if suffices else (middle, enough)
    return enough


def replicates_needed(
    fall: float, sd: Callable[[int], float], instances: int, alpha: float = ALPHA, wanted: float = POWER
) -> int | None:
    """Return the fewest replicates of each of n instances with which the paired test sees a fall of mean regret.

    sd: of differences of means over so many replicates, over instances. None: where MOST_REPLICATES do not suffice.
    """
    if fall <= 0 or sd(1) <= 0:
        return None
    enough = (each for each in range(1, MOST_REPLICATES + 1) if power(instances, fall / sd(each), alpha) >= wanted)
    return next(enough, None)


@dataclass(frozen=True)
class Spread:
    """What makes final regrets differ: y_ir = mean + instance_i + replicate_ir.

    mean: over instances and replicates. setting_sd: the mean over instances of the standard deviation over replicates,
    as the paper reports it. replicate_sd: the same as the root of the mean variance, which adds up. task_sd: over
    instances, of single games, as the paper's tables have it: what differs between replicates is in it too.
    """

    mean: float
    setting_sd: float
    replicate_sd: float
    task_sd: float

    @property
    def setting_over_task(self) -> float:
        """Return the mean sd over replicates as a share of that over tasks: NaN where all tasks are alike."""
        return self.setting_sd / self.task_sd if self.task_sd > 0 else math.nan

    @property
    def between_sd(self) -> float:
        """Return the sd over instances of instance_i, which replicates leave as it is."""
        return math.sqrt(max(self.task_sd**2 - self.replicate_sd**2, 0.0))

    @property
    def replicate_above_between(self) -> float:
        """Return by how much replicates differ more than tasks do, below 0 where they are closer together.

        setting_over_task cannot tell: task_sd has the replicates' in it, so that it is below 1 were all tasks alike.
        """
        return self.replicate_sd - self.between_sd


def spread(final: np.ndarray) -> Spread:
    """Return the parts of final regrets (R, n), R ≥ 2."""
    over_replicates = final.std(axis=0, ddof=1)
    task = math.sqrt(float(final.var(axis=1, ddof=1).mean()))
    within = math.sqrt(float((over_replicates**2).mean()))
    return Spread(float(final.mean()), float(over_replicates.mean()), within, task)


def paired_sd(base: np.ndarray, trained: np.ndarray, replicates: int) -> float:
    """Return the sd over instances of the difference of means over so many replicates, from (R, n) of each player.

    Var = τ² + σ² / replicates, σ² that of base_r - trained_r over replicates, which share their random numbers:
    replicates wear down the noise of sampling and training, and leave τ², by which the gain differs between instances.
    τ² is what the R replicates at hand leave, 0 if that is below.
    """
    noise = float((base - trained).var(axis=0, ddof=1).mean())
    observed = float((base.mean(axis=0) - trained.mean(axis=0)).var(ddof=1))
    return math.sqrt(max(observed - noise / len(base), 0.0) + noise / replicates)
