"""Reward sets, as compressed arrays of numpy."""

import tokenize
import zlib
from pathlib import Path

import numpy as np

from rmft.artifacts.files import artifact, reading
from rmft.environments import AdaptiveRewards, Rewards, RewardTable
from rmft.environments.tables import ContextualTable

REWARD_ARRAYS = ("rewards", "means", "clipped_means")
CONTEXTS = "contexts"


def write_rewards(path: Path, rewards: Rewards) -> None:
    """Write a reward set: arrays (n, T, d), or for the adaptive process, which has no table, the shape alone.

    Where there are contexts (n, T, p), they are stored beside the rewards.
    """
    names = REWARD_ARRAYS if isinstance(rewards, RewardTable) else ()
    contexts = (CONTEXTS,) if isinstance(rewards, ContextualTable) else ()
    arrays = {name: getattr(rewards, name) for name in (*names, *contexts)}
    with artifact(path) as temporary, temporary.open("wb") as file:  # to a path without .npz, numpy appends that
        np.savez_compressed(file, shape=rewards.shape, **arrays)


def read_rewards(path: Path) -> Rewards:
    """Return a reward set."""
    with reading(path, zlib.error, tokenize.TokenError, TypeError), np.load(path) as file:
        if "rewards" not in file:
            return AdaptiveRewards(tuple(map(int, file["shape"])))
        # Instances are the last axis in memory, as `environments.tables` wants them.
        names, kind = (*REWARD_ARRAYS, CONTEXTS), ContextualTable
        if CONTEXTS not in file:
            names, kind = REWARD_ARRAYS, RewardTable
        return kind(*(np.ascontiguousarray(file[name].transpose(1, 2, 0)).transpose(2, 0, 1) for name in names))
