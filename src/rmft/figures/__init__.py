"""One file a family of figures. A figure reads result files, never models, and draws through `style.Drawing`."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rmft.errors import InputError
from rmft.figures.bandits import exploration_panels
from rmft.figures.parameters import parameter_evolution
from rmft.figures.regret import regret_and_distribution, regret_of_all_processes
from rmft.figures.style import Drawing
from rmft.jobs import FigureJob

DRAWN: dict[str, Callable[[FigureJob, Sequence[Path]], Drawing]] = {
    "parameter": parameter_evolution,
    "regret-dynamics-noisy": regret_and_distribution,
    "tfbandit": exploration_panels,
    "simplex-tf-all": regret_of_all_processes,
    "ball-tf-all": regret_of_all_processes,
    "tfgamma": exploration_panels,
}


def draw(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw a figure from the files at `paths`, in the order of the job's experiments and evaluations."""
    if job.label not in DRAWN:
        raise InputError(f"figures.drawn.{job.label}: unknown figure; one of {', '.join(DRAWN)}")
    return DRAWN[job.label](job, paths)
