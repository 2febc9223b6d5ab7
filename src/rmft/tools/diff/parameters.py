"""Parameters that differ between two revisions, with all inheritance done, and the default that each comes from."""

from collections.abc import Mapping
from typing import Any

from rmft.params.inheritance import with_origins
from rmft.tools.diff.difference import Pair, tree_difference

Keys = tuple[str, ...]


def parameter_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[dict[str, Pair], dict[str, str]]:
    """Return pairs by dotted key, and by key, for a value that an experiment inherits, the key where it is written.

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
