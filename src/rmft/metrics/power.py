"""How many instances a paired comparison needs: the power of the one-sided paired t-test."""

import math

ALPHA = 0.01  # the test's level
POWER = 0.9  # how likely it is to see the difference
MOST = 10**7  # instances that anyone would play


def power(n: int, effect: float, alpha: float = ALPHA) -> float:
    """Return how likely the test on n pairs sees a mean difference of `effect` standard deviations of differences.

    Under such a difference t has the noncentral t distribution with n - 1 degrees of freedom and noncentrality
    effect · √n; the test says yes where t exceeds the 1 - alpha quantile of the central one.
    """
    from scipy import stats

    freedom, noncentrality = n - 1, effect * math.sqrt(n)
    return float(stats.nct.sf(stats.t.isf(alpha, freedom), freedom, noncentrality))


def instances_needed(effect: float, alpha: float = ALPHA, wanted: float = POWER) -> int | None:
    """Return the fewest pairs with which the test sees `effect` with the wanted power: None where none suffice."""
    if not 0 < effect < math.inf:
        return None
    too_few, enough = 1, 2
    while power(enough, effect, alpha) < wanted:
        too_few, enough = enough, 2 * enough
        if enough > MOST:
            return None
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if power(middle, effect, alpha) >= wanted else (middle, enough)
    return enough
