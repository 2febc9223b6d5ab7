"""Inheritance by name in params.yaml: what an experiment does not say, it takes from another one or from `defaults`.

From the weakest to the strongest: `defaults` of the kind, the experiment that it `varies`, its own values. Maps are
merged, everything else is replaced. Evaluations alone differ: an experiment has those that it names, or else all of the
experiment that it varies; what one does not say is the varied experiment's evaluation of that name, or else
`each_evaluation`, and its reward set is the one of its name.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rmft.params.kinds import KINDS

EACH = "each_evaluation"
ON_REQUEST = "on_request"
SECTIONS = ("experiments", ON_REQUEST)  # that hold experiments
Place = tuple[str, ...]  # the keys that lead to a value in the file


class Leaf(NamedTuple):
    """A value that is no map, and its place in the file; a reward set named by its evaluation has none."""

    value: Any
    place: Place | None


Tree = dict[str, Any]  # keys → trees or leaves


def with_origins(values: object) -> tuple[object, dict[Place, Place | None]]:
    """Return the values of params.yaml with all inheritance done, without `defaults`; malformed ones as they are.

    With them, of each leaf of an experiment, by its path, the place that it comes from.
    """
    if not isinstance(values, Mapping):
        return values, {}
    if not isinstance(values.get("experiments"), Mapping):
        return {key: value for key, value in values.items() if key != "defaults"}, {}
    sections = {name: section for section in SECTIONS for name in _names(values, section)}
    trees = {name: _experiment(values, sections, name) for name in sections}
    for tree in trees.values():
        if isinstance(tree, dict) and isinstance(tree.get(EACH), dict):
            del tree[EACH]
    origins = {path: leaf.place for path, leaf in _leaves({"experiments": trees})}
    found = {key: value for key, value in values.items() if key != "defaults"}
    found["experiments"] = {name: _plain(tree) for name, tree in trees.items()}
    if names := _names(values, ON_REQUEST):
        found[ON_REQUEST] = {name: found["experiments"][name] for name in names}
    return found, origins


def _names(values: Mapping[str, Any], section: str) -> list[str]:
    """Return the names of the experiments in a section; none where the section is malformed."""
    return list(values[section]) if isinstance(values.get(section), Mapping) else []


def _experiment(
    values: Mapping[str, Any], sections: Mapping[str, str], name: str, varied_by: Place = ()
) -> Tree | Leaf:
    """Return an experiment and what it inherits.

    sections: where each experiment is written. varied_by: experiments that wait for this one, so as not to loop.
    """
    own = _placed(values[sections[name]][name], (sections[name], name))
    if not isinstance(own, dict):
        return own
    original, inherited = _value(own.get("varies")), {}
    if original in sections and original not in (name, *varied_by):
        inherited = _experiment(values, sections, original, (name, *varied_by))
        inherited = inherited if isinstance(inherited, dict) else {}
    kind = _value(own.get("kind", inherited.get("kind")))
    theirs = inherited.pop("evaluations", None)
    before = _merged(*_defaults(values.get("defaults"), kind), _of_kind(inherited, kind))
    found = _merged(before, own)
    theirs = theirs if isinstance(theirs, dict) else {}
    named = own.get("evaluations", {evaluation: {} for evaluation in theirs})
    if isinstance(named, dict):
        found["evaluations"] = {
            evaluation: _evaluation(evaluation, theirs.get(evaluation, before.get(EACH)), own.get(EACH), part)
            for evaluation, part in named.items()
        }
    return found


def _evaluation(name: str, *layers: Tree | Leaf | None) -> Tree | Leaf:
    *_, own = layers
    if isinstance(own, Leaf):  # which is malformed
        return own
    return _merged({"rewards": Leaf(name, None)}, *(layer for layer in layers if isinstance(layer, dict)))


def _defaults(defaults: object, kind: object) -> Iterator[Tree]:
    """Yield the defaults that a kind of experiments takes, the weakest first."""
    if not isinstance(defaults, Mapping) or kind not in KINDS:
        return
    for of in KINDS[kind].defaults_of:
        tree = _placed(defaults.get(of), ("defaults", of))
        if isinstance(tree, dict):
            yield tree if of == kind else _of_kind(tree, kind)


def _of_kind(tree: Tree, kind: object) -> Tree:
    """Return the part of another kind's values that this kind has as well."""
    fields = {*KINDS[kind].model_fields, EACH} - {"varies"} if kind in KINDS else set()
    return {key: value for key, value in tree.items() if key in fields}


def _placed(values: object, place: Place) -> Tree | Leaf:
    if not isinstance(values, Mapping):
        return Leaf(values, place)
    return {key: _placed(value, (*place, str(key))) for key, value in values.items()}


def _merged(*layers: Tree) -> Tree:
    found: Tree = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(found.get(key), dict)
            found[key] = _merged(found[key], value) if both else value
    return found


def _plain(tree: Tree | Leaf) -> object:
    return tree.value if isinstance(tree, Leaf) else {key: _plain(value) for key, value in tree.items()}


def _value(leaf: Tree | Leaf | None) -> object:
    return leaf.value if isinstance(leaf, Leaf) and isinstance(leaf.value, str) else None


def _leaves(tree: Tree | Leaf, path: Place = ()) -> Iterator[tuple[Place, Leaf]]:
    if isinstance(tree, Leaf):
        yield path, tree
        return
    for key, value in tree.items():
        yield from _leaves(value, (*path, str(key)))
