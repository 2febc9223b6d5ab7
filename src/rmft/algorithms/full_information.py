"""Algorithms that observe every action's reward: FTL and FTRL (with entropy: Hedge), on the simplex and the ball.

Symbols: n instances, d actions, R radius of the ball (None: the simplex). All are functions of the total
reward Σ_{τ<t} R_τ, normalised.
"""

import math
from collections.abc import Callable

import numpy as np

from rmft.algorithms.players import one_hot_of_best, project_onto_ball, softmax
from rmft.environments.tables import zeros

StepSize = Callable[[int], float]  # round t = 1, 2, … → η


def constant_step_size(d: int, horizon: int) -> float:
    """Return η_T = √(2 log d / T), the constant step size for a stated horizon."""
    return math.sqrt(2 * math.log(d) / horizon)


def anytime_step_size(d: int) -> StepSize:
    """Return η_t = √(2 log d / t), the step size of Fig. `regret-dynamics-noisy`.

    # ASSUME: t is the round. It can also be read as the horizon, as in η_25 of other figures.
    """
    return lambda t: constant_step_size(d, t)


class FollowTheLeader:
    """FTL: the policy of the highest past reward.

    # ASSUME: before any reward, the uniform policy (on the ball, the centre); of equal leaders, the first. The paper's
    # slope under Alternating rewards fits that, and not an even split among them.
    """

    deterministic = False  # in the first round

    def __init__(self, n: int, d: int, radius: float | None = None) -> None:
        self.totals = zeros(n, d)
        self.radius = radius

    def policy(self) -> np.ndarray:
        """Return the leader (n, d)."""
        if self.radius is not None:
            norms = np.linalg.norm(self.totals, axis=1, keepdims=True)
            return self.radius * np.divide(self.totals, norms, out=np.zeros_like(self.totals), where=norms > 0)
        d = self.totals.shape[1]
        return np.where(self.totals.any(axis=1, keepdims=True), one_hot_of_best(self.totals), 1 / d)

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Add the rewards (n, d) to the totals."""
        self.totals += rewards


class FollowTheRegularizedLeader:
    """FTRL, Eq. `ftrl-def`: argmax_π ⟨total, π⟩ - Reg(π)/η.

    On the simplex Reg is the negative entropy, which gives Hedge: softmax(η · total). On the ball
    # ASSUME: Reg(π) = ‖π‖²/2, as in Theorem 1, which gives Proj(η · total), with the steps of the simplex.
    """

    deterministic = False

    def __init__(self, n: int, d: int, step_size: StepSize, radius: float | None = None) -> None:
        self.totals = zeros(n, d)
        self.step_size = step_size
        self.radius = radius
        self.round = 1

    def policy(self) -> np.ndarray:
        """Return the policies (n, d)."""
        scores = self.step_size(self.round) * self.totals
        return softmax(scores) if self.radius is None else project_onto_ball(scores, self.radius)

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Add the rewards (n, d) to the totals."""
        self.totals += rewards
        self.round += 1


class Uniform:
    """Always the same weight for every action; on the ball, where this is ours, R · (1, …, 1)/√d, of full length."""

    deterministic = False

    def __init__(self, n: int, d: int, radius: float | None = None) -> None:
        self.constant = zeros(n, d) + (1 / d if radius is None else radius / math.sqrt(d))

    def policy(self) -> np.ndarray:
        """Return the policies (n, d)."""
        return self.constant

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Learn nothing."""
