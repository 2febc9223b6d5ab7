"""Where every artifact of the workflow is, from the parameters alone. `targets` lists those of an experiment."""

import os
from pathlib import Path

from rmft.params import Params
from rmft.params.files import (
    CHECKPOINT,
    EXPERIMENTS,
    evaluation_of,
    experiment_in,
    iteration_of,
    model_folder_of,
)
from rmft.params.language_model import check_gguf, model_files
from rmft.params.reasoning import LEXICAL

ON_REQUEST_PREFIX = "on-request-"  # before the names of the metrics and of the pages of experiments on request
BASE = ("base", 0)  # the base model, in all evaluations but those of replicates, which have several
RECORDED = "data/recorded"  # the folder of the results bundles, and the files of a bundle that the report shows
BUNDLE, BUNDLE_METRICS, BUNDLE_FIGURES = "bundle.json", "metrics.json", "figures"
REPORT_TEXTS = ("data/report/captions.yaml", "data/report/known.yaml")
REPORT_TEMPLATES = "data/report/templates"
GLOSSARY = "docs/glossary.md"
PRETRAINED = (*CHECKPOINT, "fidelity.csv")  # an embedded model as `snakemake models` makes it
CONVERTED = (*CHECKPOINT, "conversion.csv")  # what a GGUF file is converted into
FIGURE_ENDINGS = ("pdf", "png", "csv")
TABLE_ENDINGS = ("csv", "md", "tex")


def reward_sets(params: Params) -> list[str]:
    """Return all reward sets."""
    return [f"data/rewards/{name}.npz" for name in params.rewards]


def scenarios(params: Params) -> list[str]:
    """Return the sets of scenarios that a model writes."""
    return [of.path(name) for name, of in params.scenarios.items() if of.source == "generated"]


def models_of(params: Params, experiment: str) -> list[str]:
    """Return the kept models of a numeric experiment, the base model first, the trained one last."""
    iterations = params.experiments[experiment].saved_iterations
    return [f"{EXPERIMENTS}/{experiment}/iteration-{i}/model.safetensors" for i in iterations]


def base_model_of(params: Params, model: str) -> list[str]:
    """Return the files of a language model, or of what our own server plays; none where the model is elsewhere."""
    if (played := params.played_here(model)) is None:
        return []
    if made := made_model_of(params, played):
        return [path for path in made if path.endswith(CHECKPOINT)]
    return model_files(params.models[played].weights)


def gguf_models(params: Params) -> list[str]:
    """Return the names of the models whose weights are a GGUF file."""
    return [name for name, of in params.models.items() if of.kind == "language" and of.is_gguf]


def pretrained(params: Params) -> list[str]:
    """Return what `snakemake models` makes: embedded models."""
    return [f"{model_folder_of(name)}/{file}" for name in params.pretraining.corpora for file in PRETRAINED]


def made_model_of(params: Params, model: str) -> list[str]:
    """Return what the job writes that makes a language model, or what our own server plays.

    The job converts a GGUF file or pre-trains an embedded model; there is no such job for other models.
    """
    played = params.played_here(model)
    settings = params.models.get(played)
    if settings is None or settings.kind == "linear-attention":
        return []
    if settings.is_gguf:
        return [f"{model_folder_of(played)}/{file}" for file in CONVERTED]
    folder = Path(settings.weights).as_posix()
    return [path for path in pretrained(params) if path.rpartition("/")[0] == folder]


def on_demand(params: Params) -> list[str]:
    """Return what is made only when it is asked for: embedded models, and conversions that jobs need."""
    return [*pretrained(params), *(path for name in gguf_models(params) for path in made_model_of(params, name))]


def gguf_of(params: Params, model: str, *, needed: bool) -> list[str]:
    """Return the GGUF file of a model; none for a file of the hub, which the conversion downloads.

    needed: whether to raise InputError where the file is not there. Snakemake would take what was converted from it
    before, whatever else has changed. An audit takes it, too, and leaves out what was never converted.
    """
    settings = params.models[model]
    if settings.file:
        return []
    if needed:
        check_gguf(settings, f"models.{model}.weights")
    elif not Path(settings.weights).exists() and not all(map(os.path.exists, made_model_of(params, model))):
        return []
    return [Path(settings.weights).as_posix()]


def chat_template_of(params: Params, model: str) -> list[str]:
    """Return the file that takes the place of the chat template in a GGUF file."""
    template = params.models[model].chat_template
    return [Path(template).as_posix()] if template else []


def played_from(params: Params, model: str, *, needed: bool) -> list[str]:
    """Return the files that a model plays from: those of the model, and for llama.cpp its GGUF file, as `gguf_of`."""
    settings = params.models[model]
    by_llama_cpp = settings.kind == "language" and settings.llama_cpp
    return [*base_model_of(params, model), *(gguf_of(params, model, needed=needed) if by_llama_cpp else [])]


def weights_of(params: Params, experiment: str, training_seed: int, iteration: int) -> list[str]:
    """Return the file with model(iteration) of a language experiment: none for the base model."""
    folder, name = iteration_of(experiment, training_seed, iteration), params.experiments[experiment].weights
    return [f"{folder}/{name}"] if iteration else []


def held_out_of(params: Params, experiment: str, evaluation: str) -> dict[tuple[str, int], str]:
    """Return the games of the models that play in an evaluation, in their order, by name and number of training seed.

    Those of a variant's base model are those of what it is a variant of.
    """
    chosen, found = params.experiments[experiment], {}
    for name, seed in chosen.evaluations[evaluation].players(chosen.loop.training_seeds):
        base = (name, seed) == BASE
        folder, player = (chosen.varies or experiment, name) if base else (experiment, f"{name}-{seed}")
        found[name, seed] = f"{EXPERIMENTS}/{folder}/evaluation/{evaluation}/{player}.parquet"
    return found


def own_players(params: Params, experiment: str, evaluation: str) -> list[tuple[str, int]]:
    """Return the models that play in an evaluation for it: games of a variant's base model are those of the original.

    Each has a name, and the number of its training seed.
    """
    games = held_out_of(params, experiment, evaluation)
    return [player for player, path in games.items() if experiment_in(path) == experiment]


def examined_of(params: Params, experiment: str, evaluation: str) -> list[str]:
    """Return the games whose replies are examined: the base model's once, then the trained model's of each seed."""
    games = held_out_of(params, experiment, evaluation)
    return [path for (name, seed), path in games.items() if (name, seed) == BASE or name == "trained"]


def shown_of(params: Params, experiment: str, evaluation: str) -> dict[str, str]:
    """Return the held-out games that the trajectory viewer shows, by player: of the first training seed."""
    games = held_out_of(params, experiment, evaluation)
    return {"base": games[BASE], "trained-0": games["trained", 0]}


def evaluations_of(params: Params, experiment: str) -> list[str]:
    """Return all evaluations of an experiment."""
    return [evaluation_of(experiment, name) for name in params.experiments[experiment].evaluations]


def inputs_of_reasoning(params: Params, experiment: str, evaluation: str) -> list[str]:
    """Return the files with which replies are examined: words and, if used, scenarios and the question to a model."""
    chosen, reasoning = params.experiments[experiment], params.reasoning
    scenario_set = chosen.evaluations[evaluation].scenarios or chosen.protocol.scenarios
    scenario_files = [params.scenarios[scenario_set].path(scenario_set)] if scenario_set else []
    model = [] if reasoning.judge == LEXICAL else [reasoning.prompt, *base_model_of(params, reasoning.judge)]
    return [reasoning.words, *scenario_files, *model]


def figures(params: Params) -> list[str]:
    """Return all files of all figures."""
    return [f"results/figures/{label}.{ending}" for label in params.figures.drawn for ending in FIGURE_ENDINGS]


def tables(params: Params) -> list[str]:
    """Return all files of all tables."""
    return [f"results/tables/{label}.{ending}" for label in params.tables for ending in TABLE_ENDINGS]


def weights_of_player(params: Params, experiment: str, player: str) -> list[str]:
    """Return the file with the weights of `base[-<replicate>]` (none), `(iteration-<i>|trained)-<training seed>`."""
    if player.startswith("base"):
        return []
    name, _, seed = player.rpartition("-")
    last = params.experiments[experiment].loop.iterations
    return weights_of(params, experiment, int(seed), last if name == "trained" else int(name.rpartition("-")[2]))


def replicate_of(params: Params, experiment: str, evaluation: str, player: str) -> int:
    """Return which replicate a player plays: where there are several, each training seed's models play another one."""
    _, _, number = player.rpartition("-")
    several = params.experiments[experiment].evaluations[evaluation].replicates > 1
    return int(number) if several and number.isdecimal() else 0


def recorded_files() -> list[str]:
    """Return what the report shows of the results bundles: their descriptions, metrics and figures."""
    folders = sorted(Path(RECORDED).glob("*/"))
    wanted = (BUNDLE, BUNDLE_METRICS, f"{BUNDLE_FIGURES}/*.png")
    return [file.as_posix() for folder in folders for name in wanted for file in sorted(folder.glob(name))]


def prefix_of(params: Params) -> str:
    """Return what the names of metrics and pages begin with: those of experiments on request are files of their own."""
    return ON_REQUEST_PREFIX if params.experiments and params.experiments.keys() <= params.on_request.keys() else ""


def metrics_of(params: Params) -> list[str]:
    """Return the metrics of all evaluations, and their summary."""
    return [f"results/{prefix_of(params)}{name}.json" for name in ("metrics", "summary")]


def report_of(params: Params) -> list[str]:
    """Return the report and the trajectory viewer."""
    return [f"results/{prefix_of(params)}{name}.html" for name in ("report", "trajectories")]


def inputs_of_report(params: Params) -> list[str]:
    """Return what the report's pages are made from: its texts and templates, results, and the games to look at."""
    templates = sorted(file.as_posix() for file in Path(REPORT_TEMPLATES).glob("[!.]*") if file.is_file())
    drawn = [f"results/figures/{label}.{ending}" for label in params.figures.drawn for ending in ("png", "csv")]
    tabulated = [f"results/tables/{label}.{ending}" for label in params.tables for ending in ("csv", "md")]
    story = params.report.story
    shown = [evaluation_of(story, params.first_evaluation(story))] if story else []
    recorded = [] if prefix_of(params) else recorded_files()
    games = [
        f"{iteration_of(name, 0, i)}/{kind}.parquet"
        for name, of in params.selecting.items()
        for i in range(of.rmft.iterations)
        for kind in ("rollouts", "selection")
    ]
    held_out = [
        path
        for name, of in params.selecting.items()
        for evaluation in of.evaluations
        for path in (evaluation_of(name, evaluation), *shown_of(params, name, evaluation).values())
    ]
    results = [*drawn, *tabulated, metrics_of(params)[0], *shown, *games, *held_out]
    return list(dict.fromkeys([*REPORT_TEXTS, GLOSSARY, *templates, *results, *recorded]))
