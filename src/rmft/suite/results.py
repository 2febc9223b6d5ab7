"""eval.json, which holds what `rmft eval` measured: written, read, verified and compared."""

import json
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from rmft.artifacts.files import sha256
from rmft.artifacts.json_files import read_json, write_json
from rmft.artifacts.receipts import commit, machine
from rmft.errors import InputError
from rmft.metrics.players import PlayerResults
from rmft.params.section import Section
from rmft.suite.measuring import Measurement, difference, summary_of
from rmft.suite.parts import digest_of

FILE = "eval.json"
Interval = Annotated[list[float], Field(min_length=3, max_length=3)]


class Mean(Section):
    """A mean with its 95% interval."""

    mean: float
    low: float
    high: float


class ReferenceResult(Section):
    """A reference algorithm on the same instances. difference: the model's regret less this; low, mean, high."""

    regret: Mean
    difference: Interval


class PartResult(Section):
    """What a model did in a part of the suite."""

    identity: str = Field(description="Digest of what decides the games, besides their number and the model.")
    settings: dict[str, Any] = Field(description="The part, as the suite has it.")
    instances: int = Field(description="Games of each player.")
    rounds: int = Field(description="Rounds of a game.")
    regret: Mean = Field(description="Final regret of the model.")
    exponent: float | None = Field(description="β̂ of log Regret(t) = α + β log t; below 1, regret levels off.")
    suffix_failures: float = Field(description="Share of games whose second half never plays the best action.")
    min_frac: float = Field(description="d times the share of the least-played action, 1 in uniform play.")
    best_action: float = Field(description="Share of rounds with the best action.")
    invalid_replies: float = Field(description="Invalid replies for each round.")
    references: dict[str, ReferenceResult] = Field(description="ReferenceResult algorithms.")
    final_regrets: list[float] = Field(description="Final regret of the model in each game.")


class EvalResult(Section):
    """The content of eval.json."""

    schema_version: Literal[1] = 1
    suite: dict[str, Any] = Field(description="Version, level and digest of the suite.")
    model: dict[str, Any] = Field(description="Name, settings and SHA-256 of the files of the model.")
    reply: dict[str, Any] = Field(description="How the model was asked to reply.")
    parts: dict[str, PartResult] = Field(description="Results of each part.")
    made: dict[str, Any] = Field(description="When, on which machine, at which commit.")
    usage: dict[str, float] | None = Field(description="Tokens and dollars at an endpoint; null for other models.")
    files: dict[str, str] = Field(description="SHA-256 of the files with the games, beside eval.json.")


def result_of(measurement: Measurement, players: dict[str, dict[str, PlayerResults]]) -> EvalResult:
    """Return the results of the parts that were played. players: results by name, by part."""
    suite, reply = measurement.suite, measurement.reply
    games = sorted((measurement.folder / "games").glob("*.parquet"))
    return EvalResult(
        suite={"version": suite.version, "level": measurement.level, "sha256": digest_of(suite, measurement.level)},
        model=measurement.model.description(),
        reply={"format": reply.format, "temperature": reply.temperature, "retries": reply.retries},
        parts={
            part: PartResult(
                identity=suite.identity(part, reply.format),
                settings=suite.parts[part].model_dump(mode="json"),
                **summary_of(of, suite.seed, part),
            )
            for part, of in players.items()
        },
        made={
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "commit": commit(),
            "python": platform.python_version(),
        },
        usage=measurement.model.usage(measurement.folder / "games"),
        files={file.relative_to(measurement.folder).as_posix(): sha256(file) for file in games},
    )


def write_result(path: Path, result: EvalResult) -> None:
    """Write eval.json."""
    write_json(path, result.model_dump(mode="json"))


def read_result(path: Path) -> EvalResult:
    """Read eval.json, or the one in a folder. Raise InputError where it is none."""
    path = path / FILE if path.is_dir() else path
    try:
        return EvalResult.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: is no result of `rmft eval`: {key}: {first['msg']}") from None


def as_text(path: Path, result: EvalResult) -> Iterator[str]:
    """Yield what a measurement was made from, in a few lines."""
    yield f"{path}"
    yield f"  measured    {result.made['at']} on {result.made['machine']}"
    yield f"  code        commit {result.made['commit']}"
    yield f"  suite       version {result.suite['version']}, {result.suite['level']}, sha256 {result.suite['sha256']}"
    yield f"  model       {result.model['name']}: {json.dumps(result.model['settings'], sort_keys=True)}"
    for name, digest in result.model["files"].items():
        yield f"  weights     {name}, sha256 {digest}"
    yield f"  verified    {len(result.files)} files with games and regrets"


def altered(path: Path, result: EvalResult) -> Iterator[str]:
    """Yield a line for each file with games that is missing, or is not what was measured."""
    for name, digest in result.files.items():
        file = path.parent / name
        if not file.is_file():
            yield f"missing: {file}"
        elif sha256(file) != digest:
            yield f"altered: {file} is not what was measured"


def compared(ours: EvalResult, theirs: EvalResult, seed: int) -> dict[str, Interval]:
    """Return our regret less theirs in each common part, on the instances of both: low, mean, high.

    Raise InputError where no part is the same in both.
    """
    common = _common({part: of.identity for part, of in ours.parts.items()}, theirs)
    return {part: _difference(ours.parts[part], theirs.parts[part], seed, part) for part in common}


def refuse_others(measurement: Measurement, theirs: EvalResult) -> None:
    """Raise InputError where a result has no part that is about to be measured."""
    suite = measurement.suite
    _common(
        {part: suite.identity(part, measurement.reply.format) for part in suite.instances(measurement.level)}, theirs
    )


def _common(identities: dict[str, str], theirs: EvalResult) -> list[str]:
    """Return the parts that a result shares with others. identities: of the others."""
    common = [part for part, of in theirs.parts.items() if identities.get(part) == of.identity]
    if not common:
        raise InputError(
            f"eval: --compare: {theirs.model['name']} played other games (suite {theirs.suite['version']}, "
            f"{', '.join(theirs.parts)}, {theirs.reply['format']}); measure both with the same options"
        )
    return common


def _difference(ours: PartResult, theirs: PartResult, seed: int, part: str) -> Interval:
    n = min(ours.instances, theirs.instances)  # a part with fewer instances begins like one with more
    regrets = (np.array(one.final_regrets[:n]) for one in (ours, theirs))
    return difference(*regrets, seed, part, "compare")
