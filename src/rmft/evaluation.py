"""Base model, trained model and reference algorithms on common instances.

Everyone meets the same rewards and, to turn policies into actions, the same random numbers, so that any two
players can be compared instance by instance.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from rmft.agents.numeric import LinearAttention, NumericAgent
from rmft.algorithms import AlgorithmSettings, start
from rmft.algorithms.players import Player
from rmft.environments import ENVIRONMENTS, Rewards, RewardTable, variation
from rmft.environments.regret import best_actions, regret
from rmft.jobs import EvaluationJob
from rmft.rollouts import play
from rmft.streams import stream

Players = Iterator[tuple[str, int, Player]]  # name, training seed, player at the start of its games


def evaluate(
    job: EvaluationJob,
    models: dict[str, LinearAttention],
    rewards: Rewards,
    on_player: Callable[[], object] | None = None,
) -> pd.DataFrame:
    """Play everyone on the first instances and rounds of a reward set; return the columns of artifacts.EVALUATION.

    models: by player name, with training seeds along the first axis. on_player: called after each, for a progress bar.
    """
    table = rewards.head(job.evaluation.instances, job.evaluation.T)
    frames = []
    for name, training_seed, player in _players(job, models, table):
        frames.append(_games_of(job, player, table).assign(player=name, training_seed=training_seed))
        if on_player:
            on_player()
    return pd.concat(frames, ignore_index=True)


def _players(job: EvaluationJob, models: dict[str, LinearAttention], table: Rewards) -> Players:
    n, radius = table.shape[0], job.problem.ball_radius
    for name, model in models.items():
        for training_seed in range(len(model.V)):
            of_seed = model.of_seed(training_seed)
            yield name, training_seed, NumericAgent(of_seed, n, normalise=job.problem.normalise, radius=radius)
    for name in job.evaluation.algorithms:
        yield name, 0, start_on(job.seed, job.evaluation.rewards, job.algorithms[name], table, radius)


def start_on(root: int, rewards_name: str, settings: AlgorithmSettings, table: Rewards, radius: float | None) -> Player:
    """Return a reference algorithm at the start of its games on a reward table."""

    def streams(*words: str | int) -> np.random.Generator:
        return stream(root, "sampling", rewards_name, settings.algorithm, *words)

    budget = variation(table.means) if isinstance(table, RewardTable) else None
    return start(settings, table.shape, radius=radius, streams=streams, variation=budget)


def _games_of(job: EvaluationJob, player: Player, table: Rewards) -> pd.DataFrame:
    environment, radius, n = ENVIRONMENTS[job.problem.environment], job.problem.ball_radius, table.shape[0]

    def uniforms(t: int) -> np.ndarray:
        return stream(job.seed, "action", job.evaluation.rewards, t).random(n)

    on_ball = radius is not None
    played = play(player, table, full_feedback=environment.full_feedback, uniforms=None if on_ball else uniforms)
    # A policy is the agent's distribution over actions, so regret is expected over it (App. `regret-instantitaion`).
    met, comparator = played.table, environment.comparator
    curves = regret("expected", comparator, met, played.policies, played.actions, mean=job.mean, radius=radius)
    actions = {
        "action": None if on_ball else list(played.actions),
        "best_action": None if on_ball else list(best_actions(comparator, met, job.mean)),
    }
    return pd.DataFrame({"instance": np.arange(n), "d": table.shape[2], "regret": list(curves), **actions})
