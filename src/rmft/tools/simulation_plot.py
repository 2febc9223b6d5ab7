"""The plot of `rmft simulate`: regret over time and, where there are actions, exploration."""

import numpy as np

from rmft.figures.frames import CURVE, joined, rows
from rmft.figures.games import NOTE
from rmft.figures.style import Drawing, add_legend, draw_curves, finished, panels, set_theme, share_limits
from rmft.metrics.comparison import t_quantile
from rmft.params.outputs import Style
from rmft.tools.simulate import SimulatedGame, Summary

MIN_FRAC, FAILURES = "min-frac", "suff-fail-freq"
COLOURS = {MIN_FRAC: "#009E73", FAILURES: "#D55E00"}
LABELS = {MIN_FRAC: "d·MinFrac", FAILURES: "SuffFailFreq"}
STYLE = Style(width_inches=6.5, font_points=8, dpi=150, colours=COLOURS, labels=LABELS)


def draw_summary(game: SimulatedGame, summary: Summary) -> Drawing:
    """Draw the mean regret with its 95% interval, and the exploration metrics beside it."""
    explores = summary.min_frac is not None
    name, rounds = game.algorithm.algorithm, np.arange(1, game.horizon + 1)
    n = len(summary.final)
    margin = t_quantile(n) * summary.spread / np.sqrt(max(n - 1, 1))  # spread: divided by n, and not by n - 1
    curve = rows("regret", name, CURVE, rounds, summary.curve, low=summary.curve - margin, high=summary.curve + margin)
    shares = {MIN_FRAC: summary.min_frac, FAILURES: summary.suff_fail_freq} if explores else {}
    exploration = [rows("exploration", what, CURVE, rounds, share) for what, share in shares.items()]
    set_theme(STYLE)
    figure, (axes,) = panels(STYLE, 1, 2 if explores else 1, ratio=0.72 if explores else 0.5)
    draw_curves(axes[0], joined([curve]), STYLE)
    title = f"{' + '.join(game.processes)}, {game.environment}, {len(summary.final):,} games"
    axes[0].set(xlabel="Round $t$", ylabel="Regret($t$)", title=title)
    share_limits(axes[:1])
    if explores:
        draw_curves(axes[1], joined(exploration), STYLE)
        axes[1].set(xlabel="Round $t$", ylabel="", ylim=(0, 1.02), title="Exploration")
    add_legend(figure, STYLE, NOTE)
    return finished(figure, joined([curve, *exploration]), STYLE, None)
