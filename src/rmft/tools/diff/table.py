"""Differences as a short table for a terminal."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import PurePosixPath

from rmft.tools.diff.difference import CHANGED, Difference, LibraryChange, Pair
from rmft.tools.diff.revisions import MEASURES

ROWS = 20  # at most in a part of the table
CHARACTERS = 44  # at most in a parameter's value
NAMES = 3  # of experiments, before they are counted
Row = Sequence[str]


def as_text(difference: Difference) -> str:
    """Return a short table in parts, or a line that nothing differs."""
    parts: dict[Row, Sequence[Row]] = {
        ("parameters", "A", "B"): _parameter_rows(difference),
        ("code",): [(of.name, of.status, ", ".join(of.stages)) for of in difference.code]
        + _library_rows(difference.libraries),
        ("inputs",): list(difference.inputs.items()),
        ("results",): _result_rows(difference.results),
        ("metrics", *MEASURES): [
            (name, *(_step(measure, pairs.get(measure)) for measure in MEASURES))
            for name, pairs in difference.metrics.items()
        ],
    }
    lines = [line for head, rows in parts.items() if rows for line in _part(head, rows)]
    if difference.machines:
        a, b = map("; ".join, difference.machines)
        lines.append(f"computed on different kinds of machines: A on {a}, B on {b}")
    if not lines and not difference.unknown:
        lines = ["no difference"]
    return "\n".join([f"A: {difference.a}   B: {difference.b}", *lines, *difference.unknown])


def _parameter_rows(difference: Difference) -> list[Row]:
    """Return a row a value, and one for all experiments that inherit the same change."""
    heirs: dict[Row, list[str]] = {}
    for key, pair in difference.parameters.items():
        place = difference.inherited.get(key)
        names = heirs.setdefault((place or key, *map(_value, pair)), [])
        if place is not None:
            names.append(key.split(".")[1])
    return [(f"{key}, in {_names(names)}" if names else key, *values) for (key, *values), names in heirs.items()]


def _names(names: Iterable[str]) -> str:
    """Return names in a text, many of them shortened to two and a number."""
    several = list(dict.fromkeys(names))
    return ", ".join(several if len(several) <= NAMES else [*several[:2], f"{len(several) - 2} more"])


def _part(head: Row, rows: Sequence[Row]) -> Iterator[str]:
    table = [head, *((f"  {name}", *cells) for name, *cells in rows[:ROWS])]
    widths = [max(map(len, column)) for column in zip_longest(*table, fillvalue="")]
    for row in table:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
    if len(rows) > ROWS:
        yield f"  … and {len(rows) - ROWS} more; --json lists all"


def _value(value: object) -> str:
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, default=str).replace('"', "")
    if len(text) <= CHARACTERS:
        return text
    return f"({_leaves(value)} values)" if isinstance(value, Mapping) else f"{text[: CHARACTERS - 1]}…"


def _leaves(value: object) -> int:
    return sum(map(_leaves, value.values())) if isinstance(value, Mapping) else 1


def _step(measure: str, pair: Pair | None) -> str:
    if pair is None:
        return ""
    before, after = pair
    digits = ".2g" if measure.endswith("_p") else ".4g"
    shift = "" if measure.endswith("_p") or None in pair else f" ({after - before:+.3g})"
    return " → ".join("–" if value is None else format(value, digits) for value in pair) + shift


def _library_rows(changes: Sequence[LibraryChange]) -> list[Row]:
    imported = [change for change in changes if change.stages]
    others = len(changes) - len(imported)
    rows = [(of.name, " → ".join(map(_value, of.versions)), ", ".join(of.stages)) for of in imported]
    return rows + [("other libraries", f"{others} {CHANGED}")] * bool(others)


def _result_rows(results: Mapping[str, str]) -> list[Row]:
    """Return figures and tables by name with the endings that differ, and the number of other files by folder."""
    groups = defaultdict(lambda: defaultdict(list))
    for path, status in results.items():
        name = PurePosixPath(path.removeprefix("results/").removeprefix("experiments/"))
        named = name.parts[0] in ("figures", "tables") or len(name.parts) == 1
        group, ending = (str(name.with_suffix("")), name.suffix[1:]) if named else (name.parts[0], "")
        groups[group][status].append("which files is unknown" if path.endswith("/") else ending)
    return [(group, ", ".join(_count(*of) for of in statuses.items())) for group, statuses in groups.items()]


def _count(status: str, endings: Sequence[str]) -> str:
    return f"{status} ({', '.join(endings)})" if any(endings) else f"{len(endings)} {status}"
