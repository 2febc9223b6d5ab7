"""Files of scenarios, decision problems of the real world: App. `prompt_scene_generation`.

A line holds one record as a JSON object: {"scenario": text, "actions": [names], "domain": one of DOMAINS}. Or a CSV
file holds a record a row: columns `scenario`, `action 1`, `action 2`, ... (the last ones empty in a row with fewer
actions) and, optionally, `domain`.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from rmft.errors import InputError
from rmft.language.parsing import parse
from rmft.language.protocol import Protocol, Scenario

Record = dict[str, Any]

KEYS = ("scenario", "actions", "domain")
DOMAINS = (
    "healthcare",
    "technology",
    "education",
    "business",
    "public-policy",
    "entertainment",
    "science-fiction",
    "finance",
    "agriculture",
    "artificial-intelligence",
    "logistics",
    "environment",
    "marketing",
    "medicine-research",
    "sports",
    "urban-planning",
    "gaming",
    "space",
    "other",
)
LEAST_ACTIONS, MOST_ACTIONS = 2, 10
SHORTEST_TEXT, LONGEST_TEXT = 80, 700  # characters
MOST_WORDS, LONGEST_NAME = 5, 40  # of a name: words, characters
NAME = re.compile(r"[^\W_]+(?:(?: & |' |[ '&-])[^\W_]+)*")


def read_scenarios(path: Path) -> list[Scenario]:
    """Read a file of scenarios. Raise InputError naming file and line where one is invalid."""
    return list(map(scenario_of, read_records(path)))


def read_records(path: Path) -> list[Record]:
    """Read a file of scenarios with their domains; a missing domain is "other"."""
    records: list[Record] = []
    lines: dict[str, int] = {}
    for number, line in _rows(path) if path.suffix == ".csv" else _lines(path):
        try:
            record = {"domain": "other", **(line if isinstance(line, dict) else _object(line))}
            check_record(record)
            if record["scenario"] in lines:
                raise InputError(f"scenario: is that of line {lines[record['scenario']]}")
        except InputError as error:
            raise InputError(f"{path}:{number}: {error}") from None
        lines[record["scenario"]] = number
        records.append(record)
    return records


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers."""
    yield from enumerate(read_user_text(path).removesuffix("\n").split("\n"), start=1)


def _rows(path: Path) -> Iterator[tuple[int, Record]]:
    """Yield the records of a CSV file, each with the number of the line that it ends on.

    Raise InputError where the file is malformed or its columns are not those of a scenario.
    """
    text = read_user_text(path)
    header = text.partition("\n")[0]
    rows = csv.reader(
        io.StringIO(text, newline=""), strict=True, delimiter=";" if header.count(";") > header.count(",") else ","
    )
    try:
        names = [name.strip().lower() for name in next(rows, [])]
    except csv.Error as error:
        raise InputError(f"{path}:1: is no CSV ({error})") from None
    actions = [name for name in names if name.startswith("action")]
    unknown = [name for name in names if not name.startswith("action") and name not in ("scenario", "domain")]
    if "scenario" not in names or not actions or unknown or len(set(names)) < len(names):
        expected = "scenario, action 1, action 2, ... and, if you like, domain"
        raise InputError(f"{path}:1: columns must be {expected}, each once; they are {', '.join(names) or 'none'}")
    try:
        for row in rows:
            if not any(map(str.strip, row)):
                continue
            if len(row) != len(names):
                raise InputError(f"{path}:{rows.line_num}: has {len(row)} cells where there are {len(names)} columns")
            yield rows.line_num, _record(names, [cell.strip() for cell in row])
    except csv.Error as error:
        raise InputError(f"{path}:{rows.line_num}: is no CSV ({error})") from None


def _record(names: list[str], cells: list[str]) -> Record:
    """Return a row of a CSV file as a record, without empty last actions and without an empty domain."""
    actions = [cell for name, cell in zip(names, cells, strict=True) if name.startswith("action")]
    while actions and not actions[-1]:
        actions.pop()
    named = dict(zip(names, cells, strict=True))
    domain = {"domain": named["domain"]} if named.get("domain") else {}
    return {"scenario": named["scenario"], "actions": actions, **domain}


def scenario_of(record: Record) -> Scenario:
    """Return the scenario of a record."""
    return Scenario(record["scenario"], tuple(record["actions"]))


def for_actions(scenarios: Sequence[Scenario], d: int) -> list[Scenario]:
    """Return the scenarios of d actions, in their order."""
    return [scenario for scenario in scenarios if len(scenario.names) == d]


def check_record(record: Record) -> None:
    """Raise InputError naming the key where a record is invalid."""
    unknown, missing = set(record) - set(KEYS), set(KEYS) - set(record)
    if unknown or missing:
        raise InputError(f"{min(unknown or missing)}: {'unknown' if unknown else 'missing'} key")
    text, names = record["scenario"], record["actions"]
    if not isinstance(text, str) or not SHORTEST_TEXT <= len(text) <= LONGEST_TEXT or not text.isprintable():
        raise InputError(f"scenario: must be one line of {SHORTEST_TEXT} to {LONGEST_TEXT} characters")
    if not isinstance(names, list) or not LEAST_ACTIONS <= len(names) <= MOST_ACTIONS:
        raise InputError(f"actions: must be a list of {LEAST_ACTIONS} to {MOST_ACTIONS} names")
    if record["domain"] not in DOMAINS:
        raise InputError(f"domain: {record['domain']!r} is none of {', '.join(DOMAINS)}")
    _check_names(names)


def _check_names(names: list[Any]) -> None:
    """Raise InputError where a name is malformed, or a reply with the name could mean another action."""
    for name in names:
        if not (isinstance(name, str) and NAME.fullmatch(name) and re.search(r"[^\W\d_]", name)):
            raise InputError(f"actions: {name!r} is not of letters, digits, spaces, hyphens, apostrophes and &")
        if len(name) > LONGEST_NAME or len(name.split()) > MOST_WORDS:
            raise InputError(f"actions: {name!r} has more than {MOST_WORDS} words or {LONGEST_NAME} characters")
    for one, other in permutations(map(str.casefold, names), 2):
        if other.startswith(one):
            raise InputError(
                f"actions: {one!r} is " + ("there twice" if one == other else f"the beginning of {other!r}")
            )
    protocol = Protocol("dialogue", "action", "bandit", "policy-only", len(names), Scenario("", tuple(names)))
    for action, name in enumerate(names):
        reply = parse(f"Action: {name}", protocol, 0.0)
        if reply is None or reply.action != action:
            raise InputError(f"actions: a reply with {name!r} would not be understood as that action")


def read_user_text(path: Path) -> str:
    """Read a text file of the user's, which may begin with a byte order mark. Raise InputError where that fails."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _object(line: str) -> Record:
    """Parse a line as one JSON object. Raise InputError where it is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON ({error})") from None
    if not isinstance(value, dict):
        raise InputError('is no object {"scenario": …, "actions": […], "domain": …}')
    return value
