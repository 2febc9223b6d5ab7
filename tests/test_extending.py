"""docs/extending.md, and the tutorial about methods: every block as it stands, run in a copy of the repository."""

import csv
import json
import os
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from hub import Hub
from trees import (
    ROOT,
    checkout,
    commit,
    done,
    edit,
    environment,
    jobs_in,
    read_yaml,
    run,
    snakemake,
    values_in,
    write_values,
    write_yaml,
)

from rmft.artifacts.files import sha256
from rmft.artifacts.rewards import read_rewards
from rmft.artifacts.trajectories import read_trajectories
from rmft.results import read_players

pytestmark = pytest.mark.xdist_group("extending")

TEXT = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs/tutorials/add-a-method.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"(?:<!-- (?P<how>file|into): (?P<path>\S+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```\n", re.DOTALL
)
MOST_LINES = 30
KEPT = {  # experiments of the copies, with the evaluations and the reward sets that they have
    "numeric_simplex": "gaussian",  # of target quick
    "numeric_mab": "gaussian",
    "open_mab_gemma": "gaussian-50",
    "open_mab_qwen": "gaussian-25",
    "closed_mab": "gaussian-25",
    "contextual": "linear-25",
}
REWARDS = ("gaussian", "linear-contextual")


@dataclass(frozen=True)
class Block:
    """A block of the page. how: it is a `file`, it goes `into` a file, or, if None, it is run."""

    how: str | None
    path: str | None
    language: str
    text: str


def blocks_of(title: str) -> list[Block]:
    """Return the blocks of a section."""
    section = f"{TEXT}\n{TUTORIAL}".split(f"\n## {title}\n")[1].split("\n## ")[0]
    return [Block(*match.group("how", "path", "language", "text")) for match in BLOCK.finditer(section)]


TITLES = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return a copy of the repository at smoke scale, with few experiments and nothing built."""
    copy = tmp_path / "rmft"
    checkout(copy)
    params = values_in(copy)
    params["scale"], params["scales"] = "smoke", {"smoke": params["scales"]["smoke"]}
    params["quick"] = {name: of for name, of in params["quick"].items() if name in KEPT}
    params["reasoning"]["of"], params["on_request"] = {}, {}
    params["experiments"] = {name: params["experiments"][name] for name in KEPT}
    for name, evaluation in KEPT.items():
        evaluations = params["experiments"][name]["evaluations"]
        params["experiments"][name]["evaluations"] = {evaluation: evaluations[evaluation]}
    params["rewards"] = {name: params["rewards"][name] for name in REWARDS}
    params["figures"]["drawn"], params["tables"] = {}, {}
    write_values(copy, params)
    done(copy, "git", "init", "--quiet")
    commit(copy, "Start")
    return copy


def merged(old: object, new: object) -> object:
    """Return a section of params.yaml with the entries of another put into it."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list):  # such as that of the extensions
        return [*old, *(entry for entry in new if entry not in old)]
    return new


def put(folder: Path, title: str) -> None:
    """Put the files and entries of a section into a copy."""
    for block in blocks_of(title):
        if block.how == "file":
            (folder / block.path).write_text(block.text, encoding="utf-8")
        elif block.how == "into":
            path = folder / block.path
            params = read_yaml(path)
            changed = merged(params, yaml.load(block.text, yaml.CSafeLoader))
            write_yaml(path, changed)


def type_in(folder: Path, title: str) -> str:
    """Run the commands of a section as a user types them; each must succeed. Return all that they print."""
    (block,) = (block for block in blocks_of(title) if block.language == "sh")
    shell = ["bash", "-euo", "pipefail", "-c", block.text]
    finished = subprocess.run(shell, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout + finished.stderr


def refused(folder: Path, *command: str) -> str:
    """Run a command that must end with one line and exit code 2; return the line."""
    stopped = run(folder, *command)
    lines = [line for line in stopped.stderr.splitlines() if line.startswith("rmft: ")]
    assert stopped.returncode == 2, stopped.stderr
    assert len(lines) == 1, stopped.stderr
    assert "Traceback" not in stopped.stderr
    return lines[0]


def to_do(folder: Path, *targets: str) -> set[str]:
    """Return the jobs that Snakemake would start for some targets."""
    return jobs_in(snakemake(folder, "--dry-run", *targets))


# --- The page ---


def test_every_block_is_short_and_says_where_it_goes():
    blocks = [block for title in TITLES for block in blocks_of(title)]
    assert TEXT.count("\n```") == 2 * len(blocks)
    for block in blocks:
        assert len(block.text.splitlines()) <= MOST_LINES, block.text
        assert (block.language == "sh") == (block.how is None), block.text


def test_every_section_is_tested_here():
    own = Path(__file__).read_text(encoding="utf-8")
    for title in TITLES:
        assert f'"{title}"' in own, title


def test_all_sections_go_into_the_whole_params_yaml(tmp_path):
    """The sections are run on few experiments; this one catches a block that harms the others."""
    checkout(tmp_path)
    for title in TITLES:
        put(tmp_path, title)
    done(tmp_path, "rmft", "params")


# --- Section by section ---


@pytest.mark.long
def test_a_process_of_ones_own_goes_through_the_whole_house(folder):
    title = "A new reward process"
    put(folder, title)
    printed = type_in(folder, title)
    rewards = folder / "data/rewards/change-point.npz"
    table = read_rewards(rewards)
    assert table.shape == (400, 100, 3)
    changes = (np.diff(table.means[:, :, 0], axis=1) != 0).sum(axis=1)
    assert set(changes) == {1}
    file = folder / "extensions/change_point.py"
    digest = done(folder, "sha256sum", str(file))[:12]
    assert f"extensions/change_point.py  {digest}  a source, not in git" in printed
    assert "root seed 0" in printed
    # After an edit its job runs again and no other, and writes another set.
    snakemake(folder, "rewards")
    before = {path.name: path.read_bytes() for path in (folder / "data/rewards").iterdir()}
    edit(file, "integers(10, 40, n)", "integers(20, 60, n)")
    assert jobs_in(snakemake(folder, "rewards")) == {"rewards change-point"}
    after = {path.name: path.read_bytes() for path in (folder / "data/rewards").iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"change-point.npz"}
    # An older file that is put back, with its older times, makes the job due too.
    edit(file, "integers(20, 60, n)", "integers(10, 40, n)")
    os.utime(file, (0, 0))
    assert to_do(folder, "rewards") == {"rewards change-point"}
    # An unknown name is refused with the known ones; an error in the file, with its line.
    simulate = ("rmft", "simulate", "--environment", "ns-mab", "--algorithm", "ucb", "--process")
    assert "did you mean change-point?" in refused(folder, *simulate, "change-pint")
    edit(file, "np.arange(horizon)", "np.arange(horizn)")
    for command in (("rmft", "params"), ("snakemake", "rewards"), (*simulate, "change-point")):
        assert refused(folder, *command) == (
            "rmft: extensions/change_point.py:13: NameError: name 'horizn' is not defined"
        )


@pytest.mark.long
def test_an_algorithm_of_ones_own_plays_beside_ours(folder):
    title = "A new reference algorithm"
    put(folder, title)
    type_in(folder, title)
    evaluation = "results/experiments/numeric_mab/evaluation/gaussian.parquet"
    played = read_players(folder / evaluation)
    assert list(played)[-1] == "epsilon-greedy-5"
    greedy, uniform = (played[name].final.mean() for name in ("greedy", "uniform"))
    assert played["epsilon-greedy-5"].final.mean() < uniform
    assert greedy != played["epsilon-greedy-5"].final.mean()
    edit(folder / "extensions/epsilon_greedy.py", "1.0)", "0.5)")
    assert to_do(folder, evaluation) == {"evaluation numeric_mab/gaussian"}
    edit(folder / "params.yaml", "epsilon: 0.05", "epsilonn: 0.05")
    assert "evaluation.algorithms.epsilon-greedy-5: options of epsilon-greedy: got an unexpected" in refused(
        folder, "rmft", "params"
    )


@pytest.mark.long
def test_a_training_method_of_ones_own_takes_the_place_of_fine_tuning(folder):
    assert blocks_of("A training method") == []  # it sends the reader to the tutorial
    title = "Write the method"
    put(folder, title)
    edit(folder / "params.yaml", "scale: smoke", "scale: demo")  # which the first command of the tutorial undoes
    printed = type_in(folder, title)
    assert re.search(r'method: "above-average" +# mab_above_average.method', printed)
    iteration = folder / "results/experiments/mab_above_average/seed-0/iteration-1"
    assert {path.name for path in iteration.iterdir()} == {"adapter.safetensors", "training-log.csv"}
    edit(folder / "extensions/above_average.py", "margin: float = 0.0", "margin: str = ''")
    assert "settings.margin: " in refused(folder, "rmft", "params")


@pytest.mark.long
def test_a_spreadsheet_is_what_games_are_about(folder):
    title = "Scenarios from a spreadsheet"
    put(folder, title)
    type_in(folder, title)
    played = read_trajectories(folder / "results/experiments/open_mab_gemma/evaluation/gaussian-50/base.parquet")
    rows = list(csv.DictReader((folder / "data/scenarios/my-texts.csv").read_text(encoding="utf-8").splitlines()))
    prompts = [rounds[0] for rounds in played["prompt"]]
    for prompt, row in zip(prompts, rows[::-1], strict=True):  # evaluation reads a set from its back
        assert row["scenario"] in prompt
        assert f"1 is {row['action 1']}, 2 is {row['action 2']}, 3 is {row['action 3']}." in prompt
    edit(folder / "data/scenarios/my-texts.csv", "flower market", "fish market, covered")
    for command in (("rmft", "params"), ("snakemake", "--dry-run")):
        assert "data/scenarios/my-texts.csv:2: " in refused(folder, *command)


@pytest.mark.long
def test_a_model_of_the_hub_is_fetched_from_a_mirror_and_what_was_used_is_on_record(folder, tmp_path):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    title, model = "Another model by its hub id", tmp_path / "model"
    source = ROOT / "data/models/embedded"
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source)).save_pretrained(model)
    AutoTokenizer.from_pretrained(source).save_pretrained(model)
    (model / "pytorch_model.bin").write_bytes(bytes(1000))  # which nobody reads
    put(folder, title)
    games = "results/experiments/open_mab_gemma/evaluation/gaussian-50/base.parquet"
    (command,) = (block.text for block in blocks_of(title) if block.language == "sh")

    def typed(**variables: str) -> tuple[int, list[str]]:
        """Run the command of the page; return its exit code and the messages of rmft."""
        finished = subprocess.run(
            ["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False,
            env={**environment(folder), "HF_HOME": str(tmp_path / "hub"), **variables},
        )  # fmt: skip
        printed = (finished.stdout + finished.stderr).splitlines()
        return finished.returncode, [line for line in printed if line.startswith("rmft: ")]

    pinned = "Qwen/Qwen3-0.6B", "c1899de289a04d12100db370d81485cdf75e47ca"
    code, (line, last) = typed(HF_HUB_OFFLINE="1")
    assert code != 0
    assert line.startswith("rmft: Qwen/Qwen3-0.6B: ")
    assert "hf download {} --revision {}".format(*pinned) in line
    assert line.removeprefix("rmft: ") in last  # Snakemake's last line says of which job this is
    with Hub(*pinned, model) as hub:
        for refused, reason in (
            ((404, "RepoNotFound"), f"no such model at {hub.url}, or none that you may read"),
            (
                (403, "GatedRepo"),
                f"its makers ask you to accept conditions: {hub.url}/Qwen/Qwen3-0.6B; "
                "accept them there, then `hf auth login`, or export HF_TOKEN=…",
            ),
        ):
            hub.refused = refused
            code, (line, last) = typed(HF_ENDPOINT=hub.url)
            assert (code != 0, line) == (True, f"rmft: Qwen/Qwen3-0.6B: {reason}")
            assert f"Qwen/Qwen3-0.6B: {reason}" in last
        hub.refused = None
        assert typed(HF_ENDPOINT=hub.url) == (0, [])
        assert "pytorch_model.bin" not in hub.fetched
    assert np.any(read_trajectories(folder / games)["fallback"])  # random weights say nothing valid
    used = json.loads(done(folder, "rmft", "lineage", games, "--format", "json"))["ancestors"][games]["written"]["hub"]
    name = "{}@{}/model.safetensors".format(*pinned)
    assert used[name] == sha256(model / "model.safetensors")
    assert f"{name} {used[name][:12]}" in " ".join(done(folder, "rmft", "lineage", games).split())
    (folder / games).unlink()
    assert typed(HF_HUB_OFFLINE="1") == (0, [])  # from the cache


@pytest.mark.long
def test_an_endpoint_is_an_address_and_a_key(folder):
    title = "Another endpoint"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    put(folder, title)
    edit(folder / "params.yaml", "8123", port)
    (block,) = (block for block in blocks_of(title) if block.language == "sh")
    shell = ["bash", "-euo", "pipefail", "-c", block.text.replace("8123", port)]
    finished = subprocess.run(shell, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    games = folder / "results/experiments/closed_mab/evaluation/gaussian-25/base.parquet"
    assert len(read_trajectories(games)["reply"]) == 2
    record = json.loads(done(folder, "rmft", "lineage", str(games), "--format", "json"))
    settings = record["ancestors"][record["path"]]["settings"]
    assert settings["model"]["base_urls"] == [f"http://127.0.0.1:{port}/v1"]


@pytest.mark.long
def test_an_experiment_is_an_entry(folder):
    title = "A new experiment"
    put(folder, title)
    planned, _, built = type_in(folder, title).partition("This was a dry-run")
    jobs = {"rewards gaussian", "training my_numeric_run", "evaluation my_numeric_run/gaussian", "figure my-figure"}
    assert jobs_in(planned) == jobs == jobs_in(built)
    played = read_players(folder / "results/experiments/my_numeric_run/evaluation/gaussian.parquet")
    assert list(played) == ["base", "trained", "ucb", "greedy", "uniform"]
    assert (folder / "results/figures/my-figure.pdf").stat().st_size
    # DVC keeps all reward sets in one stage, before the experiments.
    assert jobs_in(done(folder, "dvc", "repro", "exp@my_numeric_run")) == {"rewards linear-contextual"}
    assert "exp@my_numeric_run" in (folder / "dvc.lock").read_text(encoding="utf-8")


@pytest.mark.long
def test_contextual_bandits_are_played_in_numbers_and_in_words(folder):
    title = "Contextual bandits"
    put(folder, title)
    type_in(folder, title)
    assert (folder / "plots/linucb.png").stat().st_size
    evaluation = "results/experiments/contextual/evaluation/linear-25"
    assert list(read_players(folder / f"{evaluation}.parquet")) == [
        *("base", "trained", "linucb", "ucb", "greedy", "uniform")
    ]
    table = read_rewards(folder / "data/rewards/linear-contextual.npz")
    played = read_trajectories(folder / f"{evaluation}/trained-0.parquet")
    shown = np.array(played["contexts"]).reshape(2, 3, 3)
    np.testing.assert_array_equal(shown, table.contexts[:2, :3])
    for instance, prompts in enumerate(played["prompt"]):
        for context, prompt in zip(shown[instance], prompts, strict=True):
            assert f"Context: {', '.join(f'{x:.2f}' for x in context)}. " in prompt
    demonstrations = (folder / "results/experiments/contextual/seed-0/iteration-0/demonstrations.jsonl").read_text(
        encoding="utf-8"
    )
    assert "Context: 0." in demonstrations
