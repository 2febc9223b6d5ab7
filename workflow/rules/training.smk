"""Iterative RMFT of the numeric agent: all iterations of an experiment in one job."""

# A rule for each experiment, because which iterations it keeps is its own choice.
for experiment in with_stage("training"):

    rule:
        name:
            f"training_{experiment}"
        input:
            extensions=extensions(plan.training_job(PARAMS, experiment)),
        output:
            models=paths.models_of(PARAMS, experiment),
            log=training_log_of(experiment),
        log:
            f"logs/{experiment}/training.log",
        priority: ITERATION
        conda:
            "../envs/rmft.yaml"
        params:
            settings=plan.training_job(PARAMS, experiment).canonical(),
            folder=lambda wildcards, output: os.path.dirname(output.log),
        message:
            f"Train {experiment}"
        shell:
            "rmft training --settings {params.settings:q} --folder {params.folder} 2>&1 | tee {log}"
