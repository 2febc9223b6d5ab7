"""Trajectories of language models, told in words, and which of them are selected."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmft.artifacts.files import artifact, reading
from rmft.artifacts.parquet import COMPRESSION, checked, read_columns, schema_of, write_columns
from rmft.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

TRAJECTORY = {  # columns; one trajectory a row
    "scenario": "int32",
    "trajectory": "int32",
    "d": "int16",  # the number of actions
    "rewards": "[float64]",  # of every action in every round, T · d
    "means": "[float64]",  # T · d, before clipping
    "clipped_means": "[float64]",  # T · d
    "prompt": "[string]",  # t = 1..T, and so on below
    "reply": "[string]",
    "policy": "[float64]",  # T · d
    "action": "[int8]",  # 0-based
    "attempts": "[int8]",  # replies sampled
    "fallback": "[bool]",  # whether none was valid, so that the policy is uniform
    "ids": "[[int32]]",  # tokens of each conversation: one in a dialogue, T in a summary
    "sampled": "[[bool]]",  # which of them the model sampled
    "replied": "[[bool]]",  # and did so in a valid reply
}
TOKEN_COLUMNS = ("ids", "sampled", "replied")
CONTEXTS = "contexts"
CONTEXTUAL = {**TRAJECTORY, CONTEXTS: "[float64]"}  # T · p, what was shown before each round
SELECTION = {  # columns; one trajectory a row
    "scenario": "int32",
    "trajectory": "int32",
    "regret": "float64",  # at round T; the paper selects by it
    "rerolled": "float64",  # the same actions' regret, averaged over rewards drawn again
    "rank": "int32",  # within its pool, 0 for the best score: in the paper of a scenario, by regret
    "duplicate": "bool",  # has the same words as a better-ranked trajectory of the scenario
    "selected": "bool",
    "invalid": "int32",  # replies without a valid decision
}


def write_trajectories(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write trajectories, with contexts where there are any."""
    write_columns(path, columns, CONTEXTUAL if CONTEXTS in columns else TRAJECTORY)


def read_trajectories(path: Path, *, tokens: bool = True) -> dict[str, list[Any]]:
    """Return columns as lists over trajectories. tokens: whether to read `TOKEN_COLUMNS` too.

    Raise InputError where there are none.
    """
    import pyarrow as pa

    groups = [rows for rows in _row_groups(path, tokens=tokens) if len(rows)]
    if not groups:
        raise InputError(f"{path}: has no trajectories")
    return pa.concat_tables(groups).to_pydict()


def trajectory_batches(path: Path, *, tokens: bool = True) -> Iterator[dict[str, list[Any]]]:
    """Yield trajectories as `read_trajectories` returns them, one row group at a time."""
    for rows in _row_groups(path, tokens=tokens):
        yield rows.to_pydict()


def join_trajectories(path: Path, shards: Sequence[Path], games: int) -> None:
    """Write the trajectories of shards, in their order, as one file. Raise InputError where they are not `games`."""
    import pyarrow.parquet as pq

    written = 0
    with artifact(path) as temporary, ExitStack() as stack:
        writer = None
        for shard in shards:
            for rows in _row_groups(shard):
                writer = writer or stack.enter_context(
                    pq.ParquetWriter(temporary, rows.schema, compression=COMPRESSION)
                )
                writer.write_table(rows)
                written += len(rows)
        if written != games:
            again = f"snakemake --forcerun {' '.join(map(str, shards))}"
            raise InputError(f"{path}: its shards hold {written} games, not {games}; run `{again}`")


def _row_groups(path: Path, *, tokens: bool = True) -> "Iterator[pa.Table]":
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path, pa.ArrowException), pq.ParquetFile(path) as file:
        types = CONTEXTUAL if CONTEXTS in file.schema_arrow.names else TRAJECTORY
        schema = schema_of({name: of for name, of in types.items() if tokens or name not in TOKEN_COLUMNS})
        for group in range(file.num_row_groups):
            yield checked(file.read_row_group(group, schema.names).select(schema.names).cast(schema))


def write_selection(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write the regrets of all trajectories and which were selected."""
    write_columns(path, columns, SELECTION)


def read_selection(path: Path) -> dict[str, np.ndarray]:
    """Return a selection: arrays (N,) over trajectories."""
    return read_columns(path, SELECTION)
