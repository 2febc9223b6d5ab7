"""Scenarios: texts that say what actions stand for, App. `prompt_scene_generation`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rmft.language.scenarios import read_records
from rmft.params.section import Actions, Count, Name, NotNegative, Section, known

if TYPE_CHECKING:
    from rmft.params.whole import Params


class ScenarioFile(Section):
    """Scenarios that are in a file already."""

    file: str

    def path(self, _name: str) -> str:
        """Return the file of the scenarios."""
        return self.file

    def check(self, key: str, params: "Params") -> None:
        """Raise nothing: a file refers to nothing else of params.yaml."""


class Bundled(ScenarioFile):
    """Scenarios of a JSON Lines file."""

    source: Literal["bundled"] = Field(description="Where the scenarios come from: a JSON Lines file.")
    file: str = Field(description="The file, one scenario a line.")


class Spreadsheet(ScenarioFile):
    """Scenarios of a CSV file of your own."""

    source: Literal["csv"] = Field(description="Where the scenarios come from: a CSV file of your own.")
    file: Annotated[str, Field(pattern=r"\.csv$")] = Field(
        description="The file, with columns scenario, action 1, action 2, ... and, if you like, domain."
    )


class Generated(Section):
    """Scenarios that a model writes."""

    source: Literal["generated"] = Field(description="Where the scenarios come from: a model writes them.")
    model: Name = Field(description="The model of `models`, of kind endpoint, that writes them.")
    prompt: str = Field(description="Template of the prompt.")
    count: Count = Field(description="Number of scenarios for each number of actions.")
    d: Annotated[list[Actions], Field(min_length=1)] = Field(description="Numbers of actions.")
    batch: Count = Field(description="Scenarios in one completion.")
    temperature: NotNegative = Field(description="Temperature that the model samples at.")
    max_tokens: Count = Field(description="Largest number of tokens of one completion.")

    def path(self, name: str) -> str:
        """Return the file that the scenarios are written to."""
        return f"results/scenarios/{name}.jsonl"

    def check(self, key: str, params: "Params") -> None:
        """Raise ValueError where no endpoint has the model's name."""
        known(f"{key}.model", self.model, {name: of for name, of in params.models.items() if of.kind == "endpoint"})


ScenarioSet = Annotated[Bundled | Spreadsheet | Generated, Field(discriminator="source")]


def check_spreadsheets(sets: Iterable[ScenarioSet]) -> None:
    """Raise InputError naming file and line where a user's CSV file holds an invalid scenario."""
    for scenarios in sets:
        if isinstance(scenarios, Spreadsheet):
            read_records(Path(scenarios.file))
