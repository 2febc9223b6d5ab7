"""Scenarios that a model behind an endpoint writes; those that come with the project are in data/scenarios."""


rule scenario_set:
    input:
        prompt=lambda wildcards: PARAMS.scenarios[wildcards.name].prompt,
        model=lambda wildcards: paths.base_model_of(PARAMS, PARAMS.scenarios[wildcards.name].model),
    output:
        "results/scenarios/{name}.jsonl",
    log:
        "logs/scenarios/{name}.log",
    wildcard_constraints:
        name=one_of([name for name, of in PARAMS.scenarios.items() if of.source == "generated"]),
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: plan.scenarios_job(PARAMS, wildcards.name).canonical(),
    message:
        "Write the scenarios {wildcards.name}"
    shell:
        "rmft scenarios --settings {params.settings:q} --output {output} 2>&1 | tee {log}"
