"""From an artifact back to the root seed: all files that it was made from, with every hash verified."""

import functools
import glob
import os
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmft.artifacts.files import ARTIFACTS, is_artifact, sha256
from rmft.artifacts.here import from_here
from rmft.errors import InputError, did_you_mean
from rmft.lineage.audit import Finding, changed_inputs, own_problem, weights_that_differ
from rmft.lineage.records import Record, read_record
from rmft.package_data import require_clone

NO_REPOSITORY = "not a git repository"  # in git's answer, in English


@dataclass(frozen=True)
class Ancestor:
    """A file on the way from an artifact to its sources.

    sha256: of the file as it is now, None where it is missing. record: None for sources, and for artifacts whose record
    is lost. in_git: whether git holds the file, whatever was changed in it since.
    """

    path: str
    sha256: str | None
    record: Record | None
    in_git: bool

    @property
    def inputs(self) -> list[str]:
        """Return the files that it was made from."""
        return list(self.record.inputs) if self.record else []

    @property
    def drawn(self) -> bool:
        """Return whether a job drew it from the root seed, without data: from the user's extensions at most."""
        return self.record is not None and set(self.inputs) <= set(self.record.code.get("extensions", []))


@dataclass(frozen=True)
class Trace:
    """All ancestors of an artifact by path, itself first, each before its inputs; and the problems found.

    Several artifacts may be traced together: `path` is then the first.
    """

    path: str
    ancestors: dict[str, Ancestor]
    problems: list[Finding]

    def part(self, path: str) -> "Trace":
        """Return the trace of one of the ancestors; no file is read again."""
        ancestors = dict(_reached([path], self.ancestors.__getitem__))
        return Trace(path, ancestors, [problem for problem in self.problems if problem.path in ancestors])


def trace(*paths: Path) -> Trace:
    """Follow artifacts of the workflow in the current folder to their sources, and verify every hash on the way.

    Raise InputError for a path that is no artifact.
    """
    starts = [_as_artifact(path) for path in paths]
    hash_of = functools.cache(lambda name: sha256(Path(name)))
    held = _files_in_git()
    ancestors = dict(_reached(starts, lambda name: _ancestor(name, hash_of, held)))
    return Trace(starts[0], ancestors, list(_problems(ancestors, hash_of)))


def _files_in_git() -> frozenset[str]:
    """Return the files below the current folder that git holds, relative to it; none outside of a git repository.

    Raise InputError where git refuses to say, as of a repository of another user.
    """
    english = {**os.environ, "LC_ALL": "C"}
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True, env=english)
    except OSError:
        return frozenset()
    except subprocess.CalledProcessError as error:
        if NO_REPOSITORY in error.stderr:
            return frozenset()
        reason, _, more = error.stderr.strip().partition("\n")
        cure = next((line.strip() for line in more.splitlines() if "safe.directory" in line), "")
        raise InputError(f"git: {reason.removeprefix('fatal: ')}{f'; run `{cure}`' if cure else ''}") from None
    return frozenset(listed.stdout.split("\0"))


def _as_artifact(path: Path) -> str:
    path = from_here(path)
    if not is_artifact(path.as_posix()):
        require_clone()
        meant = _meant(path) or f"try a file below {' or '.join(ARTIFACTS)}"
        raise InputError(f"{path}: no artifact of this workflow; {meant}")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it, such as {_example(path)}")
    if not path.is_file() and read_record(path.as_posix()) is None:
        require_clone()
        meant = _meant(path) or f"`snakemake {path}` makes it if it is a target"
        raise InputError(f"{path}: no such file, and no record of it; {meant}")
    return path.as_posix()


def _meant(path: Path) -> str:
    """Return a question for the artifact that a wrong path may mean; empty where none is near.

    It is one that is called so, perhaps without its ending or folder, or one of a similar name in the same folder.
    """
    names = (name := glob.escape(path.name)), f"{name}.*"
    there = (file for folder in ARTIFACTS for name in names for file in Path(folder).rglob(name))
    if called_so := min((file.as_posix() for file in there if file.is_file()), default=""):
        return f"did you mean {called_so}?"
    if path.exists():
        return ""
    beside = [file.as_posix() for file in path.parent.glob("*") if file.is_file()]
    return did_you_mean(path.as_posix(), beside)


def _example(folder: Path) -> str:
    """Return a file below a folder: the one nearest to it, the first by name."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return str(min(files, key=lambda path: (len(path.parts), path), default=f"{folder}/…"))


def _reached(starts: Sequence[str], ancestor_of: Callable[[str], Ancestor]) -> Iterator[tuple[str, Ancestor]]:
    """Yield artifacts and all their ancestors, by path, each before its inputs."""
    seen, pending = set(), [*reversed(starts)]
    while pending:
        path = pending.pop()
        if path not in seen:
            seen.add(path)
            ancestor = ancestor_of(path)
            yield path, ancestor
            pending += reversed(ancestor.inputs)


def _ancestor(path: str, hash_of: Callable[[str], str], held: Collection[str]) -> Ancestor:
    """Return a file on the way. held: the files that git holds."""
    digest = hash_of(path) if Path(path).exists() else None
    return Ancestor(path, digest, read_record(path) if is_artifact(path) else None, path in held)


def _problems(ancestors: dict[str, Ancestor], hash_of: Callable[[str], str]) -> Iterator[Finding]:
    """Yield what is wrong with an ancestor itself, then where an input was another file when a job read it."""
    own = {path: _own_problem(ancestor, hash_of) for path, ancestor in ancestors.items()}
    spoilt = {path for path, problem in own.items() if problem}
    for path, ancestor in ancestors.items():
        if own[path]:
            yield own[path]
        elif ancestor.record and spoilt.isdisjoint(ancestor.inputs):
            yield from changed_inputs(ancestor.record, hash_of)
    sound = (ancestor.record for path, ancestor in ancestors.items() if path not in spoilt)
    yield from weights_that_differ(record for record in sound if record)


def _own_problem(ancestor: Ancestor, hash_of: Callable[[str], str]) -> Finding | None:
    path = ancestor.path
    if is_artifact(path):
        problem = own_problem(path, ancestor.record, hash_of)
        if problem and problem.kind == "unrecorded" and ancestor.record is None:  # perhaps no job makes this file
            return Finding("unrecorded", path, problem.reason, "rmft lineage --all")
        return problem
    if ancestor.sha256:
        return None
    if ancestor.in_git:
        return Finding("missing", path, "is not there", f"git checkout {path}")
    return Finding("missing", path, "is not there; git does not hold it, so put it back", "snakemake")
