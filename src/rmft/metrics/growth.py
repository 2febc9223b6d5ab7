"""How regret grows: the two regressions of Sec. `ssec:regret` (Park et al., 2024, Section 3)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from rmft.metrics.comparison import NOISE, sd_of_numbers

SQUARE_ROOT = 0.5  # the exponent of regret that is noise alone


@dataclass(frozen=True)
class Growth:
    """Fits to a curve Regret(1..T).

    exponent, exponent_p: β̂ of log Regret(t) = α + β log t, the text's definition, and its two-sided p-value.
    dropped: how many rounds without regret (at most NOISE, as sums of rewards leave it) the fit leaves out.
    slope, slope_p: of Regret(t) = α + β t, which is what the paper's Section 4 tables report as β̂.
    """

    exponent: float
    exponent_p: float
    dropped: int
    slope: float
    slope_p: float


def growth(curve: np.ndarray, floor: float | None = None) -> Growth:
    """Fit both regressions to a regret curve (T,). # ASSUME: the paper's β̂ is of the mean curve, not of each game.

    floor: the value to which smaller ones are raised; without it the log-log fit drops those that are no regret. A fit
    to fewer than three rounds is NaN, because it has no p-value.
    """
    rounds = np.arange(1, len(curve) + 1)
    values = curve if floor is None else np.maximum(curve, floor)
    positive = values > NOISE
    exponent, exponent_p = _regress(np.log(rounds[positive]), np.log(values[positive]))
    slope, slope_p = _regress(rounds, curve)
    return Growth(exponent, exponent_p, int((~positive).sum()), slope, slope_p)


def resampled_growth(
    regret: np.ndarray, resamples: int, floor: float | None, generator: np.random.Generator
) -> tuple[list[Growth], list[Growth]]:
    """Return fits to bootstrap resamples of regret (S, n, T): to the mean over training seeds, and to one seed.

    Seeds share their instances, so instances are resampled once for all seeds; of S seeds, S - 1 are resampled, which
    makes the variance of their mean unbiased (Rao and Wu, 1988).
    """
    seeds, n, _ = regret.shape
    means, singles = [], []
    for _ in range(resamples):
        instances = generator.integers(n, size=n)
        curves = regret[:, instances].mean(axis=1)[generator.integers(seeds, size=max(seeds - 1, 1))]
        means.append(growth(curves.mean(axis=0), floor))
        singles.append(growth(curves[0], floor))
    return means, singles


def linear_exponent(uniform: float | None) -> float | None:
    """Return the exponent below which regret counts as sublinear. uniform: that of uniform play, if it plays.

    With full information linear regret, too, has an exponent below 1 at any horizon: regret is that against the best of
    d noisy sums, which grows at first like √t. The bound is uniform play's exponent then. Where that is below 1/2, as
    under rewards that alternate, uniform play's own regret is not linear. There is no bound then: None. One action that
    is played all the time, whose regret is linear, has an exponent below 1 there.
    """
    if uniform is None:
        return 1.0
    return min(1.0, uniform) if uniform >= SQUARE_ROOT else None


def exponent_error(fits: Sequence[Growth]) -> float:
    """Return the standard deviation of exponents; see `sd_of_numbers`."""
    return sd_of_numbers(fit.exponent for fit in fits)


def _regress(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    if len(x) < 3:
        return float("nan"), float("nan")
    fit = stats.linregress(x, y)
    return float(fit.slope), float(fit.pvalue)
