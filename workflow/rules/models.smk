"""The embedded language model, made anew. The one in data/models, which experiments start from, was made like this."""


rule models:
    input:
        prompts=paths.prompt_files(PARAMS.pretraining.prompts),
    output:
        paths.EMBEDDED,
    log:
        "logs/models/embedded.log",
    conda:
        "../envs/rmft.yaml"
    threads: PARAMS.pretraining.threads
    params:
        settings=plan.models_job(PARAMS).canonical(),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Pre-train the embedded language model"
    shell:
        "rmft models --settings {params.settings:q} --folder {params.folder} 2>&1 | tee {log}"
