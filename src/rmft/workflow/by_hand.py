"""Find the job that options of the command line name, for a stage by hand: Snakemake says what the job's command is."""

import re
import shlex
from collections.abc import Iterable, Mapping
from itertools import pairwise

from rmft.errors import InputError, unknown
from rmft.params import load
from rmft.params.files import THEORY
from rmft.workflow import paths, targets
from rmft.workflow.runs import ask_snakemake, check_installed

OF_EXPERIMENT = "results/experiments/{experiment}"
OF_ITERATION = f"{OF_EXPERIMENT}/seed-{{training_seed}}/iteration-{{iteration}}"
HELD_OUT = f"{OF_EXPERIMENT}/evaluation/{{evaluation}}/{{player}}.parquet"
TARGETS = {  # by stage, a file that its job writes, with the options that name the job
    "scenarios": "results/scenarios/{name}.jsonl",
    "rewards": "data/rewards/{name}.npz",
    "models": "results/models/{name}/fidelity.csv",
    "conversion": "results/models/{name}/conversion.csv",
    "training": f"{OF_EXPERIMENT}/training-log.csv",
    "rollouts": f"{OF_ITERATION}/shards/{{shard}}-of-{{shards}}.parquet",
    "distillation": f"{OF_EXPERIMENT}/seed-{{training_seed}}/iteration-0/rollouts.parquet",
    "gather": f"{OF_ITERATION}/rollouts.parquet",
    "selection": f"{OF_ITERATION}/selection.parquet",
    "sft": f"{OF_ITERATION}/training-log.csv",
    "grpo": f"{OF_ITERATION}/training-log.csv",
    "method": f"{OF_ITERATION}/training-log.csv",
    "evaluation": f"{OF_EXPERIMENT}/evaluation/{{evaluation}}.parquet",
    "reasoning": f"{OF_EXPERIMENT}/reasoning/{{evaluation}}/accuracy.csv",
    "theory": THEORY,
    "figures": "results/figures/{label}.csv",
    "tables": "results/tables/{label}.csv",
    "metrics": "results/metrics.json",
    "report": "results/report.html",
}
TRAINING = ("sft", "grpo", "method")  # stages that write into the folder of the next iteration


def job_of(stage: str, keys: Mapping[str, object]) -> tuple[str, dict[str, list[str]]]:
    """Return the record of the job that some options name, and its files by option; those without one are `inputs`.

    Raise InputError where params.yaml has no such job.
    """
    check_installed("snakemake")
    printed = ask_snakemake("--dry-run", "--force", "--printshellcmds", target_of(stage, keys))
    *_, command = re.findall(rf"^Shell command: rmft {stage} (.+) 2>&1 \| tee", printed, re.MULTILINE)
    files: dict[str, list[str]] = {}
    for before, word in pairwise(["", *shlex.split(command)]):
        if not word.startswith("--"):
            files.setdefault(before.removeprefix("--") if before.startswith("--") else "inputs", []).append(word)
    (record,) = files.pop("settings")
    return record, files


def target_of(stage: str, keys: Mapping[str, object]) -> str:
    """Return a file that a job writes. Raise InputError where params.yaml or outputs.yaml has no such job."""
    if stage == "rollouts" and {"evaluation", "iteration"} <= keys.keys():
        raise InputError("rollouts: --iteration is of training; with --evaluation say --player iteration-<i>-<seed>")
    params = load().at_scale()
    target, known = HELD_OUT if stage == "rollouts" and "evaluation" in keys else TARGETS[stage], dict(keys)
    if "{experiment}" in target and "experiment" in keys:
        there = [name for name, of in params.experiments.items() if stage in of.stages]
        if (name := keys["experiment"]) not in there:
            why = "this experiment has no such job" if name in params.experiments else unknown(name, there)
            raise InputError(f"{stage}: --experiment {name}: {why}")
        known["shards"] = params.shards(keys["experiment"])
    for key in re.findall(r"{(\w+)}", target):
        if key not in known:
            if stage == "rollouts" and key == "iteration":
                raise InputError("rollouts: needs --iteration, or --evaluation and --player (or --settings)")
            raise InputError(f"{stage}: needs --{key.replace('_', '-')} (or --settings with a job's record)")
    if stage in TRAINING:
        known["iteration"] += 1
    path = target.format_map(known)
    made = [*targets.everything(params), *paths.on_demand(params)]
    if path not in made:
        raise InputError(f"{stage}: {_not_made(target, known, made)}")
    return path


def _not_made(target: str, known: Mapping[str, object], made: Iterable[str]) -> str:
    """Return what to say where no job writes a target. known: what its options named; made: what jobs write."""
    parts = re.split(r"{(\w+)}", target)
    if len(parts) != 3 or parts[1] not in ("name", "label"):
        return f"params.yaml has no job that writes {target.format_map(known)}; look at its names and kinds"
    before, key, after = parts
    fitting = [path for path in made if path.startswith(before) and path.endswith(after)]
    there = list(dict.fromkeys(path.removeprefix(before).removesuffix(after) for path in fitting))
    file = "outputs.yaml" if key == "label" else "params.yaml"
    return f"--{key}: {unknown(known[key], there)} ({file} has the {key}s)"
