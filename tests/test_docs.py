"""Every command of docs/workflow.md, run in a built checkout; those of DVC's experiments by test_versions."""

import re
import subprocess

import pytest
from trees import ROOT, environment

pytestmark = pytest.mark.xdist_group("docs")
BLOCK = re.compile(r"(?:<!-- before: (?P<before>[^\n]+) -->\n)?```sh\n(?P<commands>.+?)```", re.DOTALL)
TEXT = (ROOT / "docs/workflow.md").read_text(encoding="utf-8")
WHAT_TO_TYPE, WHEN_WRONG = TEXT.split("## When something is wrong")


def bash(folder, commands: str) -> None:
    """Run commands as a user types them; each must succeed."""
    shell = ["bash", "-euo", "pipefail", "-c", commands]
    finished = subprocess.run(shell, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def blocks() -> list[str]:
    """Return what the page says to type, block by block."""
    return [match["commands"] for match in BLOCK.finditer(WHAT_TO_TYPE)]


@pytest.mark.long
@pytest.mark.parametrize("commands", [block for block in blocks() if not block.startswith("dvc exp run")])
def test_what_the_page_says_to_type_works(tree, commands):
    bash(tree, commands)


@pytest.mark.parametrize(
    ("before", "commands"), [match.group("before", "commands") for match in BLOCK.finditer(WHEN_WRONG)]
)
def test_what_the_page_says_to_do_when_something_is_wrong_mends_it(tree, before, commands):
    if before:
        bash(tree, before)
        assert not clean(tree)
    bash(tree, commands)
    assert clean(tree)


def clean(tree) -> bool:
    """Return whether the audit finds nothing."""
    shell = ["rmft", "lineage", "--all"]
    return not subprocess.run(shell, cwd=tree, env=environment(tree), capture_output=True, check=False).returncode
