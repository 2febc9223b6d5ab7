"""Differences as data: pairs of values by name, statuses by path.

A pair is (A's value, B's value), None where that side has none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rmft.artifacts.json_files import finite
from rmft.params.inheritance import with_origins

ADDED, DELETED, CHANGED = "added", "deleted", "changed"
Pair = tuple[Any, Any]
Keys = tuple[str, ...]


@dataclass(frozen=True)
class CodeChange:
    """A module, stage or file of the workflow that differs, and the stages that run it."""

    name: str
    status: str
    stages: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LibraryChange:
    """A library whose locked version differs, and the stages that import it."""

    name: str
    versions: Pair
    stages: list[str]


@dataclass(frozen=True)
class Difference:
    """Differences between a and b: pairs by name, statuses by path, and in lines what could not be compared.

    inherited: by key of a parameter that an experiment inherits, the key where the value is written.
    machines: the kinds of machines that computed the results of either side, where they differ.
    """

    a: str
    b: str
    parameters: dict[str, Pair] = field(default_factory=dict)
    inherited: dict[str, str] = field(default_factory=dict)
    code: list[CodeChange] = field(default_factory=list)
    libraries: list[LibraryChange] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, dict[str, Pair]] = field(default_factory=dict)
    machines: tuple[list[str], list[str]] | None = None
    unknown: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return all differences, nothing shortened; NaN and infinities become None."""
        return finite(asdict(self))


def tree_difference(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Pair]]:
    """Yield dotted key and pair of each difference between nested maps; a map that one side lacks is one value."""
    for key in {**old, **new}:
        pair = before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from tree_difference(before, after, f"{prefix}{key}.")
        elif before != after:
            yield f"{prefix}{key}", pair


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Pair]]:
    """Yield key and pair of each difference between two maps, in order of keys."""
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield key, (old.get(key), new.get(key))


def statuses(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """Return which keys were added, deleted or changed."""
    return {
        key: ADDED if before is None else DELETED if after is None else CHANGED
        for key, (before, after) in differing(old, new)
    }


def parameter_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[dict[str, Pair], dict[str, str]]:
    """Return pairs by dotted key with all inheritance done, and the keys where inherited values are written, by key.

    old, new: the content of params.yaml and outputs.yaml, as it is written.
    """
    (before, old_places), (after, new_places) = with_origins(old), with_origins(new)
    pairs = dict(tree_difference(before, after))
    places = {**old_places, **new_places}
    written = {key: ".".join(_place(tuple(key.split(".")), places)) for key in pairs}
    return pairs, {key: place for key, place in written.items() if place != key}


def _place(key: Keys, places: Mapping[Keys, Keys | None]) -> Keys:
    """Return where a value is written; a map where the first value in it is."""
    for path, place in places.items():
        if path[: len(key)] == key and place:
            rest = path[len(key) :]
            return place[: len(place) - len(rest)] if rest and place[-len(rest) :] == rest else place
    return key
