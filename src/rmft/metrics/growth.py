"""How regret grows: the regression of Sec. `ssec:regret` (Park et al., 2024, Section 3), and that of the tables."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from rmft.metrics.comparison import NOISE, bootstrap_error, error_of_one_run

SQUARE_ROOT = 0.5  # the exponent of regret that is noise alone
FEWEST = 3  # rounds that a fit needs
LESS = 0.05  # ASSUME: an exponent that is nearer than this to that of linear growth shows no slower growth


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


@dataclass(frozen=True)
class Growths:
    """What `Growth` holds, of B curves: arrays (B,). The p-values are left out."""

    exponent: np.ndarray
    dropped: np.ndarray
    slope: np.ndarray


@dataclass(frozen=True)
class GrowthErrors:
    """Standard errors of what `growth` fits to a mean curve. NaN of one instance.

    exponent, slope: over instances and, if there are several, training seeds. slope_of_one_run: of the slope of a
    single training on as many instances.
    """

    exponent: float
    slope: float
    slope_of_one_run: float


def growth(curve: np.ndarray, floor: float | None = None) -> Growth:
    """Fit both regressions to a regret curve (T,). # ASSUME: the paper's β̂ is of the mean curve, not of each game.

    floor: the value to which smaller ones are raised. # ASSUME: without a floor the log-log fit drops rounds whose mean
    regret is not positive, and so has no logarithm. A fit to fewer than three rounds is NaN: it has no p-value.
    """
    rounds = np.arange(1, len(curve) + 1)
    values = curve if floor is None else np.maximum(curve, floor)
    positive = values > NOISE
    exponent, exponent_p = _regress(np.log(rounds[positive]), np.log(values[positive]))
    slope, slope_p = _regress(rounds, curve)
    return Growth(exponent, exponent_p, int((~positive).sum()), slope, slope_p)


def growth_of_each(curves: np.ndarray, floor: float | None = None) -> Growths:
    """Fit both regressions to each of many regret curves (B, T) at once, as `growth` fits them to one."""
    rounds = np.broadcast_to(np.arange(1, curves.shape[1] + 1), curves.shape)
    values = curves if floor is None else np.maximum(curves, floor)
    positive = values > NOISE
    logarithms = np.log(values, out=np.zeros_like(values), where=positive)
    exponent = _slopes(np.log(rounds), logarithms, positive)
    return Growths(exponent, (~positive).sum(axis=1), _slopes(rounds, curves, np.ones_like(positive)))


def growth_errors(
    regret: np.ndarray, resamples: int, floor: float | None, generator: np.random.Generator
) -> GrowthErrors:
    """Return the errors of the growth of regret (S, n, T), from bootstrap resamples.

    Seeds share their instances, so instances are resampled once for all seeds; of S seeds, S - 1 are resampled, which
    makes the variance of their mean unbiased (Rao and Wu, 1988).
    """
    seeds, n, _ = regret.shape
    shares, runs = np.empty((resamples, n)), np.empty((resamples, max(seeds - 1, 1)), dtype=int)
    for one in range(resamples):
        shares[one] = np.bincount(generator.integers(n, size=n), minlength=n) / n
        runs[one] = generator.integers(seeds, size=runs.shape[1])
    curves = shares @ regret  # (S, B, T)
    fits = growth_of_each(curves[runs, np.arange(resamples)[:, None]].mean(axis=1), floor)
    over_instances = bootstrap_error(growth_of_each(curves.mean(axis=0), floor).slope, n)
    of_one_run = error_of_one_run(over_instances, growth_of_each(regret.mean(axis=1), floor).slope)
    return GrowthErrors(bootstrap_error(fits.exponent, n), bootstrap_error(fits.slope, n), of_one_run)


def linear_exponent(uniform: float | None) -> float | None:
    """Return the exponent below which regret counts as sublinear. uniform: that of uniform play, if it plays.

    With full information linear regret, too, has an exponent below 1 at any horizon: regret is that against the best of
    d noisy sums, which grows at first like √t. The bound is uniform play's exponent then. Where that is below 1/2, as
    under rewards that alternate, uniform play's own regret is not linear. There is no bound then: None. FTL, whose
    regret is linear, has an exponent below 1 there.
    """
    if uniform is None:
        return 1.0
    return min(1.0, uniform) if uniform >= SQUARE_ROOT else None


def is_sublinear(exponent: float, margin: float, linear: float | None) -> bool | None:
    """Return whether an exponent lies significantly below that of linear growth, by LESS at least; False: above 1.

    margin: half of its 95% interval. linear: see `linear_exponent`. None where neither is significant: many rounds and
    games tell 0.99 from 1, too, and a player of that exponent learns nothing.
    """
    if linear is not None and exponent + margin < linear - LESS:
        return True
    return False if exponent - margin > 1 else None


def _regress(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    if len(x) < FEWEST:
        return float("nan"), float("nan")
    fit = stats.linregress(x, y)
    return float(fit.slope), float(fit.pvalue)


def _slopes(x: np.ndarray, y: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return the least-squares slope of each row of y on x, (B,), over the points that are kept; NaN of too few."""
    count = kept.sum(axis=1, keepdims=True)
    weights = kept / np.maximum(count, 1)
    dx, dy = (values - (weights * values).sum(axis=1, keepdims=True) for values in (x, y))
    products, squares = (weights * dx * dy).sum(axis=1), (weights * dx**2).sum(axis=1)
    return np.divide(products, squares, out=np.full(len(kept), np.nan), where=count[:, 0] >= FEWEST)
