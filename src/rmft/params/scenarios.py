"""Scenarios: texts that say what actions stand for, App. `prompt_scene_generation`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rmft.language.scenarios import read_records
from rmft.params.section import Actions, Count, Name, NotNegative, Section


class Bundled(Section):
    """Scenarios of a file, one a line."""

    source: Literal["bundled"]
    file: str

    def path(self, _name: str) -> str:
        """Return where the scenarios are."""
        return self.file


class Spreadsheet(Section):
    """Scenarios of a CSV file of your own: columns scenario, action 1, action 2, ... and, if you like, domain."""

    source: Literal["csv"]
    file: Annotated[str, Field(pattern=r"\.csv$")]

    def path(self, _name: str) -> str:
        """Return where the scenarios are."""
        return self.file


class Generated(Section):
    """Scenarios that a model of `models` writes, `batch` at a time: so many (count) of each number of actions."""

    source: Literal["generated"]
    model: Name
    prompt: str
    count: Count
    d: Annotated[list[Actions], Field(min_length=1)]
    batch: Count
    temperature: NotNegative
    max_tokens: Count

    def path(self, name: str) -> str:
        """Return where the scenarios are, once they are written."""
        return f"results/scenarios/{name}.jsonl"


ScenarioSet = Annotated[Bundled | Spreadsheet | Generated, Field(discriminator="source")]


def check_spreadsheets(sets: Iterable[ScenarioSet]) -> None:
    """Raise InputError naming file and line where a user's CSV file holds an invalid scenario."""
    for scenarios in sets:
        if isinstance(scenarios, Spreadsheet):
            read_records(Path(scenarios.file))
