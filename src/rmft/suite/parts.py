"""The suite: frozen games on which any model can be measured, with a version and a digest.

Symbols: n instances, T rounds, d actions.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from rmft.artifacts.text import read_bytes, read_yaml
from rmft.environments import ADAPTIVE, RewardTable, check_processes, draw_rewards
from rmft.errors import InputError, unknown
from rmft.language.protocol import Format, Output
from rmft.package_data import find_file
from rmft.params.evaluation import Algorithm
from rmft.params.files import prompt_files
from rmft.params.section import Actions, Count, Section, Several, first_error, prefixed
from rmft.suite import DEFAULTS

SUITE = Path("data/suite/suite.yaml")
PROMPTS = "data/prompts/plain"  # of the suite
DECIMALS = 6  # of rewards in a digest: libraries of another machine may round the last digits of a float otherwise
FIRST = 2  # instances that tell the games of a part from others: a larger part begins like a smaller one
CUSTOM = "custom"  # the level of a part that the command line names


class Part(Section):
    """Games of one kind. references: names of the suite's algorithms that play the same instances."""

    environment: Literal["fol", "mab", "ns-mab"] = Field(description="Environment of the games.")
    process: Several = Field(description="Reward processes; several make an even mixture.")
    output: Output = Field(default="action", description="What a completion states.")
    d: Actions = Field(description="Number of actions.")
    T: Count = Field(description="Rounds of a game.")
    references: list[str] = Field(description="Reference algorithms.")

    @model_validator(mode="after")
    def _playable(self) -> Self:
        prefixed("process", check_processes, self.environment, self.process)
        if ADAPTIVE in self.process:
            raise ValueError("process: adaptive rewards answer policies, and games in words are drawn before")
        return self


class Suite(Section):
    """All parts; levels: the instances of each part, by the name of the level and of the part."""

    version: int = Field(description="Version of the suite; other games have another version.")
    seed: int = Field(description="Root of all random streams.")
    prompts: str = Field(description="Folder of the templates of prompts.")
    algorithms: dict[str, Algorithm] = Field(description="Reference algorithms by name.")
    parts: dict[str, Part] = Field(description="Parts by name.")
    levels: dict[str, dict[str, int]] = Field(description="Instances of each part.")

    def only(self, level: str, parts: Sequence[str]) -> Self:
        """Return this suite with some parts of a level alone; none given: all. Raise InputError for unknown names."""
        there = self.instances(level)
        for name in parts:
            if name not in there:
                raise InputError(f"--part: {unknown(name, there)}")
        kept = {name: n for name, n in there.items() if not parts or name in parts}
        return self.model_copy(update={"levels": {**self.levels, level: kept}})

    def instances(self, level: str) -> dict[str, int]:
        """Return the instances of each part at a level. Raise InputError for an unknown level."""
        if level not in self.levels:
            raise InputError(f"--suite: {unknown(level, self.levels)}")
        return self.levels[level]

    def with_own_games(
        self, environment: str, process: str | None, actions: int | None, horizon: int | None, instances: int | None
    ) -> Self:
        """Return this suite with games of one's own as its one part, at level `custom`; None: as in DEFAULTS.

        process: with commas. Raise InputError where an option is wrong.
        """
        processes = DEFAULTS.process if process is None else process
        part = own_part(environment, processes.split(","), actions or DEFAULTS.actions, horizon or DEFAULTS.horizon)
        levels = {CUSTOM: {CUSTOM: instances or DEFAULTS.instances}}
        return self.model_copy(update={"parts": {CUSTOM: part}, "levels": levels})

    def stream(self, part: str) -> str:
        """Return the words that name the random streams of a part."""
        return f"suite-{self.version}/{part}"

    def rewards(self, part: str, instances: int) -> RewardTable:
        """Return the rewards (n, T, d) of a part's first instances."""
        of = self.parts[part]
        return draw_rewards(self.seed, self.stream(part), of.process, (instances, of.T, of.d))

    def identity(self, part: str, reply: Format) -> str:
        """Return a digest of what decides the games of a part, besides the number of instances and the model."""
        prompts = b"".join(read_bytes(Path(file)) for file in prompt_files(find_file(self.prompts)))
        return _digest(*self._instances(part), reply, prompts, self.drawn(part, FIRST))

    def instances_identity(self, part: str) -> str:
        """Return a digest of what decides the instances of a part, in whatever words a model is told them."""
        return _digest(*self._instances(part), self.drawn(part, FIRST))

    def _instances(self, part: str) -> tuple[str, str, str]:
        games = self.parts[part].model_copy(update={"references": []}).canonical()
        return games, self.stream(part), str(self.seed)

    def drawn(self, part: str, instances: int) -> bytes:
        """Return the rewards of a part's first instances as bytes, rounded."""
        return (self.rewards(part, instances).rewards.round(DECIMALS) + 0.0).tobytes()  # no negative zeros


def read_suite() -> Suite:
    """Return the suite. Raise InputError where its file is missing or malformed."""
    return Suite.checked(read_yaml(find_file(SUITE)), SUITE)


def own_part(environment: str, process: list[str], actions: int, horizon: int) -> Part:
    """Return a part of one's own games, from options. Raise InputError where one is wrong."""
    full = environment == "fol"
    values = {
        "environment": environment,
        "process": [name.strip() for name in process],  # of a text with commas
        "output": "distribution" if full else "action",
        "d": actions,
        "T": horizon,
        "references": ["hedge", "uniform"] if full else ["ucb", "greedy", "exp3", "uniform"],
    }
    try:
        return Part.model_validate(values)
    except ValidationError as error:
        raise InputError(first_error(error, values)) from None


def digest_of(suite: Suite, level: str) -> str:
    """Return a digest of a level: of its parts, its prompts and its rewards."""
    parts = suite.instances(level).items()
    return _digest(*(each for part, n in parts for each in (suite.identity(part, "policy-only"), suite.drawn(part, n))))


def _digest(*parts: str | bytes) -> str:
    joined = hashlib.sha256()
    for part in parts:
        joined.update(hashlib.sha256(part if isinstance(part, bytes) else part.encode()).digest())
    return joined.hexdigest()
