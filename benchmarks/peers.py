"""SMPyBandits and MABWiser, one game at a time, on the same rewards as our algorithms.

Symbols: n games, T rounds, d actions. Rewards are normalised to [0, 1].
"""

import contextlib
import io
import random
from collections.abc import Callable
from typing import Protocol

import numpy as np
import scipy.special
from mabwiser.mab import MAB, LearningPolicy

# SMPyBandits 0.9.7 imports a function that scipy renamed, prints a list of missing optional parts, and changes numpy's
# error handling for the whole process.
scipy.special.btdtri = scipy.special.betaincinv
with contextlib.redirect_stdout(io.StringIO()), np.errstate():
    from SMPyBandits.Policies import UCB, EmpiricalMeans, Exp3, Thompson


class Peer(Protocol):
    """Another library's algorithm in the middle of one game."""

    def choose(self) -> int:
        """Return the next action."""

    def learn(self, action: int, reward: float) -> None:
        """Observe the reward of the action played."""


class SMPyBandits:
    """A policy of SMPyBandits, which draws from the global generators."""

    def __init__(self, policy: object) -> None:
        policy.startGame()
        self.policy = policy

    def choose(self) -> int:
        """Return the next action."""
        return int(self.policy.choice())

    def learn(self, action: int, reward: float) -> None:
        """Observe the reward of the action played."""
        self.policy.getReward(action, reward)


class MABWiser:
    """A policy of MABWiser. first: the actions to play before it decides, since it does not favour unplayed ones."""

    def __init__(self, policy: object, d: int, first: range = range(0)) -> None:
        self.mab = MAB(list(range(d)), policy, seed=random.getrandbits(31))
        self.mab.fit([], [])
        self.first = list(first)

    def choose(self) -> int:
        """Return the next action."""
        return self.first.pop(0) if self.first else self.mab.predict()

    def learn(self, action: int, reward: float) -> None:
        """Observe the reward of the action played."""
        self.mab.partial_fit([action], [reward])


# Both are the paper's algorithms: the bonus √(2 log t / N), and the best average.
PEERS: dict[str, dict[str, Callable[[int], Peer]]] = {
    "ucb": {
        "SMPyBandits": lambda d: SMPyBandits(UCB(d)),
        "MABWiser": lambda d: MABWiser(LearningPolicy.UCB1(alpha=1.0), d, range(d)),
    },
    "greedy": {
        "SMPyBandits": lambda d: SMPyBandits(EmpiricalMeans(d)),
        "MABWiser": lambda d: MABWiser(LearningPolicy.EpsilonGreedy(epsilon=0.0), d, range(d)),
    },
}


def thompson_sampling(d: int) -> SMPyBandits:
    """Return SMPyBandits' Thompson sampling, with Beta posteriors of coin tosses."""
    return SMPyBandits(Thompson(d))


def exp3(d: int, gamma: float) -> SMPyBandits:
    """Return SMPyBandits' EXP3, with η = γ / d, past its initial visits to every action, which ours does not make."""
    peer = SMPyBandits(Exp3(d, gamma=gamma))
    peer.policy.t = d  # SMPyBandits reads t for these visits only
    return peer


def play_peer(start: Callable[[int], Peer], rewards: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return the actions (n, T) of a fresh peer in each game of rewards (n, T, d)."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - SMPyBandits has no generator of its own
    n, horizon, d = rewards.shape
    actions = np.zeros((n, horizon), dtype=int)
    with np.errstate(divide="ignore", invalid="ignore"):  # SMPyBandits divides by the plays of unplayed actions
        for i in range(n):
            peer = start(d)
            for t in range(horizon):
                actions[i, t] = action = peer.choose()
                peer.learn(action, float(rewards[i, t, action]))
    return actions
