"""A receipt for every artifact, left by the job that wrote it: its hash, and what the job was given and really read.

Snakemake's records say what a job was to read, not what it wrote. Without receipts a file that was edited by hand, or
that another job wrote, would pass for an artifact, and what is made from it for a result.
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

from rmft.artifacts.job import JOB_CONTEXT

FOLDER = Path(".snakemake/receipts")


@dataclass(frozen=True)
class Receipt:
    """What is known of an artifact's writing, besides Snakemake's record.

    job: `job_id` of the job's settings. read: SHA-256 of every file that it had read, by path. hub: the same of models
    of a hub, by id@revision/name. commit: the checked-out commit, with -dirty where tracked files differed from it;
    None outside of git. machine: what kind of machine, never which one.
    """

    sha256: str
    job: str
    read: dict[str, str]
    commit: str | None
    python: str
    machine: str
    hub: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> str:
        """Return it as the text of its file."""
        return json.dumps(asdict(self), indent=1) + "\n"


def receipt_path(artifact: Path) -> Path:
    """Return where the receipt of an artifact is."""
    return FOLDER / f"{artifact}.json"


def job_id(settings: str) -> str:
    """Return a short name for a job: a hash of its settings, code included, as the text that Snakemake compares."""
    return hashlib.sha256(settings.encode()).hexdigest()[:16]


def receipt(sha256: str) -> Receipt:
    """Return the receipt of what this process has just written."""
    made_on = platform.python_version(), _machine()
    return Receipt(
        sha256, job_id(JOB_CONTEXT.settings), dict(JOB_CONTEXT.read), _commit(), *made_on, dict(JOB_CONTEXT.hub)
    )


def read_receipt(artifact: Path) -> Receipt | None:
    """Return an artifact's receipt, or None where it has no readable one."""
    try:
        return Receipt(**json.loads(receipt_path(artifact).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


@functools.cache
def _commit() -> str | None:
    describe = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@functools.cache
def _machine() -> str:
    parts = [f"{platform.system()} {platform.machine()}", f"{os.cpu_count()} cores"]
    torch = sys.modules.get("torch")  # loaded where jobs of the run compute with it
    if torch is not None and torch.cuda.is_available():
        parts.append(f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}")
    return ", ".join(parts)
