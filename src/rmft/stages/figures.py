"""Stage `figures`: draw a figure of the paper.

Reads evaluations, training logs, selections or examined replies. Writes the figure (pdf, png) and what it shows (csv).
"""

from collections.abc import Sequence
from pathlib import Path

from rmft.figures import draw
from rmft.workflow.records_outputs import FigureJob


def run(job: FigureJob, inputs: Sequence[Path], stem: Path) -> None:
    """Draw the figure."""
    draw(job, inputs).save(stem)
