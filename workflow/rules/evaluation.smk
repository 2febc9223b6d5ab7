"""Base model, trained model and reference algorithms on common instances."""

EVALUATIONS = [path for experiment in EXPERIMENTS for path in evaluations_of(experiment)]


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
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: jobs.evaluation_job(PARAMS, wildcards.experiment, wildcards.evaluation).canonical(),
        code=fingerprint("evaluation"),
    message:
        "Evaluate {wildcards.experiment} on {wildcards.evaluation}"
    shell:
        "rmft evaluation --settings {params.settings:q} --base {input.base} --trained {input.trained}"
        " --rewards {input.rewards} --output {output} 2>&1 | tee {log}"
