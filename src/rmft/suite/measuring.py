"""Measure a model: it plays the games of a suite, and reference algorithms play the same instances.

Symbols: n instances, T rounds, d actions.
"""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rmft.agents.chat_models import ChatModels, Conversations
from rmft.artifacts.evaluations import write_evaluation
from rmft.artifacts.trajectories import read_trajectories, write_trajectories
from rmft.endpoint.budget import Usage
from rmft.environments import RewardTable
from rmft.evaluation import Columns, Instances, evaluate_in_words
from rmft.language.prompts import Prompts
from rmft.language.protocol import Format
from rmft.lineage.code import fingerprint
from rmft.metrics.comparison import paired_difference, t_quantile
from rmft.metrics.exploration import explored
from rmft.metrics.growth import growth
from rmft.metrics.players import PlayerResults
from rmft.package_data import IN_WHEEL, ROOT, find_file
from rmft.params.endpoint import EXPECTED
from rmft.params.language import LanguageProblem, ProtocolSettings
from rmft.progress import speed
from rmft.results import read_players
from rmft.rollouts import Games, roll_out
from rmft.selection import TrajectoryColumns
from rmft.suite.models import Measured
from rmft.suite.parts import Part, Suite
from rmft.suite.stopping import BLOCK, COMPARED, UNIFORM, StoppingRule
from rmft.workflow.games import game_settings, game_settings_of, games_of, read_prompts
from rmft.workflow.records import RolloutsJob

MODEL = "model"  # the measured player
PLAY_HERE = ("jinja2", "numpy", "tokenizers", "torch", "transformers")  # packages that decide what a model here samples
PIECE = 64  # games that a kill loses at most, where no journal keeps every reply
ACTION, POLICY = 16, 64  # tokens of a reply that is an action, or a policy over a few actions
PROBABILITY = 8  # tokens of one of many probabilities, at most
REASONED = 512  # tokens of a reply with reasoning, of which a policy takes POLICY
MEAN: Literal["nominal"] = "nominal"


@dataclass(frozen=True)
class ReplySettings:
    """How the model replies. max_tokens: of a reply, None for what the form needs."""

    format: Format = "policy-only"
    max_tokens: int | None = None
    temperature: float = 1.0
    retries: int = 2

    @staticmethod
    def form(*, reasoning: bool) -> Format:
        """Return the form of replies in which a model reasons first, or decides at once."""
        return "with-reasoning" if reasoning else "policy-only"

    def limit(self, part: Part) -> int:
        """Return the largest number of tokens of a reply in a part."""
        decision = ACTION if part.output == "action" else max(POLICY, ACTION + PROBABILITY * part.d)
        needed = decision if self.format == "policy-only" else max(REASONED, REASONED - POLICY + decision)
        return self.max_tokens or needed

    def problem(self, part: Part, prompts: str) -> LanguageProblem:
        """Return how the games of a part become prompts, and replies decisions. prompts: folder of the templates."""
        protocol = ProtocolSettings(
            interaction="dialogue",
            output=part.output,
            format=self.format,
            prompts=prompts,
            max_tokens=self.limit(part),
            retries=self.retries,
            tolerance=0.02,
        )
        return LanguageProblem(kind="language", environment=part.environment, d=part.d, protocol=protocol)

    def games(self, part: Part, prompts: str, seed: int, stream: str, rewards: RewardTable, ids: np.ndarray) -> Games:
        """Return games of a part, for who plays them outside of a job.

        rewards: (n, T, d). ids: (m, 2), the instance and the trajectory of each game. seed, stream: see `Games`.
        """
        problem = self.problem(part, prompts)
        settings = game_settings(problem, Prompts.load(find_file(prompts)), self.temperature)
        return Games(ids, rewards, settings, None, seed, stream, problem.environment, problem.training_regret)


@dataclass(frozen=True)
class Measurement:
    """A model, the games that it is to play, and the folder for their results. stop: whether early, once decided."""

    model: Measured
    suite: Suite
    level: str
    reply: ReplySettings
    folder: Path
    stop: bool = False

    def job(self, part: str, piece: int = 1, pieces: int = 1) -> RolloutsJob:
        """Return the record of the job that plays a piece of a part, from 1."""
        of = self.suite.parts[part]
        return RolloutsJob(
            seed=self.suite.seed,
            stream=self.suite.stream(part),
            problem=self.reply.problem(of, self.suite.prompts),
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
        total, per_token = Usage(), EXPECTED.characters_per_token
        for part, instances in self.suite.instances(self.level).items():
            job = self.job(part)
            settings = game_settings_of(job, read_prompts(job))
            first, later = Conversations(settings, job.T, job.problem.protocol.max_tokens).characters()
            reply = {"action": 4, "distribution": 24}[self.suite.parts[part].output]
            if self.reply.format == "with-reasoning":
                reply = self.reply.limit(self.suite.parts[part]) // 4
            grows = later / per_token + reply
            sent = job.T * first / per_token + grows * job.T * (job.T - 1) / 2
            total += Usage(instances * job.T, round(instances * sent), 0, instances * job.T * reply)
        return total

    @property
    def replies(self) -> int:
        """Return how many valid replies all games need."""
        return sum(n * self.suite.parts[part].T for part, n in self.suite.instances(self.level).items())

    def stem(self, part: str) -> Path:
        """Return the path with which the names of a part's files begin.

        It has a digest of all that decides the games, the model's files and the code included, so that others are
        never taken for them. The number of games is no part of it: more games begin like fewer, so that replies serve
        both.
        """
        alike = self.job(part).model_copy(update={"scenarios": 1}).canonical()
        model = json.dumps(self.model.description(), sort_keys=True)
        whole = f"{alike}\n{model}\n{self.suite.identity(part, self.reply.format)}\n{self._code()}"
        return self.folder / "games" / f"{part}-{hashlib.sha256(whole.encode()).hexdigest()[:12]}"

    def _code(self) -> str:
        """Return what names the code with which games are played: a digest, or the versions of installed packages."""
        if ROOT != IN_WHEEL:
            return fingerprint("rollouts")[0]
        packages = ("rmft",) if self.model.settings.kind == "endpoint" else ("rmft", *PLAY_HERE)
        return " ".join(f"{name} {version(name)}" for name in packages)

    def games(self, part: str) -> dict[Path, RolloutsJob]:
        """Return the files with the games of a part, in the order of the instances, and the jobs that play them."""
        n = self.suite.instances(self.level)[part]
        whole = self.model.settings.kind == "endpoint"  # its journal keeps every reply
        pieces = -(-n // BLOCK) if self.stop else 1 if whole else -(-n // PIECE)
        stem = self.stem(part)
        return {
            stem.with_name(f"{stem.name}-{n}.{k}-of-{pieces}.parquet"): self.job(part, k, pieces)
            for k in range(1, pieces + 1)
        }

    def results(self, part: str, instances: int) -> Path:
        """Return the file with the regrets of all players in the first instances of a part."""
        stem = self.stem(part)
        return stem.with_name(f"{stem.name}-{instances}.results.parquet")


@dataclass(frozen=True)
class PlayedPart:
    """The results of all players by name, the model first; games: of the model. chance: share of random decisions.

    files: with games and results. planned: how many games there would be without stopping early. anytime, widest: the
    intervals of `StoppingRule`, and how far two regrets can differ; None where no one asked to stop early. requests:
    what an endpoint was asked, in words; empty where nothing had to be played, or the model plays here.
    """

    players: dict[str, PlayerResults]
    games: TrajectoryColumns
    chance: float
    files: list[Path]
    planned: int
    anytime: dict[str, list[float]] | None
    widest: float | None
    requests: str


def play_part(measurement: Measurement, part: str, compared: Sequence[float] | None = None) -> PlayedPart:
    """Have the model and the references play a part. Games of an earlier run are not played again.

    compared: final regrets of the model to compare with, which decide too where the measurement may stop early.
    """
    suite, references = measurement.suite, measurement.suite.parts[part].references
    planned = suite.instances(measurement.level)[part]
    table = suite.rewards(part, planned)
    rule = StoppingRule(suite, part, compared) if measurement.stop else None
    games: TrajectoryColumns = defaultdict(list)
    files, anytime = [], None
    with _playing(measurement, part, table) as (play, opened):
        for file in measurement.games(part):
            if not file.exists():
                play(file)
            files.append(file)
            for column, values in read_trajectories(file, tokens=False).items():
                games[column] += values
            if rule:
                scored = _scored(measurement, part, table, games, [UNIFORM])
                final = np.array([curve[-1] for curve in scored["regret"]])  # of the model, then of uniform play
                anytime = rule.intervals(*np.split(final, 2))
                if rule.decided(anytime, len(games["scenario"])):
                    break
        requests = opened[0].summary() if opened else ""
    path = measurement.results(part, len(games["scenario"]))
    write_evaluation(path, _scored(measurement, part, table, games, references))
    chance = float(np.mean(games["fallback"]))
    widest = rule.ranges[COMPARED][1] if rule else None
    return PlayedPart(read_players(path), games, chance, [*files, path], planned, anytime, widest, requests)


def _scored(
    measurement: Measurement, part: str, table: RewardTable, games: TrajectoryColumns, references: Sequence[str]
) -> Columns:
    """Return the evaluation of the model's games so far, and of references on the same instances."""
    suite, of = measurement.suite, measurement.suite.parts[part]
    first = table.head(len(games["scenario"]), of.T)
    instances = Instances(first, suite.stream(part), suite.seed, of.environment, MEAN)
    return evaluate_in_words(instances, [(MODEL, 0, games)], {name: suite.algorithms[name] for name in references})


@contextmanager
def _playing(
    measurement: Measurement, part: str, table: RewardTable
) -> Iterator[tuple[Callable[[Path], None], list[ChatModels]]]:
    """Yield the function that has the model play the games of a file, and a list with the model as it was opened.

    The list is empty until the function is first called: where everything has been played, nothing is loaded.
    """
    left = {file: job for file, job in measurement.games(part).items() if not file.exists()}
    games = {file: games_of(job, read_prompts(job), None, table) for file, job in left.items()}
    rounds = sum(len(one.ids) for one in games.values()) * table.shape[1]
    opened: list[ChatModels] = []
    with ExitStack() as stack, speed(f"eval {part}", rounds) as advance:

        def play(file: Path) -> None:
            if not opened:
                playing = measurement.model.playing(left[file], games[file], measurement.stem(part))
                opened.append(stack.enter_context(playing))
            write_trajectories(file, roll_out(games[file], opened[0].open, opened[0].batch, advance))

        yield play, opened


def summary_of(played: PlayedPart) -> dict[str, Any]:
    """Return what eval.json says of a part: the model's regret and exploration, and every reference beside it."""
    model, exponent = played.players[MODEL], growth(played.players[MODEL].curve).exponent
    final = model.by_instance[:, -1]
    exploration = explored(model.actions[0], model.best_actions[0], model.d)
    return {
        "instances": len(final),
        "rounds": model.regret.shape[2],
        "regret": mean_interval(final),
        "exponent": None if math.isnan(exponent) else exponent,
        "suffix_failures": exploration["failures"],
        "min_frac": exploration["min_frac"],
        "best_action": exploration["best"],
        "invalid_replies": float(model.invalid.sum() / model.actions[0].size),
        "chance": played.chance,
        "references": dict(_references(played.players)),
        "final_regrets": rounded(final),
    }


def rounded(final: np.ndarray) -> list[float]:
    """Return final regrets (n,) as eval.json has them."""
    return [round(float(regret), 6) for regret in final]


def _references(players: dict[str, PlayerResults]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the mean regret of each reference, and the model's regret less the reference's, with a 95% interval."""
    ours = players[MODEL].by_instance[:, -1]
    for name in players.keys() - {MODEL}:
        theirs = players[name].by_instance[:, -1]
        yield name, {"regret": mean_interval(theirs), "difference": difference(ours, theirs)}


def difference(ours: np.ndarray, theirs: np.ndarray) -> list[float | None]:
    """Return our final regrets (n,) less theirs on the same instances: low, mean and high of a 95% interval.

    low and high are None where there is no interval: all differences are the same, and not 0.
    """
    found = paired_difference(ours, theirs)
    return [None if math.isnan(value) else value for value in (found.low, found.mean, found.high)]


def mean_interval(final: np.ndarray) -> dict[str, float]:
    """Return the mean of final regrets (n,) with its 95% interval, of Student's t; NaN ends for one value."""
    n, mean = len(final), float(final.mean())
    margin = t_quantile(n) * float(final.std(ddof=1)) / n**0.5 if n > 1 else math.nan
    return {"mean": mean, "low": mean - margin, "high": mean + margin}
