"""Commands of the docs exist; docs/workflow.md, those for when something is wrong. test_versions runs the others."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from trees import ROOT, digests, done, run

from chaos import __main__ as reliability
from rmft.cli import app

BLOCK = re.compile(r"(?:<!-- before: (?P<before>[^\n]+) -->\n)?```sh\n(?P<commands>.+?)```", re.DOTALL)
TEXT = (ROOT / "docs/workflow.md").read_text(encoding="utf-8")
WHAT_TO_TYPE, WHEN_WRONG = TEXT.split("## When something is wrong")


def bash(folder: Path, commands: str) -> str:
    """Run commands as a user types them; each must succeed. Return all that they print."""
    return done(folder, "bash", "-euo", "pipefail", "-c", commands)


def what_to_type(command: str) -> str:
    """Return the one block of the page that begins with a command."""
    (block,) = (match["commands"] for match in BLOCK.finditer(WHAT_TO_TYPE) if match["commands"].startswith(command))
    return block


def test_every_command_of_the_docs_and_its_options_exist():
    commands, seen = typer.main.get_command(app).commands, 0
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        typed = "\n".join(re.findall(r"^```sh\n(.+?)```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
        for line in re.findall(r"^(?:\w+=\S+ )?rmft (.+)", typed.replace("\\\n", " "), re.MULTILINE):
            name, *words = shlex.split(re.split(r" [>|&] ?", line)[0], comments=True)
            assert name in commands, f"{page.name}: {line}"
            context = commands[name].context_class(commands[name], info_name=f"{page.name}: {line}")
            commands[name].make_parser(context).parse_args(words)
            seen += 1
    assert seen > 50


def test_every_choice_where_the_paper_is_silent_is_on_the_page():
    page = (ROOT / "docs/assumptions.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\(\.\./([^)]+)\)", page))
    files = [ROOT / "params.yaml", *(ROOT / "data/forensics").glob("*.yaml"), *(ROOT / "extensions").glob("*.py")]
    files += (ROOT / "src").rglob("*.py")
    marked = {file.relative_to(ROOT).as_posix() for file in files if "ASSUME:" in file.read_text(encoding="utf-8")}
    assert named == marked


def test_the_page_about_speed_is_what_the_benchmarks_printed(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import record

    assert record.PAGE.read_text(encoding="utf-8") == record.page(), "run `python benchmarks/record.py --page`"


def test_the_page_about_reliability_is_what_the_checks_counted():
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    assert page == reliability.page(), "run `python -m chaos --page`"


def test_every_block_is_run_by_a_test():
    tests = Path(__file__).with_name("test_versions.py").read_text(encoding="utf-8")
    begins = re.findall(r'what_to_type\("([^"]+)"\)', tests)
    blocks = [match["commands"] for match in BLOCK.finditer(WHAT_TO_TYPE)]
    assert sorted(what_to_type(begin.replace(r"\n", "\n")) for begin in begins) == sorted(blocks)


@pytest.mark.xdist_group("docs")
@pytest.mark.long
def test_what_the_page_says_to_do_when_something_is_wrong_mends_it(tree):
    """Only this test runs what the page says against each thing that can be wrong."""
    for match in BLOCK.finditer(WHEN_WRONG):
        before, commands = match.group("before", "commands")
        if before:
            mended = state(tree)
            bash(tree, before)
            assert state(tree) != mended, before
        bash(tree, commands)
        assert clean(tree), commands


def state(tree: Path) -> tuple[dict[str, str], ...]:
    """Return the artifacts, the receipts and the parameters of a tree, to see whether a command changes any."""
    files = [tree / "params.yaml", tree / "outputs.yaml", *(tree / ".snakemake/receipts").rglob("*.json")]
    return digests(tree), {str(file): file.read_text(encoding="utf-8") for file in files}


def clean(tree: Path) -> bool:
    """Return whether the audit finds nothing."""
    return run(tree, "rmft", "lineage", "--all").returncode == 0
