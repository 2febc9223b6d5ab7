"""What a job reads and depends on, by its wildcards: functions that rules share."""


def asked(wildcards):
    """Return the evaluation that the wildcards name."""
    return EXPERIMENTS[wildcards.experiment].evaluations[wildcards.evaluation]


def figure_inputs(wildcards):
    """Return the evaluations that a figure draws or, where it names none, the training logs of its experiments."""
    figure = PARAMS.figures.drawn[wildcards.label]
    if not figure.evaluations:
        return [paths.training_log_of(name) for name in figure.experiments]
    return [paths.evaluation_of(*source) for source in figure.sources]


def figure_job(wildcards):
    """Return what a figure depends on, with what it must say of its scale."""
    note = FULL_SIZE.scale_note(PARAMS.figures.drawn[wildcards.label].experiments)
    return jobs.figure_job(PARAMS, wildcards.label, note)


def table_inputs(wildcards):
    """Return the evaluations that a table fits and then, if there is one, the file of the paper's values."""
    job = table_job(wildcards)
    evaluations = [paths.evaluation_of(*source) for source in job.sources]
    return [*evaluations, f"data/paper/{wildcards.label}.csv"] if evaluations else paths.THEORY


def values_of_paper(wildcards):
    """Return the hash of the paper's values for a table: Snakemake compares times, which an older file has older."""
    path = Path(f"data/paper/{wildcards.label}.csv")
    return sha256(path) if path.exists() else ""


def table_job(wildcards):
    """Return what a table depends on, with what it must say of its scale."""
    note = FULL_SIZE.scale_note(PARAMS.tables[wildcards.label].experiments)
    return jobs.table_job(PARAMS, wildcards.label, note)
