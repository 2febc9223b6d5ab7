"""Every reply of held-out games, with its claims, and whether the reply passes over the best action.

Symbols: n instances, T rounds, d actions. Actions are 0-based in files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rmft.language.parsing import parse
from rmft.language.protocol import Protocol, Round, Scenario
from rmft.reasoning.claims import claims_of
from rmft.reasoning.history import History
from rmft.reasoning.judges import Judge, PassingReply

Row = dict[str, Any]
Rows = list[Row]
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


def examine(games: Sequence[ExaminedGame], tolerance: float, judges: Mapping[str, Judge]) -> tuple[Rows, Rows]:
    """Return the rows of all replies, and those of all claims in them.

    tolerance: as in `parsing.parse`. judges: by column of the replies.
    """
    replies, claims, passing = [], [], []
    for game in games:
        rounds = _rounds_shown(game)
        for t in range(len(rounds)):
            reply, of_reply = _examined(game, t, History(game.protocol.d, rounds[:t]), tolerance)
            replies.append(reply)
            claims += of_reply
            passing.append(_passing_reply(game, t))
    for row, reply in zip(replies, passing, strict=True):
        # A reply that is invalid or takes the best action does not pass it over.
        row |= {"passes_over": reply is not None, **dict.fromkeys(judges, False)}
    to_judge = [row for row in replies if row["passes_over"]]
    for name, judge in judges.items():
        for row, verdict in zip(to_judge, judge(list(filter(None, passing))), strict=True):
            row[name] = verdict
    return replies, claims


def _rounds_shown(game: ExaminedGame) -> list[Round]:
    """Return the rounds of a game as its player saw them."""
    played = np.arange(game.protocol.d) == game.actions[:, None]
    shown = game.rewards if game.protocol.feedback == "full" else np.where(played, game.rewards, np.nan)
    policies = game.policies.tolist() if game.states_policy else [None] * len(shown)
    rounds = zip(game.actions.tolist(), policies, shown.tolist(), strict=True)
    return [
        Round(t, action, policy and tuple(policy), tuple(rewards))
        for t, (action, policy, rewards) in enumerate(rounds, start=1)
    ]


def _examined(game: ExaminedGame, t: int, history: History, tolerance: float) -> tuple[Row, Rows]:
    """Return the row of one reply and those of its claims."""
    text, d = game.replies[t], game.protocol.d
    key = {"player": game.player, "training_seed": game.training_seed, "instance": game.instance, "t": t + 1}
    decision = parse(text, game.protocol, tolerance) if game.valid[t] else None
    claims = claims_of(text, game.protocol, history, decision, tolerance)
    row = {
        **key,
        "reply": text,
        "claims": len(claims),
        "right": sum(claim.true for claim in claims),
        "valid": bool(game.valid[t]),
        "action": int(game.actions[t]),
        "reward": float(game.rewards[t, game.actions[t]]),
        "best_action": int(np.argmax(game.means[t])),
        "means": game.means[t].tolist(),
        "times": [history.times(action) for action in range(d)],
        "averages": [next(iter(history.averages(action)), float("nan")) for action in range(d)],
    }
    rows = []
    for claim in claims:
        begin, end = claim.span
        about = {"kind": claim.kind, "begin": begin, "end": end, "text": text[begin:end], "right": claim.true}
        rows.append(key | about)
    return row, rows


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
