"""A game as it was told and answered: Fig. `sdm-example`."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from rmft.artifacts.trajectories import read_selection, read_trajectories
from rmft.figures.style import Drawing
from rmft.workflow.records import FigureJob

ROUNDS = 3  # shown of a game: the scenario, and how feedback changes what is said
CHARACTERS = 104  # in a line
BOX, INDENT, GAP = 0.86, 0.14, 0.9  # share of the width, of it to the right for replies; lines between boxes
COLOURS = {"told": "#E8EEF4", "said": "#FBEBDD"}
LINE_INCHES = 0.118


def example_of_a_game(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw the first rounds of the first selected trajectory of an experiment: what was told, and what was said."""
    rollouts, selection = paths
    played, found = read_trajectories(rollouts), read_selection(selection)
    game = int(np.flatnonzero(found["selected"])[0])
    turns = [
        (speaker, t + 1, _wrapped(played[column][game][t]))
        for t in range(min(ROUNDS, len(played["reply"][game])))
        for speaker, column in (("told", "prompt"), ("said", "reply"))
    ]
    lines = sum(len(text) + GAP + 1 for _, _, text in turns)
    drawing = Drawing(job.style, job.scale_note, 1, 1)
    drawing.figure.set_figheight(lines * LINE_INCHES + 0.3)
    ax = drawing.axes[0, 0]
    ax.set(xlim=(0, 1), ylim=(lines, 0))
    ax.set_axis_off()
    top = 0.0
    for speaker, t, text in turns:
        _draw(drawing, ax, speaker, t, text, top)
        top += len(text) + GAP + 1
    return drawing


def _wrapped(text: str) -> list[str]:
    return [line for part in text.split("\n") for line in textwrap.wrap(part, CHARACTERS) or [""]]


def _draw(drawing: Drawing, ax: Axes, speaker: str, t: int, text: list[str], top: float) -> None:
    left = INDENT if speaker == "said" else 0.0
    look = {"boxstyle": "round,pad=0,rounding_size=0.01", "facecolor": COLOURS[speaker], "linewidth": 0}
    ax.add_patch(FancyBboxPatch((left, top), BOX, len(text) + 1, mutation_aspect=len(text), **look))
    size = drawing.style.font_points - 1
    ax.text(left + 0.012, top + 0.5, "\n".join(text), va="top", fontsize=size, linespacing=1.15, parse_math=False)
    drawing.said(f"round {t}", speaker, text)
