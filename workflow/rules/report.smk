"""What a reader opens first: all figures and tables beside the paper's claims, and the games to look at."""


rule report_pages:
    input:
        paths.inputs_of_report(BY_DEFAULT),
    output:
        page=paths.REPORT[0],
        trajectories=paths.REPORT[1],
    log:
        "logs/report.log",
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: plan_outputs.report_job(BY_DEFAULT, FULL_SIZE).canonical(),  # labels have braces
    message:
        "Write the report"
    shell:
        "rmft report --settings {params.settings:q} --output {output.page} --trajectories {output.trajectories}"
        " {input} 2>&1 | tee {log}"
