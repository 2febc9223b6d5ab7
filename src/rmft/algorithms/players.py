"""The interface of players, and the maps from scores to policies on the simplex and on the ball.

Symbols: n instances, d actions, p features of a context.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from rmft.environments.tables import one_hot
from rmft.errors import InputError

ROUNDING = 1e-4  # by which probabilities in single precision may miss 1


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


def check_policies(name: str, policies: np.ndarray) -> None:
    """Raise InputError where policies (…, d) are no probabilities. name: what the message begins with."""
    if policies.dtype.kind not in "biuf":
        raise InputError(f"{name}: policies must be numbers, not {policies.dtype}")
    if not (np.isfinite(policies) & (policies >= 0)).all() or np.abs(policies.sum(axis=-1) - 1).max() > ROUNDING:
        raise InputError(f"{name}: policies must be probabilities: of at least 0, with a sum of 1")


def checked_policies(name: str, policies: object, shape: tuple[int, int], *, deterministic: bool) -> np.ndarray:
    """Return what a user's player gave as policies, as an array. name: what messages begin with. shape: (n, d).

    Raise InputError where they are no such policies, or leave a choice although the player is deterministic.
    """
    try:
        policies = np.asarray(policies)
    except ValueError as error:  # rows of several lengths
        raise InputError(f"{name}: its policies are no array: {error}") from None
    if policies.shape != shape:
        raise InputError(f"{name}: its policies have the shape {policies.shape}, not {shape}")
    check_policies(name, policies)
    if deterministic and not (policies.max(axis=1) > 1 - ROUNDING).all():
        raise InputError(f"{name}: a policy gives several actions a chance, so `deterministic` must be False")
    return policies


class CheckedPlayer:
    """A user's player whose policies are checked. label: what messages begin with. shape: (n, d)."""

    def __init__(self, label: str, player: Player, shape: tuple[int, int]) -> None:
        self.label, self.shape, self.deterministic = label, shape, player.deterministic
        self._policy, self.observe = player.policy, player.observe

    def policy(self) -> np.ndarray:
        """Return the policies (n, d). Raise InputError where one is no distribution over actions."""
        return checked_policies(self.label, self._policy(), self.shape, deterministic=self.deterministic)


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
