"""A receipt for every artifact, written by its job: the artifact's hash, the job's settings, and the files it read.

Snakemake's records hold what a job was meant to read, and not what it wrote. Without receipts, a file that was edited
by hand or written by another job would pass for an artifact.
"""

import functools
import hashlib
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rmft.artifacts.job import JOB_CONTEXT
from rmft.instructions import processor

FOLDER = Path(".snakemake/receipts")
CHECKSUM = "checksum"  # receipts of earlier versions have none


@dataclass(frozen=True)
class Receipt:
    """How an artifact was written, besides Snakemake's record.

    job: `job_id` of the job's settings. read: SHA-256 of every file that the job read, by path. hub: the same for files
    of a hub's models, by id@revision/name. commit: the checked-out commit, with -dirty where tracked files differed
    from it; None outside of git. machine: its kind, and no name or address. artifact: its path; empty in receipts of
    earlier versions.
    """

    sha256: str
    job: str
    read: dict[str, str]
    commit: str | None
    python: str
    machine: str
    hub: dict[str, str] = field(default_factory=dict)
    artifact: str = ""

    def as_json(self) -> str:
        """Return the text of the receipt's file, which ends with a hash of everything in it."""
        values = asdict(self)
        return json.dumps({**values, CHECKSUM: _checksum(values)}, indent=1) + "\n"


def _checksum(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def receipt_path(artifact: Path) -> Path:
    """Return the path of an artifact's receipt."""
    return FOLDER / f"{artifact}.json"


def job_id(settings: str) -> str:
    """Return a short name for a job: a hash of its settings and code, as the text that Snakemake compares."""
    return hashlib.sha256(settings.encode()).hexdigest()[:16]


def receipt(artifact: Path, sha256: str) -> Receipt:
    """Return the receipt of an artifact that this process has just written."""
    job, read, hub = job_id(JOB_CONTEXT.settings), dict(JOB_CONTEXT.read), dict(JOB_CONTEXT.hub)
    return Receipt(sha256, job, read, commit(), platform.python_version(), machine(), hub, artifact.as_posix())


def read_receipt(artifact: Path) -> Receipt | None:
    """Return an artifact's receipt, or None where it has no whole one."""
    try:
        values = json.loads(receipt_path(artifact).read_text(encoding="utf-8"))
        checksum = values.pop(CHECKSUM, None)
        return Receipt(**values) if checksum in (None, _checksum(values)) else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


@functools.cache
def commit(folder: Path = Path(), besides: tuple[str, ...] = ()) -> str | None:
    """Return the commit that is checked out, with -dirty where tracked files differ from it; None outside of git.

    besides: paths that may differ, from the root of the repository.
    """
    git = ["git", "--no-optional-locks"]
    changed = ["diff", "--quiet", "HEAD", "--", ":/", *(f":/!{path}" for path in besides)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
        dirty = subprocess.run([*git, *changed], cwd=folder, capture_output=True, check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + "-dirty" * bool(dirty)


@functools.cache
def machine() -> str:
    """Return the kind of this machine, and no name or address."""
    of_processor = " ".join(filter(None, processor()))  # its instructions decide how libraries round
    parts = [f"{platform.system()} {platform.machine()}", of_processor, f"{os.cpu_count()} cores"]
    torch = sys.modules.get("torch")  # loaded where jobs of the run compute with it
    if torch is not None and torch.cuda.is_available():
        parts.append(f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}")
    return ", ".join(filter(None, parts))
