"""How two judges of the same cases agree."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """n: cases that both have judged. equal: the share of equal answers. kappa: Cohen's, NaN where it is undefined."""

    n: int
    equal: float
    kappa: float


def agreement(ours: np.ndarray, theirs: np.ndarray) -> Agreement:
    """Return how two judges' answers (n,), boolean, agree: Cohen's kappa is 1 where they always do, 0 as by chance."""
    n = len(ours)
    if not n:
        return Agreement(0, float("nan"), float("nan"))
    equal = float(np.mean(ours == theirs))
    by_chance = ours.mean() * theirs.mean() + (1 - ours.mean()) * (1 - theirs.mean())
    return Agreement(n, equal, float((equal - by_chance) / (1 - by_chance)) if by_chance < 1 else float("nan"))
