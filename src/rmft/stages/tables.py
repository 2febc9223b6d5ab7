"""Stage `tables`: make a table of the paper, beside the values that the paper reports.

Reads evaluations, the minimisers of Theorem 1 or sets of scenarios, and the paper's values. Writes csv, md and tex.
"""

from collections.abc import Sequence
from pathlib import Path

from rmft.tables import make
from rmft.workflow.records import TableJob


def run(job: TableJob, inputs: Sequence[Path], stem: Path) -> None:
    """Make the table."""
    make(job, inputs).save(stem)
