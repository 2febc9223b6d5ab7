"""Evaluations: the regret and the actions of every player on every instance."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmft.artifacts.parquet import read_columns, write_rows

if TYPE_CHECKING:
    import pyarrow as pa


def write_evaluation(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write an evaluation, one trajectory a row; columns are those of `_evaluation_schema`."""
    write_rows(path, columns, _evaluation_schema())


def read_evaluation(path: Path) -> dict[str, np.ndarray | None]:
    """Return arrays (N,) over trajectories, list columns (N, T), or None where there are no actions."""
    return read_columns(path, _evaluation_schema())


def _evaluation_schema() -> "pa.Schema":
    import pyarrow as pa

    return pa.schema(
        [
            ("player", pa.string()),  # base, trained, or the name of a reference algorithm
            ("training_seed", pa.int32()),  # 0 for reference algorithms, which have none
            ("instance", pa.int32()),
            ("d", pa.int16()),  # the number of actions
            ("regret", pa.list_(pa.float64())),  # Regret(t) for t = 1..T
            ("action", pa.list_(pa.int8())),  # 0-based, t = 1..T; null on the ball
            ("best_action", pa.list_(pa.int8())),  # the comparator's, t = 1..T
            ("policy", pa.list_(pa.float64())),  # T · d where policies were stated in words, else null
            ("invalid", pa.int32()),  # replies without a valid decision; 0 for players that do not reply
        ]
    )
