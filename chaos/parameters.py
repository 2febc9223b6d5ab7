"""Mutated parameters are valid, or refused in one line that names the file; never a traceback.

A value of params.yaml or outputs.yaml is replaced by one of another type, range, name or size, dropped, moved, renamed,
nested deep or within itself; or the text of the file gets other bytes, tags, aliases or another encoding. *Valid* means
that all parameters are read at their scale. Size: mutations of each of the two files.
"""

import copy
import functools
import os
import random
import string
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from trees import ROOT

from chaos.counts import Counts
from rmft.errors import InputError
from rmft.params import load

FILES = ("params.yaml", "outputs.yaml")
LONGEST_LINE = 1000
WRONG_VALUES = [
    *(None, True, -1, 0, 3, 0.5, 1e309, float("nan"), 10**30, -1e-300),
    *("", " ", "é\u202e", "../../etc/passwd", "0" * 5000, "gaussian", "2026-11-23", "on", "1e3"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": {}}}, ["a", "a"], {3: 4}),
]
HOSTILE = (b"\t", b"&a ", b"*a ", b"<<: ", b"{", b"}", b"!!python/object:os.system ")


def leaves(values: Any, place: tuple = ()) -> list[tuple]:  # noqa: ANN401 (any value of YAML)
    """Return the places of all values, inner ones too."""
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return [place] * bool(place) + [found for key, value in inner for found in leaves(value, (*place, key))]


def at(values: Any, place: Sequence[Any]) -> Any:  # noqa: ANN401 (any value of YAML)
    """Return the value at a place."""
    return functools.reduce(lambda inner, part: inner[part], place, values)


def mutated(values: dict, chance: random.Random) -> dict:
    """Return a copy in which one value is replaced, dropped, moved, renamed, made deep or endless."""
    changed = copy.deepcopy(values)
    *parents, last = chance.choice(leaves(changed))
    holder = at(changed, parents)
    kind = chance.randrange(7)
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
    elif kind == 5:
        holder[last] = circle = [holder[last]]
        circle.append(circle)
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


def run(size: int, seed: int) -> Counts:
    """Mutate both files; return what came of it."""
    counts, before = Counts(), Path.cwd()
    with TemporaryDirectory(prefix="rmft-") as folder:
        os.chdir(folder)
        try:
            for name in (*FILES, "extensions", "data"):
                Path(name).symlink_to(ROOT / name)
            for name in FILES:
                _mutate(Path(name), size, random.Random(f"{seed} {name}"), counts)
        finally:
            os.chdir(before)
    return counts


def _mutate(path: Path, size: int, chance: random.Random, counts: Counts) -> None:
    text = path.read_text(encoding="utf-8")
    values = yaml.load(text, yaml.CSafeLoader)
    path.unlink()
    for number in range(size):
        if chance.random() < 0.8:
            changed = yaml.dump(
                mutated(values, chance), sort_keys=False, allow_unicode=True, Dumper=yaml.CSafeDumper
            ).encode()
        else:
            changed = broken(text, chance)
        path.write_bytes(changed)
        try:
            load(Path(FILES[0])).at_scale()
            counts.add(path.name, "valid")
        except InputError as error:
            refusal = str(error)
            if "\n" in refusal or len(refusal) > LONGEST_LINE or not any(name in refusal for name in FILES):
                counts.fail(path.name, f"mutation {number}: {refusal[:400]}")
            else:
                counts.add(path.name, "refused")
        except Exception as error:
            counts.fail(path.name, f"mutation {number}: {type(error).__name__}: {str(error)[:400]}")
    path.unlink()
    path.symlink_to(ROOT / path.name)
