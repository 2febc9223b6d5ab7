"""`rmft params`: the parameters as they are at their scale, and where each value of an experiment comes from."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmft.artifacts.files import delete
from rmft.artifacts.text import write_text
from rmft.errors import InputError
from rmft.params import Params
from rmft.params.inheritance import Path as Place
from rmft.params.reading import read
from rmft.workflow import plan

COLUMN = 44  # where the places begin


def explained(path: Path, name: str, scale: str | None = None) -> str:
    """Return an experiment as it runs, as YAML, each value with its place. Raise InputError for an unknown name.

    A place is a key of the file, `experiments` left out; a value that no place says is the schema's default.
    """
    full_size, places = read(path, scale)
    if name not in full_size.experiments:
        raise InputError(f"params: unknown {name!r}; one of {', '.join(full_size.experiments)}")
    whole, ours = (
        dict(_leaves(params.experiments[name].model_dump(mode="json"))) for params in (full_size, full_size.at_scale())
    )
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
        lines.append(f"{text:<{COLUMN}} # {place}")
    return "\n".join(lines)


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


def parameters_of(params: Params, name: str) -> dict[str, Any]:
    """Return all that the jobs of an experiment take from params.yaml, as JSON has it.

    How requests are made and what they cost is left out: it changes no result.
    """
    chosen = params.experiments[name]
    algorithms = {algorithm for of in chosen.evaluations.values() for algorithm in of.algorithms}
    if chosen.kind == "distillation":
        algorithms.add(chosen.distillation.teacher)
    original = params.experiments[chosen.varies] if chosen.in_words and chosen.varies else None
    whole = params.model_dump(mode="json")
    sets = {chosen.protocol.scenarios, *(of.scenarios for of in chosen.evaluations.values())} if chosen.in_words else {}
    return {
        "seed": params.seed,
        "extensions": params.extensions,
        "experiment": whole["experiments"][name],
        "games of the base model": original
        and {key: of.model_dump(mode="json") for key, of in original.evaluations.items() if key in chosen.evaluations},
        "model": {key: _model(of) for key, of in plan.model_of(params, chosen.model).items()},
        "scenarios": {key: whole["scenarios"][key] for key in sorted(filter(None, sets))},
        "mean": params.evaluation.mean,
        "resamples": params.evaluation.resamples,
        "algorithms": {key: whole["evaluation"]["algorithms"][key] for key in sorted(algorithms)},
        "rerolls": params.selection.rerolls,
        "shards": params.shards(name) if chosen.in_words else None,
        "reasoning": whole["reasoning"] if name in params.reasoning.of else None,
    }


def _model(settings: object) -> object:
    return settings.model_dump(mode="json") if hasattr(settings, "model_dump") else settings


def write_parameters(folder: Path, params: Params) -> None:
    """Write each experiment's parameters to a file of its own, and delete files of experiments that are gone."""
    for path in folder.glob("*.json"):
        if path.stem not in params.experiments:
            delete(path)
    for name in params.experiments:
        write_text(
            folder / f"{name}.json", json.dumps(parameters_of(params, name), indent=1, ensure_ascii=False) + "\n"
        )
