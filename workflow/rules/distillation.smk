"""Games of a reference algorithm, told in words for a model to learn."""


rule distillation:
    input:
        model=lambda wildcards: model_files(wildcards.experiment),
        prompts=lambda wildcards: prompts_of(wildcards.experiment),
        rationale=lambda wildcards: EXPERIMENTS[wildcards.experiment].distillation.rationale or [],
        scenarios=lambda wildcards: scenarios_in(EXPERIMENTS[wildcards.experiment].protocol.scenarios),
        extensions=lambda wildcards: extensions(
            plan.distillation_job(PARAMS, wildcards.experiment, int(wildcards.seed))
        ),
    output:
        rollouts="results/experiments/{experiment}/seed-{seed}/iteration-0/rollouts.parquet",
        demonstrations="results/experiments/{experiment}/seed-{seed}/iteration-0/demonstrations.jsonl",
    log:
        "logs/{experiment}/seed-{seed}/iteration-0/distillation.log",
    wildcard_constraints:
        experiment=one_of(with_stage("distillation")),
    priority: SHORT_AND_WAITED_FOR
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: plan.distillation_job(PARAMS, wildcards.experiment, int(wildcards.seed)).canonical(),
    message:
        "Teach {wildcards.experiment}, seed {wildcards.seed}"
    shell:
        "rmft distillation --settings {params.settings:q} --output {output.rollouts}"
        " --demonstrations {output.demonstrations} 2>&1 | tee {log}"
