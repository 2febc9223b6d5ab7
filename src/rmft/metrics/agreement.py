"""Agreement of two judges on the same cases."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """n: cases that both judged. equal: the share of equal verdicts. kappa: Cohen's kappa, NaN where undefined."""

    n: int
    equal: float
    kappa: float


def agreement(ours: np.ndarray, theirs: np.ndarray) -> Agreement:
    """Return the agreement of two judges' boolean verdicts (n,); kappa is 1 if all are equal, 0 as by chance."""
    n = len(ours)
    if not n:
        return Agreement(0, float("nan"), float("nan"))
    equal = float(np.mean(ours == theirs))
    by_chance = ours.mean() * theirs.mean() + (1 - ours.mean()) * (1 - theirs.mean())
    return Agreement(n, equal, float((equal - by_chance) / (1 - by_chance)) if by_chance < 1 else float("nan"))
