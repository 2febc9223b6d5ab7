"""`rmft params`: the parameters as they are at their scale, and where each value of an experiment comes from."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from rmft.errors import InputError, unknown
from rmft.params import Params
from rmft.params.inheritance import Place
from rmft.params.reading import read
from rmft.workflow.plan import reply_limit

COLUMN = 44  # where the places begin
REPLIES = ("protocol", "max_tokens")  # the key that a model may limit
NOT_LEARNT_FROM = ("varies", "scale", "evaluations")  # keys of an experiment that do not change how a model is trained


def explained(path: Path, name: str, scale: str | None = None) -> str:
    """Return an experiment as it runs, as YAML, each value with its place. Raise InputError for an unknown name.

    A place is a key of the file, `experiments` left out; a value that no place says is the schema's default.
    """
    full_size, places = read(path, scale)
    if name not in full_size.experiments:
        raise InputError(f"params: {unknown(name, full_size.experiments)}")
    params = full_size.at_scale()
    whole, ours = (dict(_leaves(of.experiments[name].model_dump(mode="json"))) for of in (full_size, params))
    chosen = params.experiments[name]
    limit, limiting = reply_limit(params, chosen) if chosen.in_words else (0, None)
    lines, above = [f"# {name} at scale {full_size.scale}"], ()
    for key, value in ours.items():
        *parents, last = key
        shared = next((i for i, (a, b) in enumerate(zip(above, parents, strict=False)) if a != b), len(above))
        lines += [f"{'  ' * i}{parents[i]}:" for i in range(min(shared, len(parents)), len(parents))]
        above = tuple(parents)
        text = f"{'  ' * len(parents)}{last}: {json.dumps(value, ensure_ascii=False)}"
        place = _place(places, ("experiments", name, *key))
        if value != whole.get(key, value):
            place = f"scales.{full_size.scale}; {json.dumps(whole[key], ensure_ascii=False)} in {place}"
        if key == REPLIES and limiting:
            text = f"{'  ' * len(parents)}{last}: {limit}"
            place = f"models.{limiting}; {value} in {place}"
        lines.append(f"{text:<{COLUMN}} # {place}")
    return "\n".join(lines)


def without_difference(full_size: Params, names: Iterable[str]) -> Iterator[str]:
    """Yield a line for each of these experiments that the scale makes learn as the experiment that it varies."""
    params = full_size.at_scale()

    def learns_alike(of: Params, name: str, other: str) -> bool:
        original = of.experiments[other]
        same = {key: getattr(original, key) for key in NOT_LEARNT_FROM}
        return of.experiments[name].model_copy(update=same) == original

    for name in names:
        variant = params.experiments[name]
        pair = name, variant.varies
        if variant.varies and learns_alike(params, *pair) and not learns_alike(full_size, *pair):
            yield (
                f"experiments.{name}: learns exactly as {variant.varies}, which it varies, since scale {params.scale} "
                f"replaces what differs: set that in scales.{params.scale}.{variant.scale_of}.experiments.{name}"
            )


def _leaves(value: object, key: Place = ()) -> Iterator[tuple[Place, object]]:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _leaves(part, (*key, name))
    else:
        yield key, value


def _place(places: dict[Place, Place | None], key: Place) -> str:
    if key not in places:
        return "default"
    place = places[key]
    if place is None:
        return "the evaluation's name"
    return ".".join(place[1:] if place[0] == "experiments" else place)
