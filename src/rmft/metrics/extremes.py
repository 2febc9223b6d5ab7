"""The expected maximum over instances, which grows with their number."""

import numpy as np


def expected_largest(values: np.ndarray, of: int) -> float:
    """Return the mean, over all ways to take `of` of the values (n,), of the largest one taken."""
    from scipy.special import gammaln

    rank = np.arange(of, len(values) + 1)  # of the largest: it takes `of` - 1 of the rank - 1 values below it
    ways = gammaln(rank) - gammaln(of) - gammaln(rank - of + 1)
    all_ways = gammaln(len(values) + 1) - gammaln(of + 1) - gammaln(len(values) - of + 1)
    return float(np.exp(ways - all_ways) @ np.sort(values)[of - 1 :])
