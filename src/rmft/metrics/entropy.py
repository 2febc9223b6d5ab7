"""Entropy of policies: the high-entropy simplex bias of App. `ssec:distributional-output`."""

import numpy as np


def relative_entropy(policies: np.ndarray) -> np.ndarray:
    """Return the entropy (…) of policies (…, d) over log d: 1 where uniform, 0 where one action has all weight."""
    from scipy.special import entr

    return entr(policies).sum(axis=-1) / np.log(policies.shape[-1])
