"""Every table under the paper's label, beside the paper's values; and the metrics that DVC compares."""

TABLES = expand(
    "results/tables/{label}.{ending}", label=PARAMS.tables, ending=["csv", "md", "tex"]
)


def table_inputs(wildcards):
    """Return the evaluations that a table fits and then, if there is one, the file of the paper's values."""
    job = jobs.table_job(PARAMS, wildcards.label, "")
    evaluations = [
        f"results/{name}/evaluation/{evaluation}.parquet"
        for name, evaluation in job.sources
    ]
    return (
        [*evaluations, f"data/paper/{wildcards.label}.csv"]
        if evaluations
        else "results/theory/minimisers.csv"
    )


def table_size(wildcards):
    return FULL_SIZE.size(PARAMS.tables[wildcards.label].experiments)


rule table:
    input:
        table_inputs,
    output:
        csv="results/tables/{label}.csv",
        md="results/tables/{label}.md",
        tex="results/tables/{label}.tex",
    log:
        "logs/tables/{label}.log",
    conda:
        "rmft"
    params:
        settings=lambda wildcards: jobs.table_job(
            PARAMS, wildcards.label, table_size(wildcards)
        ).canonical(),
        stem=lambda wildcards, output: output.csv.removesuffix(".csv"),
        code=fingerprint("tables"),
    message:
        "Make {wildcards.label}"
    shell:
        "rmft tables --settings {params.settings:q} --stem {params.stem} {input} 2>&1 | tee {log}"


rule metrics:
    input:
        EVALUATIONS,
    output:
        "results/metrics.json",
    log:
        "logs/metrics.log",
    conda:
        "rmft"
    params:
        settings=jobs.metrics_job(PARAMS).canonical(),
        code=fingerprint("metrics"),
    message:
        "Collect the metrics of all evaluations"
    shell:
        "rmft metrics --settings {params.settings:q} --output {output} {input} 2>&1 | tee {log}"
