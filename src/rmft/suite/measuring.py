"""Measure a model: it plays the games of a suite, and reference algorithms play the same instances.

Symbols: n instances, T rounds, d actions.
"""

import hashlib
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rmft.agents.chat_models import Conversations
from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.trajectories import read_trajectories, write_trajectories
from rmft.endpoint.budget import Usage
from rmft.environments import RewardTable
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
from rmft.selection import TrajectoryColumns
from rmft.streams import stream
from rmft.suite.models import Measured
from rmft.suite.parts import Suite
from rmft.workflow.games import game_settings_of, games_of, read_prompts
from rmft.workflow.records import RolloutsJob

MODEL = "model"  # the measured player
PIECE = 64  # games that a kill loses at most, where no journal keeps every reply
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
            served=self.model.served,
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

    def stem(self, part: str) -> Path:
        """Return the path with which the names of a part's files begin.

        It has a digest of all that decides the games, the model's files included, so that others are never taken for
        them. The number of games is no part of it: more games begin like fewer, so that replies serve both.
        """
        alike = self.job(part).model_copy(update={"scenarios": 1}).canonical()
        model = json.dumps(self.model.description(), sort_keys=True)
        whole = f"{alike}\n{model}\n{self.suite.identity(part, self.reply.format)}"
        return self.folder / "games" / f"{part}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"

    def games(self, part: str) -> dict[Path, RolloutsJob]:
        """Return the files with the games of a part, each with the job that plays them."""
        n = self.suite.instances(self.level)[part]
        pieces = 1 if self.model.settings.kind == "endpoint" else -(-n // PIECE)
        stem = self.stem(part)
        return {
            stem.with_name(f"{stem.name}-{n}.{k}-of-{pieces}.parquet"): self.job(part, k, pieces)
            for k in range(1, pieces + 1)
        }

    def results(self, part: str) -> Path:
        """Return the file with the regrets of all players in a part."""
        stem = self.stem(part)
        return stem.with_name(f"{stem.name}-{self.suite.instances(self.level)[part]}.results.parquet")


@dataclass(frozen=True)
class PlayedPart:
    """The results of all players by name, the model first; games: of the model. chance: share of random decisions."""

    players: dict[str, PlayerResults]
    games: TrajectoryColumns
    chance: float


def play_part(measurement: Measurement, part: str) -> PlayedPart:
    """Have the model and the references play a part. Games of an earlier run are not played again."""
    of, name = measurement.suite.parts[part], measurement.suite.stream(part)
    table = measurement.suite.rewards(part, measurement.suite.instances(measurement.level)[part])
    _play_games(measurement, part, table)
    pieces = [read_trajectories(file, tokens=False) for file in measurement.games(part)]
    games = {column: [value for piece in pieces for value in piece[column]] for column in pieces[0]}
    shared = Instances(table, name, measurement.suite.seed, of.environment, MEAN)
    algorithms = {reference: measurement.suite.algorithms[reference] for reference in of.references}
    path = measurement.results(part)
    write_evaluation(path, evaluate_in_words(shared, [(MODEL, 0, games)], algorithms))
    return PlayedPart(read_players(path), games, float(np.mean(games["fallback"])))


def _play_games(measurement: Measurement, part: str, table: RewardTable) -> None:
    """Play the games of a part that an earlier run has not played."""
    left = {file: job for file, job in measurement.games(part).items() if not file.exists()}
    if not left:
        return
    games = [games_of(job, read_prompts(job), None, table) for job in left.values()]
    first = next(iter(left.values()))
    rounds = sum(len(one.ids) for one in games) * first.T
    with (
        measurement.model.playing(first, games[0], measurement.stem(part)) as chat_models,
        speed(f"eval {part}", rounds) as advance,
    ):
        for file, one in zip(left, games, strict=True):
            write_trajectories(file, roll_out(one, chat_models.open, chat_models.batch, advance))
        if summary := chat_models.summary():
            print(f"eval {part}: {summary}", file=sys.stderr)


def summary_of(played: PlayedPart, seed: int, part: str) -> dict[str, Any]:
    """Return what eval.json says of a part: the model's regret and exploration, and every reference beside it."""
    model, exponent = played.players[MODEL], growth(played.players[MODEL].curve).exponent
    final = model.by_instance[:, -1]
    best = np.broadcast_to(model.best_actions[0], model.actions[0].shape)
    return {
        "instances": len(final),
        "rounds": model.regret.shape[2],
        "regret": _mean(final),
        "exponent": None if math.isnan(exponent) else exponent,
        "suffix_failures": float(suffix_failure(model.actions[0], best)[:, best.shape[1] // 2].mean()),
        "min_frac": float(scaled_min_frac(model.actions[0], model.d)[:, -1].mean()),
        "best_action": float((model.actions[0] == best).mean()),
        "invalid_replies": float(model.invalid.sum() / model.actions[0].size),
        "chance": played.chance,
        "references": dict(_references(played.players, seed, part)),
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
    """Return the mean of final regrets (n,) with its 95% interval, of Student's t."""
    from scipy import stats

    quantile = float(stats.t.ppf(0.975, len(final) - 1))
    mean, margin = float(final.mean()), quantile * float(final.std(ddof=1)) / len(final) ** 0.5
    return {"mean": mean, "low": mean - margin, "high": mean + margin}
