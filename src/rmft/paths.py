"""Where every artifact of the workflow is, from the parameters alone."""

from rmft.params import Params

THEORY = "results/theory/minimisers.csv"
METRICS = ("results/metrics.json", "results/summary.json")
FIGURE_ENDINGS = ("pdf", "png", "csv")
TABLE_ENDINGS = ("csv", "md", "tex")


def reward_sets(params: Params) -> list[str]:
    """Return all reward sets."""
    return [f"data/rewards/{name}.npz" for name in params.rewards]


def models_of(params: Params, experiment: str) -> list[str]:
    """Return the kept models of an experiment, the base model first, the trained one last."""
    iterations = params.experiments[experiment].saved_iterations
    return [f"results/{experiment}/iteration-{i}/model.safetensors" for i in iterations]


def training_log_of(experiment: str) -> str:
    """Return the training log of an experiment."""
    return f"results/{experiment}/training-log.csv"


def evaluations_of(params: Params, experiment: str) -> list[str]:
    """Return all evaluations of an experiment."""
    return [evaluation_of(experiment, name) for name in params.experiments[experiment].evaluations]


def evaluation_of(experiment: str, evaluation: str) -> str:
    """Return one evaluation of an experiment."""
    return f"results/{experiment}/evaluation/{evaluation}.parquet"


def artifacts_of(params: Params, experiment: str) -> list[str]:
    """Return everything that an experiment's training and evaluations write."""
    return [*models_of(params, experiment), training_log_of(experiment), *evaluations_of(params, experiment)]


def figures(params: Params) -> list[str]:
    """Return all files of all figures."""
    return [f"results/figures/{label}.{ending}" for label in params.figures.drawn for ending in FIGURE_ENDINGS]


def tables(params: Params) -> list[str]:
    """Return all files of all tables."""
    return [f"results/tables/{label}.{ending}" for label in params.tables for ending in TABLE_ENDINGS]


def everything(params: Params) -> list[str]:
    """Return every artifact that the workflow makes."""
    experiments = [path for name in params.experiments for path in artifacts_of(params, name)]
    return [*reward_sets(params), *experiments, THEORY, *figures(params), *tables(params), *METRICS]
