"""The questions of data/forensics/questions.yaml: which rows of the paper's tables, and which readings are tried."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, Self, get_args

import pandas as pd
from pydantic import Field, model_validator

from rmft.artifacts.text import read_yaml
from rmft.environments import EnvironmentName, PolicySpace
from rmft.environments.regret import Notion
from rmft.errors import InputError
from rmft.lineage.syntax import short_hash
from rmft.params.section import AtLeastTwo, Count, Name, Section
from rmft.tools.forensics.readings import processes_named

PAPER = Path("data/paper")
Statistic = Literal["mean", "max", "exponent", "beta_hat", "suff_fail_freq"]  # those that can be compared
Budget = Literal["V_T", "V_T²"]
Reading = dict[str, Any]  # fields of Row that a reading changes, by name


class Row(Section):
    """A row of a table, and the games that it reports.

    where: the row's values by column of data/paper. eta, normalise: as in `AlgorithmSettings`. budget: of Rexp3, as a
    function of V_T. growth: which fit β̂ is; None: the one that data/paper names. instances: how many games.
    statistics: those that are compared; None: all.
    """

    table: str
    where: dict[str, str]
    environment: EnvironmentName = "fol"
    policy_space: PolicySpace = "simplex"
    process: str
    d: AtLeastTwo
    T: Count
    instances: AtLeastTwo
    algorithm: str
    eta: float | str | None = None
    normalise: bool = True
    budget: Budget = "V_T"
    regret: Notion = "expected"
    growth: Literal["slope", "exponent"] | None = None
    statistics: list[Statistic] | None = Field(default=None, min_length=1)

    def values(self) -> dict[str, tuple[float, float]]:
        """Return the paper's values that are compared, as `paper_values` does."""
        found = paper_values(self.table, self.where)
        return {name: value for name, value in found.items() if name in (self.statistics or get_args(Statistic))}


class Question(Section):
    """Rows that one reading should explain together.

    readings: values to try, by field of Row; all combinations are tried. A row's own value is the documented one.
    """

    title: str
    text: str
    rows: list[Row] = Field(min_length=1)
    readings: dict[Name, list[Any]]

    @model_validator(mode="after")
    def _readable(self) -> Self:
        unknown = set(self.readings) - set(Row.model_fields)
        if unknown:
            raise ValueError(f"readings: a row has no {', '.join(sorted(unknown))}")
        return self

    def digest(self, groups: int) -> str:
        """Return a hash of all that the question's answer depends on. groups: see `Questions`."""
        return short_hash([groups, self.model_dump(mode="json", include={"rows", "readings"})])

    def all_readings(self) -> Iterator[Reading]:
        """Yield the documented reading, {}, and then every combination of the values to try."""
        yield {}
        axes = {
            name: processes_named(values) if name == "process" else values for name, values in self.readings.items()
        }
        own = {name: {getattr(row, name) for row in self.rows} for name in axes}
        for values in product(*axes.values()):
            reading = dict(zip(axes, values, strict=True))
            if any(own[name] != {value} for name, value in reading.items()):
                yield reading


class Questions(Section):
    """data/forensics/questions.yaml. groups: of `instances` games each, by which a row's statistics are known."""

    groups: AtLeastTwo
    questions: dict[Name, Question]


def read_questions(path: Path) -> Questions:
    """Read the questions. Raise InputError with the dotted key."""
    return Questions.checked(read_yaml(path), path)


def row_read(row: Row, reading: Reading) -> Row:
    """Return a row as a reading has it. Raise InputError where a value of the reading is none."""
    return row.changed("readings", reading)


def paper_values(table: str, where: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Return the numbers of a row in data/paper by statistic, each with half a unit of its last printed digit.

    where: the row's values by column. Raise InputError where there is no such row.
    """
    lines = _paper(table)
    if missing := set(where) - set(lines):
        raise InputError(f"{PAPER / table}.csv: no column {', '.join(sorted(missing))}")
    chosen = lines.loc[(lines[list(where)] == pd.Series(where)).all(axis=1)]
    if chosen.empty:
        raise InputError(f"{PAPER / table}.csv: no row has {dict(where)}")
    printed = zip(chosen["statistic"], chosen["value"], strict=True)
    return {name: (float(text), _half_unit(text)) for name, text in printed if not text.startswith("<")}


@lru_cache
def _paper(table: str) -> pd.DataFrame:
    """Return a table of data/paper as it is printed: as text, with all digits."""
    path = PAPER / f"{table}.csv"
    if not path.exists():
        raise InputError(f"{path}: no such table")
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def _half_unit(text: str) -> float:
    """Return half a unit of the last digit of a printed number."""
    _, _, decimals = text.partition(".")
    return 0.5 * 10.0 ** -len(decimals)
