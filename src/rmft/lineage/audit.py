"""Is every artifact what its job wrote, made from what is there now, and up to date? What is not, with what to run."""

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from rmft.artifacts.files import ARTIFACTS, is_artifact, sha256
from rmft.artifacts.json_files import read_json, write_json
from rmft.artifacts.receipts import read_receipt
from rmft.errors import InputError
from rmft.lineage.records import Record, mark_unfinished, read_record, unfinished
from rmft.workflow.runs import run_tool

KNOWN_HASHES = Path(".snakemake/hashes.json")
KINDS = ("missing", "altered", "unrecorded", "stale", "orphan")
OF_INPUTS = ("ok", "updated input files")  # Snakemake's words where nothing of the job itself changed
REASONS = {  # Snakemake's words where ours say more
    "ok": "what it is made from must be made again",
    "params changed": "its parameters or its code changed",
}
MANY = 10
LONG_AGO, NOW = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
SETTLED_SECONDS = 2.0  # a file touched more recently could change again within one tick of the file system's clock


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be."""

    kind: Literal["missing", "altered", "unrecorded", "stale", "orphan"]  # KINDS
    path: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.path} {self.reason}; run `{self.remedy}`"


def problem_of(path: str, record: Record | None, digest: str) -> Finding | None:
    """Return what is wrong with an artifact itself: nothing tells what made it, or it is not what was made."""
    again = f"rm {path}; snakemake"
    if record is None:
        return Finding("unrecorded", path, "has no whole record of what made it", again)
    if digest != record.receipt.sha256:
        return Finding("altered", path, "is not what its job wrote", again)
    if (record.receipt.job, record.receipt.read) != (record.job, record.inputs):
        return Finding("unrecorded", path, "was written by another job than the one on record", again)
    return None


def refuse_altered(artifacts: Iterable[str]) -> None:
    """Raise InputError if an artifact is not what its job wrote, or if nothing tells what made it.

    Snakemake would take it for the job's, since it compares the times of files and the hashes of what was read.
    What it has itself marked as unfinished is left to it. What is older than the last attempt at a file that it was
    made from, and that is missing, is so marked: Snakemake, asked for it alone, would not look for that file.
    """
    records = {path: read_record(path) for path in artifacts}
    present = {path for path in artifacts if Path(path).exists()}
    finished = [path for path in artifacts if path in present and not unfinished(path)]
    hashes = _hashes(finished)
    problems = [found for path in finished if (found := problem_of(path, records[path], hashes[path]))]
    if problems:
        others = f" (and {len(problems) - 1} more: `rmft lineage --all`)" if len(problems) > 1 else ""
        if len(problems) > MANY:
            others += f"; `rm -r {' '.join(ARTIFACTS)}; snakemake` makes all anew"
        raise InputError(f"{problems[0]}, or `dvc checkout` what you last committed{others}")
    for path in outdated(records, present) & set(finished):
        mark_unfinished(path)


def outdated(records: dict[str, Record | None], present: set[str]) -> set[str]:
    """Return the artifacts older than the last attempt at something missing that they were made from.

    A failed job leaves Snakemake's record of it, and nothing of what it was to write.
    """

    @functools.cache
    def last_attempt(path: str) -> datetime:
        """Return when the youngest of an artifact and all it was made from was last begun."""
        record = records.get(path)
        if record is None:
            return LONG_AGO if path not in records or path in present else NOW
        begun = NOW if unfinished(path) else record.started
        return max([begun, *map(last_attempt, record.inputs)])

    return {
        path
        for path, record in records.items()
        if record and any(last_attempt(name) > record.started for name in record.inputs if name not in present)
    }


def _hashes(paths: list[str]) -> dict[str, str]:
    """Return the SHA-256 of files by path; those of unchanged ones from the last time.

    Unchanged is what has the same inode, size, and times of content and of inode: no edit keeps the last of these.
    """
    known, found, hashes = {}, {}, {}
    with suppress(InputError, ValueError):  # damaged: hash all anew
        known = dict(read_json(KNOWN_HASHES)) if KNOWN_HASHES.exists() else {}
    for path in paths:
        stat = Path(path).stat()
        key = [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        *known_key, digest = known[path] if isinstance(known.get(path), list) else [None]
        hashes[path] = digest if known_key == key else sha256(Path(path))
        if time.time() - stat.st_ctime > SETTLED_SECONDS:
            found[path] = [*key, hashes[path]]
    if found != known:
        with suppress(InputError):  # a full or read-only disk: nothing is lost but time
            write_json(KNOWN_HASHES, found)
    return hashes


def audit(asked: dict[str, str]) -> list[Finding]:
    """Return all that is not as it should be in the whole tree; every file is hashed anew.

    asked: every artifact of the workflow, with why Snakemake would make it (again), or "" where it would not. What is
    only out of date because something that it is made from is not as it should be is left out: one cause, one line.
    """
    hash_of = functools.cache(lambda name: sha256(Path(name)))
    records = {path: read_record(path) for path in asked}
    spoilt = {path: found for path in asked if (found := spoilt_by(path, records[path], hash_of))}
    problems = list(spoilt.values())
    suspect = _made_from(set(spoilt), records)
    for path in asked.keys() - spoilt.keys():
        record, why = records[path], asked[path]
        if why and not (path in suspect and why in OF_INPUTS):
            problems.append(Finding("stale", path, f"is out of date: {REASONS.get(why, why)}", "snakemake"))
        elif record and path not in suspect:
            problems += changed_inputs(record, hash_of)
    problems += other_weights(record for path in sorted(asked.keys() - spoilt.keys()) if (record := records[path]))
    for path in (path for folder in ARTIFACTS for path in Path(folder).rglob("*") if path.is_file()):
        if path.as_posix() not in asked:
            problems.append(_orphan(path))
    return sorted(problems, key=lambda problem: (KINDS.index(problem.kind), problem.path))


def other_weights(records: Iterable[Record]) -> Iterator[Finding]:
    """Yield for each file of a hub's model an artifact made with other bytes of it: a revision has but one content.

    Which of the two is wrong only the hub can tell.
    """
    known: dict[str, tuple[str, str]] = {}
    told: set[str] = set()
    for record in records:
        for name, digest in record.receipt.hub.items():
            first, where = known.setdefault(name, (digest, record.path))
            if digest != first and name not in told:
                told.add(name)
                reason = f"was made with {name} of other bytes than {where}, so one of them is wrong"
                yield Finding("stale", record.path, reason, f"rm {record.path} {where}; snakemake")


def _orphan(path: Path) -> Finding:
    remedy = f"rmft prune {path.parent}" if _as_written(path) else f"rm {path}"
    return Finding("orphan", path.as_posix(), "is no part of what snakemake builds", remedy)


def _as_written(path: Path) -> bool:
    """Return whether a job wrote this file, and it is as it was written."""
    slip = read_receipt(path)
    return slip is not None and slip.sha256 == sha256(path)


def spoilt_by(path: str, record: Record | None, hash_of: Callable[[str], str]) -> Finding | None:
    """Return what is wrong with an artifact whatever it was made from."""
    if not Path(path).exists():
        return Finding("missing", path, "is not there", "snakemake")
    if unfinished(path):
        return Finding("stale", path, "was never finished", "snakemake")
    return problem_of(path, record, hash_of(path))


def _made_from(spoilt: set[str], records: dict[str, Record | None]) -> set[str]:
    """Return the artifacts that have a spoilt one among their ancestors."""
    found, before = set(), None
    while found != before:
        before = set(found)
        bad = spoilt | found
        found |= {path for path, record in records.items() if record and not bad.isdisjoint(record.inputs)}
    return found


def changed_inputs(record: Record, hash_of: Callable[[str], str]) -> Iterator[Finding]:
    """Yield where an artifact was made from what was another file at the time."""
    for name, recorded in record.inputs.items():
        if not Path(name).exists():
            yield Finding("missing", name, f"is not there, and {record.path} was made from it", "snakemake")
        elif hash_of(name) != recorded:
            again = f"snakemake --forcerun {record.path}"
            yield Finding("stale", record.path, f"was made from another {name}", again)


def retired(folder: Path, artifacts: Iterable[str]) -> list[Path]:
    """Return the files in a folder that jobs wrote, that are as they wrote them, and that are none of `artifacts`.

    Raise InputError where the folder is not one of artifacts.
    """
    folder = Path(os.path.normpath(folder))
    if not is_artifact(f"{folder.as_posix()}/"):
        raise InputError(f"{folder}: not below {' or '.join(ARTIFACTS)}")
    wanted = set(artifacts)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.as_posix() not in wanted)
    return [path for path in files if _as_written(path)]


def ask_snakemake() -> dict[str, str]:
    """Return every artifact of the workflow, with why Snakemake would make it (again), or "" where it would not.

    Raise InputError with its last line where Snakemake fails.
    """
    # config: an audit says itself what the Snakefile would refuse to start with.
    command = ["snakemake", "--summary", "--nolock", "--config", "audit=true"]
    asked = run_tool(command)
    if asked.returncode:
        line = (asked.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"snakemake --summary failed: {line.removeprefix('rmft: ')}")
    reasons = {}
    for line in asked.stdout.splitlines()[1:]:
        path, _date, _rule, _log, status, plan = line.split("\t")
        reasons[path] = "" if plan == "no update" else status
    return reasons
