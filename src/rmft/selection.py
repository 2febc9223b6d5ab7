"""Selection: Algorithm `ssft-language-model`, "select k": in each scenario the k trajectories of lowest regret.

Ours: trajectories may be ranked by another score than regret, and all of an iteration together. Within a scenario all
trajectories have the same rewards, so regret is a constant less what was earned and ranks them as the reward does; the
two differ where trajectories of several scenarios are ranked together. A random score is the control: it tells what
fine-tuning on the model's own games does by itself.

Trajectories of equal score are ranked in the order in which they were sampled. A trajectory whose replies repeat those
of a better one of its scenario word for word is passed over, so that k demonstrations are k different ones; where fewer
than k are different, all of them are selected.

Luck in hindsight: the lowest of L regrets is low partly because the draws happened to favour its actions. So each
trajectory is scored again, with what its actions (or its policies, where regret is over policies) earn on average where
rewards are drawn again; `metrics.luck` computes how much of the selected trajectories' advantage is left there.

Symbols: M scenarios, L trajectories each, n = M · L in all, T rounds, d actions.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from rmft.environments import environment_named
from rmft.environments.regret import Mean, Notion, earned, regret
from rmft.environments.tables import RewardTable
from rmft.errors import InputError
from rmft.language.protocol import NOT_LEARNT
from rmft.params.language import Pool, Score
from rmft.streams import stream

TrajectoryColumns = dict[str, list[Any]]  # as `artifacts.trajectories` reads and writes them


@dataclass(frozen=True)
class Scoring:
    """How regret is counted; see `environments.regret`."""

    environment: str
    notion: Notion
    mean: Mean = "nominal"

    @property
    def comparator(self) -> str:
        """Return the comparator of the environment's regret."""
        return environment_named(self.environment).comparator


def select(
    batches: Iterable[TrajectoryColumns],
    scoring: Scoring,
    selected: int,
    score: Score = "regret",
    pool: Pool = "scenario",
    *,
    seed: int,
    words: str,
) -> dict[str, np.ndarray]:
    """Return the columns of a selection, one trajectory a row, in the order in which they were played.

    batches: the trajectories, so many at a time that they fit in memory. selected: k. score: what ranks, the lowest
    first (of `reward`, the highest). pool: what is ranked together: the k best of each scenario are selected, or the
    k M best of all. seed, words: the root seed and the words that name the streams of `random` scores.
    """
    parts = [_scored(played, scoring, score, seed, words) for played in batches]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    scenario, scores, texts = columns["scenario"], columns.pop("score"), columns.pop("texts")
    pools = scenario if pool == "scenario" else np.zeros_like(scenario)
    rank, duplicate = np.zeros(len(scenario), dtype=int), np.zeros(len(scenario), dtype=bool)
    chosen = np.zeros(len(scenario), dtype=bool)
    order = np.lexsort((columns["trajectory"], scenario, scores, pools))
    for rows in np.split(order, np.flatnonzero(np.diff(pools[order])) + 1):
        rank[rows] = np.arange(len(rows))
        better: set[tuple[int, bytes]] = set()
        for row in rows:
            replies = (scenario[row], texts[row])
            # ASSUME: a game told word for word like a better one teaches nothing new
            duplicate[row] = replies in better
            better.add(replies)
        most = selected * len(np.unique(scenario[rows]))
        chosen[rows[~duplicate[rows]][:most]] = True
    return columns | {"rank": rank, "duplicate": duplicate, "selected": chosen}


def _scored(played: TrajectoryColumns, scoring: Scoring, score: Score, seed: int, words: str) -> dict[str, np.ndarray]:
    """Return what selection needs of trajectories. texts: a hash of the replies of each."""
    rewards = table_of(played)
    regrets, rerolled = final_regrets(played, rewards, scoring), rerolled_regrets(played, rewards, scoring)
    if score == "reward":
        scores = -earnings(played, rewards, scoring).sum(axis=1)
    elif score == "random":
        scores = random_scores(played, seed, words)
    else:
        scores = regrets if score == "regret" else rerolled
    texts = [hashlib.blake2b("\0".join(replies).encode(), digest_size=16).digest() for replies in played["reply"]]
    return {
        "scenario": np.array(played["scenario"]),
        "trajectory": np.array(played["trajectory"]),
        "regret": regrets,
        "rerolled": rerolled,
        "invalid": invalid_replies(played),
        "score": scores,
        "texts": np.array(texts, dtype=object),
    }


def table_of(played: TrajectoryColumns) -> RewardTable:
    """Return the rewards (n, T, d) of trajectories, with their means."""
    n, d = len(played["d"]), played["d"][0]
    arrays = (np.array(played[name]).reshape(n, -1, d) for name in ("rewards", "means", "clipped_means"))
    return RewardTable(*arrays)


def regret_curves(played: TrajectoryColumns, rewards: RewardTable, scoring: Scoring) -> np.ndarray:
    """Return Regret(t) (n, T) of the policies and actions of trajectories on these rewards."""
    policies, actions = _decisions(played, rewards)
    return regret(scoring.notion, scoring.comparator, rewards, policies, actions, mean=scoring.mean)


def final_regrets(played: TrajectoryColumns, rewards: RewardTable, scoring: Scoring) -> np.ndarray:
    """Return the regret (n,) at round T; see `regret_curves`."""
    return regret_curves(played, rewards, scoring)[:, -1]


def earnings(played: TrajectoryColumns, rewards: RewardTable, scoring: Scoring) -> np.ndarray:
    """Return what trajectories earned in each round (n, T), as a notion of regret counts it."""
    policies, actions = _decisions(played, rewards)
    return earned(scoring.notion, scoring.comparator, rewards, policies, actions, mean=scoring.mean)


def _decisions(played: TrajectoryColumns, rewards: RewardTable) -> tuple[np.ndarray, np.ndarray]:
    """Return policies (n, T, d) and actions (n, T)."""
    return np.array(played["policy"]).reshape(rewards.shape), np.array(played["action"], dtype=int)


def rerolled_regrets(played: TrajectoryColumns, rewards: RewardTable, scoring: Scoring) -> np.ndarray:
    """Return the regret (n,) of the same policies and actions, averaged over rewards that are drawn again.

    Earnings are linear in rewards, so their average is what is earned on the means of the draws. The comparator stays
    that of the game, which all trajectories of a scenario share.
    """
    averages = RewardTable(rewards.clipped_means, rewards.means, rewards.clipped_means)
    luck = earnings(played, rewards, scoring) - earnings(played, averages, scoring)
    return final_regrets(played, rewards, scoring) + luck.sum(axis=1)


def random_scores(played: TrajectoryColumns, seed: int, words: str) -> np.ndarray:
    """Return a uniform random number (n,) for each trajectory, the same however trajectories come in batches."""
    names = zip(played["scenario"], played["trajectory"], strict=True)
    return np.array([stream(seed, "selection", words, *name).random() for name in names])


def invalid_replies(played: TrajectoryColumns) -> np.ndarray:
    """Return the number (n,) of replies without a valid decision in each trajectory."""
    attempts = np.array(played["attempts"], dtype=int)
    return (attempts - 1 + np.array(played["fallback"], dtype=bool)).sum(axis=1)


def demonstrations_in(batches: Iterable[TrajectoryColumns], selected: Iterable[bool]) -> Iterator[dict[str, Any]]:
    """Yield the `demonstrations` of trajectories that are read batch by batch, in their order."""
    chosen = iter(selected)
    for played in batches:
        yield from demonstrations(played, list(islice(chosen, len(played["scenario"]))))


def demonstrations(played: TrajectoryColumns, selected: Sequence[bool]) -> list[dict[str, Any]]:
    """Return the conversations of selected trajectories: tokens with labels, and the same as chat messages to read.

    selected: for each trajectory whether it is to be learnt from; raise InputError where there are fewer or more.
    Labels are NOT_LEARNT where the model did not sample the token. An invalid reply has weight 0 and is not to be
    learnt from either. A dialogue is one conversation, a summary T of them.

    # ASSUME: a conversation without a valid reply is left out, because nothing in it can be learnt. Its game stays
    selected: the paper ranks all games, whoever chose their actions.
    """
    if len(selected) != len(played["scenario"]):
        raise InputError(f"demonstrations: {len(selected)} of `selected` for {len(played['scenario'])} trajectories")
    lines = []
    for row in np.flatnonzero(selected):
        rounds = [
            [
                {"role": "user", "content": prompt},
                {"role": "assistant", "content": reply, **({"weight": 0} if fallback else {})},
            ]
            for prompt, reply, fallback in zip(
                *(played[name][row] for name in ("prompt", "reply", "fallback")), strict=True
            )
        ]
        conversations = list(zip(played["ids"][row], played["replied"][row], strict=True))
        chats = [[message for messages in rounds for message in messages]] if len(conversations) == 1 else rounds
        for (ids, replied), messages in zip(conversations, chats, strict=True):
            if all("weight" in message for message in messages if message["role"] == "assistant"):
                continue
            lines.append(
                {
                    "scenario": played["scenario"][row],
                    "trajectory": played["trajectory"][row],
                    "ids": ids,
                    "labels": [token if chosen else NOT_LEARNT for token, chosen in zip(ids, replied, strict=True)],
                    "messages": messages,
                }
            )
    return lines
