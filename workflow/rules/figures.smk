"""Every figure under the paper's label: pdf, png, and the csv of what is drawn."""


rule figure:
    input:
        figure_inputs,
    output:
        pdf="results/figures/{label}.pdf",
        png=report(
            "results/figures/{label}.png",
            category="Figures",
            caption="../report/figure.rst",
            labels={"figure": "{label}"},
        ),
        csv="results/figures/{label}.csv",
    log:
        "logs/figures/{label}.log",
    wildcard_constraints:
        label="|".join(PARAMS.figures.drawn),
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: figure_job(wildcards).canonical(),
        note=lambda wildcards: figure_job(wildcards).scale_note or "the paper's size",
        stem=lambda wildcards, output: output.csv.removesuffix(".csv"),
    message:
        "Draw {wildcards.label}"
    shell:
        "rmft figures --settings {params.settings:q} --stem {params.stem} {input} 2>&1 | tee {log}"
