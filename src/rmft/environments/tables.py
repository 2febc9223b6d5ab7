"""Reward tables: the rewards of every action in every round of n instances, drawn before the game.

Symbols: n instances, T rounds, d actions, p features of a context. Arrays have shapes (n, T, d) and (n, d), but in
memory the instances come last: operations over all instances then run along contiguous numbers, several times faster
than along a last axis of three actions, and numpy keeps this order in its results.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from rmft.environments.clipping import HIGH, LOW


def zeros(n: int, *shape: int, dtype: type = float) -> np.ndarray:
    """Return zeros of shape (n, *shape), the n instances last in memory."""
    return np.moveaxis(np.zeros((*shape, n), dtype), -1, 0)


def one_hot(actions: np.ndarray, d: int) -> np.ndarray:
    """Return actions (n, ...), 0-based, as truth values (n, ..., d)."""
    return np.equal.outer(np.arange(d), actions).transpose(*range(1, actions.ndim + 1), 0)


@dataclass(frozen=True)
class RewardTable:
    """Rewards of n instances with their means.

    rewards: (n, T, d), in [0, 10].
    means: (n, T, d), the nominal means r_t (before clipping).
    clipped_means: (n, T, d), the true means of `rewards`.
    """

    rewards: np.ndarray
    means: np.ndarray
    clipped_means: np.ndarray

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (n, T, d)."""
        return self.rewards.shape

    def at(self, t: int, policies: np.ndarray) -> np.ndarray:
        """Return the rewards (n, d) of round t = 0..T-1, whatever the policies."""
        return self.rewards[:, t]

    def head(self, instances: int, horizon: int) -> Self:
        """Return the first instances over the first rounds."""
        return type(self)(*(array[:instances, :horizon] for array in self._arrays()))

    def rows(self, index: np.ndarray) -> Self:
        """Return the instances at `index`."""
        return type(self)(*(array[index] for array in self._arrays()))

    def _arrays(self) -> tuple[np.ndarray, ...]:
        return self.rewards, self.means, self.clipped_means

    @staticmethod
    def concatenate(tables: "Iterable[RewardTable]") -> "RewardTable":
        """Join tables of one kind, one horizon and one number of actions along their instances."""
        first, *others = tables
        columns = zip(*(table._arrays() for table in (first, *others)), strict=True)
        return type(first)(*(np.concatenate([array.T for array in arrays], axis=-1).T for arrays in columns))


@dataclass(frozen=True)
class ContextualTable(RewardTable):
    """Rewards whose means depend on the context shown before a round. contexts: (n, T, p)."""

    contexts: np.ndarray

    def _arrays(self) -> tuple[np.ndarray, ...]:
        return *super()._arrays(), self.contexts


@dataclass(frozen=True)
class AdaptiveRewards:
    """VIII. Rewards that depend on the policy, so that they exist only during the game. shape: (n, T, d)."""

    shape: tuple[int, int, int]

    def at(self, t: int, policies: np.ndarray) -> np.ndarray:
        """Return the rewards (n, d) against policies (n, d): the likeliest action pays 0, all others 10.

        # ASSUME: of equally likely actions the first pays 0.
        """
        return np.where(one_hot(policies.argmax(axis=1), policies.shape[1]), LOW, HIGH)

    def head(self, instances: int, horizon: int) -> Self:
        """Return the first instances over the first rounds."""
        n, rounds, d = self.shape
        return type(self)((min(n, instances), min(rounds, horizon), d))


Rewards = RewardTable | AdaptiveRewards


def variation(means: np.ndarray) -> np.ndarray:
    """Return V_T (n,) = Σ_{t≥2} ‖r_t - r_{t-1}‖_∞ of means (n, T, d), Sec. `ssec:sdm`."""
    return np.abs(np.diff(means, axis=1)).max(axis=2).sum(axis=1)
