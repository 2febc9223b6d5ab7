"""`rmft compare`: two games of one held-out instance side by side, round by round.

Symbols: n instances, T rounds, d actions. Instances are numbered as in files, actions as in prompts.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rmft.artifacts.evaluations import read_evaluation
from rmft.artifacts.trajectories import read_trajectories
from rmft.environments import RewardTable
from rmft.errors import InputError, unknown
from rmft.held_out_games import PlayedGame, differs_most, game_of, rows_by_player
from rmft.params import Params
from rmft.params.files import evaluation_of
from rmft.tools.show import CONTROLS
from rmft.tools.terminal import empty_table
from rmft.workflow.current import rewards_of
from rmft.workflow.paths import held_out_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

BARE = re.compile(r"\W*(?:action|policy)?[\s\d.,:;*\[\]()]*", re.IGNORECASE)  # a reply that is its decision alone


@dataclass(frozen=True)
class Comparison:
    """Two games of an instance.

    n: the number of instances. rewards: (T, d), or None where they depend on the player. others: the names of the
    players that are not compared.
    """

    experiment: str
    evaluation: str
    instance: int
    n: int
    rewards: np.ndarray | None
    games: tuple[PlayedGame, PlayedGame]
    others: Sequence[str]


def comparison(
    params: Params,
    experiment: str,
    evaluation: str | None,
    players: tuple[str, str],
    instance: int | None,
    *,
    replies: bool,
) -> Comparison:
    """Return two players' games of an instance; without a number, of the instance whose final regrets differ most.

    evaluation: None for the first one that is built. replies: whether to read them. Raise InputError for wrong names,
    and where the games are not built or have no actions.
    """
    evaluation = built_evaluation("compare", params, experiment, evaluation)
    columns = read_evaluation(Path(evaluation_of(experiment, evaluation)))
    if columns["action"] is None:
        raise InputError(f"compare: {experiment} is played on the ball, where there are no actions to compare")
    rows = rows_by_player(columns)
    first, second = (rows[_known(player, rows)] for player in players)
    n = len(first)
    if instance is None:
        instance = differs_most(columns, first, second)
    elif instance not in range(n):
        raise InputError(f"--instance: {instance} must be 0 to {n - 1}")
    games = tuple(
        game_of(
            columns,
            player,
            of[instance],
            _replies(params, experiment, evaluation, player, instance) if replies else None,
        )
        for player, of in zip(players, (first, second), strict=True)
    )
    held_out = rewards_of("compare", params, experiment, evaluation)
    rewards = held_out.rewards[instance, : len(games[0].actions)] if isinstance(held_out, RewardTable) else None
    others = [player for player in rows if player not in players]
    return Comparison(experiment, evaluation, instance, n, rewards, games, others)


def built_evaluation(command: str, params: Params, experiment: str, name: str | None) -> str:
    """Return the evaluation of this name, or the first one that is built. Raise InputError where there is none."""
    if experiment not in params.experiments:
        raise InputError(f"{command}: {unknown(experiment, params.experiments)}")
    evaluations = params.experiments[experiment].evaluations
    if name is not None and name not in evaluations:
        raise InputError(f"{command}: evaluation: {unknown(name, evaluations)}")
    wanted = evaluations if name is None else [name]
    for one in wanted:
        if Path(evaluation_of(experiment, one)).exists():
            return one
    target = f"exp_{experiment}" if name is None else evaluation_of(experiment, name)
    what = "no evaluation" if name is None else f"the evaluation {name}"
    raise InputError(
        f"{command}: {what} of {experiment} is {'' if name is None else 'not '}built; `snakemake {target}`"
    )


def _known(player: str, players: dict[str, np.ndarray]) -> str:
    if player not in players:
        raise InputError(f"--players: {unknown(player, players)}")
    return player


def _replies(params: Params, experiment: str, evaluation: str, player: str, instance: int) -> Sequence[str] | None:
    """Return the replies of a model's game; None for a reference algorithm."""
    if not params.experiments[experiment].in_words:
        raise InputError(f"--replies: {experiment} is not played in words, so that there are none")
    paths = {Path(path).stem: Path(path) for path in held_out_of(params, experiment, evaluation).values()}
    if player not in paths:
        return None
    played = read_trajectories(paths[player], tokens=False)
    return played["reply"][played["scenario"].index(instance)]


# --- As text ---


def as_text(found: Comparison, *, chosen: bool) -> "Iterator[RenderableType]":
    """Yield the rounds, what came of them, and what else can be compared. chosen: whether rmft chose the instance."""
    from rich.text import Text

    first, second = found.games
    differ = chosen and found.n > 1 and first.regret[-1] != second.regret[-1]
    why = ", the one whose final regrets differ most" if differ else ""
    yield Text(f"{found.experiment} on {found.evaluation}, instance {found.instance} of {found.n}{why}\n", "bold")
    yield _rounds(found)
    yield Text(f"\n{_legend(found)}\n", "dim")
    yield _outcome(found)
    yield Text(_where_they_differ(found))
    if found.others:
        yield Text(f"\nAlso there, for --players: {', '.join(found.others)}", "dim")


def _rounds(found: Comparison) -> "Table":
    """Return the table of the rounds, with replies below the actions where there are any."""
    with_replies = any(game.replies is not None for game in found.games)
    names = ("action", "regret") if found.rewards is None else ("action", "paid", "regret")
    table = empty_table("")
    table.add_column("\nround", justify="right")
    for game in found.games:
        table.add_column("")  # space between the players
        if with_replies:
            table.add_column(f"{game.player}\n{', '.join(names)}", overflow="fold", ratio=1)
        for i, name in enumerate(() if with_replies else names):
            table.add_column(f"{'' if i else game.player}\n{name}", justify="right" if i else "left", no_wrap=True)
    for name in () if found.rewards is None else ("", "best", "pays"):
        table.add_column(f"\n{name}", justify="right", no_wrap=True)
    for t, best in enumerate(found.games[0].best):
        cells = [cell for game in found.games for cell in ("", *_cells(found, game, t, with_replies=with_replies))]
        of_best = [] if found.rewards is None else ["", str(best + 1), *_paid(found, t, best)]
        table.add_row(str(t + 1), *cells, *of_best)
    return table


def _cells(found: Comparison, game: PlayedGame, t: int, *, with_replies: bool) -> "list[Text]":
    """Return a player's action, with the probability that its policy gave it, what it paid, and regret.

    with_replies: as one cell, with the reply.
    """
    from rich.text import Text

    action = game.actions[t]
    share = 1.0 if game.policies is None else game.policies[t, action]
    decision = Text(f"{action + 1}", "green" if action == game.best[t] else "")
    decision.append("" if share == 1 else f" ({share:.2f})")
    cells = [decision, *map(Text, [*_paid(found, t, action), f"{game.regret[t]:.2f}"])]
    if not with_replies:
        return cells
    reply = "" if game.replies is None else game.replies[t].strip().translate(CONTROLS)
    cell = Text("  ").join(cells)
    return [cell if BARE.fullmatch(reply) else cell.append(f"\n{reply}", "dim")]


def _paid(found: Comparison, t: int, action: int) -> list[str]:
    return [] if found.rewards is None else [f"{found.rewards[t, action]:.2f}"]


def _legend(found: Comparison) -> str:
    """Return what the columns hold."""
    mixed = any(not game.decided for game in found.games)
    parts = [
        "action: with the probability that the policy gave it." if mixed else "",
        "paid, pays: the reward of the action and of the best one." if found.rewards is not None else "",
        "regret: expected, up to the round.",
        "best: the action that regret compares with; green where it was played.",
        "Words: docs/glossary.md.",
    ]
    return " ".join(part for part in parts if part)


def _outcome(found: Comparison) -> "Table":
    """Return what came of each game, one row a player."""
    played = 1 + max(int(game.actions.max()) for game in found.games)
    d = played if found.rewards is None else found.rewards.shape[1]
    in_words = any(game.policies is not None for game in found.games)
    table = empty_table("")
    for header in ("", "final regret", "earned", "best played", "actions played", *(["invalid"] if in_words else [])):
        table.add_column(header, justify="right" if header else "left")
    for game in found.games:
        total = "" if found.rewards is None else f"{_earned(found.rewards, game.actions):.2f}"
        best = f"{(game.actions == game.best).sum()}×"
        counts = ", ".join(f"{a + 1}: {count}×" for a, count in enumerate(np.bincount(game.actions, minlength=d)))
        invalid = [str(game.invalid)] if in_words else []
        table.add_row(game.player, f"{game.regret[-1]:.2f}", total, best, counts, *invalid)
    return table


def _earned(rewards: np.ndarray, actions: np.ndarray) -> float:
    """Return what actions (T,) earned. rewards: (T, d)."""
    return float(rewards[np.arange(len(actions)), actions].sum())


def _where_they_differ(found: Comparison) -> str:
    first, second = found.games
    differ = np.flatnonzero(first.actions != second.actions) + 1
    if not len(differ):
        return "Both played the same action in every round."
    return f"They played different actions in {len(differ)} of {len(first.actions)} rounds, first in round {differ[0]}."
