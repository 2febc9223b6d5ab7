"""The record of an artifact: Snakemake's metadata of the job that made it, joined with the receipt of the job.

This module reads Snakemake's metadata and changes none of it; it can only mark an artifact as unfinished.
"""

import ast
import base64
import functools
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from rmft.artifacts.receipts import Receipt, job_id, read_receipt
from rmft.errors import InputError

METADATA = Path(".snakemake/metadata")
UNFINISHED = Path(".snakemake/incomplete")
NAME_BYTES = 254  # of the longest file name that Snakemake gives a part of a record's path


@dataclass(frozen=True)
class Record:
    """How one artifact was made.

    inputs: path → SHA-256 of every file that the job read. settings: the job's part of params.yaml. code: digest and
    libraries of `lineage.code.fingerprint`. job: `job_id` of settings and code.
    """

    path: str
    rule: str
    inputs: dict[str, str | None]
    settings: dict[str, Any]
    code: dict[str, Any]
    job: str
    started: datetime
    wall_seconds: float
    receipt: Receipt


def read_record(path: str) -> Record | None:
    """Return the record of an artifact, or None where metadata or receipt are missing or damaged."""
    receipt = read_receipt(Path(path))
    if receipt is None:
        return None
    try:
        raw = json.loads(file_of(METADATA, path).read_text(encoding="utf-8"))
        # Snakemake does not hash very large files; for them the receipt has the hash.
        # Receipts have paths in this form, Snakemake those of params.yaml.
        named = {_as_posix(name): text.split(":")[-1] for name, text in raw["input_checksums"].items()}
        hashes = {**receipt.read, **named}
        inputs = {name: hashes.get(name) for name in map(_as_posix, raw["input"])}
        job = next(text for text in map(ast.literal_eval, raw["params"]) if '"code":{' in text)
        settings = json.loads(job)
        code = settings.pop("code")
        if not {"digest", "libraries"} <= code.keys():
            return None
        started = datetime.fromtimestamp(raw["starttime"], UTC)
        seconds = raw["endtime"] - raw["starttime"]
        return Record(path, raw["rule"], inputs, settings, code, job_id(job), started, seconds, receipt)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, StopIteration):
        return None


@functools.cache  # hundreds of jobs read the same files
def _as_posix(path: str) -> str:
    return PurePath(path).as_posix()


def mark_unfinished(path: str) -> None:
    """Let Snakemake make an artifact again, as if a job had not finished it. Raise InputError where that fails."""
    mark = file_of(UNFINISHED, path)
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text('{"external_jobid": null}', encoding="utf-8")
    except OSError as error:
        raise InputError(f"{mark}: cannot be written: {error.strerror or error}") from None


def unfinished(path: str) -> bool:
    """Return whether Snakemake began to make this file and did not finish; its next run makes the file again."""
    return file_of(UNFINISHED, path).exists()


def file_of(folder: Path, path: str) -> Path:
    """Return Snakemake's own file about a file: base64 of the path, cut into folders that begin with @."""
    encoded = base64.urlsafe_b64encode(path.encode()).decode()
    parts = [encoded[start : start + NAME_BYTES] for start in range(0, len(encoded), NAME_BYTES)]
    return folder.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])


def artifact_of(metadata: Path) -> Path:
    """Return the artifact that one of Snakemake's files below METADATA is about."""
    parts = metadata.relative_to(METADATA).parts
    return Path(base64.urlsafe_b64decode("".join(part.removeprefix("@") for part in parts)).decode())
