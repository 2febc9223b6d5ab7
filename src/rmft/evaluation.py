"""Base model, trained model and reference algorithms on common instances.

Everyone meets the same rewards and, to turn policies into actions, the same random numbers, so that any two
players can be compared instance by instance.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from rmft.agents.numeric import LinearAttention, NumericAgent
from rmft.algorithms import start_on
from rmft.algorithms.players import Player
from rmft.environments import ENVIRONMENTS, Rewards, RewardTable
from rmft.environments.regret import best_actions, regret
from rmft.errors import InputError
from rmft.play import action_uniforms, play
from rmft.selection import TrajectoryColumns, invalid_replies, table_of
from rmft.workflow.records import EvaluationJob

Columns = Mapping[str, list[Any]]
Players = Iterator[tuple[str, int, Player]]  # name, training seed, player at the start of its games


def evaluate(job: EvaluationJob, models: dict[str, LinearAttention], rewards: Rewards) -> Columns:
    """Play everyone on the first instances and rounds of a reward set; return the columns of an evaluation.

    models: by player name, with training seeds along the first axis.
    Raises InputError where models and rewards are not what the job says.
    """
    table = _asked(job, rewards)
    for name, model in models.items():
        if model.V.shape[-1] != job.problem.d:
            raise InputError(f"model {name}: was made for d = {model.V.shape[-1]}, not {job.problem.d}")
    players = chain(_numeric(job, models, table), _algorithms(job, table))
    return _joined(_row(name, seed, _games_of(job, player, table)) for name, seed, player in players)


def evaluate_in_words(job: EvaluationJob, games: list[tuple[str, int, TrajectoryColumns]], rewards: Rewards) -> Columns:
    """Return the columns of an evaluation from games that language models have played, and play the algorithms.

    games: player name, training seed (of the base model, replicate) and trajectories, each on at least the first
    instances of the reward set and on its first rounds. Raises InputError where they are not.
    """
    table = _asked(job, rewards)
    parts = []
    for name, seed, played in games:
        order = np.argsort(played["scenario"])[: job.evaluation.instances]
        met = table_of(played, job.problem.d).rows(order)
        if met.shape != table.shape or not np.array_equal(met.rewards, table.rewards):
            raise InputError(f"{name}: was not played on {job.evaluation.rewards}; delete its games and run again")
        policies = np.array(played["policy"])[order].reshape(table.shape)
        actions = np.array(played["action"], dtype=int)[order]
        words = {
            "policy": list(policies.reshape(len(policies), -1)),
            "invalid": invalid_replies(played)[order].tolist(),
        }
        parts.append(_row(name, seed, {**_scored(job, table, policies, actions), **words}))
    for name, seed, player in _algorithms(job, table):
        parts.append(_row(name, seed, _games_of(job, player, table)))
    return _joined(parts)


def _asked(job: EvaluationJob, rewards: Rewards) -> Rewards:
    table, asked = rewards.head(job.evaluation.instances, job.evaluation.T), job.evaluation
    if table.shape != (asked.instances, asked.T, job.problem.d):
        raise InputError(f"reward set {asked.rewards}: holds (n, T, d) = {rewards.shape}, too little for {asked}")
    return table


def _row(name: str, training_seed: int, games: dict[str, list[Any]]) -> dict[str, list[Any]]:
    n = len(games["instance"])
    return {"player": [name] * n, "training_seed": [training_seed] * n, **games}


def _joined(parts: Iterable[dict[str, list[Any]]]) -> Columns:
    columns = defaultdict(list)
    for part in parts:
        for column, values in part.items():
            columns[column] += values
    return columns


def _radius(job: EvaluationJob) -> float | None:
    return job.problem.radius if job.problem.kind == "numeric" else None


def _numeric(job: EvaluationJob, models: dict[str, LinearAttention], table: Rewards) -> Players:
    n, radius = table.shape[0], job.problem.radius
    for name, model in models.items():
        for training_seed in range(len(model.V)):
            of_seed = model.of_seed(training_seed)
            yield name, training_seed, NumericAgent(of_seed, n, normalise=job.problem.normalise, radius=radius)


def _algorithms(job: EvaluationJob, table: Rewards) -> Players:
    for name in job.evaluation.algorithms:
        yield name, 0, start_on(job.seed, job.evaluation.rewards, job.algorithms[name], table, _radius(job))


def _games_of(job: EvaluationJob, player: Player, table: Rewards) -> dict[str, list[Any]]:
    environment, n = ENVIRONMENTS[job.problem.environment], table.shape[0]
    uniforms = None if _radius(job) is not None else action_uniforms(job.seed, n, job.evaluation.rewards)
    played = play(player, table, full_feedback=environment.full_feedback, uniforms=uniforms)
    scored = _scored(job, played.table, played.policies, played.actions)
    stated = job.problem.kind != "numeric"
    words = {"policy": list(played.policies.reshape(n, -1)) if stated else [None] * n, "invalid": [0] * n}
    return {**scored, **words}


def _scored(
    job: EvaluationJob, met: RewardTable, policies: np.ndarray, actions: np.ndarray | None
) -> dict[str, list[Any]]:
    comparator, radius, n = ENVIRONMENTS[job.problem.environment].comparator, _radius(job), len(policies)
    # A policy is the agent's distribution over actions, so regret is expected over it (App. `regret-instantitaion`).
    curves = regret("expected", comparator, met, policies, actions, mean=job.mean, radius=radius)
    return {
        "instance": list(range(n)),
        "d": [met.shape[2]] * n,
        "regret": list(curves),
        "action": [None] * n if actions is None else list(actions),
        "best_action": [None] * n if actions is None else list(best_actions(comparator, met, job.mean)),
    }
