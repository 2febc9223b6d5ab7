"""Embedded language models, made anew. Most experiments start from the one in data/models, which was made like this."""


rule embedded_model:
    input:
        prompts=prompt_files(PARAMS.pretraining.prompts),
        extensions=lambda wildcards: extensions(plan.models_job(PARAMS, wildcards.model)),
    output:
        [f"results/models/{{model}}/{name}" for name in paths.PRETRAINED],
    log:
        "logs/models/{model}.log",
    wildcard_constraints:
        model=one_of(PARAMS.pretraining.corpora),
    conda:
        "../envs/rmft.yaml"
    threads: PARAMS.pretraining.threads
    params:
        settings=lambda wildcards: plan.models_job(PARAMS, wildcards.model).canonical(),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Pre-train the language model {wildcards.model}"
    shell:
        "rmft models --settings {params.settings:q} --folder {params.folder} 2>&1 | tee {log}"
