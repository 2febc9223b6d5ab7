"""Stages by hand: the records and files that the rules give, and nothing of the workflow is replaced."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_selection import at_random, trajectories
from trees import ROOT, run, set_value

from rmft.artifacts.job import JOB_OF, this_run
from rmft.artifacts.trajectories import write_trajectories
from rmft.environments import draw_rewards
from rmft.errors import InputError
from rmft.lineage.code import stages
from rmft.workflow import by_hand
from rmft.workflow.plan import rewards_job
from rmft.workflow.stage import run_stage

EXPERIMENT = r"results/experiments/(?P<experiment>\w+)"
ITERATION = rf"{EXPERIMENT}/seed-(?P<training_seed>\d+)/iteration-(?P<iteration>\d+)"
KEYS = {  # by stage, what a job's output says of its names in params.yaml
    "rewards": r"data/rewards/(?P<name>.+)\.npz",
    "training": EXPERIMENT,
    "rollouts": rf"{EXPERIMENT}/(seed-(?P<training_seed>\d+)/iteration-(?P<iteration>\d+)/shards/(?P<shard>\d+)-of"
    r"|evaluation/(?P<evaluation>[\w-]+)/(?P<player>[\w-]+)\.parquet)",
    "distillation": rf"{ITERATION}/rollouts\.parquet",
    "gather": rf"{ITERATION}/rollouts\.parquet",
    "selection": rf"{ITERATION}/selection\.parquet",
    "sft": rf"{ITERATION}/\w+\.(safetensors|json)",
    "grpo": rf"{ITERATION}/\w+\.safetensors",
    "method": rf"{ITERATION}/\w+\.safetensors",
    "evaluation": rf"{EXPERIMENT}/evaluation/(?P<evaluation>[\w-]+)\.parquet",
    "reasoning": rf"{EXPERIMENT}/reasoning/(?P<evaluation>[\w-]+)",
    "figures": r"results/figures/(?P<label>.+)",
    "tables": r"results/tables/(?P<label>.+)",
    "theory": "",
    "metrics": "",
    "report": "",
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Return a folder with the parameters at smoke scale and the data of this checkout, nothing built."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    for name in ("Snakefile", "src", "workflow", "profiles", "extensions", "requirements.lock", "outputs.yaml", "docs"):
        if (ROOT / name).exists():
            (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "data", tmp_path / "data", ignore=shutil.ignore_patterns("rewards", "recorded"))
    set_value(tmp_path, "scale", "smoke")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keys_of(stage: str, output: str) -> dict[str, str | int]:
    """Return the options that name the job of an output."""
    named = {key: value for key, value in re.match(KEYS[stage], output).groupdict().items() if value is not None}
    keys = {
        key: int(value) if key in ("training_seed", "iteration", "shard") else value for key, value in named.items()
    }
    return keys | ({"iteration": keys["iteration"] - 1} if stage in ("sft", "grpo", "method") else {})


def options_of(words: list[str]) -> dict[str, list[str]]:
    """Return the files of a command line by option."""
    options: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        name, value = (word.removeprefix("--"), next(rest)) if word.startswith("--") else ("inputs", word)
        options.setdefault(name, []).append(value)
    return options


def test_by_hand_options_name_the_job_that_the_rules_have(folder, monkeypatch):
    printed = run(folder, "snakemake", "--dry-run", "--forceall", "--printshellcmds", "all").stdout
    lines = re.findall(r"^Shell command: rmft (\w+) (.+) 2>&1 \| tee", printed, re.MULTILINE)
    commands = [(stage, options_of(shlex.split(words))) for stage, words in lines]
    assert {stage for stage, _ in commands} == set(stages()) - {"scenarios", "models", "conversion"}
    full_size = by_hand.load()
    monkeypatch.setattr(by_hand, "load", lambda: full_size)
    seen: dict[tuple[str, ...], int] = {}
    for stage, options in commands:
        kind = (stage, *sorted(options))
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] > 3:
            continue
        output = (options.get("output") or options.get("folder") or options["stem"])[0]
        target = by_hand.target_of(stage, keys_of(stage, output))
        written = [path for name in ("output", "log", "folder", "stem") for path in options.get(name, [])]
        assert any(target.startswith(path) for path in written)
    for stage, key in (("rollouts", "weights"), ("sft", "demonstrations")):
        options = next(options for name, options in commands if name == stage and key in options)
        job = by_hand.job_of(stage, keys_of(stage, options["output"][0]))
        assert job == (options.pop("settings")[0], options)


def test_a_reward_set_by_hand_is_that_of_its_job(folder, rmft):
    code, _, error = rmft("rewards", "--name", "gamma")
    assert code == 0
    assert "rmft rewards: writes scratch/data/rewards/gamma.npz" in error
    assert not (folder / "data/rewards").exists()
    with np.load("scratch/data/rewards/gamma.npz") as stored:
        n, horizon, d = stored["rewards"].shape
        np.testing.assert_array_equal(stored["rewards"], draw_rewards(0, "gamma", ["gamma"], (n, horizon, d)).rewards)


@pytest.mark.usefixtures("folder")
def test_a_selection_by_hand_reads_the_workflows_rollouts_and_writes_to_scratch_unless_told_where(rmft):
    rollouts = Path("results/experiments/open_mab_qwen/seed-0/iteration-0/rollouts.parquet")
    arguments = ("selection", "--experiment", "open_mab_qwen", "--iteration", "0")
    code, _, error = rmft(*arguments)
    assert (code, error) == (2, f"rmft: {rollouts}: not found; run `snakemake {rollouts}` first\n")
    played = trajectories(table := draw_rewards(0, "test", ["gaussian"], (2, 3, 3)), *at_random(table, 4))
    played |= {"ids": [[[1, 2]]] * 8, **dict.fromkeys(("sampled", "replied"), [[[False, True]]] * 8)}
    write_trajectories(rollouts, played)
    before = rollouts.read_bytes()
    assert rmft(*arguments)[0] == 0
    written = [path for path in Path().rglob("*") if path.name in ("selection.parquet", "demonstrations.jsonl")]
    assert {path.parent for path in written} == {Path("scratch") / rollouts.parent}
    assert rollouts.read_bytes() == before
    own = rollouts.with_name("selection.parquet")
    code, _, error = rmft(*arguments, "--output", own)
    assert code == 0
    assert own.read_bytes() == (Path("scratch") / own).read_bytes()
    assert f"{own}: no job of Snakemake's writes it" in error


@pytest.mark.usefixtures("folder")
def test_a_job_whose_code_was_edited_since_snakemake_began_is_refused(monkeypatch):
    settings = rewards_job(by_hand.load().at_scale(), "gaussian").canonical()
    monkeypatch.setenv(JOB_OF, this_run())
    run_stage("rewards", settings, {"output": Path("first.npz")}, ["output"])
    before = json.loads(settings)["code"]["digest"]
    with pytest.raises(InputError, match="edited since"):
        run_stage("rewards", settings.replace(before, "0" * len(before)), {"output": Path("second.npz")}, ["output"])
    other = settings.replace(f'"numpy":"{np.__version__}"', '"numpy":"0.1"')
    with pytest.raises(InputError, match=f"rewards: numpy {np.__version__} is installed here, and 0.1 where snakemake"):
        run_stage("rewards", other, {"output": Path("second.npz")}, ["output"])
    assert not Path("second.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["selection"], "selection: needs --experiment (or --settings"),
        (["selection", "--experiment", "open_mab_qwen"], "selection: needs --iteration"),
        (
            ["selection", "--experiment", "numeric_mab", "--iteration", "0"],
            "--experiment numeric_mab: this experiment has no such job",
        ),
        (["selection", "--experiment", "open_mab_qwen", "--iteration", "99"], "params.yaml has no job that writes"),
        (["rollouts", "--experiment", "open_mab_qwen"], "rollouts: needs --iteration, or --evaluation"),
        (["evaluation", "--experiment", "numeric_mab", "--evaluation", "none"], "params.yaml has no job that writes"),
        (
            ["figures", "--label", "tfbandt"],
            "--label: unknown 'tfbandt'; did you mean tfbandit? (outputs.yaml has",
        ),
        (
            ["rewards", "--name", "gausian"],
            "--name: unknown 'gausian'; did you mean gaussian? (params.yaml has",
        ),
        (["selection", "--settings", "{}"], "selection: --settings needs --rollouts as well"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_names_no_job_is_refused_in_one_line(rmft, arguments, says):
    code, out, error = rmft(*arguments)
    assert (code, out) == (2, "")
    assert says in error
    assert error.count("\n") == 1
