"""Training methods of extensions: model(i) on the games of iteration i, with their regret, gives model(i + 1)."""

# A rule for each name of the weights' file, which says what is in it.
for weights in dict.fromkeys(EXPERIMENTS[name].weights for name in with_stage("method")):

    rule:
        name:
            f"method_{weights.partition('.')[0]}"
        input:
            model=lambda wildcards: model_files(wildcards.experiment),
            rollouts=lambda wildcards: f"{paths.iteration_of(wildcards.experiment, *previous_iteration(wildcards))}/rollouts.parquet",
            selection=lambda wildcards: f"{paths.iteration_of(wildcards.experiment, *previous_iteration(wildcards))}/selection.parquet",
            weights=lambda wildcards: paths.weights_of(PARAMS, wildcards.experiment, *previous_iteration(wildcards)),
            extensions=lambda wildcards: extensions(
                plan.method_job(PARAMS, wildcards.experiment, *previous_iteration(wildcards))
            ),
        output:
            weights=f"results/experiments/{{experiment}}/seed-{{seed}}/iteration-{{iteration}}/{weights}",
            log="results/experiments/{experiment}/seed-{seed}/iteration-{iteration}/training-log.csv",
        log:
            "logs/{experiment}/seed-{seed}/iteration-{iteration}/method.log",
        wildcard_constraints:
            experiment=one_of(name for name in with_stage("method") if EXPERIMENTS[name].weights == weights),
        priority: iterations_left
        conda:
            "../envs/rmft.yaml"
        threads: threads_to_learn
        resources:
            gpu=gpus,
        params:
            settings=lambda wildcards: plan.method_job(
                PARAMS, wildcards.experiment, *previous_iteration(wildcards)
            ).canonical(),
            weights=lambda wildcards, input: f"--weights {input.weights}" if input.weights else "",
        message:
            "Learn {wildcards.experiment}, seed {wildcards.seed}, to iteration {wildcards.iteration}"
        shell:
            "rmft method --settings {params.settings:q} --rollouts {input.rollouts} --selection {input.selection}"
            " {params.weights} --output {output.weights} --log {output.log} 2>&1 | tee {log}"
