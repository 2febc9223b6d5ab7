"""Replies of language models, examined: what each decides, and whether the claims in it are right."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmft.artifacts.parquet import read_rows, write_rows

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def write_replies(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write examined replies, one a row; columns are those of `_reply_schema`, and null where there are none."""
    _write(path, columns, _reply_schema())


def read_replies(path: Path) -> "pd.DataFrame":
    """Return examined replies, one a row."""
    return read_rows(path, _reply_schema()).to_pandas()


def write_claims(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write the claims of replies, one a row; columns are those of `_claim_schema`."""
    _write(path, columns, _claim_schema())


def read_claims(path: Path) -> "pd.DataFrame":
    """Return the claims of replies, one a row."""
    return read_rows(path, _claim_schema()).to_pandas()


def _write(path: Path, columns: Mapping[str, Sequence[Any]], schema: "pa.Schema") -> None:
    """Write the columns of a schema; those that are not given are null."""
    rows = max((len(values) for values in columns.values()), default=0)
    write_rows(path, {name: columns.get(name, [None] * rows) for name in schema.names}, schema)


def _reply_schema() -> "pa.Schema":
    import pyarrow as pa

    return pa.schema(
        [
            ("player", pa.string()),  # base or trained
            ("training_seed", pa.int32()),
            ("instance", pa.int32()),
            ("t", pa.int32()),  # 1-based
            ("reply", pa.string()),
            ("claims", pa.int32()),  # that can be checked
            ("right", pa.int32()),  # of these
            ("valid", pa.bool_()),  # whether it decides anything
            ("action", pa.int8()),  # 0-based, as best_action
            ("reward", pa.float64()),  # of that action
            ("best_action", pa.int8()),  # of highest mean in this round
            ("means", pa.list_(pa.float64())),  # (d,)
            ("times", pa.list_(pa.int32())),  # (d,) how often each action was played before
            ("averages", pa.list_(pa.float64())),  # (d,) of the rewards shown of each before; NaN where none was
            ("passes_over", pa.bool_()),  # decides for another action than the best one
            ("unstable", pa.bool_()),  # because of unstable rewards, by the lexical judge
            ("unstable_judged", pa.bool_()),  # by a model; null where no model judges or its answer is not clear
        ]
    )


def _claim_schema() -> "pa.Schema":
    import pyarrow as pa

    return pa.schema(
        [
            ("player", pa.string()),
            ("training_seed", pa.int32()),
            ("instance", pa.int32()),
            ("t", pa.int32()),
            ("kind", pa.string()),  # see `reasoning.claims`
            ("begin", pa.int32()),  # characters of the reply
            ("end", pa.int32()),
            ("text", pa.string()),
            ("right", pa.bool_()),
        ]
    )
