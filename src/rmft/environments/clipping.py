"""The known reward range, and the true means of processes whose draws are clipped to it.

The *nominal* mean is that of the distribution before clipping. The two differ: a Gamma mean αθ reaches 20 while no
draw exceeds 10. `evaluation.mean` says which of them regret uses.
"""

import math

import numpy as np

LOW, HIGH = 0.0, 10.0  # App. `reward_dist`: R_t ∈ [0, 10]^d
MIXTURE_VARIANCES = np.array([1.0, 3.0, 10.0])  # of the Gaussian process, weight 1/3 each


def gaussian_mixture_mean(means: np.ndarray, variances: np.ndarray = MIXTURE_VARIANCES) -> np.ndarray:
    """Return E[clip(X, 0, 10)] for X from the equal mixture of N(mean, v) over the variances v.

    means: any shape. With z = (bound - μ)/σ, the integral of Φ between the bounds is σ[zΦ(z) + φ(z)].
    """
    from scipy.special import ndtr  # slow to import

    def integral_of_cdf(z: np.ndarray) -> np.ndarray:
        return z * ndtr(z) + np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

    def clipped(sigma: float) -> np.ndarray:
        below = integral_of_cdf((HIGH - means) / sigma) - integral_of_cdf((LOW - means) / sigma)
        return HIGH - sigma * below  # E[clip(X)] = HIGH - ∫ P(X ≤ x) dx over [LOW, HIGH]

    return sum(clipped(sigma) for sigma in np.sqrt(variances)) / len(variances)


def gamma_mean(shape: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return E[min(X, 10)] for X ~ Gamma(shape, scale), arrays of one shape.

    It is αθ P(α + 1, 10/θ) + 10 (1 - P(α, 10/θ)).
    """
    from scipy.special import gammainc  # slow to import

    bound = HIGH / scale
    return shape * scale * gammainc(shape + 1, bound) + HIGH * (1 - gammainc(shape, bound))
