"""Held-out reward sets, drawn from the root seed."""


rule reward_set:
    input:
        extensions=lambda wildcards: extensions(plan.rewards_job(PARAMS, wildcards.set)),
    output:
        "data/rewards/{set}.npz",
    log:
        "logs/rewards/{set}.log",
    priority: SHORT_AND_WAITED_FOR
    conda:
        "../envs/rmft.yaml"
    params:
        settings=lambda wildcards: plan.rewards_job(PARAMS, wildcards.set).canonical(),
    message:
        "Draw the reward set {wildcards.set}"
    shell:
        "rmft rewards --settings {params.settings:q} --output {output} 2>&1 | tee {log}"
