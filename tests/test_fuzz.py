"""Mutated parameters and command lines are valid, or refused in one line; never a traceback.

RMFT_MUTATIONS=1000 tries more of them (`make chaos`).
"""

import copy
import functools
import os
import random
import shlex
import shutil
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from trees import ROOT

from rmft.cli import app
from rmft.errors import InputError
from rmft.params import load

MUTATIONS = int(os.environ.get("RMFT_MUTATIONS", "60"))
WRONG_VALUES = [
    *(None, True, -1, 0, 3, 0.5, 1e309, float("nan"), 10**30, -1e-300),
    *("", " ", "é\u202e", "../../etc/passwd", "0" * 5000, "gaussian", "2026-11-23", "on", "1e3"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": {}}}, ["a", "a"], {3: 4}),
]
WORDS = ["", "-1", "0", "1e9", "nan", "closed_mab", "absent", "params.yaml", "results", "gaussian", "é", "{}", "--"]
AT_WORK = ("serve", "eval", "play", "push", "models", "forensics", "simulate", "docs")  # these would begin long work
HOSTILE = (b"\t", b"&a ", b"*a ", b"<<: ", b"{", b"}", b"!!python/object:os.system ")


def leaves(values: Any, place: tuple = ()) -> list[tuple]:
    """Return the places of all values, inner ones too."""
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [place] * bool(place) + [found for key, value in inner for found in leaves(value, (*place, key))]


def at(values: Any, place: Sequence[Any]) -> Any:
    """Return the value at a place."""
    return functools.reduce(lambda inner, part: inner[part], place, values)


def mutated(values: dict, chance: random.Random) -> dict:
    """Return a copy in which one value is replaced, dropped, moved, renamed or made deep."""
    changed = copy.deepcopy(values)
    *parents, last = chance.choice(leaves(changed))
    holder = at(changed, parents)
    kind = chance.randrange(6)
    if kind == 0 or (kind in (1, 2) and isinstance(holder, list)):
        holder[last] = chance.choice(WRONG_VALUES)
    elif kind == 1:
        del holder[last]
    elif kind == 2:
        holder[f"{last}{chance.choice(string.printable)}"] = holder.pop(last)
    elif kind == 3:
        holder[last] = copy.deepcopy(at(changed, chance.choice(leaves(changed))))
    elif kind == 4:
        holder[last] = [holder[last]]
    else:
        deep: Any = chance.choice(WRONG_VALUES[:8])
        for _ in range(chance.choice((3, 200))):
            deep = {"varies": deep}
        holder[last] = deep
    return changed


def broken(text: str, chance: random.Random) -> bytes:
    """Return the text of a file with some bytes changed, cut, doubled or in another encoding."""
    whole, at = text.encode(), chance.randrange(len(text))
    random_bytes = bytes(chance.randrange(256) for _ in range(4))
    return chance.choice(
        [
            whole[:at],
            whole[:at] + random_bytes + whole[at:],
            whole[:at] + chance.choice(HOSTILE) + whole[at:],
            text.encode("utf-16"),
            b"",
            b"[" * 3000,
            whole + whole,
        ]
    )


def refusal(path: Path) -> str:
    """Return how parameters are refused; an empty text where they are valid."""
    try:
        load(path).at_scale()
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["params.yaml", "outputs.yaml"])
def test_mutated_parameters_are_valid_or_refused_in_one_line(name, tmp_path, monkeypatch):
    for other in ("params.yaml", "outputs.yaml", "extensions", "data"):
        (tmp_path / other).symlink_to(ROOT / other)
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).unlink()
    text = (ROOT / name).read_text(encoding="utf-8")
    values, chance, failed = yaml.safe_load(text), random.Random(0), []
    for number in range(MUTATIONS):
        if chance.random() < 0.8:
            changed = yaml.safe_dump(mutated(values, chance), sort_keys=False, allow_unicode=True).encode()
        else:
            changed = broken(text, chance)
        (tmp_path / name).write_bytes(changed)
        try:
            said = refusal(Path("params.yaml"))
            if "\n" in said or len(said) > 1000 or (said and "params.yaml" not in said and "outputs.yaml" not in said):
                failed.append(f"mutation {number}: {said[:400]}")
        except Exception as error:
            failed.append(f"mutation {number}: {type(error).__name__}: {str(error)[:400]}")
    assert not failed, "\n".join(failed)


def test_mutated_command_lines_are_valid_or_refused_in_one_line(rmft, tmp_path, monkeypatch):
    for name in ("params.yaml", "outputs.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("extensions", "data"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    commands = {name: of for name, of in typer.main.get_command(app).commands.items() if name not in AT_WORK}
    chance, failed = random.Random(0), []
    for _ in range(MUTATIONS):
        name = chance.choice(sorted(commands))
        options = [option for of in commands[name].params for option in of.opts if option.startswith("-")] or ["--help"]
        words = [chance.choice((chance.choice(options), chance.choice(WORDS))) for _ in range(chance.randrange(1, 5))]
        try:
            code, _, error = rmft(name, *words)
        except BaseException as raised:
            code, error = "traceback", f"{type(raised).__name__}: {raised}"
        if code not in (0, 1, 2) or (code == 2 and len(error.strip().splitlines()) != 1):
            failed.append(f"rmft {shlex.join([name, *words])}: {code}: {error[:300]}")
    assert not failed, "\n".join(failed)
