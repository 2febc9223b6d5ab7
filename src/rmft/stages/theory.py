"""Stage `theory`: check Theorem 1 by training linear attention on the best policy in hindsight.

Reads nothing. Writes the minimiser of every number of actions, horizon and radius (csv).
"""

from pathlib import Path

from rmft.artifacts.csv_files import write_rows
from rmft.progress import progress
from rmft.training.numeric import one_thread
from rmft.training.theory import closed_form, minimise, moments
from rmft.workflow.records import TheoryJob


def run(job: TheoryJob, output: Path) -> None:
    """Train to convergence for every d, T and radius, and compare with the closed form."""
    grid, rows = job.theory, []
    one_thread()
    with progress("theory", len(grid.d) * len(grid.T) * len(grid.radius), "fits") as advance:
        for d in grid.d:
            for horizon in grid.T:
                sample = moments(job.seed, d, horizon, grid.samples)
                for radius in grid.radius:
                    minimiser = minimise(job.seed, sample, d, horizon, radius)
                    c = closed_form(d, horizon, radius)
                    rows.append({"d": d, "T": horizon, "radius": radius, "c_closed_form": c, **vars(minimiser)})
                    advance()
    write_rows(output, rows)
