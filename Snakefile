"""rmft: from the root seed to every figure and table. Parameters are in params.yaml, rules in workflow/rules."""

import os
import shlex
import sys
from pathlib import Path

# The code of this checkout, whichever one the environment was made in: here, and in the jobs below.
SOURCE = Path(workflow.basedir) / "src"
sys.path.insert(0, str(SOURCE))

from rmft.workflow import forkserver
from rmft.workflow import paths
from rmft.workflow import plan
from rmft.artifacts.files import sha256
from rmft.workflow.records import COMMANDS
from rmft.params.scenarios import check_spreadsheets
from rmft.lineage.audit import refuse_altered
from rmft.lineage.code import not_locked
from rmft.params import load
from rmft.artifacts.job import JOB_OF, this_run
from rmft.workflow.runs import hold_folder, or_stop, refuse_read_only

# Before anything is looked at, so that nothing is taken for granted that another run is about to change.
AUDIT = bool(config.get("audit"))
if workflow.is_main_process and not AUDIT:
    or_stop(hold_folder)

FULL_SIZE = or_stop(load)

PARAMS = FULL_SIZE.at_scale()
or_stop(check_spreadsheets, PARAMS.scenarios.values())
EXPERIMENTS = PARAMS.experiments

# Jobs run the `rmft` of the environment that runs Snakemake, on one thread each: many of them run side by side.
ENVIRONMENT = {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", JOB_OF: this_run()}
shell.prefix(
    f"set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"
    f" {' '.join(f'{name}={shlex.quote(value)}' for name, value in ENVIRONMENT.items())}; "
)


wildcard_constraints:
    experiment="|".join(EXPERIMENTS),
    seed=r"\d+",
    iteration=r"\d+",
    shard=r"\d+",
    shards=r"\d+",
    player=r"base(-\d+)?|(iteration-\d+|trained)-\d+",
    set="|".join(PARAMS.rewards),
    evaluation="|".join(dict.fromkeys(name for of in EXPERIMENTS.values() for name in of.evaluations)),


include: "workflow/rules/common.smk"
include: "workflow/rules/scenarios.smk"
include: "workflow/rules/rewards.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/models.smk"
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


# Targets. Every artifact is an input of a target that writes nothing itself. That matters: a killed job loses its
# output and Snakemake's record of it, and only a target that asks for every artifact by name notices that one is
# gone while later ones are still there.
rule all:
    default_target: True
    input:
        paths.everything(PARAMS),
        paths.EMBEDDED if AUDIT and os.path.exists(paths.EMBEDDED[0]) else [],
    message:
        "Everything is built: open results/report.html"


rule quick:
    input:
        paths.quick(PARAMS),
    message:
        f"An experiment of each section is built: look into results/experiments/{', results/experiments/'.join(PARAMS.quick)}"


rule numeric:
    input:
        paths.section(PARAMS, with_model("linear-attention")),
    message:
        "Section 4 is built: look into results/figures and results/tables"


rule open_weight:
    input:
        paths.section(PARAMS, with_model("language")),
    message:
        "Section 5 is built: look into results/figures and results/tables"


rule closed_weight:
    input:
        paths.section(PARAMS, with_model("endpoint")),
    message:
        "Section 6 is built: look into results/figures and results/tables"


rule scenarios:
    input:
        paths.scenarios(PARAMS),
    message:
        "All scenarios are in data/scenarios and results/scenarios"


rule rewards:
    input:
        paths.reward_sets(PARAMS),
    message:
        "All reward sets are in data/rewards"


rule figures:
    input:
        paths.reward_sets(PARAMS),
        [paths.artifacts_of(PARAMS, experiment) for experiment in EXPERIMENTS],
        paths.figures(PARAMS),
    message:
        "All figures are in results/figures"


rule tables:
    input:
        paths.reward_sets(PARAMS),
        [paths.artifacts_of(PARAMS, experiment) for experiment in EXPERIMENTS],
        paths.THEORY,
        paths.tables(PARAMS),
        paths.METRICS,
    message:
        "All tables are in results/tables"


rule report:
    input:
        paths.everything(PARAMS),
    message:
        "The report is written: open results/report.html"


for experiment in EXPERIMENTS:

    rule:
        name:
            f"exp_{experiment}"
        input:
            paths.reward_sets(PARAMS),
            paths.artifacts_of(PARAMS, experiment),
        message:
            f"{experiment} is built: look into results/experiments/{experiment}"


onstart:
    to_do = [job for job in workflow.dag.needrun_jobs() if job.shellcmd]
    or_stop(refuse_read_only, [path for job in to_do for path in job.output])
    if workflow.local_exec:
        forkserver.start([job.shellcmd.split()[1] for job in to_do], ENVIRONMENT)  # rmft <command> …
    # With a limit to jobs a second, 100 unless said otherwise, Snakemake 9 looks for jobs not only when one has ended but
    # again a second after each time that it looked, so ever more often (snakemake/snakemake#3744).
    workflow.scheduler.job_rate_limiter = None


# Snakemake would take a file that was edited by hand for what a job wrote. `rmft lineage --all` says so itself.
if workflow.is_main_process and not AUDIT:
    or_stop(refuse_altered, [*paths.everything(PARAMS), *paths.EMBEDDED])
    for difference in not_locked(COMMANDS):
        print(f"rmft: warning: {difference}: jobs run again, and `dvc repro` does not know", file=sys.stderr)
