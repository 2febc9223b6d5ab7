"""One file a family of tables. A table is tidy in its CSV and has the paper's shape in Markdown and LaTeX."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rmft.errors import InputError
from rmft.jobs import TableJob
from rmft.tables.growth import growth_table
from rmft.tables.layout import Table
from rmft.tables.theorem import theorem_table

MADE: dict[str, Callable[[TableJob, Sequence[Path]], Table]] = {
    "simplex-table": growth_table,
    "l2ball-table": growth_table,
    "theorem-1": theorem_table,
}


def make(job: TableJob, paths: Sequence[Path]) -> Table:
    """Make a table from the files at `paths`: the job's sources in order, then the paper's values if it prints any."""
    if job.label not in MADE:
        raise InputError(f"tables.{job.label}: unknown table; one of {', '.join(MADE)}")
    return MADE[job.label](job, paths)
