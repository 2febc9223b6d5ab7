"""Parquet files. The columns of each kind of file stand in `trajectories`, `evaluations` and `replies`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmft.artifacts.files import artifact, reading
from rmft.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESSION = "zstd"
GROUP = 1024  # rows that are written, and read, together
Types = Mapping[str, str]  # Arrow's name for the type of each column, in brackets where a value is a list
Rows = Sequence[Mapping[str, Any]]


def schema_of(types: Types) -> "pa.Schema":
    """Return the schema of columns."""
    import pyarrow as pa

    def type_of(name: str) -> pa.DataType:
        return pa.list_(type_of(name[1:-1])) if name.startswith("[") else pa.type_for_alias(name)

    return pa.schema([(column, type_of(name)) for column, name in types.items()])


def write_columns(path: Path, columns: Mapping[str, Sequence[Any]], types: Types) -> None:
    """Write the columns of a file, all of them."""
    import pyarrow as pa

    _write(path, pa.table(columns, schema=schema_of(types)))


def write_rows(path: Path, rows: Rows, types: Types) -> None:
    """Write rows; a column that a row lacks is null in it."""
    import pyarrow as pa

    _write(path, pa.Table.from_pylist(list(rows), schema=schema_of(types)))


def _write(path: Path, table: "pa.Table") -> None:
    import pyarrow.parquet as pq

    with artifact(path) as temporary:
        pq.write_table(table, temporary, compression=COMPRESSION, row_group_size=GROUP)


def read_names(path: Path) -> list[str]:
    """Return the names of a file's columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path, pa.ArrowException):
        return pq.read_schema(path).names


def read_table(path: Path, types: Types) -> "pa.Table":
    """Return these columns of a file. Raise InputError where it lacks one, or holds values of another type in one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path, pa.ArrowException):
        missing = types.keys() - set(pq.read_schema(path).names)  # read_table would fill such columns with nulls
        if missing:
            raise InputError(f"{path}: has no column {min(missing)!r}, which rmft writes in such a file")
        return checked(pq.read_table(path, schema=schema_of(types)))


def checked(table: "pa.Table") -> "pa.Table":
    """Return a table that was read. Raise ArrowException where a damaged file has left text that is no UTF-8."""
    table.validate(full=True)
    return table


def read_columns(path: Path, types: Types) -> dict[str, np.ndarray | None]:
    """Return arrays (N,) over rows, (N, length) for lists, or None for a column with nulls."""
    table = read_table(path, types)
    columns = zip(table.column_names, table.combine_chunks(), strict=True)
    return {name: _array(column.combine_chunks()) for name, column in columns}


def _array(column: "pa.Array") -> np.ndarray | None:
    import pyarrow as pa

    if column.null_count:
        return None
    if pa.types.is_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1 if len(column) else 0)
    return column.to_numpy(zero_copy_only=False)
