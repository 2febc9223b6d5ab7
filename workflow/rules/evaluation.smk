"""Base model, trained model and reference algorithms on common instances."""


rule evaluation:
    input:
        players=players_of,
        rewards=lambda wildcards: f"data/rewards/{evaluation_of(wildcards).rewards}.npz",
        extensions=lambda wildcards: extensions(plan.evaluation_job(PARAMS, wildcards.experiment, wildcards.evaluation)),
    output:
        "results/experiments/{experiment}/evaluation/{evaluation}.parquet",
    log:
        "logs/{experiment}/evaluation/{evaluation}.log",
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: plan.evaluation_job(PARAMS, wildcards.experiment, wildcards.evaluation).canonical(),
    message:
        "Evaluate {wildcards.experiment} on {wildcards.evaluation}"
    shell:
        "rmft evaluation --settings {params.settings:q} --rewards {input.rewards} --output {output}"
        " {input.players} 2>&1 | tee {log}"
