"""The trajectories of lowest regret in each scenario."""


rule selection:
    input:
        rollouts="results/experiments/{experiment}/seed-{seed}/iteration-{iteration}/rollouts.parquet",
    output:
        selection="results/experiments/{experiment}/seed-{seed}/iteration-{iteration}/selection.parquet",
        demonstrations="results/experiments/{experiment}/seed-{seed}/iteration-{iteration}/demonstrations.jsonl",
    log:
        "logs/{experiment}/seed-{seed}/iteration-{iteration}/selection.log",
    wildcard_constraints:
        experiment=one_of(with_stage("selection")),
    priority: SHORT_AND_WAITED_FOR
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: plan.selection_job(
            PARAMS, wildcards.experiment, *this_iteration(wildcards)
        ).canonical(),
    message:
        "Select {wildcards.experiment}, seed {wildcards.seed}, iteration {wildcards.iteration}"
    shell:
        "rmft selection --settings {params.settings:q} --rollouts {input.rollouts} --output {output.selection}"
        " --demonstrations {output.demonstrations} 2>&1 | tee {log}"
