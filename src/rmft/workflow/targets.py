"""What there is to make: all artifacts, and those of some experiments. Stages know `paths` alone, and no targets."""

from rmft.params import Params
from rmft.params.files import THEORY, evaluation_of, experiment_in, iteration_of, reasoning_of, training_log_of
from rmft.workflow.paths import (
    evaluations_of,
    figures,
    held_out_of,
    made_model_of,
    metrics_of,
    models_of,
    on_demand,
    report_of,
    reward_sets,
    scenarios,
    tables,
    weights_of,
)
from rmft.workflow.plan import rollouts_of


def everything(params: Params) -> list[str]:
    """Return every artifact that the workflow makes."""
    # Experiments with one model share what makes the model.
    experiments = dict.fromkeys(path for name in params.experiments for path in artifacts_of(params, name))
    parts = [part for part in (params.by_default, params.by_request) if part.experiments]
    pages = [path for part in parts for path in (*metrics_of(part), *report_of(part))]
    outputs = [*figures(params), *tables(params), *pages]
    return [*reward_sets(params), *scenarios(params), *experiments, THEORY, *outputs]


def requested(params: Params) -> set[str]:
    """Return the artifacts that `snakemake` makes only when they, or what is made from them, are asked for."""
    return {*everything(params), *on_demand(params)} - {*everything(params.by_default)}


def section(params: Params, experiments: list[str]) -> list[str]:
    """Return everything that some experiments make, with the figures and tables of them alone."""
    own = params.only(*experiments)
    made = [path for name in experiments for path in artifacts_of(params, name)]
    return [*made, *figures(own), *tables(own)]


def drawn(params: Params) -> list[str]:
    """Return the experiments of which there is a figure."""
    return list(dict.fromkeys(name for figure in params.figures.drawn.values() for name in figure.experiments))


def quick(params: Params, most: int | None = None) -> list[str]:
    """Return what shows each section at work: of some experiments all training, with one evaluation.

    most: experiments, the first ones; None for all.
    """
    chosen = list(params.quick.items())[:most]
    return [path for name, of in chosen for path in (*training_of(params, name), evaluation_of(name, of))]


def artifacts_of(params: Params, experiment: str) -> list[str]:
    """Return everything that an experiment's training and evaluations write."""
    chosen, played = params.experiments[experiment], []
    if chosen.in_words:
        played = [path for name in chosen.evaluations for path in held_out_of(params, experiment, name).values()]
    own = [path for path in played if experiment_in(path) == experiment]
    examined = [path for name in params.reasoning.of.get(experiment, []) for path in reasoning_of(experiment, name)]
    made = made_model_of(params, chosen.model)
    return [*made, *training_of(params, experiment), *own, *evaluations_of(params, experiment), *examined]


def training_of(params: Params, experiment: str) -> list[str]:
    """Return everything that an experiment's training writes."""
    if params.experiments[experiment].in_words:
        return _language_training_of(params, experiment)
    return [*models_of(params, experiment), training_log_of(experiment)]


def _language_training_of(params: Params, experiment: str) -> list[str]:
    """Return everything that the iterations of a language experiment write."""
    chosen, found = params.experiments[experiment], []
    for seed in range(chosen.loop.training_seeds):
        for i in range(chosen.loop.iterations):
            folder = iteration_of(experiment, seed, i)
            if chosen.sharded and rollouts_of(params, experiment, seed, i) == experiment:
                found += shards_of(params, experiment, seed, i)
            found += [f"{folder}/{name}" for name in chosen.iteration_files]
            found += weights_of(params, experiment, seed, i + 1)
            found.append(f"{iteration_of(experiment, seed, i + 1)}/training-log.csv")
    return found


def shards_of(params: Params, experiment: str, training_seed: int, iteration: int) -> list[str]:
    """Return the shards of an iteration's rollouts, named as Snakemake's scattergather does."""
    player = rollouts_of(params, experiment, training_seed, iteration)
    folder, shards = iteration_of(player, training_seed, iteration), params.whole.shards(player)
    return [f"{folder}/shards/{shard}-of-{shards}.parquet" for shard in range(1, shards + 1)]
