"""What replies in held-out games say, held against what happened."""


rule reasoning:
    input:
        games=lambda wildcards: paths.examined_of(PARAMS, wildcards.experiment, wildcards.evaluation),
        others=lambda wildcards: paths.inputs_of_reasoning(PARAMS, wildcards.experiment, wildcards.evaluation),
    output:
        replies="results/experiments/{experiment}/reasoning/{evaluation}/replies.parquet",
        claims="results/experiments/{experiment}/reasoning/{evaluation}/claims.parquet",
        accuracy="results/experiments/{experiment}/reasoning/{evaluation}/accuracy.csv",
    log:
        "logs/{experiment}/reasoning/{evaluation}.log",
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: plan.reasoning_job(PARAMS, wildcards.experiment, wildcards.evaluation).canonical(),
        folder=lambda wildcards, output: os.path.dirname(output.replies),
    message:
        "Examine replies of {wildcards.experiment} on {wildcards.evaluation}"
    shell:
        "rmft reasoning --settings {params.settings:q} --folder {params.folder} {input.games} 2>&1 | tee {log}"
