"""Every reply of held-out games, with its claims, and whether the reply passes over the best action.

Symbols: n instances, T rounds, d actions. Actions are 0-based in files.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmft.language.parsing import parse
from rmft.language.protocol import Protocol, Round, Scenario
from rmft.reasoning.claims import claims_of
from rmft.reasoning.history import History
from rmft.reasoning.judges import Judge, PassingReply

Columns = dict[str, list[Any]]
TIED = 1e-9  # difference of means or probabilities that counts as none


@dataclass(frozen=True)
class ExaminedGame:
    """A game in words. replies, actions, valid: (T,). rewards, means, policies: (T, d)."""

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

    @property
    def states_policy(self) -> bool:
        """Return whether replies state a policy in place of an action."""
        return self.protocol.output == "distribution"


def games_of(
    protocol: Protocol,
    played: Sequence[tuple[str, int, Mapping[str, Sequence[Any]]]],
    scenarios: Sequence[Scenario] | None,
    means: str = "means",
) -> Iterator[ExaminedGame]:
    """Yield the games of players (name, training seed, trajectories), about scenarios (n,) or none.

    means: the column of the means that decide which action is best.
    """
    for player, seed, columns in played:
        for row, instance in enumerate(columns["scenario"]):
            rewards, mean_rewards, policies = (
                np.reshape(columns[name][row], (-1, protocol.d)) for name in ("rewards", means, "policy")
            )
            yield ExaminedGame(
                player=player,
                training_seed=seed,
                instance=instance,
                protocol=replace(protocol, scenario=scenarios[instance] if scenarios else None),
                replies=columns["reply"][row],
                rewards=rewards,
                means=mean_rewards,
                policies=policies,
                actions=np.array(columns["action"][row]),
                valid=~np.array(columns["fallback"][row]),
            )


def examine(games: Sequence[ExaminedGame], tolerance: float, judges: Mapping[str, Judge]) -> tuple[Columns, Columns]:
    """Return the columns of all replies, and those of all claims in them.

    tolerance: as in `parsing.parse`. judges: by column of the replies.
    """
    replies, claims, passing = defaultdict(list), defaultdict(list), []
    for game in games:
        for t, history in enumerate(_histories(game)):
            _examine_reply(game, t, history, tolerance, replies, claims)
            passing.append(_passing_reply(game, t))
    rows = [row for row, reply in enumerate(passing) if reply is not None]
    for name, judge in judges.items():
        verdicts = [False] * len(passing)  # a reply that is invalid or takes the best action does not pass it over
        for row, verdict in zip(rows, judge([passing[row] for row in rows]), strict=True):
            verdicts[row] = verdict
        replies[name] = verdicts
    replies["passes_over"] = [reply is not None for reply in passing]
    return dict(replies), dict(claims)


def _histories(game: ExaminedGame) -> Iterator[History]:
    """Yield the history before each of a player's replies."""
    history, d = History.begin(game.protocol.d), game.protocol.d
    for t, action in enumerate(game.actions.tolist()):
        yield history
        full = game.protocol.feedback == "full"
        shown = game.rewards[t] if full else np.where(np.arange(d) == action, game.rewards[t], np.nan)
        policy = tuple(game.policies[t].tolist()) if game.states_policy else None
        history = history.after(Round(t + 1, action, policy, tuple(shown.tolist())))


def _examine_reply(
    game: ExaminedGame, t: int, history: History, tolerance: float, replies: Columns, claims: Columns
) -> None:
    """Add the row of one reply and those of its claims."""
    text = game.replies[t]
    key = {"player": game.player, "training_seed": game.training_seed, "instance": game.instance, "t": t + 1}
    decision = parse(text, game.protocol, tolerance) if game.valid[t] else None
    claims_in_text = claims_of(text, game.protocol, history, decision, tolerance)
    averages = [history.averages(action) for action in range(game.protocol.d)]
    row = {
        **key,
        "reply": text,
        "claims": len(claims_in_text),
        "right": sum(claim.true for claim in claims_in_text),
        "valid": bool(game.valid[t]),
        "action": int(game.actions[t]),
        "reward": float(game.rewards[t, game.actions[t]]),
        "best_action": int(np.argmax(game.means[t])),
        "means": game.means[t].tolist(),
        "times": [history.times(action) for action in range(game.protocol.d)],
        "averages": [of[0] if of else float("nan") for of in averages],
    }
    _append(replies, row)
    for claim in claims_in_text:
        begin, end = claim.span
        about = {"kind": claim.kind, "begin": begin, "end": end, "text": text[begin:end], "right": claim.true}
        _append(claims, {**key, **about})


def _append(columns: Columns, row: Mapping[str, Any]) -> None:
    for name, value in row.items():
        columns[name].append(value)


def _passing_reply(game: ExaminedGame, t: int) -> PassingReply | None:
    """Return a reply for the judges; None if the reply prefers the best action or is invalid.

    The best action has the highest mean in the round. A stated policy prefers its actions of highest probability.
    """
    means, policy = game.means[t], game.policies[t]
    best = np.flatnonzero(means >= means.max() - TIED)
    preferred = np.flatnonzero(policy >= policy.max() - TIED) if game.states_policy else game.actions[t : t + 1]
    if not game.valid[t] or np.isin(best, preferred).any():
        return None
    last = int(game.actions[t - 1]) if t else None
    return PassingReply(game.replies[t], game.protocol, int(best[0]), frozenset(preferred.tolist()), last)
