"""Whether artifacts were made with the parameters that params.yaml has now, by the records of their jobs."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from rmft.errors import InputError
from rmft.lineage.records import Record, read_record
from rmft.params import Params
from rmft.params.files import THEORY
from rmft.workflow import paths, plan
from rmft.workflow.records import Job

OTHER = "made with other parameters than params.yaml has now"
EXPERIMENT = r"results/experiments/([^/]+)"
HELD_OUT = re.compile(rf"{EXPERIMENT}/evaluation/([^/]+)/([^/]+)\.parquet")


def refuse_other_parameters(command: str, params: Params, artifacts: Iterable[str], target: str) -> None:
    """Raise InputError where `made_otherwise` finds an artifact. target: of Snakemake's, makes the artifacts anew."""
    if path := made_otherwise(params, artifacts):
        raise InputError(f"{command}: {path} was {OTHER}; run `snakemake {target}` first")


def made_otherwise(params: Params, artifacts: Iterable[str]) -> str | None:
    """Return an artifact that other parameters made, of these and all that they were made from; None if there is none.

    params: at scale. Other code makes no difference here. An artifact without a record is left to `lineage.trace`.
    """
    seen, pending = set(), [*artifacts]
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        if record := read_record(path):
            if not _as_planned(params.whole, record):
                return path
            pending += record.inputs
    return None


def _as_planned(params: Params, record: Record) -> bool:
    """Return whether the plan gives an artifact's job the settings, and the weights, that are on record."""
    try:
        job = _planned(params, record.path)
        if match := HELD_OUT.fullmatch(record.path):
            experiment, _, player = match.groups()
            if not record.inputs.keys() >= {*paths.weights_of_player(params, experiment, player)}:
                return False  # `trained` is the model of the last iteration, whichever that was
    except (KeyError, AttributeError, InputError):  # params.yaml has no such job any more
        return False
    return job is None or _without_code(record.settings) == _without_code(json.loads(job.canonical()))


def _planned(params: Params, path: str) -> Job | None:
    """Return the job that makes an artifact; None for figures, tables and pages, and for sources."""
    for pattern, job_of in JOBS.items():
        if match := re.fullmatch(pattern, path):
            return job_of(params, *match.groups())
    return None


def _of_iteration(params: Params, experiment: str, seed_text: str, iteration_text: str, file: str) -> Job:
    """Return the job that makes a file of an iteration."""
    chosen, training_seed, iteration = params.experiments[experiment], int(seed_text), int(iteration_text)
    if match := re.fullmatch(r"shards/(\d+)-of-\d+\.parquet", file):
        return plan.rollouts_job(params, experiment, training_seed, iteration, int(match[1]))
    if file in (chosen.weights, "training-log.csv"):
        learning = {"sft": plan.sft_job, "grpo": plan.grpo_job, "method": plan.method_job}[chosen.trained_by]
        return learning(params, experiment, training_seed, iteration - 1)
    if not chosen.sharded:
        return plan.distillation_job(params, experiment, training_seed)
    if file == "rollouts.parquet":
        return plan.gather_job(params, experiment)
    return plan.selection_job(params, experiment, training_seed, iteration)


def _held_out(params: Params, experiment: str, evaluation: str, player: str) -> Job:
    """Return the job that plays the games of a model in an evaluation."""
    replicate = paths.replicate_of(params, experiment, evaluation, player)
    return plan.held_out_job(params, experiment, evaluation, replicate)


def _of_model(params: Params, name: str, _file: str) -> Job:
    """Return the job that makes a language model."""
    made = plan.models_job if name in params.pretraining.corpora else plan.conversion_job
    return made(params, name)


def _without_code(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without the hashes of code in them, as those of our own server's."""
    inner = {name: _without_code(of) if isinstance(of, dict) else of for name, of in settings.items()}
    return {name: of for name, of in inner.items() if name != "code"}


JOBS: dict[str, Callable[..., Job]] = {  # by the path of an artifact, of which the groups name the job
    r"data/rewards/(.+)\.npz": plan.rewards_job,
    r"results/scenarios/(.+)\.jsonl": plan.scenarios_job,
    r"results/models/([^/]+)/(.+)": _of_model,
    rf"{EXPERIMENT}/(?:iteration-\d+/model\.safetensors|training-log\.csv)": plan.training_job,
    rf"{EXPERIMENT}/seed-(\d+)/iteration-(\d+)/(.+)": _of_iteration,
    rf"{EXPERIMENT}/evaluation/([^/]+)\.parquet": plan.evaluation_job,
    HELD_OUT.pattern: _held_out,
    rf"{EXPERIMENT}/reasoning/([^/]+)/[^/]+": plan.reasoning_job,
    re.escape(THEORY): plan.theory_job,
}
