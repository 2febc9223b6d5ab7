"""GRPO: model(i) on all games of iteration i, without a selection, gives model(i + 1)."""

# A rule for each name of the weights' file, which says what is in it.
for weights in dict.fromkeys(EXPERIMENTS[name].weights for name in with_stage("grpo")):

    rule:
        name:
            f"grpo_{weights.partition('.')[0]}"
        input:
            model=lambda wildcards: model_files(wildcards.experiment),
            rollouts=lambda wildcards: f"{paths.iteration_of(wildcards.experiment, *previous_iteration(wildcards))}/rollouts.parquet",
            weights=lambda wildcards: paths.weights_of(PARAMS, wildcards.experiment, *previous_iteration(wildcards)),
        output:
            weights=f"results/experiments/{{experiment}}/seed-{{seed}}/iteration-{{iteration}}/{weights}",
            log="results/experiments/{experiment}/seed-{seed}/iteration-{iteration}/training-log.csv",
        log:
            "logs/{experiment}/seed-{seed}/iteration-{iteration}/grpo.log",
        wildcard_constraints:
            experiment=one_of(name for name in with_stage("grpo") if EXPERIMENTS[name].weights == weights),
        priority: iterations_left
        conda:
            "../envs/rmft.yaml"
        threads: threads_to_learn
        resources:
            gpu=gpus,
        params:
            settings=lambda wildcards: plan.grpo_job(
                PARAMS, wildcards.experiment, *previous_iteration(wildcards)
            ).canonical(),
            weights=lambda wildcards, input: f"--weights {input.weights}" if input.weights else "",
        message:
            "Reinforce {wildcards.experiment}, seed {wildcards.seed}, to iteration {wildcards.iteration}"
        shell:
            "rmft grpo --settings {params.settings:q} --rollouts {input.rollouts} {params.weights}"
            " --output {output.weights} --log {output.log} 2>&1 | tee {log}"
