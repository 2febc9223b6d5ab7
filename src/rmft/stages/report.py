"""Stage `report`: the report, one page with every figure and table, and the trajectory viewer.

Reads texts, templates, figures, tables, metrics and trajectories. Writes two pages (html).
"""

from collections.abc import Sequence
from pathlib import Path

from rmft.artifacts.text import write_text
from rmft.report import page, viewer
from rmft.workflow.records_outputs import ReportJob


def run(job: ReportJob, inputs: Sequence[Path], output: Path, trajectories: Path) -> None:
    """Write both pages, after all inputs of both are read."""
    files = {path.as_posix(): path for path in inputs}
    pages = page(job, files), viewer(job, files)
    for path, text in zip((output, trajectories), pages, strict=True):
        write_text(path, text)
