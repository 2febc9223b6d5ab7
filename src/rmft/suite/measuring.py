"""Measure a model: it plays the games of a suite, and reference algorithms play the same instances.

Symbols: n instances, T rounds, d actions.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rmft.agents.chat_models import Conversations
from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.text import read_text, write_text
from rmft.artifacts.trajectories import read_trajectories, write_trajectories
from rmft.endpoint.budget import Usage
from rmft.evaluation import Instances, evaluate_in_words
from rmft.language.protocol import Format
from rmft.metrics.comparison import paired_difference
from rmft.metrics.exploration import scaled_min_frac, suffix_failure
from rmft.metrics.growth import growth
from rmft.metrics.players import PlayerResults
from rmft.params.language import LanguageProblem, ProtocolSettings
from rmft.progress import speed
from rmft.results import read_players
from rmft.rollouts import roll_out
from rmft.streams import stream
from rmft.suite.models import Measured
from rmft.suite.parts import Suite
from rmft.workflow.games import game_settings_of, games_of, read_prompts
from rmft.workflow.records import RolloutsJob

MODEL = "model"  # the measured player
PIECE = 64  # games that a kill loses at most, where no journal keeps every reply
Z = 1.959964  # of a 95% interval
LENGTHS = {("policy-only", "action"): 16, ("policy-only", "distribution"): 64}  # tokens of a reply
REASONED = 512
CHARACTERS = 4.0  # of a prompt for each token, about
MEAN: Literal["nominal"] = "nominal"


@dataclass(frozen=True)
class ReplySettings:
    """How the model replies. max_tokens: of a reply, None for what the form needs."""

    format: Format = "policy-only"
    max_tokens: int | None = None
    temperature: float = 1.0
    retries: int = 2

    def limit(self, output: str) -> int:
        """Return the largest number of tokens of a reply."""
        return self.max_tokens or LENGTHS.get((self.format, output), REASONED)


@dataclass(frozen=True)
class Measurement:
    """A model, the games that it is to play, and the folder for their results."""

    model: Measured
    suite: Suite
    level: str
    reply: ReplySettings
    folder: Path

    def job(self, part: str, piece: int = 1, pieces: int = 1) -> RolloutsJob:
        """Return the record of the job that plays a piece of a part, from 1."""
        of = self.suite.parts[part]
        protocol = ProtocolSettings(
            interaction="dialogue",
            output=of.output,
            format=self.reply.format,
            prompts=self.suite.prompts,
            max_tokens=self.reply.limit(of.output),
            retries=self.reply.retries,
            tolerance=0.02,
        )
        return RolloutsJob(
            seed=self.suite.seed,
            stream=self.suite.stream(part),
            problem=LanguageProblem(kind="language", environment=of.environment, d=of.d, protocol=protocol),
            model=self.model.settings,
            model_name=self.model.name,
            process=None,
            T=of.T,
            scenarios=self.suite.instances(self.level)[part],
            trajectories=1,
            temperature=self.reply.temperature,
            shard=(piece, pieces),
        )

    def usage(self) -> Usage:
        """Return about what an endpoint will charge for: every request sends the whole conversation."""
        total = Usage()
        for part, instances in self.suite.instances(self.level).items():
            job = self.job(part)
            settings = game_settings_of(job, read_prompts(job))
            first, later = Conversations(settings, job.T, job.problem.protocol.max_tokens).characters()
            reply = {"action": 4, "distribution": 24}[self.suite.parts[part].output]
            if self.reply.format == "with-reasoning":
                reply = self.reply.limit(self.suite.parts[part].output) // 4
            grows = later / CHARACTERS + reply
            sent = job.T * first / CHARACTERS + grows * job.T * (job.T - 1) / 2
            total += Usage(instances * job.T, round(instances * sent), 0, instances * job.T * reply)
        return total

    @property
    def replies(self) -> int:
        """Return how many valid replies all games need."""
        return sum(n * self.suite.parts[part].T for part, n in self.suite.instances(self.level).items())

    def games_file(self, part: str, piece: int, pieces: int) -> Path:
        """Return the file with the games of a piece of a part."""
        return self.folder / "games" / f"{part}.{piece}-of-{pieces}.parquet"

    def results_file(self, part: str) -> Path:
        """Return the file with the regrets of all players in a part."""
        return self.folder / "games" / f"{part}.results.parquet"


def play_part(measurement: Measurement, part: str) -> PlayerResults:
    """Have the model and the references play a part; return the results of all players by name, the model first.

    Games of an earlier run that was cut short are read, not played again.
    """
    instances = measurement.suite.instances(measurement.level)[part]
    pieces = 1 if measurement.model.settings.kind == "endpoint" else -(-instances // PIECE)
    table = measurement.suite.rewards(part, instances)
    of = measurement.suite.parts[part]
    _play_pieces(measurement, part, pieces)
    parts = [read_trajectories(measurement.games_file(part, k, pieces), tokens=False) for k in range(1, pieces + 1)]
    games = {column: [value for one in parts for value in one[column]] for column in parts[0]}
    name = measurement.suite.stream(part)
    shared = Instances(table, name, measurement.suite.seed, of.environment, MEAN)
    algorithms = {reference: measurement.suite.algorithms[reference] for reference in of.references}
    path = measurement.results_file(part)
    write_evaluation(path, evaluate_in_words(shared, [(MODEL, 0, games)], algorithms))
    return read_players(path)


def _play_pieces(measurement: Measurement, part: str, pieces: int) -> None:
    """Play the pieces of a part that an earlier run has not played."""
    jobs = [measurement.job(part, piece, pieces) for piece in range(1, pieces + 1)]
    files = [measurement.games_file(part, *job.shard) for job in jobs]
    left = [(job, file) for job, file in zip(jobs, files, strict=True) if not _played(job, file)]
    if not left:
        return
    table = measurement.suite.rewards(part, jobs[0].scenarios)
    games = [games_of(job, read_prompts(job), None, table) for job, _ in left]
    rounds = sum(len(one.ids) for one in games) * jobs[0].T
    with (
        measurement.model.playing(left[0][0], games[0], files[0]) as chat_models,
        speed(f"eval {part}", rounds) as advance,
    ):
        for (job, file), one in zip(left, games, strict=True):
            write_trajectories(file, roll_out(one, chat_models.open, chat_models.batch, advance))
            write_text(_record_of(file), job.canonical())
        if summary := chat_models.summary():
            print(f"eval {part}: {summary}", file=sys.stderr)


def _played(job: RolloutsJob, file: Path) -> bool:
    """Return whether an earlier run has played these very games."""
    return file.exists() and _record_of(file).exists() and read_text(_record_of(file)) == job.canonical()


def _record_of(file: Path) -> Path:
    return file.with_suffix(".json")


def summary_of(players: dict[str, PlayerResults], seed: int, part: str) -> dict[str, Any]:
    """Return what eval.json says of a part: the model's regret and exploration, and every reference beside it."""
    model = players[MODEL]
    final = model.by_instance[:, -1]
    best = np.broadcast_to(model.best_actions[0], model.actions[0].shape)
    return {
        "instances": len(final),
        "rounds": model.regret.shape[2],
        "regret": _mean(final),
        "exponent": growth(model.curve).exponent,
        "suffix_failures": float(suffix_failure(model.actions[0], best)[:, best.shape[1] // 2].mean()),
        "min_frac": float(scaled_min_frac(model.actions[0], model.d)[:, -1].mean()),
        "best_action": float((model.actions[0] == best).mean()),
        "invalid_replies": float(model.invalid.sum() / model.actions[0].size),
        "references": dict(_references(players, seed, part)),
        "final_regrets": [round(float(regret), 6) for regret in final],
    }


def _references(players: dict[str, PlayerResults], seed: int, part: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the mean regret of each reference, and the model's regret less the reference's, with a 95% interval."""
    ours = players[MODEL].by_instance[:, -1]
    for name in players.keys() - {MODEL}:
        theirs = players[name].by_instance[:, -1]
        yield name, {"regret": _mean(theirs), "difference": difference(ours, theirs, seed, part, name)}


def difference(ours: np.ndarray, theirs: np.ndarray, seed: int, *words: str) -> list[float]:
    """Return our final regrets (n,) less theirs on the same instances: low, mean and high of a 95% interval.

    words: name the bootstrap's random stream.
    """
    found = paired_difference(ours, theirs, stream(seed, "bootstrap", "eval", *words))
    return [found.low, found.mean, found.high]


def _mean(final: np.ndarray) -> dict[str, float]:
    """Return the mean of final regrets (n,) with its 95% interval."""
    mean, margin = float(final.mean()), Z * float(final.std(ddof=1)) / len(final) ** 0.5
    return {"mean": mean, "low": mean - margin, "high": mean + margin}
