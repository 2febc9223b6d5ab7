"""The card of a measurement: one HTML page, with its pictures inside, that can be sent to a colleague."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rmft.artifacts.number_text import number, signed
from rmft.artifacts.text import write_text
from rmft.figures.frames import CURVE, joined, mean_over_games, rows
from rmft.figures.style import Drawing, add_legend, draw_curves, finished, panels, set_theme, share_limits
from rmft.metrics.comparison import below_zero
from rmft.metrics.players import PlayerResults
from rmft.package_data import find_file
from rmft.params.outputs import Style
from rmft.report.evidence import Picture, picture
from rmft.selection import TrajectoryColumns
from rmft.suite.measuring import MODEL, Measurement, PlayedPart
from rmft.suite.parts import SUITE
from rmft.suite.results import EvalResult, Interval

CARD = "card.html"
COLOURS = {
    MODEL: "#D55E00",
    "uniform": "#7F7F7F",
    "ucb": "#0072B2",
    "greedy": "#009E73",
    "exp3": "#CC79A7",
    "rexp3": "#CC79A7",
    "hedge": "#0072B2",
}
NOTE = "Lines: means over the games; band: 95% interval of the model's mean."


def write_card(
    measurement: Measurement,
    result: EvalResult,
    played: Mapping[str, PlayedPart],
    comparison: Mapping[str, Interval],
    other: str | None,
) -> Path:
    """Write the card and return its path. comparison: see `compared`; other: the name of the other model."""
    path = measurement.folder / CARD
    values = {
        "result": result,
        "parts": {part: _part(measurement.model.name, part, of) for part, of in played.items()},
        "comparison": comparison,
        "other": other,
    }
    write_text(path, _environment().get_template("card.html.j2").render(**values))
    return path


def write_leaderboard(path: Path, results: Mapping[str, EvalResult], tables: Mapping[str, Any]) -> None:
    """Write the page that ranks several results."""
    write_text(path, _environment().get_template("leaderboard.html.j2").render(results=results, tables=tables))


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(find_file(SUITE.parent)),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": partial(number, decimals=2),
        "signed": partial(signed, decimals=2),
        "verdict": verdict,
    }
    return environment


def verdict(interval: Interval) -> str:
    """Return what the interval of a difference of regrets says: low, mean, high."""
    return {True: "less", False: "more", None: "not told apart"}[below_zero(interval)]


def _part(model: str, part: str, played: PlayedPart) -> dict[str, Any]:
    final = played.players[MODEL].by_instance[:, -1]
    order = final.argsort(kind="stable")
    picked = {"lowest": int(order[0]), "median": int(order[len(order) // 2]), "highest": int(order[-1])}
    return {
        "picture": _drawn(draw(model, part, played.players)),
        "games": list(_games(played.games, picked, played.players[MODEL])),
    }


def _games(columns: TrajectoryColumns, picked: Mapping[str, int], played: PlayerResults) -> Iterator[dict[str, Any]]:
    """Yield the games of picked instances, round by round. picked: instances by their place in the order of regret."""
    row_of = {scenario: i for i, scenario in enumerate(columns["scenario"])}
    for place, instance in picked.items():
        i = row_of[instance]
        shape = (played.regret.shape[2], columns["d"][i])
        rewards = np.array(columns["rewards"][i]).reshape(shape)
        actions = np.array(columns["action"][i])
        best = np.broadcast_to(played.best_actions[0, instance], actions.shape)
        yield {
            "place": place,
            "instance": instance,
            "regret": float(played.regret[0, instance, -1]),
            "prompt": columns["prompt"][i][0],
            "rounds": [
                {
                    "t": t + 1,
                    "action": int(actions[t]) + 1,
                    "paid": float(rewards[t, actions[t]]),
                    "best": int(best[t]) + 1,
                    "regret": float(played.regret[0, instance, t]),
                    "reply": columns["reply"][i][t],
                    "random": bool(columns["fallback"][i][t]),
                }
                for t in range(shape[0])
            ],
        }


def draw(model: str, part: str, players: Mapping[str, PlayerResults]) -> Drawing:
    """Draw the mean regret of all players by round, and how often each plays the best action."""
    style = Style(width_inches=6.5, font_points=8, dpi=150, colours=COLOURS, labels={MODEL: model.replace("$", r"\$")})
    rounds = np.arange(1, players[MODEL].regret.shape[2] + 1)
    regrets = [
        mean_over_games("regret", name, of.regret) if name == MODEL else rows("regret", name, CURVE, rounds, of.curve)
        for name, of in players.items()
    ]
    share = [
        rows("best action", name, CURVE, rounds, (of.actions == of.best_actions).mean(axis=(0, 1)))
        for name, of in players.items()
    ]
    set_theme(style)
    figure, (axes,) = panels(style, 1, 2, ratio=0.72)
    draw_curves(axes[0], joined(regrets), style)
    axes[0].set(xlabel="Round $t$", ylabel="Regret($t$)", title=f"{part}, {players[MODEL].regret.shape[1]} games")
    share_limits(axes[:1])
    draw_curves(axes[1], joined(share), style)
    axes[1].set(xlabel="Round $t$", ylabel="", ylim=(0, 1.02), title="Games that play the best action")
    add_legend(figure, style, NOTE)
    return finished(figure, joined([*regrets, *share]), style, None)


def _drawn(drawing: Drawing) -> Picture:
    with TemporaryDirectory() as folder:
        drawing.save(Path(folder, "part"))
        return picture(Path(folder, "part.png"))
