"""What a machine reaches: floating-point operations and bytes read per second."""

import time
from collections.abc import Callable

import numpy as np
import torch


def reached(square: torch.Tensor, many: torch.Tensor, clock: Callable[[], float]) -> tuple[float, float]:
    """Return floating-point operations and bytes read per second in a matrix product and a sum, where they are."""

    def done(result: torch.Tensor) -> None:
        if result.is_cuda:
            torch.cuda.synchronize(result.device)

    flops = 2 * len(square) ** 3 / usual(lambda: done(square @ square), clock=clock)
    return flops, many.nbytes / usual(lambda: done(many.sum()), clock=clock)


def usual(action: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.process_time) -> float:
    """Return the median time of several repetitions, in seconds."""
    seconds = []
    for _ in range(repeats):
        start = clock()
        action()
        seconds.append(clock() - start)
    return float(np.median(seconds))
