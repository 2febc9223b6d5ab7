"""The plot of `rmft simulate`: regret over time and, where there are actions, exploration."""

import numpy as np

from rmft.figures.style import Drawing
from rmft.params.outputs import Style
from rmft.tools.simulate import SimulatedGame, Summary

STYLE = Style(width_inches=6.5, font_points=8, dpi=150, colours={}, labels={})


def draw_summary(game: SimulatedGame, summary: Summary) -> Drawing:
    """Draw the mean regret with one standard deviation shaded, and the exploration metrics beside it."""
    explores = summary.min_frac is not None
    name, rounds = game.algorithm.algorithm, np.arange(1, game.horizon + 1)
    drawing = Drawing(STYLE, None, 1, 2 if explores else 1)
    drawing.colours = {name: "#0072B2", "d·MinFrac": "#009E73", "SuffFailFreq": "#D55E00"}
    regret = drawing.axes[0, 0]
    drawing.band(regret, "regret", name, rounds, summary.curve - summary.spread, summary.curve + summary.spread)
    drawing.line(regret, "regret", name, rounds, summary.curve)
    regret.set(xlabel="Round $t$", ylabel="Regret($t$)", title=f"{'+'.join(game.processes)}, {game.environment}")
    if explores:
        ax = drawing.axes[0, 1]
        drawing.line(ax, "exploration", "d·MinFrac", rounds, summary.min_frac)
        drawing.line(ax, "exploration", "SuffFailFreq", rounds, summary.suff_fail_freq)
        ax.set(xlabel="Round $t$", ylim=(0, 1.02), title="Exploration")
    drawing.legend()
    return drawing
