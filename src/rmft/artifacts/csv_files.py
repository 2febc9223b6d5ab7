"""CSV files, and pandas frames read from them."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmft.artifacts.files import artifact, reading
from rmft.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def write_csv(path: Path, columns: "Mapping[str, Iterable[Any]] | pd.DataFrame") -> None:
    """Write columns of equal length as a CSV file; floats keep all their digits, None and NaN are empty."""
    with artifact(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in zip(*(columns[name] for name in columns), strict=True):
            writer.writerow("" if value is None or value != value else value for value in row)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows that have the same columns as a CSV file. Raise InputError where they have not."""
    if other := next((row for row in rows if row.keys() != rows[0].keys()), None):
        differing = ", ".join(sorted(other.keys() ^ rows[0].keys()))
        raise InputError(f"{path}: not every row has the column {differing}; each must have the same columns")
    write_csv(path, {column: [row[column] for row in rows] for column in rows[0]})


def read_csv(path: Path, columns: Iterable[str], rows: int | None = None) -> "pd.DataFrame":
    """Return a CSV file as a frame. Raise InputError where it lacks one of `columns` or has not `rows` rows."""
    import pandas as pd

    with reading(path):
        if not path.read_bytes().endswith(b"\n"):
            raise ValueError("its last line has no end")
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""])
        missing = [column for column in columns if column not in frame]
        if missing:
            raise ValueError(f"no column {', '.join(missing)}")
        if rows is not None and len(frame) != rows:
            raise ValueError(f"{len(frame)} rows where {rows} were written")
        return frame
