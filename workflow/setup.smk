"""What every rule needs: parameters, one run at a time, the environment of jobs, and names in paths."""

import gc
import math
import os
import shlex
import sys
from pathlib import Path

from snakemake.logging import logger
from snakemake.persistence import PersistenceBase
from snakemake.settings.types import DeploymentMethod

# The code of this checkout, whichever one the environment was made in: here, and in the jobs below.
SOURCE = Path(workflow.basedir) / "src"
sys.path.insert(0, str(SOURCE))

from rmft.workflow import forkserver, paths, plan, plan_outputs, targets
from rmft.extensions import data_of
from rmft.lineage.audit import refuse_altered, refuse_left_alone
from rmft.lineage.code import check_code, not_locked, stages
from rmft.params import load
from rmft.params.files import THEORY, prompt_files, training_log_of
from rmft.artifacts.job import JOB_OF, ON_CLUSTER, this_run
from rmft.workflow.checks import check_folder, check_inputs, check_sources
from rmft.workflow.failures import (
    BriefErrors,
    WithNothingToDo,
    interrupted_early,
    let_sigterm_in,
    refuse_other_targets,
    say_last,
)
from rmft.workflow.job_list import stage_of, write_job_list
from rmft.workflow.runs import (
    drop_broken_dvc_locks,
    hold_folder,
    is_dry_run,
    let_wait,
    or_stop,
    refuse_own_server,
    refuse_read_only,
    remove_when_stopped,
    stop,
    why_not,
)

if workflow.is_main_process:
    sys.excepthook = interrupted_early
    remove_when_stopped(workflow.snakemake_tmp_dir)

# Planning makes a million objects that stay. Looking for garbage among them as often as Python does takes a tenth of the time.
gc.set_threshold(50_000, 20, 20)

# Snakemake would import pandas, to look for data frames among the params of rules. Ours are texts.
PersistenceBase._serialize_param = PersistenceBase._serialize_param_builtin

# Before anything is looked at, so that nothing is taken for granted that another run is about to change.
AUDIT = config.get("audit")  # files are only looked at: "all", or those of the "default" target
OTHER_RUN = None  # why this one may look, and not build
if workflow.is_main_process and not AUDIT:
    DRY_RUN = is_dry_run(sys.argv[1:])
    OTHER_RUN = why_not(lambda: hold_folder(dry=DRY_RUN))
    if OTHER_RUN and not DRY_RUN:
        stop(OTHER_RUN)
    drop_broken_dvc_locks()

FULL_SIZE = or_stop(load)

PARAMS = FULL_SIZE.at_scale()
BY_DEFAULT, BY_REQUEST = PARAMS.by_default, PARAMS.by_request
if workflow.is_main_process:
    or_stop(check_folder, Path.cwd())
    or_stop(check_code, PARAMS.extensions)
    or_stop(check_sources if AUDIT else check_inputs, PARAMS)
EXPERIMENTS = PARAMS.experiments

# Many jobs run side by side, each on one thread unless it sets its own number. They run the `rmft` of the environment that
# runs Snakemake, or of the one that conda has made for them.
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")])),
    "OMP_NUM_THREADS": "1",
    JOB_OF: this_run(),
}
if not workflow.is_main_process:
    ENVIRONMENT[ON_CLUSTER] = "1"
IN_CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
in_path = [] if IN_CONDA else [f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"]
exported = [*in_path, *(f"{name}={shlex.quote(value)}" for name, value in ENVIRONMENT.items())]
shell.prefix(f"set -euo pipefail; export {' '.join(exported)}; ")


wildcard_constraints:
    experiment="|".join(EXPERIMENTS),
    seed=r"\d+",
    iteration=r"\d+",
    shard=r"\d+",
    shards=r"\d+",
    player=r"base(-\d+)?|(iteration-\d+|trained)-\d+",
    set="|".join(PARAMS.rewards),
    evaluation="|".join(dict.fromkeys(name for of in EXPERIMENTS.values() for name in of.evaluations)),
