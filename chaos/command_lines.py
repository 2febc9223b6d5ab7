"""Mutated command lines do something, or are refused in one line; never a traceback, nothing half written.

A sub-command of `rmft` gets one to four words at random: options, names, numbers, paths, and characters of other
scripts. Those sub-commands are left out that would begin long work. A refusal, exit code 2, leaves the folder as it
was. Size: command lines.
"""

import contextlib
import io
import os
import random
import shlex
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import typer
from trees import ROOT

from chaos.counts import Counts
from rmft.cli import app, main

WORDS = ["", "-1", "0", "1e9", "nan", "closed_mab", "absent", "params.yaml", "results", "gaussian", "é", "{}", "--"]
AT_WORK = ("serve", "eval", "play", "push", "models", "forensics", "simulate", "docs")  # these would begin long work


def run(size: int, seed: int) -> Counts:
    """Run command lines; return what came of them."""
    counts, before, chance = Counts(), Path.cwd(), random.Random(seed)
    commands = {name: of for name, of in typer.main.get_command(app).commands.items() if name not in AT_WORK}
    with TemporaryDirectory(prefix="rmft-") as folder:
        for name in ("params.yaml", "outputs.yaml"):
            shutil.copy(ROOT / name, folder)
        for name in ("extensions", "data"):
            shutil.copytree(ROOT / name, Path(folder) / name)
        os.chdir(folder)
        try:
            for _ in range(size):
                name = chance.choice(sorted(commands))
                options = [option for of in commands[name].params for option in of.opts if option.startswith("-")]
                kinds = (options or ["--help"], WORDS)
                words = [chance.choice(chance.choice(kinds)) for _ in range(chance.randrange(1, 5))]
                _run([name, *words], counts)
        finally:
            os.chdir(before)
    return counts


def _run(words: list[str], counts: Counts) -> None:
    line, before = f"rmft {shlex.join(words)}", _files()
    code, error = _rmft(words)
    if code not in (0, 1, 2) or (code == 2 and len(error.strip().splitlines()) != 1):
        counts.fail(words[0], f"{line}: {code}: {error[:300]}")
    elif code == 2 and _files() != before:
        counts.fail(words[0], f"{line}: refused, and left {sorted(_files() ^ before)[:3]}")
    else:
        counts.add(words[0], "refused" if code == 2 else f"exit code {code}")


def _rmft(words: list[str]) -> tuple[int | str, str]:
    """Run `rmft`; return its exit code, or "traceback", and what it printed of errors."""
    error = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["rmft", *words]))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(error))
        try:
            main()
        except SystemExit as stop:
            return stop.code or 0, error.getvalue()
        except BaseException as raised:
            return "traceback", f"{type(raised).__name__}: {raised}"
    return 0, error.getvalue()


def _files() -> set[str]:
    """Return the files of the current folder, but for caches."""
    return {str(path) for path in Path().rglob("*") if path.is_file() and not path.parts[0].startswith(".")}
