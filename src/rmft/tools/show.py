"""`rmft show`: games in words, round by round: prompt, reply, action, rewards and regret.

Functions return rich renderables. Every label is a word, so that nothing is lost without colour.

Symbols: N games, T rounds, d actions. Scenarios and trajectories are numbered as in files, actions as in prompts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rmft.artifacts.here import from_here
from rmft.environments.regret import EVALUATED, Notion
from rmft.errors import InputError
from rmft.params import Params
from rmft.params.files import experiment_in
from rmft.selection import Scoring, TrajectoryColumns, invalid_replies, regret_curves, table_of

ENDS = 3  # rounds shown at the beginning and at the end of a long game
LINES = 16  # shown of one message, unless its round is asked for
NAMED = 8  # of the rounds left out, how many with invalid replies are named
# A reply may hold characters that move the cursor or colour the screen: show symbols in place of them.
CONTROLS = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    **dict.fromkeys(range(0x7F, 0xA0), "\N{REPLACEMENT CHARACTER}"),
}


@dataclass(frozen=True)
class GameFilter:
    """Which games to show: of one scenario or trajectory or of all, the worst or best so many, or all in order.

    rounds: the first and the last round to show, from 1; None for both ends of the game.
    """

    worst: int | None = None
    best: int | None = None
    scenario: int | None = None
    trajectory: int | None = None
    rounds: tuple[int, int] | None = None


def scoring_of(path: Path, params: Params) -> Scoring:
    """Return how regret is counted in the experiment whose games are in results/experiments/<experiment>/….

    Rollouts are ranked as selection ranks them, games of an evaluation as it scores them. Raise InputError for files
    of no experiment.
    """
    named = from_here(path)
    experiment = params.experiments.get(experiment_in(named))
    if experiment is None or experiment.kind == "numeric":
        raise InputError(f"{path}: of no experiment of params.yaml, so say which --environment was played")
    notion = EVALUATED if named.parts[3:4] == ("evaluation",) else experiment.training_regret
    return Scoring(experiment.environment, notion, params.evaluation.mean)


def rounds_named(text: str) -> tuple[int, int]:
    """Return the first and the last round of `A-B` or `A`. Raise InputError for any other text."""
    match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise InputError(f"--rounds: {text!r} is no range of rounds; 4-9 is one, or 4")
    return first, last


def dialogues(played: TrajectoryColumns, scoring: Scoring, games: GameFilter) -> Iterator[RenderableType]:
    """Yield a line about all games, and then the chosen games. Raise InputError if there are none."""
    table = table_of(played)
    shown = dict.fromkeys((scoring.notion, "pseudo"))  # first the one that ranks
    curves = {notion: regret_curves(played, table, replace(scoring, notion=notion)) for notion in shown}
    final = curves[scoring.notion][:, -1]
    rows = chosen(played, final, games)
    yield _overview(played, scoring, final)
    for row in rows:
        game = {name: column[row] for name, column in played.items()}
        yield from dialogue(game, {notion: curve[row] for notion, curve in curves.items()}, games.rounds)


def chosen(played: TrajectoryColumns, final: np.ndarray, games: GameFilter) -> list[int]:
    """Return the rows of the chosen games, ranked by their final regrets (N,)."""
    rows = np.arange(len(final))
    for name, number in (("scenario", games.scenario), ("trajectory", games.trajectory)):
        if number is not None:
            numbers = np.array(played[name])[rows]
            rows = rows[numbers == number]
            if not len(rows):
                raise InputError(f"--{name}: no {number} here; there are {numbers.min()} to {numbers.max()}")
    if games.worst is not None:
        rows = rows[np.argsort(-final[rows], kind="stable")][: games.worst]
    elif games.best is not None:
        rows = rows[np.argsort(final[rows], kind="stable")][: games.best]
    return rows.tolist()


def dialogue(
    game: dict[str, Any], curves: dict[Notion, np.ndarray], rounds: tuple[int, int] | None
) -> Iterator[RenderableType]:
    """Yield a game's panel and its rounds. curves: Regret(t) (T,) by notion."""
    yield _panel(game, curves)
    last = rounds[0] - 1 if rounds else 0
    for t in _shown(len(game["action"]), rounds):
        if t > last + 1:
            yield _gap(game, last + 1, t - 1)
        yield Rule(Text(f"round {t}", "bold"), align="left", style="dim")
        yield _round(game, curves, t - 1, whole=rounds is not None)
        last = t


def _shown(horizon: int, rounds: tuple[int, int] | None) -> list[int]:
    """Return the rounds t, from 1, to show; a gap of one round would not save a line."""
    if rounds is None:
        short = horizon <= 2 * ENDS + 1
        return [t for t in range(1, horizon + 1) if short or t <= ENDS or t > horizon - ENDS]
    if rounds[0] > horizon:
        raise InputError(f"--rounds: the games have {horizon}")
    return list(range(rounds[0], min(rounds[1], horizon) + 1))


def _overview(played: TrajectoryColumns, scoring: Scoring, final: np.ndarray) -> Text:
    shape = f"T = {len(played['action'][0])}, d = {played['d'][0]}"
    spread = f"{final.mean():.2f} on average, {final.min():.2f} to {final.max():.2f}"
    invalid = _many(invalid_replies(played).sum(), "invalid reply", "invalid replies")
    return Text(
        f"{_many(len(final), 'game')}, {shape}, {scoring.environment}: {scoring.notion} regret {spread}; {invalid}"
    )


def _panel(game: dict[str, Any], curves: dict[Notion, np.ndarray]) -> Panel:
    """Return the summary of a game."""
    horizon, uniform = len(game["action"]), sum(game["fallback"])
    invalid = _many(sum(game["attempts"]) - horizon + uniform, "invalid reply", "invalid replies")
    counts = np.bincount(game["action"], minlength=game["d"])
    lines = [
        f"regret {_regrets(curves, -1)}, after {_many(horizon, 'round')}",
        "actions " + ", ".join(f"{a + 1}: {count}×" for a, count in enumerate(counts)),
        f"{invalid}, {_many(uniform, 'round')} played uniformly",
    ]
    title = f"scenario {game['scenario']}, trajectory {game['trajectory']}"
    return Panel(Text("\n".join(lines)), title=Text(title, "bold"), title_align="left")


def _gap(game: dict[str, Any], first: int, last: int) -> Text:
    """Return the line that stands for rounds left out."""
    retried = np.array(game["attempts"])[first - 1 : last] > 1
    invalid = np.flatnonzero(retried | np.array(game["fallback"])[first - 1 : last]) + first
    named = ", ".join(map(str, invalid[:NAMED])) + (", …" if len(invalid) > NAMED else "")
    where = f", invalid replies in {named}" if named else ""
    return Text(f"\n… rounds {first} to {last}{where}: --rounds {first}-{last} …\n", "dim", justify="center")


def _round(game: dict[str, Any], curves: dict[Notion, np.ndarray], t: int, *, whole: bool) -> Table:
    """Return one round t = 0..T-1, label by label. whole: do not shorten messages."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    table.add_row("prompt", Text(_message(game["prompt"][t], whole=whole), "dim"))
    table.add_row("reply", Text(_message(game["reply"][t], whole=whole)))
    attempts = game["attempts"][t]
    if game["fallback"][t]:
        table.add_row("invalid", Text(f"{attempts} of {attempts} replies, so the action was drawn uniformly", "red"))
    elif attempts > 1:
        table.add_row("invalid", Text(f"{attempts - 1} of {attempts} replies; the last one counts", "yellow"))
    table.add_row("action", Text(_decision(game, t), "green"))
    table.add_row("regret", Text(f"{_regrets(curves, t)}, so far"))
    return table


def _message(text: str, *, whole: bool) -> str:
    """Return a text without control characters and, unless it is to be whole, without the middle of its lines."""
    lines = text.translate(CONTROLS).split("\n")
    if not whole and len(lines) > LINES:
        left_out = f"… {len(lines) - LINES + 1} lines …"
        lines = [*lines[: LINES // 2], left_out, *lines[LINES // 2 + 1 - LINES :]]
    return "\n".join(lines)


def _decision(game: dict[str, Any], t: int) -> str:
    """Return the action and its reward, the rewards of the others, and the policy unless it is the action."""
    d, action = game["d"], game["action"][t]
    rewards, policy = (game[name][t * d : (t + 1) * d] for name in ("rewards", "policy"))
    others = ", ".join(f"{a + 1}: {rewards[a]:.2f}" for a in range(d) if a != action)
    stated = "" if policy[action] == 1 else f", policy [{', '.join(f'{share:.2f}' for share in policy)}]"
    return f"{action + 1} paid {rewards[action]:.2f} ({others}){stated}"


def _regrets(curves: dict[Notion, np.ndarray], t: int) -> str:
    return ", ".join(f"{curve[t]:.2f} {notion}" for notion, curve in curves.items())


def _many(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
