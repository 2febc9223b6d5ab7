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
from rmft.instructions import processor, unusual_instructions

FOLDER = Path(".snakemake/receipts")
CHECKSUM = "checksum"


@dataclass(frozen=True)
class Receipt:
    """How an artifact was written, besides Snakemake's record.

    job: `job_id` of the job's settings. read: SHA-256 of every file that the job read, by path. hub: the same for files
    of a hub's models, by id@revision/name. responses: a hash of the endpoint's responses that the job used, which its
    journal holds; empty without an endpoint. ran_with: versions of servers that played, and environment variables that
    change how libraries round. commit: that was checked out when the job began, with -dirty where tracked files
    differed from it; None outside of git. machine: its kind, and no name or address. artifact: its path. cpu_seconds:
    what the job's process and those that it had waited for had used until then; a server's own are not among them.
    In receipts of earlier versions artifact, responses and ran_with are empty, and cpu_seconds is None.
    """

    sha256: str
    job: str
    read: dict[str, str]
    commit: str | None
    python: str
    machine: str
    hub: dict[str, str] = field(default_factory=dict)
    artifact: str = ""
    responses: str = ""
    ran_with: dict[str, str] = field(default_factory=dict)
    cpu_seconds: float | None = None

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
    return Receipt(
        sha256=sha256,
        job=job_id(JOB_CONTEXT.settings),
        read=dict(JOB_CONTEXT.read),
        commit=commit(),
        python=platform.python_version(),
        machine=machine(),
        hub=dict(JOB_CONTEXT.hub),
        artifact=artifact.as_posix(),
        responses=_checksum(JOB_CONTEXT.responses) if JOB_CONTEXT.responses else "",
        ran_with=JOB_CONTEXT.ran_with | unusual_instructions(),
        cpu_seconds=round(sum(os.times()[:4]), 2),
    )


def read_receipt(artifact: Path) -> Receipt | None:
    """Return an artifact's receipt, or None where it has no whole one."""
    try:
        values = json.loads(receipt_path(artifact).read_text(encoding="utf-8"))
        checksum = values.pop(CHECKSUM, None)
        return Receipt(**values) if checksum == _checksum(values) else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


@functools.cache
def commit(folder: Path = Path(), besides: tuple[str, ...] = ()) -> str | None:
    """Return the commit that is checked out, with -dirty where tracked files differ from it; None outside of git.

    None, too, where the commit holds nothing in the folder: it is that of another project around it. besides: paths
    that may differ, from the root of the repository. The first call of a process counts: a job begins with it.
    """
    git = ["git", "--no-optional-locks"]
    changed = ["diff", "--quiet", "HEAD", "--", ":/", *(f":/!{path}" for path in besides)]
    try:
        both = [*git, "rev-parse", "HEAD", "HEAD:./"]  # the commit, and what it holds in this folder
        found = subprocess.run(both, cwd=folder, capture_output=True, text=True, check=True)
        dirty = subprocess.run([*git, *changed], cwd=folder, capture_output=True, check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.split()[0] + "-dirty" * bool(dirty)


def machine() -> str:
    """Return the kind of this machine, and no name or address; with its GPUs where the job may compute with them."""
    # Not whether torch is loaded, which depends on the jobs beside this one: forks have the libraries of all.
    return _machine(gpus='"torch":' in JOB_CONTEXT.settings or not JOB_CONTEXT.settings)


@functools.cache
def _machine(*, gpus: bool) -> str:
    of_processor = " ".join(filter(None, processor()))  # its instructions decide how libraries round
    parts = [f"{platform.system()} {platform.machine()}", of_processor, f"{os.cpu_count()} cores"]
    torch = sys.modules.get("torch")
    if gpus and torch is not None and torch.cuda.is_available():
        parts.append(f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}")
    return ", ".join(filter(None, parts))
