"""Which trajectories become demonstrations: in each scenario the k of lowest regret, Algorithm `ssft-language-model`.

Ours: they may be ranked by another score than regret, and all of an iteration together. Within a scenario all meet the
same rewards, so that there regret is a constant less what was earned, and ranks them as the reward does; the two differ
where trajectories of several scenarios are ranked together.

TrajectoryColumns of equal score are taken in the order in which they were sampled. One that says word for word what a
better one of its scenario says is passed over, so that k demonstrations are k different ones; if there are fewer
different ones than k, all of them are taken.

Luck in hindsight: the lowest of L regrets is low partly because the draws happened to favour what was played. So each
trajectory's actions (where regret is over policies: those) also meet rewards that are drawn again, from the same means,
and `metrics.luck` says how much of the selected trajectories' advantage is left there.

Symbols: M scenarios, L trajectories each, n = M · L in all, T rounds, d actions.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from rmft.environments import ENVIRONMENTS, rewards_of
from rmft.environments.regret import Notion, earned, regret
from rmft.environments.tables import RewardTable
from rmft.language.protocol import NOT_LEARNT
from rmft.workflow.records import SelectionJob

TrajectoryColumns = dict[str, list[Any]]


def select(job: SelectionJob, batches: Iterable[TrajectoryColumns]) -> dict[str, np.ndarray]:
    """Return the columns of a selection, one trajectory a row, as played.

    batches: the trajectories, so many at a time that they fit in memory.
    """
    parts = [_measured(job, played) for played in batches]
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    scenario, score, said = found["scenario"], found.pop("score"), found.pop("said")
    pool = scenario if job.pool == "scenario" else np.zeros_like(scenario)
    duplicate, rank = np.zeros(len(scenario), dtype=bool), np.zeros(len(scenario), dtype=int)
    selected = np.zeros(len(scenario), dtype=bool)
    order = np.lexsort((found["trajectory"], scenario, score, pool))
    for rows in np.split(order, np.flatnonzero(np.diff(pool[order])) + 1):
        rank[rows] = np.arange(len(rows))
        seen: set[tuple[int, bytes]] = set()
        for row in rows:
            what = (scenario[row], said[row])
            duplicate[row] = what in seen
            seen.add(what)
        most = job.selected * len(np.unique(scenario[rows]))
        selected[rows[~duplicate[rows]][:most]] = True
    return found | {"rank": rank, "duplicate": duplicate, "selected": selected}


def _measured(job: SelectionJob, played: TrajectoryColumns) -> dict[str, np.ndarray]:
    """Return what selection needs to know of trajectories. said: tells apart what was replied in them."""
    games = job, played, table_of(played, job.problem.d), job.problem.training_regret
    regrets, rerolled = final_regrets(*games), rerolled_regrets(job, played)
    said = [hashlib.blake2b("\0".join(replies).encode(), digest_size=16).digest() for replies in played["reply"]]
    return {
        "scenario": np.array(played["scenario"]),
        "trajectory": np.array(played["trajectory"]),
        "regret": regrets,
        "rerolled": rerolled,
        "invalid": invalid_replies(played),
        "score": {"regret": regrets, "rerolled": rerolled, "reward": -earnings(*games).cumsum(axis=1)[:, -1]}[
            job.score
        ],
        "said": np.array(said, dtype=object),
    }


def table_of(played: TrajectoryColumns, d: int) -> RewardTable:
    """Return the rewards (n, T, d) that trajectories met, with their means."""
    arrays = (np.array(played[name]).reshape(len(played["d"]), -1, d) for name in ("rewards", "means", "clipped_means"))
    return RewardTable(*arrays)


def final_regrets(job: SelectionJob, played: TrajectoryColumns, met: RewardTable, notion: Notion) -> np.ndarray:
    """Return the regret (n,) of trajectories at round T, had they met these rewards."""
    return regret(notion, *_met(job, played, met), mean=job.mean)[:, -1]


def earnings(job: SelectionJob, played: TrajectoryColumns, met: RewardTable, notion: Notion) -> np.ndarray:
    """Return what trajectories earned in each round (n, T), as a notion of regret counts it."""
    return earned(notion, *_met(job, played, met), mean=job.mean)


def _met(
    job: SelectionJob, played: TrajectoryColumns, met: RewardTable
) -> tuple[str, RewardTable, np.ndarray, np.ndarray]:
    policies, actions = np.array(played["policy"]).reshape(met.shape), np.array(played["action"], dtype=int)
    return ENVIRONMENTS[job.problem.environment].comparator, met, policies, actions


def rerolled_regrets(job: SelectionJob, played: TrajectoryColumns) -> np.ndarray:
    """Return the regret (n,) of the same actions or policies on rewards drawn again, averaged over `rerolls` draws."""
    d, scenario, horizon = job.problem.d, np.array(played["scenario"]), len(played["reply"][0])
    total = np.zeros(len(scenario))
    for again in range(1, job.rerolls + 1):
        drawn = rewards_of(job.seed, job.stream, job.process, scenario, (horizon, d), again, job.problem.features)
        total += final_regrets(job, played, drawn, job.problem.training_regret)
    return total / job.rerolls


def invalid_replies(played: TrajectoryColumns) -> np.ndarray:
    """Return the number (n,) of replies without a valid decision in each trajectory."""
    asked = np.array(played["attempts"], dtype=int)
    return (asked - 1 + np.array(played["fallback"], dtype=bool)).sum(axis=1)


def demonstrations_in(batches: Iterable[TrajectoryColumns], selected: Iterable[bool]) -> Iterator[dict[str, Any]]:
    """Yield the `demonstrations` of trajectories, so many of which are at hand at a time, in their order."""
    chosen = iter(selected)
    for played in batches:
        yield from demonstrations(played, list(islice(chosen, len(played["scenario"]))))


def demonstrations(played: TrajectoryColumns, selected: Sequence[bool]) -> list[dict[str, Any]]:
    """Return the conversations of selected trajectories: tokens with labels, and the same as chat messages to read.

    Labels are NOT_LEARNT where the model did not choose the token. A reply of weight 0 says nothing valid, and is not
    to be learnt from either. A dialogue is one conversation, a summary T of them.
    """
    lines = []
    for row in np.flatnonzero(selected):
        messages = [
            [
                {"role": "user", "content": told},
                {"role": "assistant", "content": said, **({"weight": 0} if lost else {})},
            ]
            for told, said, lost in zip(*(played[name][row] for name in ("prompt", "reply", "fallback")), strict=True)
        ]
        conversations = list(zip(played["ids"][row], played["replied"][row], strict=True))
        whole = [[said for both in messages for said in both]] if len(conversations) == 1 else messages
        for (ids, replied), chat in zip(conversations, whole, strict=True):
            lines.append(
                {
                    "scenario": played["scenario"][row],
                    "trajectory": played["trajectory"][row],
                    "ids": ids,
                    "labels": [token if chosen else NOT_LEARNT for token, chosen in zip(ids, replied, strict=True)],
                    "messages": chat,
                }
            )
    return lines
