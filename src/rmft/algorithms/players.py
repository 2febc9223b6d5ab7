"""The interface of players, and the maps from scores to policies on the simplex and on the ball.

Symbols: n replicates, d actions, p features of a context.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from rmft.environments.tables import one_hot
from rmft.errors import InputError

CERTAIN = 1e-4  # by which rounding may leave the probability of a sure action below 1


@runtime_checkable
class Player(Protocol):
    """An algorithm or agent in the middle of n games at once.

    deterministic: whether every policy puts all weight on one action, so that playing it needs no random number.
    """

    deterministic: bool

    def policy(self) -> np.ndarray:
        """Return the policies (n, d) for the coming round."""

    def observe(self, revealed: np.ndarray, rewards: np.ndarray) -> None:
        """Observe a round. revealed: (n, d), booleans. rewards: (n, d), zero where not revealed."""


@runtime_checkable
class ContextualPlayer(Player, Protocol):
    """A player that observes contexts. Other players play the same games without them."""

    def see(self, contexts: np.ndarray) -> None:
        """Observe the contexts (n, p) of the coming round, before `policy` is called."""


def check_one_action(name: str, policies: np.ndarray, *, deterministic: bool) -> None:
    """Raise InputError where a player says that it is deterministic, but a policy (n, d) leaves a choice."""
    if deterministic and not (policies.max(axis=1) > 1 - CERTAIN).all():
        raise InputError(f"{name}: a policy gives several actions a chance, so `deterministic` must be False")


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return softmax over the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def project_onto_ball(points: np.ndarray, radius: float) -> np.ndarray:
    """Return the nearest points of the ℓ2 ball B(0, radius), over the last axis."""
    norms = np.linalg.norm(points, axis=-1, keepdims=True)
    return points * (radius / np.maximum(norms, radius))


def one_hot_of_best(scores: np.ndarray) -> np.ndarray:
    """Return policies (n, d) that play the best-scored action for sure, the first of equals."""
    return one_hot(scores.argmax(axis=1), scores.shape[1]).astype(float)
