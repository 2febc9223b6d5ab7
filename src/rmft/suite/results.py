"""eval.json, which holds what `rmft eval` measured: written, read, verified and compared."""

import fnmatch
import json
import math
import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field

from rmft.artifacts.files import altered_files, sha256
from rmft.artifacts.here import without_folder
from rmft.artifacts.json_files import read_json, write_json
from rmft.artifacts.receipts import commit, machine
from rmft.errors import InputError
from rmft.metrics.comparison import LEVEL, below_zero
from rmft.package_data import IN_WHEEL, ROOT
from rmft.params.section import Section
from rmft.results import read_players
from rmft.suite import FILE
from rmft.suite.measuring import (
    MODEL,
    Measurement,
    PlayedPart,
    ReplySettings,
    difference,
    mean_interval,
    rounded,
    summary_of,
)
from rmft.suite.parts import PROMPTS, digest_of, read_suite
from rmft.suite.stopping import COMPARED, anytime_interval

RANDOM = 0.1  # share of rounds decided by chance, from which on a regret says little of the model
Interval = Annotated[list[float | None], Field(min_length=3, max_length=3)]  # low, mean, high; see `difference`


class MeanInterval(Section):
    """A mean with its 95% interval."""

    mean: float
    low: float
    high: float


class ReferenceResult(Section):
    """A reference algorithm on the same instances. difference: the model's regret less this; low, mean, high."""

    regret: MeanInterval
    difference: Interval


class Stopping(Section):
    """A measurement that stops when it is decided. anytime: what the model's regret exceeds that of others by."""

    planned: int = Field(description="Games that there would have been without stopping early.")
    anytime: dict[str, Interval] = Field(
        description="Of the differences that decide (uniform, compared): low, mean, high. They hold whenever one stops."
    )
    widest: float = Field(description="How far two final regrets can differ.")


class PartResult(Section):
    """What a model did in a part of the suite."""

    identity: str = Field(description="Digest of what decides the games, besides their number and the model.")
    instances_identity: str = Field(
        description="Digest of what decides the instances, in whatever words the model is told them."
    )
    settings: dict[str, Any] = Field(description="The part, as the suite has it.")
    instances: int = Field(description="Games of each player.")
    rounds: int = Field(description="Rounds of a game.")
    max_tokens: int = Field(description="Largest number of tokens of a reply.")
    regret: MeanInterval = Field(description="Final regret of the model.")
    exponent: float | None = Field(description="β̂ of log Regret(t) = α + β log t; null where no fit is possible.")
    suffix_failures: float = Field(description="Share of games whose second half never plays the best action.")
    min_frac: float = Field(description="d times the share of the least-played action, 1 where all are played equally.")
    best_action: float = Field(description="Share of rounds with the best action.")
    invalid_replies: float = Field(description="Invalid replies for each round.")
    chance: float = Field(description="Share of rounds that chance decided, after replies without a valid decision.")
    references: dict[str, ReferenceResult] = Field(description="Reference algorithms.")
    final_regrets: list[float] = Field(description="Final regret of the model in each game.")
    stopping: Stopping | None = Field(default=None, description="Of `--stop-when decided`; else null.")

    @property
    def stopped_early(self) -> bool:
        """Return whether fewer games were played than planned, so that usual intervals are too narrow."""
        return self.stopping is not None and self.instances < self.stopping.planned

    @property
    def on_stopping(self) -> str:
        """Return in words whether the games ended early, with the intervals that hold then; empty without a rule."""
        if self.stopping is None:
            return ""
        of, planned = self.stopping.anytime.items(), self.stopping.planned
        differences = "; ".join(f"from {name} {mean:+.2f} [{low:+.2f}, {high:+.2f}]" for name, (low, mean, high) in of)
        early = f"Stopped early, decided after {self.instances} of {planned} games"
        if COMPARED in self.stopping.anytime and below_zero(self.stopping.anytime[COMPARED]) is None:
            early += ", as many as the compared result has"
        return (
            f"{early if self.stopped_early else f'All {planned} games were played'}. Differences with 95% "
            f"intervals that hold whenever one stops: {differences}. The other intervals would be right only for a "
            "number of games that is fixed beforehand."
        )

    @property
    def says_little(self) -> bool:
        """Return whether chance, and not the model, decided many of the rounds."""
        return self.chance >= RANDOM


class SuiteEntry(Section):
    """The games. public: whether the rewards are those of the suite's own seed, which anyone can draw."""

    version: int
    level: str
    sha256: str
    public: bool


class ModelEntry(Section):
    """The model. files: SHA-256 of its files, by name."""

    name: str
    settings: dict[str, Any]
    files: dict[str, str]


class ReplyEntry(Section):
    """How the model was asked to reply."""

    format: str
    temperature: float
    retries: int
    prompts: str = PROMPTS

    @classmethod
    def of(cls, reply: ReplySettings, prompts: str = PROMPTS) -> Self:
        """Return what a result says of these settings and a folder of templates."""
        return cls(format=reply.format, temperature=reply.temperature, retries=reply.retries, prompts=prompts)

    @property
    def words(self) -> str:
        """Return how the model was told the games and asked to reply."""
        return f"{self.format}, {self.prompts}"


class Origin(Section):
    """When the measurement ended, on which kind of machine, by which version and commit of rmft; null: not known."""

    at: str
    machine: str
    version: str | None = None
    commit: str | None
    python: str


class EvalResult(Section):
    """The content of eval.json."""

    schema_version: Literal[1] = 1
    suite: SuiteEntry = Field(description="The games.")
    model: ModelEntry = Field(description="The model.")
    reply: ReplyEntry = Field(description="How the model was asked to reply.")
    parts: dict[str, PartResult] = Field(description="Results of each part.")
    made: Origin = Field(description="When, on which machine, by which code.")
    usage: dict[str, float | None] | None = Field(
        description="Tokens and dollars at an endpoint; null for other models."
    )
    files: dict[str, str] = Field(description="SHA-256 of the files with the games, beside eval.json.")


def head_of(measurement: Measurement) -> dict[str, Section]:
    """Return what eval.json says of a measurement before it is made: the games, the model, and how it replies."""
    suite, reply, level = measurement.suite, measurement.reply, measurement.level
    public = suite.seed == read_suite().seed
    return {
        "suite": SuiteEntry(version=suite.version, level=level, sha256=digest_of(suite, level), public=public),
        "model": ModelEntry(**measurement.model.description()),
        "reply": ReplyEntry.of(reply, without_folder(suite.prompts)),
    }


def result_of(measurement: Measurement, played: dict[str, PlayedPart]) -> EvalResult:
    """Return the results of the parts that were played."""
    suite, reply = measurement.suite, measurement.reply
    files = [file for of in played.values() for file in of.files]
    digests = {file.relative_to(measurement.folder).as_posix(): sha256(file) for file in files}
    now = Origin(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        version=version("rmft"),
        commit=None if ROOT == IN_WHEEL else commit(ROOT),
        python=platform.python_version(),
    )
    return EvalResult(
        **head_of(measurement),
        parts={
            part: PartResult(
                identity=suite.identity(part, reply.format),
                instances_identity=suite.instances_identity(part),
                settings=suite.parts[part].model_dump(mode="json"),
                max_tokens=reply.limit(suite.parts[part]),
                stopping=of.anytime and Stopping(planned=of.planned, anytime=of.anytime, widest=of.widest),
                **summary_of(of),
            )
            for part, of in played.items()
        },
        made=_made_before(measurement.folder / FILE, digests) or now,
        usage=measurement.model.usage(map(measurement.stem, played)),
        files=digests,
    )


def _made_before(path: Path, digests: Mapping[str, str]) -> Origin | None:
    """Return when and where an earlier run of the command has played all these games, or None where none has."""
    earlier = read_result(path) if path.exists() else None
    return earlier.made if earlier and digests.items() <= earlier.files.items() else None


def write_result(path: Path, result: EvalResult) -> None:
    """Write eval.json."""
    write_json(path, result.model_dump(mode="json"))


def read_result(path: Path) -> EvalResult:
    """Read eval.json, or the one in a folder. Raise InputError where it is none."""
    path = path / FILE if path.is_dir() else path
    return EvalResult.checked(read_json(path), f"{path}: is no result of `rmft eval`")


def refuse_other_measurement(measurement: Measurement) -> None:
    """Raise InputError where the folder holds the result of another measurement, or nothing can be written there."""
    path = measurement.folder / FILE
    try:
        (measurement.folder / "games").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--output: {measurement.folder}: cannot be written: {error.strerror}") from None
    if path.exists():
        found = read_result(path)
        there = found.model_dump(mode="json")
        for section, ours in head_of(measurement).items():
            for differs in _differences(section, there[section], ours.model_dump(mode="json")):
                raise InputError(f"{path}: is of another measurement ({differs}); give --output FOLDER")
        for part in found.parts.keys() & measurement.suite.instances(measurement.level).keys():
            of = found.parts[part]
            limit = measurement.reply.limit(measurement.suite.parts[part])
            if of.max_tokens != limit:
                differs = f"max_tokens is {of.max_tokens} there, and {limit} here"
                raise InputError(f"{path}: is of another measurement ({differs}); give --output FOLDER")
            if measurement.stop and of.stopping is None:
                has = f"has all {of.instances} games of {part}, and --stop-when could leave fewer"
                raise InputError(f"{path}: {has}; give --output FOLDER")


def _differences(key: str, there: object, here: object) -> Iterator[str]:
    """Yield in words how values of two results differ. key: of both values."""
    if isinstance(there, dict) and isinstance(here, dict) and there.keys() == here.keys():
        for name in there:
            yield from _differences(f"{key}.{name}", there[name], here[name])
    elif there != here:
        yield f"{key} is {json.dumps(there)} there, and {json.dumps(here)} here"


def as_text(path: Path, result: EvalResult) -> Iterator[str]:
    """Yield what a measurement was made from, in a few lines."""
    yield f"{path}"
    suite, model = result.suite, result.model
    yield f"  measured    {result.made.at} on {result.made.machine}"
    made = result.made
    code = [made.version and f"rmft {made.version}", made.commit and f"commit {made.commit}"]
    yield f"  code        {', '.join(filter(None, code)) or 'not known'}"
    yield f"  suite       version {suite.version}, {suite.level}, sha256 {suite.sha256}"
    yield f"  model       {model.name}: {json.dumps(model.settings, sort_keys=True)}"
    for name, digest in model.files.items():
        yield f"  weights     {name}, sha256 {digest}"
    yield f"  verified    {len(result.files)} files with games and regrets"


def altered(path: Path, result: EvalResult) -> Iterator[str]:
    """Yield a line for each file with games that is missing, or is not what was measured.

    Where all files are, yield one for each part whose regrets are not those in its file.
    """
    lines = [line for _, line in altered_files(path.parent, result.files, "measured")]
    yield from lines
    for part, of in {} if lines else result.parts.items():
        name = next(iter(fnmatch.filter(result.files, f"games/{part}-*-{of.instances}.results.parquet")), None)
        if name and not _has_regrets(of, path.parent / name):
            yield f"altered: {path}: regrets of {part} are not those in {path.parent / name}"


def _has_regrets(part: PartResult, file: Path) -> bool:
    """Return whether a part has the regrets of the file with its games."""
    final = read_players(file)[MODEL].by_instance[:, -1]
    same_mean = math.isclose(part.regret.mean, mean_interval(final)["mean"], abs_tol=1e-9)
    return same_mean and part.final_regrets == rounded(final)


def compared(ours: EvalResult, theirs: EvalResult) -> dict[str, Interval]:
    """Return our regret less theirs in each common part, on the instances of both: low, mean, high.

    Where one of the two stopped early, the interval holds whenever one stops. Raise InputError where no part has the
    same instances in both.
    """
    common = _common({part: of.instances_identity for part, of in ours.parts.items()}, theirs)
    return {part: _difference(ours.parts[part], theirs.parts[part]) for part in common}


def regrets_to_compare(measurement: Measurement, theirs: EvalResult) -> dict[str, list[float]]:
    """Return a result's final regrets in each part that is about to be measured. Raise InputError where it has none."""
    suite = measurement.suite
    wanted = {part: suite.instances_identity(part) for part in suite.instances(measurement.level)}
    return {part: theirs.parts[part].final_regrets for part in _common(wanted, theirs)}


def _common(identities: dict[str, str], theirs: EvalResult) -> list[str]:
    """Return the parts whose instances a result shares with others. identities: of the others' instances."""
    common = [part for part, of in theirs.parts.items() if identities.get(part) == of.instances_identity]
    if not common:
        raise InputError(
            f"--compare: {theirs.model.name} played other games (suite {theirs.suite.version}, "
            f"{', '.join(theirs.parts)}); measure both with the same options"
        )
    return common


def _difference(ours: PartResult, theirs: PartResult) -> Interval:
    if ours.stopped_early or theirs.stopped_early:
        return anytime_difference(ours, theirs)
    return difference(*_common_regrets(ours, theirs))


def anytime_difference(ours: PartResult, theirs: PartResult, level: float = LEVEL) -> Interval:
    """Return our regret less theirs, where one of the two stopped early: low, mean, high; wrong with chance `level`."""
    first, second = _common_regrets(ours, theirs)
    widest = next(one.stopping.widest for one in (ours, theirs) if one.stopping)
    return anytime_interval(first - second, -widest, widest, level)


def _common_regrets(ours: PartResult, theirs: PartResult) -> list[np.ndarray]:
    """Return the final regrets of both on their common instances: fewer instances are the first of more."""
    n = min(ours.instances, theirs.instances)
    return [np.array(one.final_regrets[:n]) for one in (ours, theirs)]
