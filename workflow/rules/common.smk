"""Which files belong together: functions that rules and targets share."""


def models_of(experiment):
    """Return the kept models of an experiment, the base model first, the trained one last."""
    iterations = EXPERIMENTS[experiment].saved_iterations
    return [f"results/{experiment}/iteration-{i}/model.safetensors" for i in iterations]


def evaluations_of(experiment):
    """Return all evaluations of an experiment."""
    return [f"results/{experiment}/evaluation/{name}.parquet" for name in EXPERIMENTS[experiment].evaluations]


def artifacts_of(experiment):
    """Return everything that an experiment's training and evaluations write."""
    return [
        *models_of(experiment),
        f"results/{experiment}/training-log.csv",
        *evaluations_of(experiment),
    ]


def asked(wildcards):
    """Return the evaluation that the wildcards name."""
    return EXPERIMENTS[wildcards.experiment].evaluations[wildcards.evaluation]


def figure_inputs(wildcards):
    """Return the evaluations that a figure draws or, where it names none, the training logs of its experiments."""
    figure = PARAMS.figures.drawn[wildcards.label]
    if not figure.evaluations:
        return [f"results/{name}/training-log.csv" for name in figure.experiments]
    return [f"results/{name}/evaluation/{evaluation}.parquet" for name, evaluation in figure.sources]


def figure_job(wildcards):
    """Return what a figure depends on, with what it must say of its scale."""
    note = FULL_SIZE.scale_note(PARAMS.figures.drawn[wildcards.label].experiments)
    return jobs.figure_job(PARAMS, wildcards.label, note)


def table_inputs(wildcards):
    """Return the evaluations that a table fits and then, if there is one, the file of the paper's values."""
    job = table_job(wildcards)
    evaluations = [f"results/{name}/evaluation/{evaluation}.parquet" for name, evaluation in job.sources]
    return [*evaluations, f"data/paper/{wildcards.label}.csv"] if evaluations else "results/theory/minimisers.csv"


def values_of_paper(wildcards):
    """Return the hash of the paper's values for a table: Snakemake compares times, which an older file has older."""
    path = Path(f"data/paper/{wildcards.label}.csv")
    return sha256(path) if path.exists() else ""


def table_job(wildcards):
    """Return what a table depends on, with what it must say of its scale."""
    note = FULL_SIZE.scale_note(PARAMS.tables[wildcards.label].experiments)
    return jobs.table_job(PARAMS, wildcards.label, note)
