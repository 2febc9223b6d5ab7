"""rmft, from the root seed to every figure and table: what there is, and the targets that one asks for.

Parameters are in params.yaml and outputs.yaml, the rules of each stage in workflow/rules/<stage>.smk.
"""


include: "workflow/setup.smk"
include: "workflow/rules/common.smk"
include: "workflow/rules/scenarios.smk"
include: "workflow/rules/rewards.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/conversion.smk"
include: "workflow/rules/rollouts.smk"
include: "workflow/rules/distillation.smk"
include: "workflow/rules/selection.smk"
include: "workflow/rules/sft.smk"
include: "workflow/rules/grpo.smk"
include: "workflow/rules/method.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/reasoning.smk"
include: "workflow/rules/theory.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/report.smk"
include: "workflow/checks.smk"


# Targets. Every artifact is an input of a target that writes nothing itself. That matters: a killed job loses its output,
# and only a target that asks for every artifact by name notices that one is gone while later ones are still there.
rule all:
    default_target: True
    input:
        targets.everything(BY_DEFAULT),
        [*filter(os.path.exists, (*paths.on_demand(PARAMS), *targets.everything(BY_REQUEST)))] if AUDIT == "all" else [],
    message:
        "Everything is built: open results/report.html"


rule first:
    input:
        targets.quick(PARAMS, most=1),
    message:
        f"{next(iter(PARAMS.quick), 'Nothing')} is built: `rmft results --plot plots/first` draws its regrets"


rule quick:
    input:
        targets.quick(PARAMS),
    message:
        f"An experiment of each section is built: look into results/experiments/{', results/experiments/'.join(PARAMS.quick)}"


rule numeric:
    input:
        targets.section(BY_DEFAULT, with_model("linear-attention")),
    message:
        "Section 4 is built: look into results/figures and results/tables"


rule open_weight:
    input:
        targets.section(BY_DEFAULT, with_model("language")),
    message:
        "Section 5 is built: look into results/figures and results/tables"


rule closed_weight:
    input:
        targets.section(BY_DEFAULT, with_model("endpoint")),
    message:
        "Section 6 is built: look into results/figures and results/tables"


rule on_request:
    input:
        targets.section(PARAMS, list(PARAMS.on_request)),
        paths.report_of(BY_REQUEST) if PARAMS.on_request else [],
    message:
        "The experiments on request are built: open results/on-request-report.html"


rule scenarios:
    input:
        paths.scenarios(PARAMS),
    message:
        "All scenarios are in data/scenarios and results/scenarios"


rule models:
    input:
        paths.pretrained(PARAMS),
    message:
        "The embedded models are in results/models"


rule rewards:
    input:
        paths.reward_sets(PARAMS),
    message:
        "All reward sets are in data/rewards"


rule figures:
    input:
        paths.reward_sets(PARAMS),
        [targets.artifacts_of(PARAMS, experiment) for experiment in targets.drawn(BY_DEFAULT)],
        paths.figures(BY_DEFAULT),
    message:
        "All figures are in results/figures"


rule tables:
    input:
        paths.reward_sets(PARAMS),
        [targets.artifacts_of(PARAMS, experiment) for experiment in BY_DEFAULT.experiments],
        THEORY,
        paths.tables(BY_DEFAULT),
        paths.metrics_of(BY_DEFAULT),
    message:
        "All tables are in results/tables"


rule report:
    input:
        targets.everything(BY_DEFAULT),
    message:
        "The report is written: open results/report.html"


for experiment in EXPERIMENTS:

    rule:
        name:
            f"exp_{experiment}"
        input:
            targets.section(PARAMS, [experiment]),
        message:
            f"{experiment} is built: `rmft results {experiment}` prints its regrets"
