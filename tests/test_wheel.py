"""The wheel: what people get who install rmft without cloning the repository."""

import json
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from trees import ROOT

from rmft.artifacts.files import sha256
from rmft.errors import WORKFLOW
from rmft.suite.parts import CUSTOM, digest_of, read_suite

# Runs commands of `rmft` one after another where the libraries of the extra `workflow` cannot be imported.
WITHOUT_WORKFLOW = """
import json, sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

blocked, commands = json.loads(sys.argv[1])
sys.meta_path.insert(0, Nowhere())
from rmft.__main__ import main
for command in commands:
    sys.argv = ["rmft", *command]
    try:
        main()
    except SystemExit as stop:
        print("exit code", stop.code or 0, file=sys.stderr)
"""
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
SMALL = ["--environment", "mab", "--process", "gaussian", "--horizon", "3", "--instances", "4"]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Return a folder with the content of a wheel that is built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    built = subprocess.run([sys.executable, "-c", build], cwd=ROOT, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(folder / built.stdout.strip()) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def in_wheel(site, tmp_path, monkeypatch):
    """Return a function that runs commands of the wheel's `rmft` in an empty folder, without the extra `workflow`."""
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def run(*commands: list[str]) -> subprocess.CompletedProcess[str]:
        arguments = json.dumps([WORKFLOW, commands])
        command = [sys.executable, "-c", WITHOUT_WORKFLOW, arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    return run


def test_the_wheel_needs_nothing_of_the_workflow(site):
    (metadata,) = site.glob("*.dist-info")
    needed = [line for line in Distribution.at(metadata).requires if "extra ==" not in line]
    assert not [line for line in needed if line.startswith(("dvc", "snakemake", "rocrate", "vl-convert"))]
    assert [line for line in needed if line.startswith("gymnasium")]


@pytest.mark.long
def test_the_wheel_measures_the_embedded_model_in_an_empty_folder(in_wheel, tmp_path, monkeypatch):
    ended = in_wheel(["eval", "embedded", *SMALL, "--output", "out"], ["lineage", "out/eval.json"])
    assert ended.stderr.splitlines()[-1] == "exit code 0", ended.stderr
    assert "verified    2 files" in ended.stdout
    result = json.loads((tmp_path / "out/eval.json").read_text(encoding="utf-8"))
    suite = read_suite().with_own_games("mab", "gaussian", actions=3, horizon=3, instances=4)
    monkeypatch.chdir(ROOT)
    assert result["suite"]["sha256"] == digest_of(suite, CUSTOM)
    assert result["model"]["files"]["model.safetensors"] == sha256(ROOT / "data/models/embedded/model.safetensors")
    assert result["model"]["settings"]["weights"] == "data/models/embedded"  # as in a clone
    assert (result["made"]["commit"], result["made"]["version"]) == (None, VERSION)


def test_commands_of_the_workflow_name_the_extra_and_the_others_work(in_wheel):
    simulate = ["simulate", "--environment", "mab", "--process", "gaussian", "--algorithm", "ucb", "--horizon", "5"]
    lacking = {"snakemake": [["figures", "--label", "x"], ["lineage", "--all"]], "vl_convert": [["plots"]]}
    lacking["dvc"] = [["diff"]]
    commands = [command for group in lacking.values() for command in group]
    lines = in_wheel(simulate, *commands).stderr.splitlines()
    said = "is not installed; it belongs to rmft's extra `workflow`, which the environment of a clone has"
    expected = [line for name, of in lacking.items() for _ in of for line in (f"rmft: {name} {said}", "exit code 2")]
    assert lines == ["exit code 0", *expected]
