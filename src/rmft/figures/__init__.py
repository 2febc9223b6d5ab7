"""One file a family of figures. A figure reads result files, never models, and draws a tidy frame with seaborn."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from rmft.figures.avoidance import avoidance
from rmft.figures.claims import claims_side_by_side
from rmft.figures.dialogue import example_of_a_game
from rmft.figures.fine_tuning import losses, luck_in_hindsight
from rmft.figures.games import QUANTITIES, games
from rmft.figures.parameters import parameter_evolution
from rmft.figures.policies import stated_probabilities
from rmft.figures.style import Drawing, finished, set_theme
from rmft.workflow.records_outputs import FigureJob

DRAWN: dict[str, Callable[[FigureJob, Sequence[Path]], tuple[Figure, pd.DataFrame]]] = {
    "parameters": parameter_evolution,
    **dict.fromkeys(QUANTITIES, games),
    "policies": stated_probabilities,
    "losses": losses,
    "selection": luck_in_hindsight,
    "dialogue": example_of_a_game,
    "claims": claims_side_by_side,
    "avoidance": avoidance,
}


def draw(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw a figure in its form from the files at `paths`, which are in the order of the form's `inputs`."""
    set_theme(job.style)
    return finished(*DRAWN[job.figure.form](job, paths), job.style, job.scale_note)
