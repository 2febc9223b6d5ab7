"""One file a family of figures. A figure reads result files, never models, and draws through `style.Drawing`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rmft.figures.bandits import exploration_panels, failure_panels, min_frac_panels
from rmft.figures.dialogue import example_of_a_game
from rmft.figures.fine_tuning import losses, luck_in_hindsight
from rmft.figures.parameters import parameter_evolution
from rmft.figures.policies import stated_probabilities
from rmft.figures.reasoning import avoidance, claims_side_by_side
from rmft.figures.regret import regret_and_distribution, regret_of_all_processes
from rmft.figures.style import Drawing
from rmft.params.outputs import Form
from rmft.workflow.records import FigureJob

DRAWN: dict[Form, Callable[[FigureJob, Sequence[Path]], Drawing]] = {
    "parameters": parameter_evolution,
    "regret": regret_of_all_processes,
    "regret-and-distribution": regret_and_distribution,
    "exploration": exploration_panels,
    "sufficient-failure": failure_panels,
    "min-frac": min_frac_panels,
    "policies": stated_probabilities,
    "losses": losses,
    "selection": luck_in_hindsight,
    "dialogue": example_of_a_game,
    "claims": claims_side_by_side,
    "avoidance": avoidance,
}


def draw(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw a figure in its form from the files at `paths`, which are in the order of `paths.inputs_of_figure`."""
    return DRAWN[job.figure.form](job, paths)
