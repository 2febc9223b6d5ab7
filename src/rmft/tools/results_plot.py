"""The plot of `rmft results`: final regrets after training, as shares of the base model's, one line an evaluation."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns

from rmft.errors import InputError
from rmft.figures.frames import joined, rows
from rmft.figures.style import Drawing, finished, label, palette, set_theme
from rmft.held_out_games import MODELS
from rmft.params.outputs import Style
from rmft.tools.results import BuiltEvaluation

LINE_INCHES, MARGIN_INCHES = 0.26, 1.1
FARTHEST = 2.5  # of the base model's regret: what lies beyond is not drawn
TRAINED = "trained"


def draw_results(evaluations: Sequence[BuiltEvaluation], style: Style, scale_note: str | None) -> Drawing:
    """Draw the trained model with its 95% interval, and the reference algorithms, beside the base model at 1.

    Evaluations in which the base model has no regret are left out, since nothing is a share of it.
    """
    lines = [one for one in evaluations if one.regrets["base"] > 0]
    if not lines:
        raise InputError(
            "--plot: the base model has no regret in any of these evaluations, so nothing is a share of it"
        )
    frame = _shares(lines)
    set_theme(style)
    figure, ax = plt.subplots(
        figsize=(style.width_inches, MARGIN_INCHES + LINE_INCHES * len(lines)), layout="constrained"
    )
    shown = frame[frame["x"].astype(float) <= FARTHEST].astype({"x": float})
    beyond = len(frame) - len(shown)
    players = [TRAINED, *sorted({player for player in shown["player"] if player != TRAINED})]
    colours = palette(style, players)
    names = {player: label(style, player) for player in players}
    sizes = {names[player]: 60 if player == TRAINED else 28 for player in players}
    drawn = shown.assign(player=shown["player"].map(names))
    sns.scatterplot(
        drawn, x="x", y="y", hue="player", size="player", style="player", hue_order=names.values(), sizes=sizes,
        style_order=names.values(), palette={names[player]: colours[player] for player in players}, ax=ax, zorder=3,
    )  # fmt: skip
    trained = shown[shown["player"] == TRAINED]
    ax.hlines(trained["y"], trained["low"].astype(float), trained["high"].astype(float), color=colours[TRAINED], lw=2)
    ax.axvline(1, color="#555555", lw=1, zorder=0)
    ax.set(
        xlabel="Final regret, as a share of the base model's (bar: 95% interval of the difference)" + _left_out(beyond),
        ylabel="",
        xlim=(_left_edge(shown, trained), _right_edge(shown, trained)),
    )
    ax.set_ylim(len(lines) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    sns.move_legend(ax, "upper left", bbox_to_anchor=(1, 1), title="")
    return finished(figure, frame, style, scale_note)


def _left_edge(shown: pd.DataFrame, trained: pd.DataFrame) -> float:
    """Return where the axis begins: at 0, or a little beyond the lowest share, which can be negative."""
    return 1.05 * min(0.0, shown["x"].min(), trained["low"].astype(float).min())


def _right_edge(shown: pd.DataFrame, trained: pd.DataFrame) -> float:
    """Return where the axis ends: a little beyond all that is drawn."""
    drawn = max(1.0, shown["x"].max(), trained["high"].astype(float).max())  # 1 is the base model
    return min(1.05 * drawn, FARTHEST)


def _shares(lines: Sequence[BuiltEvaluation]) -> pd.DataFrame:
    """Return the frame that is drawn: regrets of all players but the base model as shares of its own."""
    return joined(
        rows(
            name,
            player,
            "share of the base model's regret",
            [regret / one.regrets["base"]],
            [name],
            low=[1 + one.difference.low / one.regrets["base"] if player == TRAINED else None],
            high=[1 + one.difference.high / one.regrets["base"] if player == TRAINED else None],
        )
        for one in lines
        for name in [f"{one.experiment}, {one.evaluation}"]
        for player, regret in one.regrets.items()
        if player == TRAINED or player not in MODELS
    )


def _left_out(beyond: int) -> str:
    """Return how many players lie beyond the axis."""
    return f"\n{beyond} beyond {FARTHEST} left out" if beyond else ""
