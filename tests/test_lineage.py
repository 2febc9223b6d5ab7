"""Fingerprints of code, traces of artifacts, and the audit of a whole tree that somebody has interfered with."""

import ast
import hashlib
import json
import os
import platform
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml
from rocrate.rocrate import ROCrate
from trees import USER, digests, done, edit, run, set_value, snakemake, to_do

from rmft.artifacts.job import JOB_OF
from rmft.artifacts.receipts import Receipt
from rmft.lineage import code, syntax
from rmft.lineage.audit import other_weights, retired
from rmft.lineage.records import METADATA, UNFINISHED, Record, file_of
from rmft.params import load
from rmft.workflow.paths import everything
from rmft.workflow.records import COMMANDS as COMMANDS_OF_JOBS

COMMANDS = ("rewards", "training", "evaluation", "theory", "figures", "tables", "metrics")


@pytest.fixture
def fingerprints(tmp_path):
    """Return a function that edits a copy of the package and gives the commands whose fingerprint changes."""
    copy = tmp_path / "src"
    shutil.copytree(code.SOURCE / "rmft", copy / "rmft")

    def of_all() -> dict[str, str]:
        code.fingerprint.cache_clear()
        return {command: code.fingerprint(command, copy) for command in COMMANDS}

    def changed_by(module: str, old: str, new: str) -> set[str]:
        before, file = of_all(), copy / "rmft" / module
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")
        after = of_all()
        return {command for command in COMMANDS if after[command] != before[command]}

    yield changed_by
    code.fingerprint.cache_clear()


@pytest.mark.parametrize(
    ("module", "old", "new", "expected"),
    [
        ("metrics/growth.py", "len(x) < 3", "len(x) < 4", {"tables", "metrics"}),
        ("tables/theorem.py", "C_TOLERANCE = 0.01", "C_TOLERANCE = 0.02", {"tables"}),
        ("figures/style.py", "RATIO = 0.72", "RATIO = 0.70", {"figures"}),
        ("training/theory.py", "MAXIMAL_STARTS = 20", "MAXIMAL_STARTS = 21", {"theory"}),
        (
            "training/numeric.py",
            "topk(k, dim=2, largest=False).indices",
            "topk(k, dim=2).indices",
            {"training", "theory"},
        ),
        ("algorithms/bandits.py", "2 * math.log(self.rounds)", "3 * math.log(self.rounds)", set(COMMANDS)),
        ("tools/simulate.py", "seed must be 0", "the seed must be 0", set()),
        ("artifacts/tensors.py", "    import torch\n    from trans", "    import typing, torch\n    from trans", set()),
        ("cli.py", "INTERRUPTED:", "INTERRUPTED + 0:", set()),
        ("stages/training.py", '"training_seed": seeds', '"training_seed": [*seeds]', {"training"}),
        ("stages/rewards.py", "def run(", "def shape():\n    return 1\n\n\ndef run(", {"rewards"}),
        ("metrics/growth.py", "def _regress", "# how it is done\n\n\ndef _regress", set()),
        ("metrics/growth.py", "Fit both regressions", "Fit the two regressions", set()),
    ],
)
def test_an_edit_changes_the_commands_that_run_the_code_and_a_comment_changes_none(
    fingerprints, module, old, new, expected
):
    assert fingerprints(module, old, new) == expected


def test_any_helper_of_a_stage_is_part_of_its_fingerprint_and_of_no_other_stage(fingerprints):
    # Until 7543086 a helper in cli.py counted only where its name began with an underscore.
    helper = "def as_rows(log):\n    return {column: [row[column] for row in log] for column in log[0]}\n\n\n"
    assert fingerprints("stages/theory.py", "def run(", f"{helper}def run(") == {"theory"}
    assert fingerprints("stages/theory.py", "for row in log]", "for row in log[1:]]") == {"theory"}
    assert fingerprints("stages/theory.py", "def as_rows", "# a comment\n\n\ndef as_rows") == set()


def test_no_stage_imports_another_one_or_the_command_line():
    for stage in COMMANDS_OF_JOBS:
        modules = code.code_of(stage).keys()
        assert {name for name in modules if name.startswith("rmft.stages.")} == {f"rmft.stages.{stage}"}
        assert not modules & {"rmft.cli", "rmft.workflow.stage", "rmft.workflow.by_hand", "rmft.workflow.plan"}


def test_a_fingerprint_is_the_same_from_every_python():
    # Printed by 3.11 and 3.12 in different ways, read by both as the same syntax.
    source = "def f(x: int = 0) -> str:\n    return f\"{', '.join(x)!r:>10} {x}\" if x else ''\n"
    text = json.dumps(syntax.plain(ast.parse(source)))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "ae873ff5cf94422f"


def test_the_syntax_of_sources_is_cached_by_their_text_and_a_damaged_cache_is_ignored(tmp_path, monkeypatch):
    file, cache = tmp_path / "a.py", tmp_path / "cache" / "syntax.json"
    file.write_text("import os\n", encoding="utf-8")
    first = syntax.SourceReader(cache)
    parsed = first.read(file)
    first.keep()
    with monkeypatch.context() as patched:
        patched.setattr(syntax, "syntax_of", None)  # not to be called
        assert syntax.SourceReader(cache).read(file) == parsed
    file.write_text("import sys\n", encoding="utf-8")
    assert syntax.SourceReader(cache).read(file).names == ["sys"]
    for damaged in ("", "[1]", '{"x": {"digest": 1}}'):
        cache.write_text(damaged, encoding="utf-8")
        assert syntax.SourceReader(cache).read(file).names == ["sys"]


pytestmark = pytest.mark.xdist_group("lineage")
EVALUATION = "results/experiments/numeric_mab/evaluation/gaussian.parquet"
OTHER = "results/experiments/numeric_mab/evaluation/gamma.parquet"
FIGURE = "results/figures/tfbandit.png"


def test_a_library_that_is_not_the_locked_one_is_named(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"numpy==1.0\npyyaml=={yaml.__version__}\nscipy==0.1 ; python_version < '3'\n", encoding="utf-8")
    assert code.not_locked(["rewards"], lock) == [f"numpy {np.__version__} is installed, {lock} has 1.0"]
    assert code.not_locked(COMMANDS) == []


def audit(tree: Path) -> list[str]:
    """Return the problems that an audit names, one a line; its exit code must tell whether there are any."""
    finished = run(tree, "rmft", "lineage", "--all")
    problems = finished.stderr.splitlines()
    assert finished.returncode == bool(problems), finished.stdout + finished.stderr
    return problems


def flip(path: Path) -> None:
    """Change the last bit of a file and none of its times."""
    whole, times = path.read_bytes(), path.stat()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def swap(one: Path, other: Path) -> None:
    """Give two files each other's name."""
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def forget(tree: Path, path: str) -> None:
    """Delete what Snakemake recorded of an artifact."""
    (tree / file_of(METADATA, path)).unlink()


def damage(tree: Path, path: str) -> None:
    """Cut off what Snakemake recorded of an artifact."""
    record = tree / file_of(METADATA, path)
    record.write_text(record.read_text(encoding="utf-8")[:-9], encoding="utf-8")


def garble(tree: Path, path: str) -> None:
    """Leave Snakemake's record of an artifact JSON, and make a param of it nonsense."""
    record = tree / file_of(METADATA, path)
    raw = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps({**raw, "params": ['\'{"code":{']}), encoding="utf-8")


def touch_what_is_stale(tree: Path) -> None:
    """Tell Snakemake that what is out of date is not, by its own option."""
    set_value(tree, "experiments.numeric_mab.evaluations.gaussian.T", 50)
    done(tree, "snakemake", "--touch")


def write_by_another_job(tree: Path) -> None:
    """Run an evaluation's command as a job does, with another seed than the one on record."""
    shell = json.loads((tree / file_of(METADATA, EVALUATION)).read_text(encoding="utf-8"))["shellcmd"]
    job_of = f"{JOB_OF}={os.getpid()}:{psutil.Process().create_time()}"
    done(tree, "bash", "-c", f"export {job_of}; " + shell.replace('"seed":0', '"seed":99'))


INTERFERENCE = {
    "flipped bit in an evaluation": (lambda tree: flip(tree / EVALUATION), [f"altered: {EVALUATION} "]),
    "flipped bit in a figure": (lambda tree: flip(tree / FIGURE), [f"altered: {FIGURE} "]),
    "flipped bit in the metrics": (
        lambda tree: flip(tree / "results/metrics.json"),
        ["altered: results/metrics.json "],
    ),
    "swapped artifacts": (
        lambda tree: swap(tree / EVALUATION, tree / OTHER),
        [f"altered: {OTHER} ", f"altered: {EVALUATION} "],
    ),
    "deleted record": (lambda tree: forget(tree, EVALUATION), [f"unrecorded: {EVALUATION} "]),
    "damaged record": (lambda tree: damage(tree, EVALUATION), [f"unrecorded: {EVALUATION} "]),
    "garbled record": (lambda tree: garble(tree, EVALUATION), [f"unrecorded: {EVALUATION} "]),
    "written by another job": (write_by_another_job, [f"unrecorded: {EVALUATION} "]),
    "touched by snakemake": (touch_what_is_stale, [f"unrecorded: {EVALUATION} "]),
    "deleted receipt": (
        lambda tree: (tree / f".snakemake/receipts/{EVALUATION}.json").unlink(),
        [f"unrecorded: {EVALUATION} "],
    ),
    "deleted artifact": (lambda tree: (tree / EVALUATION).unlink(), [f"missing: {EVALUATION} "]),
    "stranger": (lambda tree: (tree / "results/mine.txt").write_text("mine"), ["orphan: results/mine.txt "]),
    "stranger and flipped bit": (
        lambda tree: ((tree / "results/mine.txt").write_text("mine"), flip(tree / EVALUATION)),
        [f"altered: {EVALUATION} ", "orphan: results/mine.txt "],
    ),
    "edited parameter": (
        lambda tree: set_value(tree, "evaluation.floor", 0.5),
        [
            "stale: results/metrics.json ",
            "stale: results/report.html ",
            "stale: results/summary.json ",
            *(
                f"stale: results/tables/{label}.{ending} "
                for label in (
                    "claim-accuracy",
                    "prompt-diversity-ablation",
                    "simplex-table",
                    "theorem-1",
                )
                for ending in ("csv", "md", "tex")
            ),
            "stale: results/trajectories.html ",
        ],
    ),
    "values of the paper replaced by an older file": (
        lambda tree: (
            edit(tree / "data/paper/simplex-table.csv", "beta_hat,0.430", "beta_hat,0.431"),
            os.utime(tree / "data/paper/simplex-table.csv", (0, 0)),
        ),
        [
            "stale: results/report.html ",
            *(f"stale: results/tables/simplex-table.{ending} " for ending in ("csv", "md", "tex")),
            "stale: results/trajectories.html ",
        ],
    ),
}


MENDED = (
    "flipped bit in an evaluation",
    "swapped artifacts",
    "deleted record",
    "stranger and flipped bit",
    "edited parameter",
)


@pytest.mark.parametrize("name", INTERFERENCE)
def test_the_audit_names_what_was_interfered_with_and_what_it_says_to_run_mends_it(tree, name):
    interfere, expected = INTERFERENCE[name]
    before = digests(tree)
    interfere(tree)
    problems = audit(tree)
    assert [
        next((start for start in expected if problem.startswith(start)), problem) for problem in problems
    ] == expected
    if name not in MENDED:
        return
    for remedy in dict.fromkeys(re.search(r"run `(.+)`$", problem).group(1) for problem in problems):
        run(tree, "bash", "-c", remedy)  # which may have to stop at the next problem
    assert audit(tree) == []
    if not any(problem.startswith("stale") for problem in problems):
        assert digests(tree) == before


@pytest.mark.parametrize("name", ["swapped artifacts", "garbled record", "touched by snakemake"])
@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_snakemake_refuses_to_build_on_what_no_job_wrote(tree, name, arguments):
    INTERFERENCE[name][0](tree)
    before = digests(tree)
    refused = run(tree, "snakemake", *arguments)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith(("rmft: altered: results/", "rmft: unrecorded: results/"))
    assert digests(tree) == before


def test_bytes_of_a_hub_that_differ_at_one_revision_are_told_once():
    started, file = datetime.now(UTC), "org/model@0123/model.safetensors"

    def record(path: str, digest: str) -> Record:
        slip = Receipt("", "", {}, None, "", "", {file: digest})
        return Record(path, "rollouts_shard", {}, {}, {}, "", started, 1.0, slip)

    same = [record("results/a", "1"), record("results/b", "1")]
    assert list(other_weights(same)) == []
    (found,) = other_weights([*same, record("results/c", "2"), record("results/d", "2")])
    assert (found.kind, found.path) == ("stale", "results/c")
    assert f"{file} of other bytes than results/a" in found.reason


def test_an_untouched_tree_has_nothing_to_do_and_no_problems(tree):
    assert to_do(tree) == set()
    assert audit(tree) == []


def test_nothing_that_is_wanted_is_retired_however_the_folder_is_written(tree, monkeypatch):
    monkeypatch.chdir(tree)
    wanted = everything(load().at_scale())
    tables = [path for path in wanted if path.startswith("results/tables/")]
    for folder in ("results/tables", "results/../results/tables", "results/tables/."):
        assert retired(Path(folder), wanted) == []
        assert {path.as_posix() for path in retired(Path(folder), [])} == set(tables)


def test_a_file_that_a_job_never_finished_is_left_to_snakemake(tree):
    mark = tree / file_of(UNFINISHED, EVALUATION)
    mark.write_text("{}", encoding="utf-8")
    flip(tree / EVALUATION)
    assert audit(tree) == [f"stale: {EVALUATION} was never finished; run `snakemake`"]
    before = digests(tree)
    snakemake(tree)
    assert digests(tree)[EVALUATION] != before[EVALUATION]
    assert audit(tree) == []


def test_known_hashes_that_are_damaged_are_hashed_anew(tree):
    for content in ("[]", "{", "", '{"results/metrics.json": 3}'):
        (tree / ".snakemake/hashes.json").write_text(content, encoding="utf-8")
        assert to_do(tree) == set(), content


def test_an_artifact_that_is_a_link_to_nothing_is_made_again(tree):
    before = digests(tree)
    (tree / EVALUATION).unlink()
    (tree / EVALUATION).symlink_to(tree / "nothing")
    snakemake(tree)
    assert digests(tree) == before


def test_a_trace_leads_to_the_root_seed_and_says_code_versions_commit_and_machine(tree):
    lines = run(tree, "rmft", "lineage", FIGURE).stdout.splitlines()
    files = [line.split()[0] for line in lines if line.strip().startswith(("results/", "data/"))]
    assert files[0] == FIGURE
    assert {
        EVALUATION,
        "data/rewards/gaussian.npz",
        "results/experiments/numeric_mab/iteration-0/model.safetensors",
    } <= set(files)
    text = "\n".join(lines)
    assert "root seed 0" in text
    assert f"numpy {np.__version__}" in text
    assert re.search(r"code [0-9a-f]{16}, commit [0-9a-f]{12}, Python \d", text)
    assert re.search(r"figure: \d+\.\d s on Linux \w+, \d+ cores, 20\d\d-", text)
    assert "training.rmft.selected=1" in text


@pytest.mark.parametrize("spoil", [FIGURE, EVALUATION, "data/rewards/gaussian.npz"])
def test_a_trace_verifies_the_artifact_itself_and_everything_on_the_way(tree, spoil):
    flip(tree / spoil)
    finished = run(tree, "rmft", "lineage", FIGURE)
    assert finished.returncode == 1
    assert finished.stderr.splitlines() == [f"altered: {spoil} is not what its job wrote; run `rm {spoil}; snakemake`"]


def test_json_gives_every_hash_as_it_is_and_the_same_from_absolute_paths(tree):
    printed = run(tree, "rmft", "lineage", FIGURE, "--format", "json").stdout
    assert printed == run(tree, "rmft", "lineage", str(tree / FIGURE), "--format", "json").stdout
    found = json.loads(printed)
    assert found["problems"] == []
    now = digests(tree)
    assert {path: one["sha256"] for path, one in found["ancestors"].items()} == {
        path: now[path] for path in found["ancestors"]
    }
    assert found["ancestors"]["data/rewards/gaussian.npz"]["settings"]["seed"] == 0


def test_mermaid_has_an_arrow_for_everything_that_was_read(tree):
    chart = run(tree, "rmft", "lineage", FIGURE, "--format", "mermaid").stdout
    ancestors = json.loads(run(tree, "rmft", "lineage", FIGURE, "--format", "json").stdout)["ancestors"]
    numbers = {name: number for number, name in re.findall(r'  (n\d+)\["(.+?)<br/>', chart)}
    arrows = set(re.findall(r"  (n\d+) -->\|\w+\| (n\d+)", chart))
    assert arrows == {
        (numbers[name], numbers[path]) for path, one in ancestors.items() for name in one.get("inputs", [])
    }


def test_a_crate_is_read_back_with_every_file_job_and_setting(tree):
    done(tree, "rmft", "lineage", "results/tables/simplex-table.csv", "--format", "rocrate", "--output", "crate")
    crate = ROCrate(tree / "crate")
    ancestors = json.loads(run(tree, "rmft", "lineage", "results/tables/simplex-table.csv", "--format", "json").stdout)[
        "ancestors"
    ]
    files = {entity.id: entity for entity in crate.get_by_type("File")}
    assert files.keys() == ancestors.keys()
    for path, one in ancestors.items():
        assert (
            files[path]["sha256"] == one["sha256"] == hashlib.sha256((tree / "crate" / path).read_bytes()).hexdigest()
        )
    actions = {result.id: action for action in crate.get_by_type("CreateAction") for result in action["result"]}
    for path, one in ancestors.items():
        if one["kind"] == "artifact":
            read = [entity.id for entity in actions[path]["object"] if entity.type == "File"]
            assert read == list(one["inputs"])
    training = actions["results/experiments/numeric_simplex/iteration-0/model.safetensors"]
    settings = {entity["name"]: entity["value"] for entity in training["object"] if entity.type == "PropertyValue"}
    assert settings["training.rmft.trajectories"] == 10
    assert crate.metadata.version == "1.1"


def test_a_crate_is_not_made_of_what_is_not_as_recorded_nor_over_another(tree):
    flip(tree / EVALUATION)
    finished = run(tree, "rmft", "lineage", FIGURE, "--format", "rocrate", "--output", "crate")
    assert finished.returncode == 1
    assert not (tree / "crate").exists()
    taken = run(tree, "rmft", "lineage", OTHER, "--format", "rocrate", "--output", "src")
    assert (taken.returncode, taken.stderr) == (2, "rmft: src: exists already; name a new folder\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("README.md",), "README.md: no artifact of this workflow; try a file below results or data/rewards"),
        (("results/figures/none.pdf",), "results/figures/none.pdf: no such file, and no record of it;"),
        ((), "lineage: name one artifact, or say --all"),
        (("--all", "--format", "json"), "--format goes with an artifact, not with --all"),
        ((FIGURE, "--format", "xml"), "--format: unknown 'xml'; one of text, json, mermaid, rocrate"),
    ],
)
def test_what_has_no_lineage_is_refused_in_one_line(tree, arguments, says):
    refused = run(tree, "rmft", "lineage", *arguments)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"rmft: {says}")
    assert refused.stderr.count("\n") == 1


def test_neither_host_nor_user_nor_environment_is_in_any_record(tree):
    told = "".join(path.read_text(encoding="utf-8") for path in (tree / ".snakemake/receipts").rglob("*.json"))
    told += run(tree, "rmft", "lineage", "results/metrics.json", "--format", "rocrate").stdout
    assert platform.node() not in told
    assert str(tree) not in told
    assert USER not in told
