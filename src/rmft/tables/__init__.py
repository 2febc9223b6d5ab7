"""One file a form of tables. A table is tidy in its CSV and has the paper's shape in Markdown and LaTeX."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rmft.tables.claims import claims_table
from rmft.tables.diversity import diversity_table
from rmft.tables.entropy import entropy_table
from rmft.tables.growth import growth_table
from rmft.tables.layout import RenderedTable
from rmft.tables.methods import methods_table
from rmft.tables.regret import regret_table
from rmft.tables.replicates import replicates_table
from rmft.tables.sensitivity import sensitivity_table
from rmft.tables.theorem import theorem_table
from rmft.workflow.records import TableJob

MADE: dict[str, Callable[[TableJob, Sequence[Path]], RenderedTable]] = {
    "growth": growth_table,
    "regret": regret_table,
    "theorem": theorem_table,
    "diversity": diversity_table,
    "sensitivity": sensitivity_table,
    "replicates": replicates_table,
    "entropy": entropy_table,
    "methods": methods_table,
    "claims": claims_table,
}


def make(job: TableJob, paths: Sequence[Path]) -> RenderedTable:
    """Make a table from the files at `paths`: the job's sources in order, then the paper's values if it prints any."""
    return MADE[job.table.form](job, paths)
