"""The stage `reasoning`: every reply of held-out games, with its claims and whether it passes over the best action.

Symbols: n instances, T rounds, d actions. Actions are 0-based in files.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmft.language.parsing import parse
from rmft.language.protocol import Protocol, Round, Scenario
from rmft.reasoning.claims import claims_of
from rmft.reasoning.history import History
from rmft.reasoning.judges import Case, Judge
from rmft.workflow.records import ReasoningJob

Columns = dict[str, list[Any]]
TIED = 1e-9


@dataclass(frozen=True)
class ExaminedGame:
    """A game that was told in words. replies: (T,). rewards, means, policies: (T, d). actions, valid: (T,)."""

    player: str
    training_seed: int
    instance: int
    protocol: Protocol
    replies: Sequence[str]
    rewards: np.ndarray
    means: np.ndarray
    policies: np.ndarray
    actions: np.ndarray
    valid: np.ndarray


def games_of(
    job: ReasoningJob,
    played: Sequence[tuple[str, int, Mapping[str, Sequence[Any]]]],
    scenarios: Sequence[Scenario] | None,
) -> Iterator[ExaminedGame]:
    """Yield the games of players (name, training seed, trajectories), told in scenarios (n,) or in none."""
    telling, problem = job.games.problem.protocol, job.games.problem
    means = "clipped_means" if job.mean == "clipped" else "means"
    for player, seed, columns in played:
        for row, instance in enumerate(columns["scenario"]):
            about = scenarios[instance] if scenarios else None
            protocol = Protocol(telling.interaction, telling.output, problem.feedback, telling.format, problem.d, about)
            tables = (np.reshape(columns[name][row], (-1, problem.d)) for name in ("rewards", means, "policy"))
            told = (np.array(columns[name][row]) for name in ("action", "fallback"))
            actions, fallback = told
            yield ExaminedGame(player, seed, instance, protocol, columns["reply"][row], *tables, actions, ~fallback)


def examine(job: ReasoningJob, games: Sequence[ExaminedGame], judges: Mapping[str, Judge]) -> tuple[Columns, Columns]:
    """Return the columns of all replies, and those of all claims in them. judges: by column of the replies."""
    replies, claims, cases = defaultdict(list), defaultdict(list), []
    for game in games:
        for t, history in enumerate(_histories(game)):
            _examine_one(job, game, t, history, replies, claims)
            cases.append(_case(game, t))
    rows = [row for row, case in enumerate(cases) if case is not None]
    for name, judge in judges.items():
        verdicts = [False] * len(cases)  # who takes the best action, or says nothing valid, does not pass it over
        for row, verdict in zip(rows, judge([cases[row] for row in rows]), strict=True):
            verdicts[row] = verdict
        replies[name] = verdicts
    replies["passes_over"] = [case is not None for case in cases]
    return dict(replies), dict(claims)


def _histories(game: ExaminedGame) -> Iterator[History]:
    """Yield what the player has been shown before each of its replies."""
    history, full = History.begin(game.protocol.d), game.protocol.feedback == "full"
    stated = game.protocol.output == "distribution"
    for t, action in enumerate(game.actions.tolist()):
        yield history
        shown = game.rewards[t] if full else np.where(np.arange(game.protocol.d) == action, game.rewards[t], np.nan)
        policy = tuple(game.policies[t].tolist()) if stated else None
        history = history.after(Round(t + 1, action, policy, tuple(shown.tolist())))


def _examine_one(
    job: ReasoningJob, game: ExaminedGame, t: int, history: History, replies: Columns, claims: Columns
) -> None:
    """Add the row of one reply and those of its claims."""
    text, tolerance = game.replies[t], job.games.problem.protocol.tolerance
    where = {"player": game.player, "training_seed": game.training_seed, "instance": game.instance, "t": t + 1}
    read = parse(text, game.protocol, tolerance) if game.valid[t] else None
    found = claims_of(text, game.protocol, history, read, tolerance)
    averages = [history.averages(action) for action in range(game.protocol.d)]
    row = {
        **where,
        "reply": text,
        "claims": len(found),
        "right": sum(claim.true for claim in found),
        "valid": bool(game.valid[t]),
        "action": int(game.actions[t]),
        "reward": float(game.rewards[t, game.actions[t]]),
        "best_action": int(np.argmax(game.means[t])),
        "means": game.means[t].tolist(),
        "times": [history.times(action) for action in range(game.protocol.d)],
        "averages": [of[0] if of else float("nan") for of in averages],
    }
    for name, value in row.items():
        replies[name].append(value)
    for claim in found:
        begin, end = claim.span
        said = {"kind": claim.kind, "begin": begin, "end": end, "text": text[begin:end], "right": claim.true}
        for name, value in {**where, **said}.items():
            claims[name].append(value)


def _case(game: ExaminedGame, t: int) -> Case | None:
    """Return what there is to judge of a reply: None where it prefers the best action, or says nothing valid.

    The best action has the highest mean in the round. A stated policy prefers what it gives the highest probability.
    """
    means, stated = game.means[t], game.protocol.output == "distribution"
    best = np.flatnonzero(means >= means.max() - TIED)
    policy = game.policies[t]
    preferred = np.flatnonzero(policy >= policy.max() - TIED) if stated else game.actions[t : t + 1]
    if not game.valid[t] or np.isin(best, preferred).any():
        return None
    last = int(game.actions[t - 1]) if t else None
    return Case(game.replies[t], game.protocol, int(best[0]), frozenset(preferred.tolist()), last)
