"""Theorem 1, checked by training to convergence."""


rule theory:
    output:
        THEORY,
    log:
        "logs/theory.log",
    priority: ITERATION
    conda:
        "../envs/rmft.yaml"
    params:
        settings=plan.theory_job(PARAMS).canonical(),
    message:
        "Train to convergence for Theorem 1"
    shell:
        "rmft theory --settings {params.settings:q} --output {output} 2>&1 | tee {log}"
