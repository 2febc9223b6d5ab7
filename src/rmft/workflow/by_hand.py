"""The jobs of params.yaml by what names them: record, files to read and files to write of each, for stages by hand.

The rules of the workflow say the same with wildcards; a test holds the two together.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmft.errors import InputError
from rmft.params import Params, load
from rmft.params.experiment import Experiment
from rmft.workflow import paths, plan, plan_outputs
from rmft.workflow.records import Job

Files = Mapping[str, str | list[str]]
EXPERIMENTS: dict[str, Callable[[Experiment], bool]] = {  # by stage, which experiments have jobs of it
    "training": lambda of: not of.in_words,
    "rollouts": lambda of: of.in_words,
    "distillation": lambda of: of.in_words and not of.sharded,
    "gather": lambda of: of.in_words and of.sharded,
    "selection": lambda of: of.selects,
    "sft": lambda of: of.trained_by == "sft",
    "grpo": lambda of: of.trained_by == "grpo",
    "method": lambda of: of.trained_by == "method",
    "evaluation": lambda _: True,
    "reasoning": lambda of: of.in_words,
}


@dataclass(frozen=True)
class PlannedJob:
    """A job of params.yaml. writes: by option, the file, or the stem or folder of the files.

    record and reads are called only where params.yaml has this job.
    """

    record: Callable[[], Job]
    writes: Mapping[str, str]
    reads: Callable[[], Files] = dict


@dataclass(frozen=True)
class Parameters:
    """params.yaml, at its scale and at full size."""

    scaled: Params
    full_size: Params


def job_of(stage: str, keys: Mapping[str, object]) -> PlannedJob:
    """Return the job of a stage that some options name. Raise InputError where params.yaml has no such job."""
    full_size = load()
    parameters = Parameters(full_size.at_scale(), full_size)
    planned = globals()[stage]  # the function of this module that has the stage's name
    needed = inspect.signature(planned).parameters
    for key, parameter in needed.items():
        if key != "of" and key not in keys and parameter.default is parameter.empty:
            raise InputError(f"{stage}: needs --{key.replace('_', '-')} (or --settings with a job's record)")
    if stage in EXPERIMENTS and (name := keys["experiment"]) not in (known := _experiments(parameters.scaled, stage)):
        raise InputError(f"{stage}: --experiment {name}: must be one of {', '.join(known)}")
    job = planned(parameters, **{key: value for key, value in keys.items() if key in needed})
    made = [*paths.everything(parameters.scaled), *paths.EMBEDDED]
    for path in job.writes.values():
        if not any(file.startswith((f"{path}.", f"{path}/")) or file == path for file in made):
            raise InputError(f"{stage}: params.yaml has no job that writes {path}; look at its names and kinds")
    return job


def _experiments(params: Params, stage: str) -> list[str]:
    return [name for name, experiment in params.experiments.items() if EXPERIMENTS[stage](experiment)]


def scenarios(of: Parameters, name: str) -> PlannedJob:
    """Return the job that has a set of scenarios written."""
    return PlannedJob(lambda: plan.scenarios_job(of.scaled, name), {"output": f"results/scenarios/{name}.jsonl"})


def rewards(of: Parameters, name: str) -> PlannedJob:
    """Return the job that draws a reward set."""
    return PlannedJob(lambda: plan.rewards_job(of.scaled, name), {"output": f"data/rewards/{name}.npz"})


def models(of: Parameters) -> PlannedJob:
    """Return the job that makes the embedded model."""
    return PlannedJob(lambda: plan.models_job(of.scaled), {"folder": "results/models/embedded"})


def training(of: Parameters, experiment: str) -> PlannedJob:
    """Return the job that trains a numeric experiment."""
    folder = paths.training_log_of(experiment).rpartition("/")[0]
    return PlannedJob(lambda: plan.training_job(of.scaled, experiment), {"folder": folder})


def rollouts(
    of: Parameters,
    experiment: str,
    training_seed: int = 0,
    iteration: int | None = None,
    shard: int = 1,
    evaluation: str | None = None,
    player: str = "base",
) -> PlannedJob:
    """Return the job that plays a shard of an iteration, or where one is named the games of an evaluation."""
    params = of.scaled
    if evaluation is not None:
        return _held_out(params, experiment, evaluation, player)
    if iteration is None:
        raise InputError("rollouts: needs --iteration, or --evaluation and --player (or --settings)")
    folder = paths.iteration_of(experiment, training_seed, iteration)
    shards = params.shards(experiment)
    return PlannedJob(
        lambda: plan.rollouts_job(params, experiment, training_seed, iteration, shard),
        {"output": f"{folder}/shards/{shard}-of-{shards}.parquet"},
        lambda: {"weights": "".join(paths.weights_of(params, experiment, training_seed, iteration))},
    )


def _held_out(params: Params, experiment: str, evaluation: str, player: str) -> PlannedJob:
    return PlannedJob(
        lambda: plan.held_out_job(
            params, experiment, evaluation, paths.replicate_of(params, experiment, evaluation, player)
        ),
        {"output": f"{paths.evaluation_of(experiment, evaluation).removesuffix('.parquet')}/{player}.parquet"},
        lambda: {
            "weights": "".join(paths.weights_of_player(params, experiment, player)),
            "rewards": _reward_set(params, experiment, evaluation),
        },
    )


def distillation(of: Parameters, experiment: str, training_seed: int = 0) -> PlannedJob:
    """Return the job in which the teacher of an experiment plays."""
    folder = paths.iteration_of(experiment, training_seed, 0)
    return PlannedJob(
        lambda: plan.distillation_job(of.scaled, experiment, training_seed),
        {"output": f"{folder}/rollouts.parquet", "demonstrations": f"{folder}/demonstrations.jsonl"},
    )


def gather(of: Parameters, experiment: str, iteration: int, training_seed: int = 0) -> PlannedJob:
    """Return the job that joins the shards of an iteration."""
    return PlannedJob(
        lambda: plan.gather_job(of.scaled, experiment),
        {"output": f"{paths.iteration_of(experiment, training_seed, iteration)}/rollouts.parquet"},
        lambda: {"inputs": paths.shards_of(of.scaled, experiment, training_seed, iteration)},
    )


def selection(of: Parameters, experiment: str, iteration: int, training_seed: int = 0) -> PlannedJob:
    """Return the job that selects from the rollouts of an iteration."""
    folder = paths.iteration_of(experiment, training_seed, iteration)
    return PlannedJob(
        lambda: plan.selection_job(of.scaled, experiment, training_seed, iteration),
        {"output": f"{folder}/selection.parquet", "demonstrations": f"{folder}/demonstrations.jsonl"},
        lambda: {"rollouts": f"{folder}/rollouts.parquet"},
    )


def sft(of: Parameters, experiment: str, iteration: int, training_seed: int = 0) -> PlannedJob:
    """Return the job that fine-tunes on the demonstrations of an iteration, which gives the next one's model."""
    params, folder = of.scaled, paths.iteration_of(experiment, training_seed, iteration)
    return PlannedJob(
        lambda: plan.sft_job(params, experiment, training_seed, iteration),
        _tuned(params, experiment, training_seed, iteration),
        lambda: {
            "demonstrations": f"{folder}/demonstrations.jsonl",
            "weights": "".join(paths.weights_of(params, experiment, training_seed, iteration)),
        },
    )


def grpo(of: Parameters, experiment: str, iteration: int, training_seed: int = 0) -> PlannedJob:
    """Return the job that reinforces on the rollouts of an iteration, which gives the next one's model."""
    params, folder = of.scaled, paths.iteration_of(experiment, training_seed, iteration)
    return PlannedJob(
        lambda: plan.grpo_job(params, experiment, training_seed, iteration),
        _tuned(params, experiment, training_seed, iteration),
        lambda: {
            "rollouts": f"{folder}/rollouts.parquet",
            "weights": "".join(paths.weights_of(params, experiment, training_seed, iteration)),
        },
    )


def method(of: Parameters, experiment: str, iteration: int, training_seed: int = 0) -> PlannedJob:
    """Return the job in which a method of an extension learns from an iteration, which gives the next one's model."""
    params, folder = of.scaled, paths.iteration_of(experiment, training_seed, iteration)
    return PlannedJob(
        lambda: plan.method_job(params, experiment, training_seed, iteration),
        _tuned(params, experiment, training_seed, iteration),
        lambda: {
            "rollouts": f"{folder}/rollouts.parquet",
            "selection": f"{folder}/selection.parquet",
            "weights": "".join(paths.weights_of(params, experiment, training_seed, iteration)),
        },
    )


def _tuned(params: Params, experiment: str, training_seed: int, iteration: int) -> dict[str, str]:
    """Return the files of model(iteration + 1)."""
    folder = paths.iteration_of(experiment, training_seed, iteration + 1)
    return {"output": f"{folder}/{params.experiments[experiment].weights}", "log": f"{folder}/training-log.csv"}


def evaluation(of: Parameters, experiment: str, evaluation: str) -> PlannedJob:
    """Return the job that evaluates an experiment."""
    params = of.scaled

    def players() -> list[str]:
        if params.experiments[experiment].in_words:
            return paths.held_out_of(params, experiment, evaluation)
        models = paths.models_of(params, experiment)
        return [models[0], models[-1]]

    return PlannedJob(
        lambda: plan.evaluation_job(params, experiment, evaluation),
        {"output": paths.evaluation_of(experiment, evaluation)},
        lambda: {"inputs": players(), "rewards": _reward_set(params, experiment, evaluation)},
    )


def _reward_set(params: Params, experiment: str, evaluation: str) -> str:
    return f"data/rewards/{params.experiments[experiment].evaluations[evaluation].rewards}.npz"


def reasoning(of: Parameters, experiment: str, evaluation: str) -> PlannedJob:
    """Return the job that examines the replies of an evaluation."""
    return PlannedJob(
        lambda: plan.reasoning_job(of.scaled, experiment, evaluation),
        {"folder": paths.reasoning_of(experiment, evaluation)[0].rpartition("/")[0]},
        lambda: {"inputs": paths.examined_of(of.scaled, experiment, evaluation)},
    )


def theory(of: Parameters) -> PlannedJob:
    """Return the job that checks Theorem 1."""
    return PlannedJob(lambda: plan.theory_job(of.scaled), {"output": paths.THEORY})


def figures(of: Parameters, label: str) -> PlannedJob:
    """Return the job that draws a figure."""
    params = of.scaled

    def record() -> Job:
        return plan_outputs.figure_job(params, label, of.full_size.scale_note(params.figures.drawn[label].experiments))

    return PlannedJob(
        record, {"stem": f"results/figures/{label}"}, lambda: {"inputs": paths.inputs_of_figure(params, label)}
    )


def tables(of: Parameters, label: str) -> PlannedJob:
    """Return the job that makes a table."""
    params = of.scaled

    def record() -> Job:
        return plan_outputs.table_job(params, label, of.full_size.scale_note(params.tables[label].experiments))

    return PlannedJob(
        record,
        {"stem": f"results/tables/{label}"},
        lambda: {"inputs": paths.inputs_of_table(params, label, record().sources)},
    )


def metrics(of: Parameters) -> PlannedJob:
    """Return the job that collects metrics."""
    evaluations = [path for name in of.scaled.experiments for path in paths.evaluations_of(of.scaled, name)]
    return PlannedJob(
        lambda: plan_outputs.metrics_job(of.scaled),
        dict(zip(("output", "summary"), paths.METRICS, strict=True)),
        lambda: {"inputs": evaluations},
    )


def report(of: Parameters) -> PlannedJob:
    """Return the job that writes the report."""
    return PlannedJob(
        lambda: plan_outputs.report_job(of.scaled, of.full_size),
        dict(zip(("output", "trajectories"), paths.REPORT, strict=True)),
        lambda: {"inputs": paths.inputs_of_report(of.scaled)},
    )
