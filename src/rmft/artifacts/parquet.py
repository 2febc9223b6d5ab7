"""Parquet files of a given schema. The schemas are in `trajectories`, `evaluations` and `replies`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmft.artifacts.files import artifact, reading

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESSION = "zstd"
GROUP = 1024  # rows that are written, and read, together


def write_rows(path: Path, columns: Mapping[str, Sequence[Any]], schema: "pa.Schema") -> None:
    """Write the columns of a schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.table(columns, schema=schema)
    with artifact(path) as temporary:
        pq.write_table(rows, temporary, compression=COMPRESSION, row_group_size=GROUP)


def read_rows(path: Path, schema: "pa.Schema") -> "pa.Table":
    """Return the rows of a file. Raise InputError where it has another schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path, pa.ArrowException):
        return pq.read_table(path, schema=schema)


def read_columns(path: Path, schema: "pa.Schema") -> dict[str, np.ndarray | None]:
    """Return arrays (N,) over rows, (N, length) for lists, or None for a column with nulls."""
    rows = read_rows(path, schema)
    columns = zip(rows.column_names, rows.combine_chunks(), strict=True)
    return {name: _array(column.combine_chunks()) for name, column in columns}


def _array(column: "pa.Array") -> np.ndarray | None:
    import pyarrow as pa

    if column.null_count:
        return None
    if pa.types.is_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)
