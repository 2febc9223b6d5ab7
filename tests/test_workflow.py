"""The whole workflow at smoke scale, with real Snakemake, in a copy of the tree."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TREE = ("workflow", "data/paper", "src", "params.yaml", "pyproject.toml", "dvc.yaml")

pytestmark = pytest.mark.xdist_group("workflow")  # one worker: the tests share a built tree


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this environment in a folder, on the code of that folder."""
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)


def environment(folder: Path) -> dict[str, str]:
    here = Path(sys.executable).parent
    return {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(folder / "src")}


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "snakemake", "--cores", "2", *arguments)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Return a copy of the tree in which everything is built at smoke scale."""
    folder = tmp_path_factory.mktemp("tree")
    for name in TREE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (folder / name).parent.mkdir(exist_ok=True)
        copy(ROOT / name, folder / name)
    edit(folder / "params.yaml", "scale: demo", "scale: smoke")
    done = snakemake(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@contextmanager
def edited(path: Path, change: Callable[[str], str]) -> Iterator[None]:
    """Change a file while the block runs."""
    before = path.read_text(encoding="utf-8")
    path.write_text(change(before), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(before, encoding="utf-8")


def with_value(key: str, value: object) -> Callable[[str], str]:
    """Return a change of params.yaml that sets one dotted key."""

    def change(text: str) -> str:
        values = yaml.safe_load(text)
        *path, last = key.split(".")
        section = values
        for part in path:
            section = section[part]
        section[last] = value
        return yaml.safe_dump(values, sort_keys=False)

    return change


def to_do(folder: Path) -> dict[str, int]:
    """Return how many jobs of each rule Snakemake would run, targets aside."""
    output = snakemake(folder, "--dry-run").stdout
    if "Nothing to be done" in output:
        return {}
    return {
        rule: int(count)
        for rule, count in re.findall(r"^(\w+) +(\d+)$", output, re.MULTILINE)
        if rule not in ("all", "total")
    }


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted((folder / "results").rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_figure_and_table_of_the_parameters_is_built(built):
    params = yaml.safe_load((built / "params.yaml").read_text(encoding="utf-8"))
    for kind, labels, endings in (
        ("figures", params["figures"]["drawn"], ("pdf", "png", "csv")),
        ("tables", params["tables"], ("csv", "md", "tex")),
    ):
        for label in labels:
            assert all((built / f"results/{kind}/{label}.{ending}").stat().st_size for ending in endings)


def test_after_a_build_nothing_is_to_be_done_and_the_audit_finds_nothing(built):
    assert to_do(built) == {}
    audit = run(built, "rmft", "lineage", "--all")
    assert (audit.returncode, audit.stderr) == (0, "")


@pytest.mark.parametrize(
    ("key", "value", "jobs"),
    [
        (
            "experiments.numeric_mab.rmft.selected",
            2,
            {"training_numeric_mab": 1, "evaluation": 2, "figure": 2, "metrics": 1, "manifest": 1},
        ),
        (
            "experiments.numeric_mixture.sft.learning_rate",
            0.02,
            {"training_numeric_mixture": 1, "evaluation": 3, "figure": 1, "metrics": 1, "manifest": 1},
        ),
        (
            "experiments.numeric_simplex.evaluations.gaussian.T",
            50,
            {"evaluation": 1, "figure": 1, "table": 1, "metrics": 1, "manifest": 1},
        ),
        ("rewards.gamma.instances", 200, {"reward_set": 1, "evaluation": 2, "figure": 1, "metrics": 1, "manifest": 1}),
        ("theory.samples", 1, {}),  # smoke scale has its own
        ("theory.radius", [1.0], {"theory": 1, "table": 1, "manifest": 1}),
        ("figures.style.dpi", 100, {"figure": 6, "manifest": 1}),
    ],
)
def test_an_edited_value_reruns_what_depends_on_it_and_nothing_else(built, key, value, jobs):
    with edited(built / "params.yaml", with_value(key, value)):
        assert to_do(built) == jobs


@pytest.mark.parametrize(
    ("module", "old", "new", "jobs"),
    [
        ("metrics/growth.py", "len(x) < 3", "len(x) < 4", {"table": 3, "metrics": 1, "manifest": 1}),
        ("figures/style.py", "RATIO = 0.72", "RATIO = 0.70", {"figure": 6, "manifest": 1}),
        ("metrics/growth.py", "def _regress", "# a comment\ndef _regress", {}),
    ],
)
def test_edited_code_reruns_what_runs_it_and_a_comment_nothing(built, module, old, new, jobs):
    with edited(built / "src/rmft" / module, lambda text: text.replace(old, new)):
        assert to_do(built) == jobs


def test_a_wrong_parameter_stops_snakemake_in_one_line_before_anything_runs(built):
    before = digests(built)
    with edited(built / "params.yaml", with_value("experiments.numeric_mab.rmft.selected", 99)):
        stopped = snakemake(built)
    assert stopped.returncode == 2
    assert (
        stopped.stderr.splitlines()[-1]
        == "rmft: params.yaml: experiments.numeric_mab.rmft: selected: 99 is more than trajectories: 10"
    )
    assert "Traceback" not in stopped.stderr
    assert digests(built) == before


@pytest.mark.parametrize("name", ["numeric_mab/evaluation/gamma.parquet", "figures/tfbandit.pdf", "metrics.json"])
def test_a_flipped_bit_in_any_artifact_is_named_by_the_audit_with_what_to_run(built, name):
    path = built / "results" / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    audit = run(built, "rmft", "lineage", "--all")
    path.write_bytes(whole)
    assert audit.returncode == 1
    assert f"altered: results/{name}" in audit.stderr
    assert "snakemake --forcerun" in audit.stderr


def test_work_killed_in_the_middle_of_a_job_is_done_again_to_the_same_bytes(built):
    before = digests(built)
    shutil.rmtree(built / "results/numeric_mab")
    job = subprocess.Popen(
        ["snakemake", "--cores", "2"], cwd=built, env=environment(built), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    base = built / "results/numeric_mab/iteration-0/model.safetensors"
    while not base.exists():  # until the job has written its first file
        with suppress(subprocess.TimeoutExpired):
            assert job.wait(timeout=0.05) == "still running"
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert not (built / "results/numeric_mab/training-log.csv").exists()
    run(built, "snakemake", "--unlock")
    again = snakemake(built)
    assert again.returncode == 0, again.stdout + again.stderr
    assert digests(built) == before


def test_dvc_knows_every_experiment():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    experiments = {
        f"results/{name}" for name in yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))["experiments"]
    }
    for stage in ("figures", "tables"):
        assert experiments <= set(stages[stage]["deps"])
