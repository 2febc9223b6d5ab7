"""Replies of language models, examined: what each decides, and whether the claims in it are right."""

from pathlib import Path
from typing import TYPE_CHECKING

from rmft.artifacts.parquet import Rows, read_table, write_rows

if TYPE_CHECKING:
    import pandas as pd

REPLY = {  # columns; one reply a row
    "player": "string",  # base or trained
    "training_seed": "int32",
    "instance": "int32",
    "t": "int32",  # 1-based
    "reply": "string",
    "claims": "int32",  # that can be checked
    "right": "int32",  # of these
    "valid": "bool",  # whether it decides anything
    "action": "int8",  # 0-based, as best_action
    "reward": "float64",  # of that action
    "best_action": "int8",  # of highest mean in this round
    "means": "[float64]",  # (d,)
    "times": "[int32]",  # (d,) how often each action was played before
    "averages": "[float64]",  # (d,) of the rewards shown of each before; NaN where none was
    "passes_over": "bool",  # decides for another action than the best one
    "unstable": "bool",  # because of unstable rewards, by the lexical judge
    "unstable_judged": "bool",  # by a model; null where no model judges or its answer is not clear
}
CLAIM = {  # columns; one claim of a reply a row
    "player": "string",
    "training_seed": "int32",
    "instance": "int32",
    "t": "int32",
    "kind": "string",  # see `reasoning.claims`
    "begin": "int32",  # characters of the reply
    "end": "int32",
    "text": "string",
    "right": "bool",
}


def write_replies(path: Path, rows: Rows) -> None:
    """Write examined replies; where none was judged by a model, its column is null."""
    write_rows(path, rows, REPLY)


def read_replies(path: Path) -> "pd.DataFrame":
    """Return examined replies, one a row."""
    return read_table(path, REPLY).to_pandas()


def write_claims(path: Path, rows: Rows) -> None:
    """Write the claims of replies."""
    write_rows(path, rows, CLAIM)


def read_claims(path: Path) -> "pd.DataFrame":
    """Return the claims of replies, one a row."""
    return read_table(path, CLAIM).to_pandas()
