"""All that the jobs of an experiment take from params.yaml: what DVC compares, and what a results bundle says."""

import json
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from rmft.artifacts.text import write_text
from rmft.params import Params
from rmft.params.reasoning import LEXICAL
from rmft.workflow import plan
from rmft.workflow.paths import made_model_of


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
    scenarios = {key: params.scenarios[key] for key in sorted(filter(None, sets))}
    examined = name in params.reasoning.of
    others = {of.model for of in scenarios.values() if of.source == "generated"}
    others |= {params.reasoning.judge} - {LEXICAL} if examined else set()
    return {
        "seed": params.seed,
        "extensions": params.extensions,
        "experiment": whole["experiments"][name],
        "games of the base model": original
        and {key: of.model_dump(mode="json") for key, of in original.evaluations.items() if key in chosen.evaluations},
        "first rollouts of": plan.first_rollouts_of(params, name) if chosen.in_words and chosen.sharded else None,
        "model": to_jsonable_python(plan.model_of(params, chosen.model)),
        "made by": _making_of(params, chosen.model),
        "models that write or judge": {
            key: [to_jsonable_python(plan.model_of(params, key)), _making_of(params, key)] for key in sorted(others)
        },
        "scenarios": {key: whole["scenarios"][key] for key in scenarios},
        "mean": params.evaluation.mean,
        "resamples": params.evaluation.resamples,
        "algorithms": {key: whole["evaluation"]["algorithms"][key] for key in sorted(algorithms)},
        "shards": params.shards(name) if chosen.in_words else None,
        "reasoning": whole["reasoning"] if examined else None,
    }


def _making_of(params: Params, model: str) -> dict[str, Any] | None:
    """Return the parameters of the job that makes a model, or what our own server plays; None where none makes it."""
    if not made_model_of(params, model):
        return None
    played = params.played_here(model)
    settings = params.models[played]
    if settings.is_gguf:
        job = plan.conversion_job(params, played)
    else:
        job = plan.models_job(params, Path(settings.weights).name)
    return job.model_dump(mode="json", exclude={"code"})


def write_parameters(folder: Path, params: Params) -> None:
    """Write each experiment's parameters to a file of its own."""
    for name in params.experiments:
        write_text(
            folder / f"{name}.json", json.dumps(parameters_of(params, name), indent=1, ensure_ascii=False) + "\n"
        )
