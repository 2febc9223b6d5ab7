"""Inspect (inspect-ai): `inspect eval rmft/bandit --model …` plays the games of `rmft eval`; a sample is a game."""

import math
from typing import Any

from inspect_ai import Task, task
from inspect_ai._util.error import PrerequisiteError  # the one exception that Inspect prints without a traceback
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, GenerateConfig
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, mean, metric, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from pydantic import ValidationError

from rmft.adapters.games import GameOptions, GameResult, OfferedGames, offered
from rmft.agents.asked import Message
from rmft.errors import InputError
from rmft.params.section import first_error
from rmft.suite.parts import read_suite

GAME = "rmft"  # where a sample keeps its game


@task
def bandit(**options: Any) -> Task:  # noqa: ANN401
    """Play the games of one part of the suite, or one's own. options: the fields of `GameOptions`, each with -T."""
    games = _games(options)
    dataset = [
        Sample(input=games.opening, id=instance + 1, metadata={"instance": instance, "uniform": uniform})
        for instance, uniform in enumerate(games.uniform)
    ]
    config = GenerateConfig(temperature=1.0, max_tokens=games.max_tokens)
    version = read_suite().version  # which games are played, beside the version of rmft
    return Task(dataset=dataset, solver=play(**options), scorer=game_scores(), config=config, version=version)


@solver
def play(**options: Any) -> Solver:  # noqa: ANN401
    """Play the sample's game; the messages of the sample are the game, without replies that were retracted."""
    games = _games(options)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        before = len(state.messages) - 1  # what solvers before this one put there, before the sample's own prompt

        async def ask(messages: list[Message], seed: int) -> str:
            state.messages[before + len(messages) - 1 :] = [ChatMessageUser(content=messages[-1]["content"])]
            return (await generate(state, seed=seed)).output.completion

        game = await games.play_async(state.metadata["instance"], state.epoch - 1, ask)
        state.store.set(GAME, vars(game))
        return state

    return solve


@metric
def share_of_uniform() -> Metric:
    """Return the mean regret as a share of that of uniform play: 1 is as bad as playing blindly."""

    def compute(scores: list[SampleScore]) -> float:
        total = sum(score.sample_metadata["uniform"] for score in scores)
        return sum(score.score.as_float() for score in scores) / total if total else math.nan

    return compute


@scorer(
    metrics={
        "regret": [mean(), stderr(), share_of_uniform()],
        "invalid_replies": [mean()],
        "chance": [mean()],
        "best_action": [mean()],
    }
)
def game_scores() -> Scorer:
    """Return the final regret, invalid replies a round, and the shares of rounds of chance and of the best action.

    A game that a limit of Inspect cut short has no final regret, and so no score.
    """

    async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001
        played = state.store.get(GAME)
        if played is None:
            return Score.unscored(explanation="Inspect ended the game before its last round: a limit was too small")
        game = GameResult(**played)
        rounds = list(zip(game.actions, game.best_actions, strict=True))
        values = {
            "regret": game.regret,
            "invalid_replies": game.invalid_replies / len(rounds),
            "chance": game.chance,
            "best_action": sum(action == best for action, best in rounds) / len(rounds),
        }
        return Score(value=values, explanation=game.describe())

    return score


def _games(options: dict[str, Any]) -> OfferedGames:
    """Return the games that options name. Raise PrerequisiteError where one is wrong."""
    try:
        return offered(GameOptions(**options))
    except ValidationError as error:
        raise PrerequisiteError(f"rmft/bandit: {first_error(error, options)}") from None
    except InputError as error:
        raise PrerequisiteError(f"rmft/bandit: {error}") from None
