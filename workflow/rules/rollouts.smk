"""Games that language models are told of in words: for training in shards, and for evaluation."""


rule rollouts_shard:
    input:
        model=lambda wildcards: played_files(wildcards.experiment),
        weights=lambda wildcards: paths.weights_of(PARAMS, wildcards.experiment, *this_iteration(wildcards)),
        prompts=lambda wildcards: prompts_of(wildcards.experiment),
        scenarios=lambda wildcards: scenarios_in(EXPERIMENTS[wildcards.experiment].protocol.scenarios),
        extensions=lambda wildcards: extensions(
            plan.rollouts_job(PARAMS, wildcards.experiment, *this_iteration(wildcards), int(wildcards.shard))
        ),
    output:
        "results/experiments/{experiment}/seed-{seed}/iteration-{iteration}/shards/{shard}-of-{shards}.parquet",
    log:
        "logs/{experiment}/seed-{seed}/iteration-{iteration}/shard-{shard}-of-{shards}.log",
    priority: iterations_left
    conda:
        "../envs/rmft.yaml"
    threads: threads_to_play
    resources:
        gpu=gpus_to_play,
        own_server=places_to_train,
    params:
        settings=lambda wildcards: plan.rollouts_job(
            PARAMS, wildcards.experiment, *this_iteration(wildcards), int(wildcards.shard)
        ).canonical(),
        weights=lambda wildcards, input: f"--weights {input.weights}" if input.weights else "",
    message:
        "Roll out {wildcards.experiment}, seed {wildcards.seed}, iteration {wildcards.iteration}, shard {wildcards.shard} of {wildcards.shards}"
    shell:
        "rmft rollouts --settings {params.settings:q} {params.weights} --output {output} 2>&1 | tee {log}"


rule gather:
    input:
        lambda wildcards: targets.shards_of(PARAMS, wildcards.experiment, *this_iteration(wildcards)),
    output:
        "results/experiments/{experiment}/seed-{seed}/iteration-{iteration}/rollouts.parquet",
    log:
        "logs/{experiment}/seed-{seed}/iteration-{iteration}/rollouts.log",
    wildcard_constraints:
        experiment=one_of(with_stage("gather")),
    priority: SHORT_AND_WAITED_FOR
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: plan.gather_job(PARAMS, wildcards.experiment).canonical(),
    message:
        "Gather {wildcards.experiment}, seed {wildcards.seed}, iteration {wildcards.iteration}"
    shell:
        "rmft gather --settings {params.settings:q} --output {output} {input} 2>&1 | tee {log}"


rule held_out:
    input:
        model=lambda wildcards: played_files(wildcards.experiment),
        weights=lambda wildcards: paths.weights_of_player(PARAMS, wildcards.experiment, wildcards.player),
        prompts=lambda wildcards: prompts_of(wildcards.experiment),
        scenarios=lambda wildcards: scenarios_in(
            evaluation_of(wildcards).scenarios or EXPERIMENTS[wildcards.experiment].protocol.scenarios
        ),
        rewards=lambda wildcards: f"data/rewards/{evaluation_of(wildcards).rewards}.npz",
    output:
        "results/experiments/{experiment}/evaluation/{evaluation}/{player}.parquet",
    log:
        "logs/{experiment}/evaluation/{evaluation}/{player}.log",
    priority: rounds_to_play
    conda:
        "../envs/rmft.yaml"
    threads: threads_to_play
    resources:
        gpu=gpus_to_play,
        own_server=places_to_evaluate,
    params:
        settings=lambda wildcards: plan.held_out_job(
            PARAMS, wildcards.experiment, wildcards.evaluation, wildcards.player
        ).canonical(),
        weights=lambda wildcards, input: f"--weights {input.weights}" if input.weights else "",
    message:
        "Play {wildcards.experiment} on {wildcards.evaluation}, {wildcards.player}"
    shell:
        "rmft rollouts --settings {params.settings:q} {params.weights} --rewards {input.rewards} --output {output}"
        " 2>&1 | tee {log}"
