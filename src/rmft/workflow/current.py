"""Whether artifacts were made with the parameters that params.yaml has now, by the records of their jobs."""

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rmft.artifacts.files import is_artifact, sha256
from rmft.artifacts.rewards import read_rewards
from rmft.environments import Rewards
from rmft.errors import InputError
from rmft.lineage.audit import problem_of
from rmft.lineage.records import Record, read_record
from rmft.params import Params
from rmft.params.files import THEORY, evaluation_of
from rmft.workflow import paths, plan, plan_outputs, targets
from rmft.workflow.records import Job

OTHER = "made with other parameters than params.yaml has now"
NOT_ON_RECORD = "altered, or without a whole record of what made it"
EXPERIMENT = r"results/experiments/([^/]+)"
HELD_OUT = re.compile(rf"{EXPERIMENT}/evaluation/([^/]+)/([^/]+)\.parquet")
GATHERED = re.compile(rf"{EXPERIMENT}/seed-(\d+)/iteration-(\d+)/rollouts\.parquet")
NOT_COMPARED = {"code", "scale_note"}  # keys of a record; a note says which scale the parameters are at


def refuse_other_parameters(command: str, params: Params, artifacts: Iterable[str], target: str) -> None:
    """Raise InputError where `made_otherwise` finds an artifact. target: of Snakemake's, makes the artifacts anew."""
    if path := made_otherwise(params, artifacts):
        raise InputError(f"{command}: {path} was {OTHER}; run `snakemake {target}` first")


def rewards_of(command: str, params: Params, experiment: str, evaluation: str) -> Rewards:
    """Return the reward set of an evaluation. Raise InputError where it is not the one that was played on."""
    rewards = f"data/rewards/{params.experiments[experiment].evaluations[evaluation].rewards}.npz"
    refuse_other_rewards(command, evaluation_of(experiment, evaluation), rewards)
    return read_rewards(Path(rewards))


def refuse_other_rewards(command: str, evaluation: str, rewards: str) -> None:
    """Raise InputError where an evaluation was not played on a reward set as it is now. Both are paths."""
    record = read_record(evaluation)
    if record and Path(rewards).exists() and record.inputs.get(rewards) != sha256(Path(rewards)):
        raise InputError(
            f"{command}: {evaluation} was not played on {rewards} as it is now; run `snakemake {evaluation}`"
        )


def why_not_current(params: Params, artifacts: Iterable[str]) -> str | None:
    """Return why artifacts are not what params.yaml asks for now, in words that follow their name; None if they are.

    These artifacts and all sources are hashed, such as prompts; artifacts on the way are not.
    """
    paths_there = list(artifacts)
    if any(problem_of(path, read_record(path), sha256(Path(path))) for path in paths_there):
        return NOT_ON_RECORD
    if made_otherwise(params, paths_there):
        return OTHER
    source = edited_source(paths_there)
    return source and f"made from {source} as it was before an edit"


def made_otherwise(params: Params, artifacts: Iterable[str]) -> str | None:
    """Return an artifact that other parameters made, of these and all that they were made from; None if there is none.

    params: at scale. Other code makes no difference here. An artifact without a record is left to `lineage.trace`.
    """
    return next((record.path for record in _records(artifacts) if not _as_planned(params.whole, record)), None)


def edited_source(artifacts: Iterable[str]) -> str | None:
    """Return a source, such as a template of prompts, that is not what these artifacts were made from; None if all are.

    A source that is not there is left to `lineage.trace`.
    """
    return next(
        (
            path
            for record in _records(artifacts)
            for path, digest in record.inputs.items()
            if digest and not is_artifact(path) and Path(path).is_file() and _hash_of(Path(path)) != digest
        ),
        None,
    )


def _hash_of(path: Path) -> str:
    there = path.stat()
    return _hash_as_of(path, there.st_mtime_ns, there.st_size)


@functools.cache  # the artifacts of several experiments have the same sources, and a model's weights are large
def _hash_as_of(path: Path, _modified: int, _size: int) -> str:
    return sha256(path)


def _records(artifacts: Iterable[str]) -> Iterator[Record]:
    """Yield the records of artifacts and of all artifacts that they were made from."""
    seen, pending = set(), [*artifacts]
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        if record := read_record(path):
            yield record
            pending += record.inputs


def _as_planned(params: Params, record: Record) -> bool:
    """Return whether the plan gives an artifact's job the settings, and the inputs, that are on record."""
    try:
        job = _planned(params, record.path)
        if not record.inputs.keys() >= {*_needed(params, record.path)}:
            return False
    except (KeyError, AttributeError, InputError):  # params.yaml has no such job any more
        return False
    return job is None or _compared(record.settings) == _compared(json.loads(job.canonical()))


def _needed(params: Params, path: str) -> list[str]:
    """Return the inputs of an artifact's job that its settings do not tell."""
    if match := HELD_OUT.fullmatch(path):  # `trained` is the model of the last iteration, whichever that was
        return paths.weights_of_player(params, match[1], match[3])
    if match := GATHERED.fullmatch(path):  # a variant's first games may be those of what it is a variant of
        experiment, seed, iteration = match[1], int(match[2]), int(match[3])
        return targets.shards_of(params, experiment, seed, iteration) if params.experiments[experiment].sharded else []
    return []


def _planned(params: Params, path: str) -> Job | None:
    """Return the job that makes an artifact; None for pages, and for sources."""
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


def _of_model(params: Params, name: str, _file: str) -> Job:
    """Return the job that makes a language model."""
    made = plan.models_job if name in params.pretraining.corpora else plan.conversion_job
    return made(params, name)


def _figure(params: Params, label: str) -> Job:
    """Return the job that draws a figure."""
    return plan_outputs.figure_job(params, label, None)


def _table(params: Params, label: str) -> Job:
    """Return the job that makes a table."""
    return plan_outputs.table_job(params, label, None)


def _metrics(params: Params, on_request: str | None) -> Job:
    """Return the job that collects metrics: of the experiments on request, or of the others."""
    return plan_outputs.metrics_job(params.by_request if on_request else params.by_default)


def _compared(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without what is not compared, such as the hashes of code, also those of our own server's."""
    inner = {name: _compared(of) if isinstance(of, dict) else of for name, of in settings.items()}
    return {name: of for name, of in inner.items() if name not in NOT_COMPARED}


JOBS: dict[str, Callable[..., Job]] = {  # by the path of an artifact, of which the groups name the job
    r"data/rewards/(.+)\.npz": plan.rewards_job,
    r"results/scenarios/(.+)\.jsonl": plan.scenarios_job,
    r"results/models/([^/]+)/(.+)": _of_model,
    rf"{EXPERIMENT}/(?:iteration-\d+/model\.safetensors|training-log\.csv)": plan.training_job,
    rf"{EXPERIMENT}/seed-(\d+)/iteration-(\d+)/(.+)": _of_iteration,
    rf"{EXPERIMENT}/evaluation/([^/]+)\.parquet": plan.evaluation_job,
    HELD_OUT.pattern: plan.held_out_job,
    rf"{EXPERIMENT}/reasoning/([^/]+)/[^/]+": plan.reasoning_job,
    re.escape(THEORY): plan.theory_job,
    r"results/figures/(.+)\.(?:pdf|png|csv)": _figure,
    r"results/tables/(.+)\.(?:csv|md|tex)": _table,
    rf"results/({paths.ON_REQUEST_PREFIX})?(?:metrics|summary)\.json": _metrics,
}
