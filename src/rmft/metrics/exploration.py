"""Exploration: SuffFailFreq and MinFrac (Krishnamurthy et al., 2024; App. `ssec:metricee`), and entropy of policies.

Symbols: n instances (the paper's replicates), T rounds, d actions. All are returned for each; the paper draws means.
"""

import math

import numpy as np

from rmft.environments.tables import one_hot

LATE = 0.98  # of T: the round for which the paper's tables print SuffFailFreq


def suffix_failure(actions: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return (n, T): at t, whether the best action is never played in rounds t..T.

    actions: (n, T). best: (n, T), the best action of each round, one column repeated where it does not change.
    SuffFailFreq(t) is the mean over instances; it cannot fall with t.
    """
    # ASSUME: where the best action changes, that of each round counts; the paper's definition has one best action.
    hit = actions == best
    return ~np.logical_or.accumulate(hit[:, ::-1], axis=1)[:, ::-1]


def scaled_min_frac(actions: np.ndarray, d: int) -> np.ndarray:
    """Return (n, T): d times the share of the least played action in rounds 1..t, in [0, 1].

    actions: (n, T). d · MinFrac(t) is the mean over instances; it is 1 where all actions are played equally.
    """
    plays = one_hot(actions, d).cumsum(axis=1)
    return d * plays.min(axis=2) / np.arange(1, actions.shape[1] + 1)


def in_round(curves: np.ndarray, share: float) -> np.ndarray:
    """Return the column (…) of curves (…, T) that is for round ⌊share · T⌋, or for the first one where that is 0."""
    return curves[..., max(math.floor(share * curves.shape[-1]) - 1, 0)]


def share_with_error(share: float, n: int) -> tuple[float, float]:
    """Return a share of n games as Agresti and Caffo (2000) estimate it, with its standard error.

    One game more counts as yes, and one more as no: so the error is above 0 where no game counts, or every one.
    """
    estimate = (share * n + 1) / (n + 2)
    return estimate, math.sqrt(estimate * (1 - estimate) / (n + 2))


def explored(actions: np.ndarray, best: np.ndarray, d: int) -> dict[str, float]:
    """Return means over games of actions (n, T). best: (n, T), or (n, 1) where the best action does not change.

    failures: the share of games without the best action in their second half. best: the share of rounds with the best
    action. min_frac: d · MinFrac(T).
    """
    best = np.broadcast_to(best, actions.shape)
    return {
        "failures": float(suffix_failure(actions, best)[:, best.shape[1] // 2].mean()),
        "best": float((actions == best).mean()),
        "min_frac": float(scaled_min_frac(actions, d)[:, -1].mean()),
    }


def relative_entropy(policies: np.ndarray) -> np.ndarray:
    """Return the entropy (…) of policies (…, d) over log d: 1 where uniform, 0 where one action has all weight.

    It shows the high-entropy simplex bias of App. `ssec:distributional-output`.
    """
    from scipy.special import entr

    return entr(policies).sum(axis=-1) / np.log(policies.shape[-1])
