"""Muon, the optimiser of the embedded model's matrices, in float32.

`torch.optim.Muon` computes its updates in bfloat16. A CPU without instructions for that type takes 20 times as long.
"""

import math
from collections.abc import Iterable

import torch

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of Newton and Schulz's iteration, as in Keller Jordan's Muon
ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Momentum whose updates have singular values of about one, scaled to the size of AdamW's updates.

    Equal to `torch.optim.Muon` with adjust_lr_fn="match_rms_adamw", but for its rounding.
    """

    def __init__(self, matrices: Iterable[torch.Tensor], weight_decay: float, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": 0.0, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:
        """Change every matrix that has a gradient."""
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._change(matrix, group)

    def _change(self, matrix: torch.Tensor, group: dict[str, float]) -> None:
        state = self.state[matrix]
        if not state:
            state["mean"] = torch.zeros_like(matrix)
        mean = state["mean"]  # of gradients
        mean.lerp_(matrix.grad, 1 - group["momentum"])
        update = orthogonal(matrix.grad.lerp(mean, group["momentum"]))  # Nesterov's momentum
        matrix.mul_(1 - group["lr"] * group["weight_decay"])
        matrix.add_(update, alpha=-group["lr"] * 0.2 * math.sqrt(max(matrix.shape)))


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Return a matrix of the same singular vectors, whose singular values are about one (.5 to 1.5)."""
    a, b, c = COEFFICIENTS
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    wide = wide / wide.norm().clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide if matrix.shape[0] <= matrix.shape[1] else wide.T
