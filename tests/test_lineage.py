"""Fingerprints of code: which edits change which jobs."""

import ast
import hashlib
import json
import re
import shutil

import numpy as np
import pytest
import yaml

from rmft.artifacts.files import sha256
from rmft.errors import InputError
from rmft.lineage import code, syntax
from rmft.params import load
from rmft.workflow.plan import served_as

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
        ("metrics/growth.py", "FEWEST = 3", "FEWEST = 4", {"tables", "metrics"}),
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
        ("instructions.py", "AVX2,STRICT", "AVX2", set(COMMANDS)),
        ("artifacts/files.py", "SHORT = 12", "SHORT = 13", set(COMMANDS)),  # the report shows hashes so short
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


def test_the_code_of_our_own_server_is_part_of_what_its_endpoint_is(tmp_path):
    source = tmp_path / "src"
    shutil.copytree(code.SOURCE / "rmft", source / "rmft", ignore=shutil.ignore_patterns("__pycache__"))
    before = code.server_fingerprint(source)
    runner = source / "rmft/endpoint_server/model_runner.py"
    runner.write_text(runner.read_text(encoding="utf-8").replace("WORTH_COPYING = 32", "WORTH_COPYING = 33"), "utf-8")
    code.server_fingerprint.cache_clear()
    assert code.server_fingerprint(source) != before
    assert served_as(load(), "embedded").code == code.server_fingerprint()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\ndef broken(:\n", ":2: SyntaxError: invalid syntax"),
        ("def late():\n    import not_here\n", ": imports not_here: has no version, as no package installs it;"),
    ],
)
def test_code_that_cannot_be_part_of_a_job_is_refused_by_file(tmp_path, text, says):
    file = tmp_path / "mine.py"
    code.check_code([])
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"^{re.escape(f'{file}{says}')}"):
        code.check_code([str(file)])


def test_no_stage_imports_another_one_or_the_command_line():
    for stage in code.stages():
        modules = code.code_of(stage).keys()
        assert {name for name in modules if name.startswith("rmft.stages.")} == {f"rmft.stages.{stage}"}
        assert not modules & {"rmft.cli", "rmft.workflow.stage", "rmft.workflow.by_hand", "rmft.workflow.plan"}


def test_a_new_artifact_of_the_workflow_replays_no_game_and_trains_no_model():
    assert [stage for stage in code.stages() if "rmft.workflow.paths" in code.code_of(stage)] == ["report"]


def test_the_ground_floor_imports_nothing_of_ours_but_itself():
    floor = ("environments", "algorithms", "metrics", "language")
    allowed = tuple(f"rmft.{name}" for name in (*floor, "errors", "streams"))
    for file in (file for package in floor for file in (code.SOURCE / "rmft" / package).glob("*.py")):
        ours = [name for name in code.READER.read(file).names if name.startswith("rmft.")]
        assert [name for name in ours if not name.startswith(allowed)] == [], file


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


def test_what_transformers_and_trl_compute_with_is_among_the_libraries_of_the_stages_that_use_them():
    for stage in code.stages():
        libraries = code.fingerprint(stage)[1].keys()
        assert not libraries & {"transformers", "trl"} or {"accelerate", "tokenizers"} <= libraries, stage
    assert {"accelerate", "tokenizers"} <= code.fingerprint("sft")[1].keys()


def test_a_library_that_is_not_the_locked_one_is_named(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"numpy==1.0\npyyaml=={yaml.__version__}\ntorch==0.1 ; python_version < '3'\n", encoding="utf-8")
    assert code.not_locked(["rewards"], lock) == [f"numpy {np.__version__} is installed, {lock} has 1.0"]
    assert code.not_locked(COMMANDS) == []


def test_condas_environment_is_made_anew_where_the_lock_file_has_changed():
    script = (code.SOURCE.parent / "workflow/envs/rmft.post-deploy.sh").read_text(encoding="utf-8")
    assert f"# {sha256(code.SOURCE.parent / 'requirements.lock')}\n" in script, "run `make lock`"
