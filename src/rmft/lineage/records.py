"""What is on record of an artifact: Snakemake's record of the job that made it, and the receipt that the job left.

Records are read here and never written.
"""

import ast
import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rmft.lineage.receipts import Receipt, read_receipt

METADATA = Path(".snakemake/metadata")
UNFINISHED = Path(".snakemake/incomplete")
ARTIFACTS = ("results", "data/rewards")  # every file below these folders is an artifact
NAME_BYTES = 254  # of the longest file name that Snakemake gives a part of a record's path


@dataclass(frozen=True)
class Record:
    """What is on record of one artifact.

    inputs: path → SHA-256 of everything that was read, None where Snakemake did not hash it.
    settings: the job's record from params.yaml. code: digest and libraries of `lineage.code.fingerprint`.
    """

    path: str
    rule: str
    inputs: dict[str, str | None]
    settings: dict[str, Any]
    code: dict[str, Any]
    started: datetime
    wall_seconds: float
    receipt: Receipt


def read_record(path: str) -> Record | None:
    """Return what is on record of an artifact, or None where record or receipt are lacking or damaged."""
    receipt = read_receipt(Path(path))
    try:
        raw = json.loads(file_of(METADATA, path).read_text(encoding="utf-8"))
        checksums = raw["input_checksums"]
        inputs = {name: checksums.get(name, "").removeprefix("sha256:") or None for name in raw["input"]}
        params = [param for param in map(_param, raw["params"]) if isinstance(param, dict)]
        code = next(param for param in params if param.keys() == {"digest", "libraries"})
        settings = next((param for param in params if param is not code), {})
        started = datetime.fromtimestamp(raw["starttime"], UTC)
        seconds = raw["endtime"] - raw["starttime"]
        return receipt and Record(path, raw["rule"], inputs, settings, code, started, seconds, receipt)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None


def unfinished(path: str) -> bool:
    """Return whether Snakemake began to make this file and never finished; it makes it again by itself."""
    return file_of(UNFINISHED, path).exists()


def file_of(folder: Path, path: str) -> Path:
    """Return where Snakemake keeps what it knows of a file: base64 of its path, cut into folders that begin with @."""
    encoded = base64.urlsafe_b64encode(path.encode()).decode()
    parts = [encoded[start : start + NAME_BYTES] for start in range(0, len(encoded), NAME_BYTES)]
    return folder.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])


def _param(text: str) -> object:
    """Return a param of a rule from its repr in Snakemake's record: JSON where it is JSON."""
    value = ast.literal_eval(text)
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return value
