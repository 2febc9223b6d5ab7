"""Actions sampled from policies by given random numbers."""

import numpy as np


def sample_actions(policies: np.ndarray, uniforms: np.ndarray | float) -> np.ndarray:
    """Return actions (n,) from policies (n, d) by inverting their distribution functions at uniforms (n,)."""
    below = np.zeros(len(policies))
    actions = np.zeros(len(policies), dtype=np.int64)
    for action in range(policies.shape[1] - 1):  # the last action takes what rounding leaves over
        below += policies[:, action]
        actions += below <= uniforms
    return actions
