"""From an artifact back to the root seed: everything that it was made from, and whether all of it is still so."""

import functools
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rmft.artifacts.files import ARTIFACTS, is_artifact, sha256
from rmft.errors import InputError
from rmft.lineage.audit import Finding, changed_inputs, other_weights, spoilt_by
from rmft.lineage.records import Record, read_record

SHORT = 12  # digits of a hash that are shown


@dataclass(frozen=True)
class Ancestor:
    """A file on the way from an artifact to its sources.

    sha256: of the file as it is, None where it is missing. record: None for sources, which are in git, and for
    artifacts that have lost theirs.
    """

    path: str
    sha256: str | None
    record: Record | None

    @property
    def inputs(self) -> list[str]:
        """Return what it was made from."""
        return list(self.record.inputs) if self.record else []

    @property
    def data(self) -> list[str]:
        """Return what it was made from, without the user's own code; none where it was drawn from the root seed."""
        extensions = self.record.code.get("extensions", []) if self.record else []
        return [name for name in self.inputs if name not in extensions]


@dataclass(frozen=True)
class Trace:
    """All ancestors of an artifact by path, itself first, each before what it was made from; and what is wrong."""

    path: str
    ancestors: dict[str, Ancestor]
    problems: list[Finding]


def trace(path: Path) -> Trace:
    """Follow an artifact of the workflow in the current folder to its sources, and verify every hash on the way.

    Raise InputError for a path that is no artifact.
    """
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    start = path.as_posix()
    if not is_artifact(start):
        raise InputError(f"{path}: no artifact of this workflow; try a file below {' or '.join(ARTIFACTS)}")
    if not path.is_file() and read_record(start) is None:
        raise InputError(f"{path}: no such file, and no record of it; `snakemake {path}` makes it if it is a target")
    hash_of = functools.cache(lambda name: sha256(Path(name)))
    ancestors = dict(_ancestors(start, hash_of))
    return Trace(start, ancestors, list(_problems(ancestors, hash_of)))


def _ancestors(start: str, hash_of: Callable[[str], str]) -> Iterator[tuple[str, Ancestor]]:
    seen, pending = set(), [start]
    while pending:
        path = pending.pop()
        if path not in seen:
            seen.add(path)
            digest = hash_of(path) if Path(path).exists() else None
            ancestor = Ancestor(path, digest, read_record(path) if is_artifact(path) else None)
            yield path, ancestor
            pending += reversed(ancestor.inputs)


def _problems(ancestors: dict[str, Ancestor], hash_of: Callable[[str], str]) -> Iterator[Finding]:
    """Yield what is wrong with an ancestor itself, then where one was made from what was another at the time."""
    own = {path: _of_itself(ancestor, hash_of) for path, ancestor in ancestors.items()}
    spoilt = {path for path, problem in own.items() if problem}
    for path, ancestor in ancestors.items():
        if own[path]:
            yield own[path]
        elif ancestor.record and spoilt.isdisjoint(ancestor.inputs):
            yield from changed_inputs(ancestor.record, hash_of)
    yield from other_weights(
        ancestor.record for path, ancestor in ancestors.items() if ancestor.record and not own[path]
    )


def _of_itself(ancestor: Ancestor, hash_of: Callable[[str], str]) -> Finding | None:
    if is_artifact(ancestor.path):
        return spoilt_by(ancestor.path, ancestor.record, hash_of)
    if ancestor.sha256 is None:
        return Finding("missing", ancestor.path, "is not there", f"git checkout {ancestor.path}")
    return None


def as_text(found: Trace, width: int = 120) -> Iterator[str]:
    """Yield the lines of the tree: each artifact above what it was made from, and what was told before only once."""
    told: set[str] = set()

    def below(path: str, depth: int) -> Iterator[str]:
        ancestor, indent = found.ancestors[path], "  " * depth
        digest = (ancestor.sha256 or "missing")[:SHORT]
        if ancestor.record is None:
            yield f"{indent}{path}  {digest}  {'no record' if is_artifact(path) else 'a source, in git'}"
        elif path in told:
            yield f"{indent}{path}  {digest}  (above)"
        else:
            told.add(path)
            yield f"{indent}{path}  {digest}"
            for text in _job(ancestor.record, told):
                yield from _wrapped(text, width, f"{indent}  | ")
            for name in ancestor.inputs:
                yield from below(name, depth + 1)
            if not ancestor.data:
                yield f"{indent}  root seed {ancestor.record.settings.get('seed')}"

    return below(found.path, 0)


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _job(record: Record, told: set[str]) -> Iterator[str]:
    """Yield how a job made its artifact: when and where, from which code, with which libraries and settings."""
    made, code = record.receipt, record.code
    commit = f"{made.commit[:SHORT]}{made.commit[40:]}" if made.commit else "none"
    yield f"{record.rule}: {record.wall_seconds:.1f} s on {made.machine}, {record.started:%Y-%m-%d %H:%M} UTC"
    yield f"code {code['digest']}, commit {commit}, Python {made.python}"
    libraries = ", ".join(f"{name} {version}" for name, version in code["libraries"].items())
    settings = "  ".join(f"{key}={_plain(value)}" for key, value in flat(record.settings))
    hub = ", ".join(f"{name} {digest[:SHORT]}" for name, digest in made.hub.items())
    for text in filter(None, (libraries, settings, hub)):
        if text not in told:
            told.add(text)
            yield text


def _plain(value: object) -> str:
    return f"[{', '.join(map(_plain, value))}]" if isinstance(value, list) else str(value)


def flat(settings: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield dotted keys and values of nested settings; what is null is left out."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else key)
    elif settings is not None:
        yield prefix, settings
