"""Supervised fine-tuning: model(i) on the demonstrations of iteration i gives model(i + 1)."""

# A rule for each method, because the file is named by what is in it.
for method, weights in {EXPERIMENTS[name].sft.method: EXPERIMENTS[name].weights for name in with_stage("sft")}.items():

    rule:
        name:
            f"sft_{method}"
        input:
            model=lambda wildcards: model_files(wildcards.experiment),
            demonstrations=lambda wildcards: f"{paths.iteration_of(wildcards.experiment, *previous_iteration(wildcards))}/demonstrations.jsonl",
            weights=lambda wildcards: paths.weights_of(PARAMS, wildcards.experiment, *previous_iteration(wildcards)),
        output:
            weights=f"results/experiments/{{experiment}}/seed-{{seed}}/iteration-{{iteration}}/{weights}",
            log="results/experiments/{experiment}/seed-{seed}/iteration-{iteration}/training-log.csv",
        log:
            "logs/{experiment}/seed-{seed}/iteration-{iteration}/sft.log",
        wildcard_constraints:
            experiment=one_of(name for name in with_stage("sft") if EXPERIMENTS[name].sft.method == method),
        priority: iterations_left
        conda:
            "../envs/rmft.yaml"
        threads: threads_to_learn
        resources:
            gpu=gpus_to_learn,
            own_server=own_server,
        params:
            settings=lambda wildcards: plan.sft_job(
                PARAMS, wildcards.experiment, *previous_iteration(wildcards)
            ).canonical(),
            weights=lambda wildcards, input: f"--weights {input.weights}" if input.weights else "",
        message:
            "Fine-tune {wildcards.experiment}, seed {wildcards.seed}, to iteration {wildcards.iteration}"
        shell:
            "rmft sft --settings {params.settings:q} --demonstrations {input.demonstrations} {params.weights}"
            " --output {output.weights} --log {output.log} 2>&1 | tee {log}"
