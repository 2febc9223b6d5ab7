"""Find every artifact that is not what its job wrote, not up to date, or no part of the workflow; say what to run."""

import functools
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Literal

from rmft.artifacts.files import ARTIFACTS, is_artifact, sha256
from rmft.artifacts.folders import files_below
from rmft.artifacts.here import from_here, move_away
from rmft.artifacts.json_files import read_json, write_json
from rmft.artifacts.receipts import read_receipt
from rmft.errors import InputError
from rmft.lineage.records import Record, mark_unfinished, read_record, unfinished
from rmft.params.files import EXPERIMENTS, experiment_in

KNOWN_HASHES = Path(".snakemake/hashes.json")
KINDS = ("missing", "altered", "unrecorded", "stale", "orphan")
OF_INPUTS = ("ok", "updated input files")  # Snakemake's words where nothing of the job itself changed
REASONS = {  # Snakemake's words where ours say more
    "ok": "what it is made from must be made again",
    "params changed": "its parameters or its code changed",
}
MANY = 10  # problems, before they are counted
LONG_AGO, NOW = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
SETTLED_SECONDS = 2.0  # a file touched more recently could change again within one tick of the file system's clock


@dataclass(frozen=True)
class Finding:
    """A problem of one file or folder, and the command that mends it."""

    kind: Literal["missing", "altered", "unrecorded", "stale", "orphan"]  # KINDS
    path: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.path} {self.reason}; run `{self.remedy}`"


def as_lines(problems: Iterable[Finding], *, full: bool = False) -> Iterator[str]:
    """Yield a line a problem, but one line for many problems with the same reason and remedy, unless `full`."""
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for problem in problems:
        alike.setdefault((problem.kind, problem.reason, problem.remedy), []).append(problem)
    for (kind, reason, remedy), several in alike.items():
        if full or len(several) <= MANY:
            yield from map(str, several)
        else:
            more = f"as with {len(several) - 1} more files (--full names them)"
            yield f"{kind}: {several[0].path} {reason}, {more}; run `{remedy}`"


def naming_targets(problems: Iterable[Finding], targets: Collection[str]) -> list[Finding]:
    """Return problems with commands that mend them, where `snakemake` alone makes too little or too much.

    targets: the artifacts to name: those that are made on request only, and those that the user asked about.
    """
    return [_naming_target(problem) if problem.path in targets else problem for problem in problems]


def _naming_target(problem: Finding) -> Finding:
    target = f"exp_{name}" if (name := experiment_in(problem.path)) else problem.path
    remedy = re.sub(r"(?<!\S)snakemake$", f"snakemake {target}", problem.remedy)
    return replace(problem, remedy=remedy)


# Before a build


def refuse_altered(artifacts: Iterable[str], on_request: Collection[str] = ()) -> dict[str, Finding]:
    """Raise InputError if an artifact is not what its job wrote, or has no record of its job.

    Of the artifacts on request among them, return these by path instead. DVC versions the records of these and not the
    files: going to another commit takes the records away, or puts those of another file in their place.

    Snakemake would take it for the job's, since it compares times of files and hashes of inputs only. A file that
    Snakemake itself has marked as unfinished is left to it. An artifact whose source was edited while its job ran is so
    marked. An artifact older than the last attempt at a missing file
    that it was made from is so marked: Snakemake, asked for this artifact alone, would not look for the missing file.
    A source that is older than the artifact, but has other bytes than its job read, gets a new time: Snakemake looks at
    the bytes of younger files only, and `mv` and `cp -p` keep the time of an older one.
    """
    records = {path: read_record(path) for path in artifacts}
    present = {path for path in records if Path(path).exists()}
    finished = [path for path in records if path in present and not unfinished(path)]
    inputs = {name for path in finished if (record := records[path]) for name in record.inputs}
    sources = sorted(name for name in inputs - records.keys() if Path(name).is_file())
    hashes = _hashes([*finished, *sources])
    found = [problem for path in finished if (problem := problem_of(path, records[path], hashes[path]))]
    wrong = {problem.path: problem for problem in found if problem.kind != "stale"}
    left_alone = {path: problem for path, problem in wrong.items() if path in on_request}
    problems = [problem for path, problem in wrong.items() if path not in on_request]
    if problems:
        others = f" (and {len(problems) - 1} more: `rmft lineage --all`)" if len(problems) > 1 else ""
        if len(problems) > MANY:
            others += f"; `mkdir old; mv {' '.join(ARTIFACTS)} old; snakemake` makes all anew"
        raise InputError(f"{problems[0]}, or `dvc checkout --force` brings back what dvc.lock has{others}")
    spoilt = (outdated(records, present) & set(finished)) | {problem.path for problem in found}
    for path in spoilt - left_alone.keys():
        mark_unfinished(path)
    of_sources = {name: hashes[name] for name in sources}
    for path in (path for path in finished if path not in left_alone):
        for name in _replaced_by_older(path, records[path].inputs, of_sources):
            _make_younger(name, path)
    return left_alone


def refuse_left_alone(problems: Sequence[Finding]) -> None:
    """Raise InputError if a run would take artifacts on request as they are that `refuse_altered` left alone."""
    if problems:
        first, more = problems[0], f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        if more and (name := experiment_in(first.path)):
            first = replace(first, remedy=f"{move_away(f'{EXPERIMENTS}/{name}')}; snakemake exp_{name}")
        raise InputError(f"{first}, or go to the commit that made it{more}")


def _replaced_by_older(path: str, read: Mapping[str, str | None], sources: Mapping[str, str]) -> list[str]:
    """Return the sources that an artifact's job read, and that are older than the artifact and have other bytes now.

    sources: hashes by path.
    """
    changed = [name for name in read if name in sources and read[name] not in (None, sources[name])]
    return [name for name in changed if Path(name).stat().st_mtime <= Path(path).stat().st_mtime]


def _make_younger(source: str, artifact: str) -> None:
    """Give a source the present as its time; where that is not allowed, have Snakemake make the artifact again."""
    try:
        os.utime(source)
    except OSError:  # not ours, or on a read-only file system
        mark_unfinished(artifact)


def problem_of(path: str, record: Record | None, digest: str) -> Finding | None:
    """Return what is wrong with an artifact itself: no record of its job, or other bytes than the job wrote there.

    The receipt says what the job has read, and Snakemake's record what was there when the job ended: a source may have
    been edited in between.
    """
    again = f"{move_away(path)}; snakemake {path}"
    if record is None:
        return Finding("unrecorded", path, "has no whole record of what made it", again)
    if digest != record.receipt.sha256:
        return Finding("altered", path, "is not what its job wrote", again)
    read, there = record.receipt.read, record.inputs
    differ = sorted(name for name in {*read, *there} if read.get(name) != there.get(name))
    if record.receipt.job != record.job or not all(name in read and not is_artifact(name) for name in differ):
        return Finding("unrecorded", path, "was written by another job than the one on record", again)
    if differ:
        return Finding("stale", path, f"was made while {differ[0]} was edited", "snakemake")
    if record.receipt.artifact not in ("", path):
        return Finding("unrecorded", path, f"is what its job wrote as {record.receipt.artifact}", again)
    return None


def outdated(records: dict[str, Record | None], present: set[str]) -> set[str]:
    """Return the artifacts older than the last attempt at a missing file that they were made from.

    A failed job leaves Snakemake's record of it, and no output.
    """

    @functools.cache
    def last_attempt(path: str) -> datetime:
        """Return when the youngest of an artifact and all its ancestors was last begun."""
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
    """Return the SHA-256 of files by path; of unchanged files as stored the last time.

    A file is unchanged if inode, size, and the times of content and inode are the same: an edit changes the last one.
    """
    known, current, hashes = {}, {}, {}
    with suppress(InputError, ValueError, TypeError):  # damaged: hash all anew
        known = dict(read_json(KNOWN_HASHES)) if KNOWN_HASHES.exists() else {}
    for path in paths:
        stat = Path(path).stat()
        key = [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]
        *known_key, digest = known[path] if isinstance(known.get(path), list) and known[path] else [None]
        hashes[path] = digest if known_key == key else sha256(Path(path))
        if time.time() - stat.st_ctime > SETTLED_SECONDS:
            current[path] = [*key, hashes[path]]
    if current != known:
        with suppress(InputError):  # a full or read-only disk: the next run hashes again
            write_json(KNOWN_HASHES, current)
    return hashes


# Of the whole tree


def audit(reasons: dict[str, str], others: Collection[str] = ()) -> list[Finding]:
    """Return all problems of the whole tree; every file is hashed anew.

    reasons: for every artifact of the workflow, why Snakemake would make it (again), or "" where it would not. others:
    artifacts that are none of the audit's business.
    An artifact that is out of date only because of a problem with one of its ancestors is left out.
    """
    hash_of = functools.cache(lambda name: sha256(Path(name)))
    records = {path: read_record(path) for path in reasons}
    own = {path: problem for path in reasons if (problem := own_problem(path, records[path], hash_of))}
    problems = list(own.values())
    suspect = _descendants(set(own), records)
    for path in reasons.keys() - own.keys():
        record, reason = records[path], reasons[path]
        if reason and not (path in suspect and reason in OF_INPUTS):
            problems.append(Finding("stale", path, f"is out of date: {REASONS.get(reason, reason)}", "snakemake"))
        elif record and path not in suspect:
            problems += changed_inputs(record, hash_of)
    problems += weights_that_differ(record for path in sorted(reasons.keys() - own.keys()) if (record := records[path]))
    problems += orphans({*reasons, *others})
    return sorted(problems, key=lambda problem: (KINDS.index(problem.kind), problem.path))


def own_problem(path: str, record: Record | None, hash_of: Callable[[str], str]) -> Finding | None:
    """Return what is wrong with an artifact, whatever it was made from."""
    if not Path(path).exists():
        return Finding("missing", path, "is not there", "snakemake")
    if unfinished(path):
        return Finding("stale", path, "was never finished", "snakemake")
    return problem_of(path, record, hash_of(path))


def changed_inputs(record: Record, hash_of: Callable[[str], str]) -> Iterator[Finding]:
    """Yield a problem for each input that is missing, or that was another file when the job read it."""
    for name, recorded in record.inputs.items():
        if not Path(name).exists():
            yield Finding("missing", name, f"is not there, and {record.path} was made from it", "snakemake")
        elif hash_of(name) != recorded:
            again = f"snakemake --forcerun {record.path}"
            yield Finding("stale", record.path, f"was made from another {name}", again)


def weights_that_differ(records: Iterable[Record]) -> Iterator[Finding]:
    """Yield a problem for each file of a hub's model that two artifacts were made with, in different bytes.

    A revision has one content, so one of the two is wrong; only the hub can tell which.
    """
    known: dict[str, tuple[str, str]] = {}
    reported: set[str] = set()
    for record in records:
        for name, digest in record.receipt.hub.items():
            first, where = known.setdefault(name, (digest, record.path))
            if digest != first and name not in reported:
                reported.add(name)
                reason = f"was made with {name} of other bytes than {where}, so one of them is wrong"
                yield Finding("stale", record.path, reason, f"snakemake --forcerun {record.path} {where}")


def _descendants(spoilt: set[str], records: dict[str, Record | None]) -> set[str]:
    """Return the artifacts that have a spoilt one among their ancestors."""
    reached, before = set(), None
    while reached != before:
        before = set(reached)
        bad = spoilt | reached
        reached |= {path for path, record in records.items() if record and not bad.isdisjoint(record.inputs)}
    return reached


# Files that are no part of the workflow


def orphans(artifacts: Iterable[str]) -> Iterator[Finding]:
    """Yield a problem for each folder with files of former jobs, and for each file that no job wrote.

    All folders that have moved below results/experiments since they were written share one line.
    """
    wanted = set(artifacts)
    kept = {parent for path in wanted for parent in PurePosixPath(path).parents}
    experiments = PurePosixPath(EXPERIMENTS)
    names = {folder.name for folder in kept if folder.parent == experiments}
    former: dict[PurePosixPath, int] = {}
    for path in _files_below(*ARTIFACTS):
        if path in wanted:
            continue
        if not _as_written(Path(path)):
            reason = "is no part of what snakemake builds, and no job wrote it as it is"
            yield Finding("orphan", path, reason, move_away(path))
            continue
        folders = [folder for folder in PurePosixPath(path).parents if folder not in kept]
        top = folders[-1] if folders and len(folders[-1].parts) > 1 else PurePosixPath(path)
        former[top] = former.get(top, 0) + 1
    moved = [folder for folder in former if folder.parent == experiments.parent and folder.name in names]
    if moved:
        where = f"{moved[0]} and {len(moved) - 1} more folders" if len(moved) > 1 else f"{moved[0]}"
        reason = f"of a former version, before {EXPERIMENTS}: move away what you want to keep"
        yield Finding("orphan", where, reason, "rmft prune")
    for top in former.keys() - set(moved):
        count = "" if former[top] == 1 else f"({former[top]} files) "
        yield Finding("orphan", f"{top}", f"{count}is no part of what snakemake builds", f"rmft prune {top}")


def _files_below(*folders: str) -> Iterator[str]:
    for folder in folders:
        yield from (path.as_posix() for path in files_below(Path(folder)))


def _as_written(path: Path) -> bool:
    """Return whether a job wrote this file, and it is as it was written."""
    receipt = read_receipt(path)
    return receipt is not None and receipt.sha256 == sha256(path)


def retired(path: Path, artifacts: Iterable[str]) -> list[Path]:
    """Return the files at or below a path that are as jobs wrote them and that are none of `artifacts`.

    Raise InputError where the path is not below the folders of artifacts.
    """
    path = from_here(path)
    if not is_artifact(f"{path.as_posix()}/"):
        raise InputError(f"{path}: not below {' or '.join(ARTIFACTS)}")
    files = [path.as_posix()] if path.is_file() else _files_below(path.as_posix())
    return [Path(file) for file in sorted(set(files) - set(artifacts)) if _as_written(Path(file))]
