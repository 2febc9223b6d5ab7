"""The manifest: a job that reads every artifact, so that Snakemake has the hash of each on record."""


rule manifest:
    input:
        REWARDS,
        [artifacts_of(experiment) for experiment in EXPERIMENTS],
        "results/theory/minimisers.csv",
        FIGURES,
        TABLES,
        "results/metrics.json",
    output:
        "results/manifest.csv",
    log:
        "logs/manifest.log",
    conda:
        "../envs/rmft.yaml"
    params:
        code=fingerprint("manifest"),
    message:
        "List every artifact with its hash"
    shell:
        "rmft manifest --output {output} {input} 2>&1 | tee {log}"
