"""Evaluations: the regret and the actions of every player on every instance."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmft.artifacts.parquet import read_columns, write_columns
from rmft.errors import InputError

EVALUATION = {  # columns; one trajectory a row
    "player": "string",  # base, trained, or the name of a reference algorithm
    "training_seed": "int32",  # 0 for reference algorithms, which have none
    "instance": "int32",
    "d": "int16",  # the number of actions
    "regret": "[float64]",  # Regret(t) for t = 1..T
    "action": "[int8]",  # 0-based, t = 1..T; null on the ball
    "best_action": "[int8]",  # the comparator's, t = 1..T
    "policy": "[float64]",  # T · d where policies were stated in words, else null
    "invalid": "int32",  # replies without a valid decision; 0 for players that do not reply
}


def write_evaluation(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write an evaluation."""
    write_columns(path, columns, EVALUATION)


def read_evaluation(path: Path) -> dict[str, np.ndarray | None]:
    """Return arrays (N,) over trajectories, list columns (N, T), or None where there are no actions.

    Raise InputError where there are no trajectories.
    """
    columns = read_columns(path, EVALUATION)
    if not len(columns["regret"]):
        raise InputError(f"{path}: has no trajectories")
    return columns
