"""Algorithms that observe contexts: LinUCB with disjoint linear models (Li et al., 2010, Algorithm 1).

Symbols: n instances, d actions, p features of a context, α width of the confidence bound. Rewards are in [0, 1].
"""

import numpy as np

from rmft.algorithms.players import one_hot_of_best
from rmft.environments.tables import zeros


class LinUCB:
    """The action of the best ⟨θ̂_a, x⟩ + α √(xᵀ A_a⁻¹ x), where A_a = I + Σ x xᵀ and θ̂_a = A_a⁻¹ Σ R x over its plays.

    Of equal actions the first is played.
    """

    deterministic = True
    ALPHA = 1.0  # ASSUME: Li et al. leave α to be tuned; 1 is also MABWiser's default

    def __init__(self, n: int, d: int, p: int, alpha: float | None = None) -> None:
        self.alpha = self.ALPHA if alpha is None else alpha
        self.inverses = zeros(n, d, p, p) + np.eye(p)  # A_a⁻¹
        self.totals = zeros(n, d, p)  # Σ R x
        self.context = zeros(n, p)

    def see(self, contexts: np.ndarray) -> None:
        """Observe the contexts (n, p) of the coming round."""
        self.context = contexts

    def policy(self) -> np.ndarray:
        """Return the action with the best upper bound as policies (n, d)."""
        scaled = self._scaled()
        means = (self.totals * scaled).sum(axis=2)  # ⟨A⁻¹ b, x⟩ = ⟨b, A⁻¹ x⟩
        return one_hot_of_best(means + self.alpha * np.sqrt(self._variances(scaled)))

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Add the context to the played action's design, by Sherman and Morrison, and its reward to the totals."""
        scaled = self._scaled()
        steps = revealed / (1 + self._variances(scaled))
        self.inverses -= steps[:, :, None, None] * scaled[:, :, :, None] * scaled[:, :, None, :]
        self.totals += rewards[:, :, None] * self.context[:, None, :]

    def _scaled(self) -> np.ndarray:
        """Return A_a⁻¹ x (n, d, p)."""
        return (self.inverses * self.context[:, None, None, :]).sum(axis=3)

    def _variances(self, scaled: np.ndarray) -> np.ndarray:
        """Return xᵀ A_a⁻¹ x (n, d)."""
        return (scaled * self.context[:, None, :]).sum(axis=2)
