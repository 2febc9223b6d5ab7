"""Base model, trained model and reference algorithms on common instances."""


def evaluations_of(experiment):
    """Return all evaluations of an experiment."""
    return [
        f"results/{experiment}/evaluation/{name}.parquet"
        for name in EXPERIMENTS[experiment].evaluations
    ]


EVALUATIONS = [
    path for experiment in EXPERIMENTS for path in evaluations_of(experiment)
]


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


rule evaluation:
    input:
        base=lambda wildcards: models_of(wildcards.experiment)[0],
        trained=lambda wildcards: models_of(wildcards.experiment)[-1],
        rewards=lambda wildcards: f"data/rewards/{asked(wildcards).rewards}.npz",
    output:
        "results/{experiment}/evaluation/{evaluation}.parquet",
    log:
        "logs/{experiment}/evaluation/{evaluation}.log",
    conda:
        "rmft"
    params:
        settings=lambda wildcards: jobs.evaluation_job(
            PARAMS, wildcards.experiment, wildcards.evaluation
        ).canonical(),
        code=fingerprint("evaluation"),
    message:
        "Evaluate {wildcards.experiment} on {wildcards.evaluation}"
    shell:
        "rmft evaluation --settings {params.settings:q} --base {input.base} --trained {input.trained}"
        " --rewards {input.rewards} --output {output} 2>&1 | tee {log}"
