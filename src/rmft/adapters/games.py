"""The games of `rmft eval`, one at a time, for tools that ask a model themselves: what all adapters share.

Symbols: n instances, T rounds, d actions.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Self

import numpy as np
from anyio import CapacityLimiter, from_thread, to_thread
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rmft.agents.asked import Ask, AskedChatModel, Message
from rmft.environments.clipping import HIGH, LOW
from rmft.errors import InputError, unknown
from rmft.evaluation import Instances, evaluate_in_words
from rmft.language.protocol import MOST_TOKENS
from rmft.params.reading import load_extensions
from rmft.rollouts import Games, games_of_shard, roll_out
from rmft.selection import TrajectoryColumns
from rmft.suite import DEFAULT_LEVEL, DEFAULT_PART, DEFAULTS, MOST_ACTIONS, MOST_GAMES, MOST_ROUNDS
from rmft.suite.measuring import MEAN, MODEL, ReplySettings
from rmft.suite.parts import CUSTOM, read_suite
from rmft.suite.stopping import UNIFORM

OF_SUITE = ("suite", "part")  # options that choose games of the suite
OF_OWN_GAMES = ("process", "actions", "horizon")  # options that describe games of one's own


class GameOptions(BaseModel):
    """Which games are played, with the names that the options of `rmft eval` have.

    Options of the suite and options of one's own games are None unless they are given. Raise ValueError (pydantic's
    ValidationError) for an option that means nothing beside the others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str | None = Field(
        default=None, description=f"quick, standard or full: how many games. Default: {DEFAULT_LEVEL}."
    )
    part: str | None = Field(default=None, description=f"The part of the suite. Default: {DEFAULT_PART}.")
    environment: Literal["fol", "mab", "ns-mab"] | None = Field(
        default=None, description="Environment of games of one's own, in place of the suite."
    )
    process: str | None = Field(
        default=None, description=f"Reward processes of one's own games, with commas. Default: {DEFAULTS.process}."
    )
    actions: int | None = Field(
        default=None, ge=2, le=MOST_ACTIONS, description=f"d of one's own games. Default: {DEFAULTS.actions}."
    )
    horizon: int | None = Field(
        default=None, ge=1, le=MOST_ROUNDS, description=f"T of one's own games. Default: {DEFAULTS.horizon}."
    )
    instances: int | None = Field(
        default=None,
        ge=1,
        le=MOST_GAMES,
        description=f"Games. Default: the suite's, or {DEFAULTS.instances} of one's own.",
    )
    seed: int | None = Field(default=None, ge=0, description="A private root of the rewards. Default: the suite's.")
    reasoning: bool = Field(default=False, description="Let the model reason before each decision.")
    max_tokens: int | None = Field(
        default=None, ge=1, le=MOST_TOKENS, description="The most tokens of a reply. Default: what its form needs."
    )
    retries: int = Field(default=2, ge=0, le=100, description="Further replies asked for after an invalid one.")

    @field_validator("process", mode="before")
    @classmethod
    def _with_commas(cls, process: object) -> object:
        """Return several processes as one text: Inspect splits options at commas."""
        return ",".join(map(str, process)) if isinstance(process, list) else process

    @model_validator(mode="after")
    def _fit(self) -> Self:
        own = self.environment is not None
        for name in OF_SUITE if own else OF_OWN_GAMES:
            if getattr(self, name) is not None:
                reason = "does not go with environment" if own else "goes with environment, which is not given"
                raise ValueError(f"{name}: {reason}")
        return self


@dataclass(frozen=True)
class GameResult:
    """How a game was played. regret: after the last round. actions: 0-based, as is the best of each round.

    uniform: the regret of uniform play. chance: the share of rounds that chance decided, after invalid replies only.
    """

    regret: float
    uniform: float
    invalid_replies: int
    chance: float
    actions: list[int]
    best_actions: list[int]

    @property
    def reward(self) -> float:
        """Return −regret / (10 T). It is usually in [-1, 0], but not always.

        In bandits it is at most 0, and below -1 where means differ by more than 10: regret counts means before
        clipping, which reach 20 in the process gamma. With full information it is at least -1, and above 0 where the
        policies earn more than the best fixed action in hindsight.
        """
        return -self.regret / ((HIGH - LOW) * len(self.actions))

    def describe(self) -> str:
        """Return the game in a line."""
        actions = " ".join(str(action + 1) for action in self.actions)
        best = ", ".join(str(action + 1) for action in dict.fromkeys(self.best_actions))
        return f"regret {self.regret:.2f}, uniform play {self.uniform:.2f}; actions {actions}; best {best}"


@dataclass(frozen=True)
class OfferedGames:
    """Games that can be played one at a time. uniform: (n,), regrets of uniform play. max_tokens: of a reply."""

    games: Games
    uniform: Sequence[float]
    max_tokens: int

    @property
    def opening(self) -> str:
        """Return the first message, which is the same in all games."""
        settings = self.games.settings
        return settings.prompts.message(settings.protocol, [])

    def named(self, name: str) -> "OfferedGames":
        """Return the same games with other random numbers; the name tells them from those of other names."""
        return replace(self, games=replace(self.games, words=f"{self.games.words}/{name}"))

    def play(self, instance: int, trajectory: int, ask: Ask) -> GameResult:
        """Play a game. trajectory: counts repetitions of an instance from 0, which have other random numbers."""
        games = replace(self.games, ids=np.array([[instance, trajectory]]))
        (game,) = self.scored(roll_out(games, lambda _: AskedChatModel(ask, self.max_tokens), 1))
        return game

    async def play_async(
        self, instance: int, trajectory: int, ask: Callable[[list[Message], int], Awaitable[str]]
    ) -> GameResult:
        """Play a game with a coroutine function that asks the model: the rules of the game run in a thread."""

        def ask_from_thread(messages: list[Message], seed: int) -> str:
            return from_thread.run(ask, messages, seed)

        return await to_thread.run_sync(self.play, instance, trajectory, ask_from_thread, limiter=CapacityLimiter(1))

    def scored(self, played: TrajectoryColumns) -> list[GameResult]:
        """Return the results of games (n,) that have been played, in their order."""
        games, instances = self.games, np.array(played["scenario"])
        rewards = Instances(games.rewards.rows(instances), games.words, games.seed, games.environment, MEAN)
        found = evaluate_in_words(rewards, [(MODEL, 0, {**played, "scenario": range(len(instances))})], {})
        return [
            GameResult(
                regret=float(found["regret"][row][-1]),
                uniform=self.uniform[instance],
                invalid_replies=int(found["invalid"][row]),
                chance=float(np.mean(played["fallback"][row])),
                actions=np.asarray(found["action"][row]).tolist(),
                best_actions=np.asarray(found["best_action"][row]).tolist(),
            )
            for row, instance in enumerate(instances)
        ]


@lru_cache(maxsize=8)
def offered(options: GameOptions) -> OfferedGames:
    """Return the games that options name. Raise InputError where one is wrong."""
    load_extensions()
    suite, level, part = read_suite(), options.suite or DEFAULT_LEVEL, options.part or DEFAULT_PART
    if options.environment is not None:
        level = part = CUSTOM
        suite = suite.with_own_games(
            options.environment, options.process, options.actions, options.horizon, options.instances
        )
    if level not in suite.levels:
        raise InputError(f"suite: {unknown(level, suite.levels)}")
    if part not in (there := suite.instances(level)):
        raise InputError(f"part: {unknown(part, there)} (suite {level})")
    if options.seed is not None:
        suite = suite.model_copy(update={"seed": options.seed})
    instances = options.instances or there[part]
    of, table, words = suite.parts[part], suite.rewards(part, instances), suite.stream(part)
    reply = ReplySettings(ReplySettings.form(reasoning=options.reasoning), options.max_tokens, retries=options.retries)
    games = reply.games(of, suite.prompts, suite.seed, words, table, games_of_shard(instances, 1, 1, 1))
    all_instances = Instances(table, words, suite.seed, of.environment, MEAN)
    uniform = evaluate_in_words(all_instances, [], {UNIFORM: suite.algorithms[UNIFORM]})
    return OfferedGames(games, [float(curve[-1]) for curve in uniform["regret"]], reply.limit(of))
