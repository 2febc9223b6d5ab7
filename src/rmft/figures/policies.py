"""Which probabilities policies state: Fig. `open-FOL-indist-appendix-dist` and `-dist2`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from rmft.figures.frames import joined, printed, rows
from rmft.figures.games import read_shown
from rmft.figures.style import label, palette
from rmft.metrics.exploration import relative_entropy
from rmft.workflow.records_outputs import FigureJob

RATIO = 0.62  # height of a panel over its width
EDGES = np.arange(-0.025, 1.05, 0.05)  # around the multiples of 0.05, which models like to state
PROBABILITY, ENTROPY = "probability", "mean entropy over log d"


def stated_probabilities(job: FigureJob, paths: Sequence[Path]) -> tuple[Figure, pd.DataFrame]:
    """Draw a histogram of all probabilities in all rounds and games: a row a player, a column an evaluation."""
    frame = joined(
        part
        for shown in read_shown(job, paths)
        for name, played in shown.players.items()
        for part in (
            rows(shown.title, name, PROBABILITY, played.policies.ravel()),
            printed(shown.title, name, ENTROPY, float(relative_entropy(played.policies).mean())).assign(x=1 / played.d),
        )
    )
    colours = palette(job.style, job.figure.players)
    width = job.style.width_inches / len(job.figure.evaluations)
    look = {"height": width * RATIO, "aspect": 1 / RATIO, "row": "player", "col": "panel", "hue": "player"}
    grid = sns.FacetGrid(frame[frame["series"] == PROBABILITY].astype({"x": float}), palette=colours, **look)
    grid.map_dataframe(sns.histplot, x="x", stat="probability", bins=EDGES.tolist(), linewidth=0)
    entropies = frame[frame["series"] != PROBABILITY].set_index(["player", "panel"])
    for (player, panel), ax in grid.axes_dict.items():
        uniform, entropy = entropies.loc[(player, panel), ["x", "y"]]
        ax.axvline(uniform, color="#000000", linewidth=0.8, linestyle=":")
        title = f"{panel}\n" if player == job.figure.players[0] else ""
        ax.set_title(f"{title}mean entropy {entropy:.2f} log $d$", fontsize="small")
        ax.set(ylabel=f"{label(job.style, player)}\nShare of values", xlabel="Probability (dotted: $1/d$)")
        ax.label_outer()
    grid.figure.set_layout_engine("constrained")
    return grid.figure, frame
