"""Write the trajectories of an iteration as a data set of conversations, as TRL's SFTTrainer reads them."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rmft.artifacts.trajectories import read_selection, trajectory_batches
from rmft.errors import InputError
from rmft.export import DATA
from rmft.export.iteration import BuiltIteration
from rmft.selection import Scoring, TrajectoryColumns, demonstrations, final_regrets, table_of


def write_dataset(source: BuiltIteration, folder: Path, *, everything: bool) -> int:
    """Write the selected trajectories, or all, and return the number of conversations."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    messages = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    numbers = {"scenario": pa.int32(), "trajectory": pa.int32(), "regret": pa.float64(), "selected": pa.bool_()}
    schema = pa.schema({"messages": messages, **numbers, "invalid_replies": pa.int32()})
    path, written = folder / DATA, 0
    path.parent.mkdir()
    with pq.ParquetWriter(path, schema) as writer:
        for rows in _batches(source, everything=everything):
            writer.write_table(pa.Table.from_pylist(rows, schema))
            written += len(rows)
    if not written:
        raise InputError(f"{source.folder}: no trajectory was selected; --all exports all of them")
    return written


def _batches(source: BuiltIteration, *, everything: bool) -> Iterator[list[dict[str, Any]]]:
    """Yield conversations. Where an experiment selects none, the model learns from all."""
    chosen = read_selection(source.folder / "selection.parquet")["selected"] if source.settings.selects else None
    marks = iter([] if chosen is None else chosen.tolist())
    scoring = Scoring(source.settings.environment, source.settings.training_regret, source.params.evaluation.mean)
    for played in trajectory_batches(source.folder / "rollouts.parquet"):
        count = len(played["scenario"])
        selected = [True] * count if chosen is None else list(islice(marks, count))
        yield list(_rows(played, scoring, selected, everything=everything))


def _rows(
    played: TrajectoryColumns, scoring: Scoring, selected: list[bool], *, everything: bool
) -> Iterator[dict[str, Any]]:
    games = zip(played["scenario"], played["trajectory"], strict=True)
    regrets = final_regrets(played, table_of(played), scoring).tolist()
    about = dict(zip(games, zip(regrets, selected, strict=True), strict=True))
    for line in demonstrations(played, [everything or one for one in selected]):
        regret, mark = about[line["scenario"], line["trajectory"]]
        yield {
            "messages": [{name: message[name] for name in ("role", "content")} for message in line["messages"]],
            "scenario": line["scenario"],
            "trajectory": line["trajectory"],
            "regret": regret,
            "selected": mark,
            "invalid_replies": sum("weight" in message for message in line["messages"]),
        }
