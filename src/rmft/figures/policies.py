"""Which probabilities policies state: Fig. `open-FOL-indist-appendix-dist` and `-dist2`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from rmft.figures.regret import read_shown, title
from rmft.figures.style import Drawing
from rmft.metrics.entropy import relative_entropy
from rmft.metrics.players import PlayerResults
from rmft.workflow.records import FigureJob

EDGES = np.arange(-0.025, 1.05, 0.05)  # around the multiples of 0.05, of which words are fond


def stated_probabilities(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw a histogram of all probabilities in all rounds and games: a row a player, a column an evaluation."""
    figure = job.figure
    drawing = Drawing(job.style, job.scale_note, len(figure.players), len(figure.evaluations))
    for column, (evaluation, shown, _) in enumerate(read_shown(job, paths)):
        for ax, (name, played) in zip(drawing.axes[:, column], shown.items(), strict=True):
            _draw_probabilities(drawing, ax, f"{evaluation}: {name}", name, played)
        top = drawing.axes[0, column]
        top.set_title(f"{title(evaluation)}\n{top.get_title()}")
    for ax, name in zip(drawing.axes[:, 0], figure.players, strict=True):
        ax.set_ylabel(f"{drawing.label(name)}\nShare of values")
    for ax in drawing.axes[-1]:
        ax.set_xlabel("Probability (line: $1/d$)")
    return drawing


def _draw_probabilities(drawing: Drawing, ax: Axes, panel: str, name: str, played: PlayerResults) -> None:
    drawing.histogram(ax, panel, name, "histogram", played.policies.ravel(), EDGES)
    entropy = float(relative_entropy(played.policies).mean())
    drawing.printed(panel, name, "mean entropy over log d", entropy)
    drawing.mark(ax, panel, "1/d", "uniform policy", 1 / played.d, 0, ax.get_ylim()[1])
    ax.set(xlim=(-0.03, 1.03), ylim=(0, None), title=f"mean entropy {entropy:.2f} log $d$")
