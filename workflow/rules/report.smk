"""What a reader opens first: all figures and tables beside the paper's claims, and the games to look at."""

# Two reports of one form: of the experiments on request, and of everything else.
for shown in filter(lambda params: params.experiments, (BY_DEFAULT, BY_REQUEST)):

    rule:
        name:
            f"{paths.prefix_of(shown)}report_pages".replace("-", "_")
        input:
            paths.inputs_of_report(shown),
        output:
            page=paths.report_of(shown)[0],
            trajectories=paths.report_of(shown)[1],
        log:
            f"logs/{paths.prefix_of(shown)}report.log",
        conda:
            "../envs/rmft.yaml"
        params:
            # A function, since Snakemake takes braces in a text for wildcards, and labels have some.
            settings=lambda wildcards, shown=shown: plan_outputs.report_job(shown, FULL_SIZE).canonical(),
        message:
            "Write the report"
        shell:
            "rmft report --settings {params.settings:q} --output {output.page} --trajectories {output.trajectories}"
            " {input:q} 2>&1 | tee {log}"
