"""A game as prompts and responses: Fig. `sdm-example`."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from rmft.artifacts.trajectories import read_selection, read_trajectories
from rmft.figures.frames import joined
from rmft.figures.page import PLAIN, Run, draw_page, height_of, rows_of, runs_of
from rmft.workflow.records_outputs import FigureJob

ROUNDS = 3  # shown of a game: the scenario, and how the response changes with feedback
COLUMNS, BOX, INDENT, MARGIN = 112, 98, 14, 1  # characters: of the page, of a box, left of a response, within a box
HEADING, BOLD = "heading", "bold"
LOOKS = {HEADING: {"weight": "bold", "color": "#666666"}, BOLD: {"weight": "bold"}}
MESSAGES = {  # who writes, by column of the trajectories: heading, place of the box, its colour
    "prompt": ("Prompt", 0, "#E8EEF4"),
    "reply": ("Response of the model", INDENT, "#FBEBDD"),
}


def example_of_a_game(job: FigureJob, paths: Sequence[Path]) -> tuple[Figure, pd.DataFrame]:
    """Draw the first rounds of the first selected trajectory of an experiment: prompts, and the model's responses."""
    rollouts, selection = paths
    trajectories, selected = read_trajectories(rollouts), read_selection(selection)["selected"]
    game = int(np.flatnonzero(selected)[0])
    frames, boxes, top = [], [], 0.0
    for t in range(min(ROUNDS, len(trajectories["reply"][game]))):
        for column, (heading, left, colour) in MESSAGES.items():
            text, looks = _bold_shown(trajectories[column][game][t])
            runs = runs_of(text, looks, BOX - 2 * MARGIN)
            height = height_of(runs) + 0.5
            boxes.append(Rectangle((left, top + 1.2), BOX, height, color=colour, linewidth=0))
            panel = f"round {t + 1}"
            heading = Run(left, top, f"{heading}, {panel}", HEADING)
            runs = [heading, *(run._replace(x=left + MARGIN + run.x, line=top + 1.4 + run.line) for run in runs)]
            frames.append(rows_of(panel, column, runs))
            top += height + 1.8
    frame = joined(frames)
    return draw_page(frame, boxes, LOOKS, job.style, COLUMNS), frame


def _bold_shown(text: str) -> tuple[str, list[str]]:
    """Return a text without Markdown's `**`, and how each of its characters is shown."""
    parts = re.split(r"\*\*(.+?)\*\*", text)
    looks = [look for i, part in enumerate(parts) for look in [BOLD if i % 2 else PLAIN] * len(part)]
    return "".join(parts), looks
