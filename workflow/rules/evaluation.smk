"""Base model, trained model and reference algorithms on common instances."""


rule evaluation:
    input:
        base=lambda wildcards: paths.models_of(PARAMS, wildcards.experiment)[0],
        trained=lambda wildcards: paths.models_of(PARAMS, wildcards.experiment)[-1],
        rewards=lambda wildcards: f"data/rewards/{asked(wildcards).rewards}.npz",
    output:
        "results/{experiment}/evaluation/{evaluation}.parquet",
    log:
        "logs/{experiment}/evaluation/{evaluation}.log",
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: jobs.evaluation_job(PARAMS, wildcards.experiment, wildcards.evaluation).canonical(),
    message:
        "Evaluate {wildcards.experiment} on {wildcards.evaluation}"
    shell:
        "rmft evaluation --settings {params.settings:q} --base {input.base} --trained {input.trained}"
        " --rewards {input.rewards} --output {output} 2>&1 | tee {log}"
