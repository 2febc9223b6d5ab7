"""Every table under the paper's label, beside the paper's values; and the metrics that DVC compares."""


rule table:
    input:
        table_inputs,
    output:
        csv="results/tables/{label}.csv",
        md="results/tables/{label}.md",
        tex="results/tables/{label}.tex",
    log:
        "logs/tables/{label}.log",
    wildcard_constraints:
        label="|".join(PARAMS.tables),
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: table_job(wildcards).canonical(),
        stem=lambda wildcards, output: output.csv.removesuffix(".csv"),
    message:
        "Make {wildcards.label}"
    shell:
        "rmft tables --settings {params.settings:q} --stem {params.stem} {input:q} 2>&1 | tee {log}"


# Metrics of the experiments on request are in files of their own.
for collected in filter(lambda params: params.experiments, (BY_DEFAULT, BY_REQUEST)):

    rule:
        name:
            f"{paths.prefix_of(collected)}metrics".replace("-", "_")
        input:
            [path for experiment in collected.experiments for path in paths.evaluations_of(collected, experiment)],
        output:
            full=paths.metrics_of(collected)[0],
            summary=paths.metrics_of(collected)[1],
        log:
            f"logs/{paths.prefix_of(collected)}metrics.log",
        conda:
            "../envs/rmft.yaml"
        params:
            settings=plan_outputs.metrics_job(collected).canonical(),
        message:
            "Collect the metrics of all evaluations"
        shell:
            "rmft metrics --settings {params.settings:q} --output {output.full} --summary {output.summary} {input}"
            " 2>&1 | tee {log}"
