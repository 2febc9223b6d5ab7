"""Fingerprints of code, and what an audit finds."""

import ast
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from rmft import lineage

COMMANDS = ("rewards", "training", "evaluation", "theory", "figures", "tables", "metrics", "manifest")


@pytest.fixture
def fingerprints(tmp_path, monkeypatch):
    """Return a function that edits a copy of the package and gives the commands whose fingerprint changes."""
    copy = tmp_path / "src"
    shutil.copytree(lineage.SOURCE / "rmft", copy / "rmft")
    monkeypatch.setattr(lineage, "SOURCE", copy)

    def of_all() -> dict[str, str]:
        lineage._code.cache_clear()
        lineage._syntax.cache_clear()
        return {command: lineage.fingerprint(command) for command in COMMANDS}

    def changed_by(module: str, old: str, new: str) -> set[str]:
        before, file = of_all(), copy / "rmft" / module
        text = file.read_text(encoding="utf-8")
        assert old in text
        file.write_text(text.replace(old, new), encoding="utf-8")
        after = of_all()
        return {command for command in COMMANDS if after[command] != before[command]}

    yield changed_by
    lineage._code.cache_clear()
    lineage._syntax.cache_clear()


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
        ("simulate.py", "seed must be 0", "the seed must be 0", set()),
        ("cli.py", '"training_seed": seeds', '"training_seed": [*seeds]', {"training"}),
        ("metrics/growth.py", "def _regress", "# how it is done\n\n\ndef _regress", set()),
        ("metrics/growth.py", "Fit both regressions", "Fit the two regressions", set()),
    ],
)
def test_an_edit_changes_the_commands_that_run_the_code_and_a_comment_changes_none(
    fingerprints, module, old, new, expected
):
    assert fingerprints(module, old, new) == expected


def record(path: Path, inputs: dict[str, str | None]) -> lineage.Record:
    return lineage.Record(path, "evaluation", inputs, [], 1.0)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Return the records of a two-file tree in the current folder."""
    monkeypatch.chdir(tmp_path)
    lineage._hash.cache_clear()
    for name in ("results/base", "results/figure"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(name, encoding="utf-8")
    made_from = {"results/base": lineage.sha256(Path("results/base"))}
    paths = {"results/base": {}, "results/figure": made_from}
    return {name: record(Path(name), inputs) for name, inputs in paths.items()}


def test_an_untouched_tree_has_no_problems(tree):
    assert [problem for problem in lineage.audit(tree) if "manifest" not in problem] == []


def test_a_flipped_byte_a_lost_file_and_a_stranger_are_each_found(tree):
    Path("results/base").write_text("results/bas3", encoding="utf-8")
    Path("results/stranger").write_text("", encoding="utf-8")
    Path("results/figure").unlink()
    problems = "\n".join(lineage.audit(tree))
    assert "altered: results/base is not what results/figure was made from" in problems
    assert "missing: results/figure" in problems
    assert "orphan: results/stranger is no part of" in problems


def test_a_trace_leads_to_the_sources(tree):
    lines, problems = lineage.trace(tree, Path("results/figure"))
    assert problems == []
    assert [line.split()[0] for line in lines] == ["results/figure", "results/base"]


def test_a_fingerprint_is_the_same_from_every_python():
    # Printed by 3.11 and 3.12 in different ways, read by both as the same syntax.
    source = "def f(x: int = 0) -> str:\n    return f\"{', '.join(x)!r:>10} {x}\" if x else ''\n"
    text = json.dumps(lineage._plain(ast.parse(source)))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "ae873ff5cf94422f"
