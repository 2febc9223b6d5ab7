"""One file a family of tables. A table is tidy in its CSV and has the paper's shape in Markdown and LaTeX."""

from collections.abc import Sequence
from pathlib import Path

from rmft.jobs import TableJob
from rmft.tables.layout import Table


def make(job: TableJob, paths: Sequence[Path]) -> Table:
    """Make a table from the files at `paths`: the job's sources in order, then the paper's values if it prints any."""
    if job.label == "theorem-1":
        from rmft.tables.theorem import theorem_table

        return theorem_table(job, paths)
    from rmft.tables.growth import growth_table

    return growth_table(job, paths)
