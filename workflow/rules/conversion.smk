"""GGUF files as checkpoints that transformers loads: once for each model, when a job needs its weights."""


rule conversion:
    input:
        gguf=lambda wildcards: or_stop(paths.gguf_of, PARAMS, wildcards.model, needed=not AUDIT),
        chat_template=lambda wildcards: paths.chat_template_of(PARAMS, wildcards.model),
        prompts=prompt_files(PARAMS.conversion.prompts),
        scenarios=lambda wildcards: plan.conversion_job(PARAMS, wildcards.model).scenario_sets,
    output:
        [f"results/models/{{model}}/{name}" for name in paths.CONVERTED],
    log:
        "logs/models/{model}.log",
    wildcard_constraints:
        model=one_of(paths.gguf_models(PARAMS)),
    conda:
        "../envs/rmft.yaml"
    threads: 16
    params:
        settings=lambda wildcards: plan.conversion_job(PARAMS, wildcards.model).canonical(),
        folder=lambda wildcards, output: os.path.dirname(output[0]),
    message:
        "Convert the GGUF file of {wildcards.model}"
    shell:
        "rmft conversion --settings {params.settings:q} --folder {params.folder} 2>&1 | tee {log}"
