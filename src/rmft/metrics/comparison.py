"""Is one sample of final regrets lower than another? The paper's KS test, and ours on common instances."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rmft.errors import InputError

LEVEL = 0.05  # of tests
NOISE = 1e-6  # error of sums of rewards: a smaller difference of regrets is none


def t_quantile(n: int) -> float:
    """Return the factor of a standard error in a 95% interval of the mean of n values; NaN for one value."""
    from scipy import stats

    return float(stats.t.ppf(1 - LEVEL / 2, n - 1)) if n > 1 else math.nan


def smallest_sample(instances: int, *training_seeds: int) -> int:
    """Return the n whose `t_quantile` an error has that is over instances and, of several trainings, over these.

    training_seeds: how many trainings each player has that is compared.
    """
    return min([instances, *(of for of in training_seeds if of > 1)])


def ks_p(trained: np.ndarray, base: np.ndarray) -> float:
    """Return the p-value of the one-sided two-sample KS test of App. `appendix:ssec:ks_explanation`.

    trained, base: final regrets, (n,) and (m,). A small p-value says that the distribution function of `trained` lies
    above that of `base` (scipy's "greater"), that is, that its regret is lower.
    """
    from scipy import stats

    return float(stats.ks_2samp(trained, base, alternative="greater").pvalue)


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean of values (n,); NaN for one value."""
    return math.nan if len(values) < 2 else float(values.std(ddof=1) / math.sqrt(len(values)))


def error_of_mean(final: np.ndarray) -> float:
    """Return the standard error of the mean of final regrets (S, n), over instances and, if S > 1, training seeds."""
    return math.hypot(standard_error(final.mean(axis=0)), standard_error(final.mean(axis=1)) if len(final) > 1 else 0.0)


def sd_of_numbers(values: Iterable[float]) -> float:
    """Return the standard deviation of the values that are not NaN; NaN where fewer than two are left."""
    numbers = [value for value in values if not math.isnan(value)]
    return float(np.std(numbers, ddof=1)) if len(numbers) > 1 else math.nan


def sd_of_games(final: np.ndarray) -> float:
    """Return the standard deviation of single games: over instances, of final regrets (S, n), whatever the training."""
    return math.sqrt(float(np.mean([sd_of_numbers(of_seed) ** 2 for of_seed in final])))


def bootstrap_error(resampled: Iterable[float], n: int) -> float:
    """Return the standard error that values of resamples of n instances show; NaN of one instance, which shows none.

    Like the error of a mean it has n - 1 for n. Values that are NaN are left out.
    """
    return sd_of_numbers(resampled) * math.sqrt(n / (n - 1)) if n > 1 else math.nan


def error_of_one_run(over_instances: float, by_seed: Sequence[float]) -> float:
    """Return the standard error of a single training's statistic, from S of ours: over instances and trainings.

    over_instances: its standard error with the same trainings. by_seed: (S,), the statistic of each training.
    """
    return math.hypot(over_instances, sd_of_numbers(by_seed) if len(by_seed) > 1 else 0.0)


def below_zero(interval: Sequence[float | None]) -> bool | None:
    """Return whether the whole interval (low, mean, high) is below 0 (True) or above it (False); None for neither."""
    low, _, high = interval
    if low is None or high is None or max(abs(low), abs(high)) < NOISE:
        return None
    return True if high < 0 else (False if low > 0 else None)


@dataclass(frozen=True)
class PairedDifference:
    """trained - base on common instances: mean, 95% interval, one-sided p-value for a mean below 0, standard error."""

    mean: float
    low: float
    high: float
    p: float
    error: float

    @property
    def interval(self) -> tuple[float, float, float]:
        """Return low, mean, high."""
        return self.low, self.mean, self.high

    @property
    def margin(self) -> float:
        """Return half of the interval."""
        return self.high - self.mean


def paired_difference(trained: np.ndarray, base: np.ndarray) -> PairedDifference:
    """Compare final regrets of two players on the same n instances (ours; the paper's test is unpaired).

    trained, base: (S, n), of S training seeds, or (n,) of one. Student's t. Between single trainings instances are the
    sample, and the interval holds for these trainings. Otherwise trainings and instances are both samples: the
    variances of both add up, with Satterthwaite's degrees of freedom. Where both players have as many training seeds,
    the same seed of both is a pair: a numeric agent is trained from the base model of its seed. Raise InputError where
    the players have not played equally many instances.
    """
    from scipy import stats

    trained, base = np.atleast_2d(trained), np.atleast_2d(base)
    if trained.shape[1:] != base.shape[1:]:
        counts = f"{trained.shape[1]} and {base.shape[1]}"
        raise InputError(f"regrets of {counts} instances cannot be paired; both players must play the same")
    difference = trained.mean(axis=0) - base.mean(axis=0)
    if len(difference) < 2:  # one instance says nothing about others, however often a model is trained
        return PairedDifference(float(difference.mean()), *[math.nan] * 4)
    paired = len(trained) == len(base)
    by_training = [(trained - base).mean(axis=1)] if paired else [trained.mean(axis=1), base.mean(axis=1)]
    samples = [means for means in (*by_training, difference) if len(means) > 1]
    mean, parts = float(difference.mean()), [values.var(ddof=1) / len(values) for values in samples]
    if (variance := sum(parts)) < 1e-18:  # equal differences are a sample of one, which says nothing about others
        end = mean if abs(mean) < NOISE else math.nan
        return PairedDifference(mean, end, end, math.nan, 0.0)
    freedom = variance**2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, samples, strict=True))
    error = float(variance**0.5)
    low, high = map(float, stats.t(freedom, mean, error).interval(1 - LEVEL))
    return PairedDifference(mean, low, high, float(stats.t.cdf(mean / error, freedom)), error)


def two_sided(p: float) -> float:
    """Return the p-value of any difference, from that of a difference in one direction."""
    return 2 * min(p, 1 - p)


def paired_p(trained: np.ndarray, base: np.ndarray) -> float:
    """Return the one-sided p-value of the paired t-test on final regrets (n,); NaN where all differences are equal."""
    return paired_difference(trained, base).p


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm for how many there are."""
    order = np.argsort(p_values)
    steps = np.asarray(p_values)[order] * (len(order) - np.arange(len(order)))
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected.tolist()


def two_sided_by_holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return two-sided p-values, corrected by Holm, from one-sided ones; None where there is no test.

    They are two-sided as the 95% intervals are, so that the correction makes no evaluation significant.
    """
    known = iter(holm([two_sided(p) for p in p_values if p is not None]))
    return [None if p is None else next(known) for p in p_values]


def expected_largest(values: np.ndarray, of: int) -> float:
    """Return the mean, over all ways to take `of` of the values (n,), of the largest one taken.

    The largest of all values grows with their number; this does not.
    """
    from scipy.special import gammaln

    rank = np.arange(of, len(values) + 1)  # of the largest: it takes `of` - 1 of the rank - 1 values below it
    ways = gammaln(rank) - gammaln(of) - gammaln(rank - of + 1)
    all_ways = gammaln(len(values) + 1) - gammaln(of + 1) - gammaln(len(values) - of + 1)
    return float(np.exp(ways - all_ways) @ np.sort(values)[of - 1 :])
