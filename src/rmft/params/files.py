"""Where the files of experiments and models are, by their names alone."""

from pathlib import Path, PurePath

EXPERIMENTS = "results/experiments"  # the folder with the results of all experiments
THEORY = "results/theory/minimisers.csv"
JARGON = "data/scenarios/jargon.txt"
REASONING = ("replies.parquet", "claims.parquet", "accuracy.csv")
CHECKPOINT = (  # a language model as jobs write it
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


def model_folder_of(model: str) -> str:
    """Return the folder of a language model that a job makes: converted from a GGUF file, or pre-trained."""
    return f"results/models/{model}"


def prompt_files(folder: str | Path) -> list[str]:
    """Return the templates in a folder."""
    return sorted(file.as_posix() for file in Path(folder).glob("*.j2"))


def experiment_in(path: str | PurePath) -> str | None:
    """Return the name of the experiment whose results a path is of, as jobs name it; None for other paths."""
    path = PurePath(path)
    return next(iter(path.relative_to(EXPERIMENTS).parts), None) if path.is_relative_to(EXPERIMENTS) else None


def training_log_of(experiment: str) -> str:
    """Return the training log of a numeric experiment."""
    return f"{EXPERIMENTS}/{experiment}/training-log.csv"


def iteration_of(experiment: str, training_seed: int, iteration: int) -> str:
    """Return the folder of one iteration of an experiment in words: its model, its rollouts, its selection."""
    return f"{EXPERIMENTS}/{experiment}/seed-{training_seed}/iteration-{iteration}"


def of_iterations(experiment: str, training_seeds: int, iterations: range, name: str) -> list[str]:
    """Return the files of one name in some iterations: by training seed, then iteration."""
    return [f"{iteration_of(experiment, s, i)}/{name}" for s in range(training_seeds) for i in iterations]


def evaluation_of(experiment: str, evaluation: str) -> str:
    """Return one evaluation of an experiment."""
    return f"{EXPERIMENTS}/{experiment}/evaluation/{evaluation}.parquet"


def reasoning_of(experiment: str, evaluation: str) -> list[str]:
    """Return what the examination of an evaluation's replies writes: replies, their claims, shares of right claims."""
    return [f"{EXPERIMENTS}/{experiment}/reasoning/{evaluation}/{name}" for name in REASONING]
