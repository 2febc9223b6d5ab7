"""Every file that rmft writes or reads back: its schema, and writing it all or not at all.

Only this module writes. A file appears under its name when it is complete, by a rename in its own folder. Libraries are
imported where they are used: jobs are many and small, and most need one of them.
"""

import csv
import glob
import hashlib
import json
import os
import shutil
import tempfile
import tokenize
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from rmft.environments import AdaptiveRewards, ContextualTable, Rewards, RewardTable
from rmft.errors import InputError
from rmft.lineage.receipts import JOB_CONTEXT, receipt, receipt_path
from rmft.workflow.runs import is_job, process_exists, refuse_orphan

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOKEN_COLUMNS = ("ids", "replied")
GROUP = 1024  # rows that are written, and read, together
REWARD_ARRAYS = ("rewards", "means", "clipped_means")
CONTEXTS = "contexts"


@contextmanager
def artifact(path: Path) -> Iterator[Path]:
    """Yield a temporary path as `atomic` does; in a job of Snakemake's, leave a receipt for what was written.

    The receipt comes first, so that whenever the artifact is there its receipt is.
    """
    with atomic(path) as temporary:
        yield temporary
        if is_job():
            slip = receipt(sha256(temporary)).as_json()
            refuse_orphan()
            with atomic(receipt_path(path)) as file:
                file.write_text(slip, encoding="utf-8")


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which takes its name if the block ends well and vanishes if not.

    Raise InputError where it cannot be written.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}{path.suffix}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def _sweep(path: Path) -> None:
    """Delete what writers of `path` that were killed have left behind."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{glob.escape(path.suffix)}"):
        writer = left.name.removeprefix(f".{path.name}.").removesuffix(path.suffix)
        if writer.isdecimal() and not process_exists(int(writer)):
            left.unlink(missing_ok=True)


@contextmanager
def _readable(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """Turn any way in which reading `path` can fail, a library's own `errors` too, into a line that says what to do."""
    try:
        if is_job():
            JOB_CONTEXT.read[path.as_posix()] = _digest(path)
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; `snakemake {path}` makes it") from None
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, *errors) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{path}: unreadable or truncated ({reason}); delete it and run snakemake again") from None


def sha256(path: Path) -> str:
    """Return the file's SHA-256 in hexadecimal. Raise InputError where it cannot be read."""
    try:
        return _digest(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def delete(path: Path) -> None:
    """Delete an artifact with its receipt, and the folders that it leaves empty."""
    for file in (path, receipt_path(path)):
        file.unlink(missing_ok=True)
        with suppress(OSError):  # until a folder is not empty
            for folder in file.parents:
                folder.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with artifact(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: Path) -> str:
    """Read a text file."""
    with _readable(path):
        return path.read_text(encoding="utf-8")


def read_bytes(path: Path) -> bytes:
    """Read a file as it is."""
    with _readable(path):
        return path.read_bytes()


def read_yaml(path: Path) -> Any:  # noqa: ANN401 (any YAML value)
    """Read YAML."""
    import yaml

    with _readable(path, yaml.YAMLError):
        return yaml.safe_load(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON with sorted keys; what is not finite becomes null."""
    write_text(path, json.dumps(finite(value), indent=2, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 (any JSON value)
    """Read JSON."""
    with _readable(path):
        return json.loads(path.read_text(encoding="utf-8"))


def finite(value: Any) -> Any:  # noqa: ANN401 (any JSON value)
    """Return a JSON value with NaN and infinities as None."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [finite(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def write_csv(path: Path, columns: "Mapping[str, Iterable[Any]] | pd.DataFrame") -> None:
    """Write columns of equal length as a CSV file; floats keep all their digits, None and NaN are empty."""
    with artifact(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in zip(*(columns[name] for name in columns), strict=True):
            writer.writerow("" if value is None or value != value else value for value in row)


def read_csv(path: Path, columns: Iterable[str], rows: int | None = None) -> "pd.DataFrame":
    """Read a CSV file that must have these columns and, where that is known, so many rows."""
    import pandas as pd

    with _readable(path):
        if not path.read_bytes().endswith(b"\n"):
            raise ValueError("its last line has no end")
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""])
        missing = [column for column in columns if column not in frame]
        if missing:
            raise ValueError(f"no column {', '.join(missing)}")
        if rows is not None and len(frame) != rows:
            raise ValueError(f"{len(frame)} rows where {rows} were written")
        return frame


def write_rewards(path: Path, rewards: Rewards) -> None:
    """Write a reward set: arrays (n, T, d), or for the adaptive process, which has no table, the shape alone.

    Where there are contexts (n, T, p), they are stored beside the rewards.
    """
    names = REWARD_ARRAYS if isinstance(rewards, RewardTable) else ()
    contexts = (CONTEXTS,) if isinstance(rewards, ContextualTable) else ()
    arrays = {name: getattr(rewards, name) for name in (*names, *contexts)}
    with artifact(path) as temporary:
        np.savez_compressed(temporary, shape=rewards.shape, **arrays)


def read_rewards(path: Path) -> Rewards:
    """Read a reward set."""
    with _readable(path, zlib.error, tokenize.TokenError), np.load(path) as file:
        if "rewards" not in file:
            return AdaptiveRewards(tuple(map(int, file["shape"])))
        # Instances last in memory again, as `environments.tables` wants them.
        names, kind = (*REWARD_ARRAYS, CONTEXTS), ContextualTable
        if CONTEXTS not in file:
            names, kind = REWARD_ARRAYS, RewardTable
        return kind(*(np.ascontiguousarray(file[name].transpose(1, 2, 0)).transpose(2, 0, 1) for name in names))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays, such as the parameters of a numeric model, as a safetensors file."""
    from safetensors.numpy import save

    with artifact(path) as temporary:
        temporary.write_bytes(save(dict(arrays)))


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read the named arrays of a safetensors file. Raise InputError where one is missing."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    with _readable(path, SafetensorError):
        arrays = load_file(path)
        return {name: arrays[name] for name in names}


def write_evaluation(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write an evaluation, one trajectory a row; columns are those of `_evaluation_schema`."""
    _write_rows(path, columns, _evaluation_schema())


def read_evaluation(path: Path) -> dict[str, np.ndarray | None]:
    """Read an evaluation: arrays (N,) over trajectories, list columns (N, T), or None where there are no actions."""
    return _arrays(_read_rows(path, _evaluation_schema()))


def _write_rows(path: Path, columns: Mapping[str, Sequence[Any]], schema: "pa.Schema") -> None:
    import pyarrow as pa

    _write_parquet(path, pa.table(columns, schema=schema))


def _write_parquet(path: Path, rows: "pa.Table") -> None:
    import pyarrow.parquet as pq

    with artifact(path) as temporary:
        pq.write_table(rows, temporary, compression="zstd", row_group_size=GROUP)


def _read_rows(path: Path, schema: "pa.Schema") -> "pa.Table":
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _readable(path, pa.ArrowException):
        return pq.read_table(path, schema=schema)


def _arrays(rows: "pa.Table") -> dict[str, np.ndarray | None]:
    columns = zip(rows.column_names, rows.combine_chunks(), strict=True)
    return {name: _array(column.combine_chunks()) for name, column in columns}


def _array(column: "pa.Array") -> np.ndarray | None:
    import pyarrow as pa

    if column.null_count:
        return None
    if pa.types.is_list(column.type):
        return column.flatten().to_numpy().reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def write_trajectories(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write games told in words, one trajectory a row; columns are those of `_trajectory_schema`."""
    _write_rows(path, columns, _trajectory_schema(contextual=CONTEXTS in columns))


def read_trajectories(path: Path, *, tokens: bool = True) -> dict[str, list[Any]]:
    """Read games told in words: columns as lists over trajectories. tokens: those of their tokens too."""
    import pyarrow as pa

    return pa.concat_tables(_games_in_batches(path, tokens=tokens)).to_pydict()


def trajectory_batches(path: Path, *, tokens: bool = True) -> Iterator[dict[str, list[Any]]]:
    """Read games told in words as `read_trajectories` does, so many at a time as were written together."""
    for rows in _games_in_batches(path, tokens=tokens):
        yield rows.to_pydict()


def join_trajectories(path: Path, shards: Sequence[Path], games: int) -> None:
    """Write the games of shards, in their order, as one file. Raise InputError where they are not `games` in all."""
    import pyarrow.parquet as pq

    found = 0
    with artifact(path) as temporary, ExitStack() as stack:
        writer = None
        for shard in shards:
            for rows in _games_in_batches(shard):
                writer = writer or stack.enter_context(pq.ParquetWriter(temporary, rows.schema, compression="zstd"))
                writer.write_table(rows)
                found += len(rows)
        if found != games:
            raise InputError(f"{path}: its shards hold {found} games, not {games}; delete them and run again")


def _games_in_batches(path: Path, *, tokens: bool = True) -> "Iterator[pa.Table]":
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _readable(path, pa.ArrowException), pq.ParquetFile(path) as file:
        schema = _trajectory_schema(contextual=CONTEXTS in file.schema_arrow.names)
        schema = pa.schema([column for column in schema if tokens or column.name not in TOKEN_COLUMNS])
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, schema.names).select(schema.names).cast(schema)


def write_selection(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write the regrets of all trajectories and which were selected; columns are those of `_selection_schema`."""
    _write_rows(path, columns, _selection_schema())


def read_selection(path: Path) -> dict[str, np.ndarray]:
    """Read a selection: arrays (N,) over trajectories."""
    return _arrays(_read_rows(path, _selection_schema()))


def write_jsonl(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON value a line."""
    with artifact(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def read_jsonl(path: Path) -> Iterator[Any]:
    """Read one JSON value a line."""
    with _readable(path), path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            if not line.endswith("\n"):
                raise ValueError("its last line has no end")
            yield json.loads(line)


def write_tensors(path: Path, tensors: "Mapping[str, torch.Tensor]", metadata: dict[str, str]) -> None:
    """Write a language model's weights, or an adapter with its configuration, as one file."""
    from safetensors.torch import save

    with artifact(path) as temporary:
        temporary.write_bytes(save(dict(tensors), metadata=metadata))


def read_tensors(path: Path) -> "tuple[dict[str, torch.Tensor], dict[str, str]]":
    """Read a language model's weights, or an adapter, and the metadata, which holds an adapter's configuration."""
    from safetensors import SafetensorError, safe_open

    with _readable(path, SafetensorError), safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def note_reading(paths: Iterable[Path]) -> None:
    """Note, for the receipts of a job, files that are read by others' code."""
    for path in paths:
        with _readable(path):
            pass


def noted(path: Path) -> Path:
    """Return a path after noting, for the receipts of a job, that other code reads this file."""
    note_reading([path])
    return path


def note_hub(name: str, files: Iterable[Path]) -> None:
    """Note, for the receipts of a job, files of a hub's model that are read by others' code. name: id@revision."""
    if is_job():
        JOB_CONTEXT.hub.update({f"{name}/{file.name}": sha256(file) for file in files})


def write_pretrained(folder: Path, *parts: "PreTrainedModel | PreTrainedTokenizerBase") -> None:
    """Write a model and its tokenizer as transformers reads them, file by file."""
    with tempfile.TemporaryDirectory() as name:
        for part in parts:
            part.save_pretrained(name)
        for file in sorted(Path(name).iterdir()):
            with artifact(folder / file.name) as temporary:
                shutil.copyfile(file, temporary)


def _trajectory_schema(*, contextual: bool) -> "pa.Schema":
    import pyarrow as pa

    shown = [(CONTEXTS, pa.list_(pa.float64()))] if contextual else []  # T · p, what was shown before each round
    return pa.schema(
        [
            ("scenario", pa.int32()),
            ("trajectory", pa.int32()),
            ("d", pa.int16()),  # the number of actions
            ("rewards", pa.list_(pa.float64())),  # of every action in every round, T · d
            ("means", pa.list_(pa.float64())),  # T · d, before clipping
            ("clipped_means", pa.list_(pa.float64())),  # T · d
            ("prompt", pa.list_(pa.string())),  # t = 1..T, and so on below
            ("reply", pa.list_(pa.string())),
            ("policy", pa.list_(pa.float64())),  # T · d
            ("action", pa.list_(pa.int8())),  # 0-based
            ("attempts", pa.list_(pa.int8())),  # replies asked for
            ("fallback", pa.list_(pa.bool_())),  # whether none was valid, so that the policy is uniform
            ("ids", pa.list_(pa.list_(pa.int32()))),  # tokens of each conversation: one in a dialogue, T in a summary
            ("replied", pa.list_(pa.list_(pa.bool_()))),  # which of them the model chose
            *shown,
        ]
    )


def _selection_schema() -> "pa.Schema":
    import pyarrow as pa

    return pa.schema(
        [
            ("scenario", pa.int32()),
            ("trajectory", pa.int32()),
            ("regret", pa.float64()),  # what selects in the paper, at round T
            ("rerolled", pa.float64()),  # the same actions' regret on re-drawn rewards, averaged
            (
                "rank",
                pa.int32(),
            ),  # among those it is ranked with, 0 for the best score: in the paper of a scenario, by regret
            ("duplicate", pa.bool_()),  # says, word for word, what a better-ranked trajectory of the scenario says
            ("selected", pa.bool_()),
            ("invalid", pa.int32()),  # replies without a valid decision
        ]
    )


def write_replies(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write examined replies, one a row; columns are those of `_reply_schema`, and null where there are none."""
    _write_rows(path, _all_of(columns, _reply_schema()), _reply_schema())


def read_replies(path: Path) -> "pd.DataFrame":
    """Read examined replies."""
    return _read_rows(path, _reply_schema()).to_pandas()


def write_claims(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write the claims of replies, one a row; columns are those of `_claim_schema`."""
    _write_rows(path, _all_of(columns, _claim_schema()), _claim_schema())


def read_claims(path: Path) -> "pd.DataFrame":
    """Read the claims of replies."""
    return _read_rows(path, _claim_schema()).to_pandas()


def _all_of(columns: Mapping[str, Sequence[Any]], schema: "pa.Schema") -> dict[str, Sequence[Any]]:
    rows = max((len(values) for values in columns.values()), default=0)
    return {name: columns.get(name, [None] * rows) for name in schema.names}


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
            ("reward", pa.float64()),  # that it paid
            ("best_action", pa.int8()),  # of highest mean in this round
            ("means", pa.list_(pa.float64())),  # (d,)
            ("times", pa.list_(pa.int32())),  # (d,) how often each action was played before
            ("averages", pa.list_(pa.float64())),  # (d,) of what was shown of each before; NaN of nothing
            ("passes_over", pa.bool_()),  # decides for something else than the best action
            ("unstable", pa.bool_()),  # because of unstable rewards, by the lexical judge
            ("unstable_judged", pa.bool_()),  # by a model; null where none was asked or its answer is not clear
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
            ("invalid", pa.int32()),  # replies without a valid decision; 0 for who does not reply
        ]
    )
