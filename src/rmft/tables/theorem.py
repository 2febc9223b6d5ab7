"""Table `theorem-1`: the minimiser found by training beside the closed form of App. `appendix:thm1pf`."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rmft.artifacts import read_csv
from rmft.jobs import TableJob
from rmft.tables.layout import NOT_REPRODUCED, REPRODUCED, VALUES, Table

TOLERANCE = 0.01  # of c
KEYS = ["d", "T", "radius"]


def theorem_table(job: TableJob, paths: Sequence[Path]) -> Table:
    """Set the fitted c, what is off the diagonal, and ‖A‖‖b‖ beside c I, 0 and 0."""
    (path,) = paths
    fits = read_csv(path)
    tidy = [(*(fit[key] for key in KEYS), *value) for _, fit in fits.iterrows() for value in _values(fit)]
    shaped = pd.DataFrame(
        {
            "d": fits["d"].astype(str),
            "T": fits["T"].astype(str),
            "R_Pi": fits["radius"].map("{:g}".format),
            "c, closed form": fits["c_closed_form"].map("{:.5f}".format),
            "c, trained": [f"{c:.5f} ± {e:.5f}" for c, e in zip(fits["c"], fits["standard_error"], strict=True)],
            "difference": (fits["c"] / fits["c_closed_form"] - 1).map("{:+.2%}".format),
            "off diagonal": fits["off_diagonal"].map("{:.1e}".format),
            "|A||b|": fits["A_b"].map("{:.1e}".format),
            "starts": fits["starts"].astype(str),
            "verdict": fits.apply(_verdict, axis=1),
        }
    )
    notes = [
        "closed form: c = R_Π √2 Γ((d+1)/2) / (√T d Γ(d/2)); off diagonal: Frobenius norm of C without its diagonal.",
        f"reproduced: c within {TOLERANCE:.0%} of the closed form. ±: standard error over the sampled sequences, "
        "which is also the size of what is off the diagonal.",
        "starts: how many random starts it took; the others ended in local minima, which the theorem, being about "
        "global ones, does not mention.",
        f"Size: {job.size}.",
    ]
    title = "Theorem 1: linear attention trained on the best policy in hindsight"
    return Table(title, pd.DataFrame(tidy, columns=[*KEYS, *VALUES]), shaped, notes)


def _verdict(fit: pd.Series) -> str:
    return REPRODUCED if abs(fit["c"] / fit["c_closed_form"] - 1) <= TOLERANCE else NOT_REPRODUCED


def _values(fit: pd.Series) -> list[tuple[str, float, float | None, float | None, str]]:
    return [
        ("c", fit["c"], fit["standard_error"], fit["c_closed_form"], _verdict(fit)),
        ("off_diagonal", fit["off_diagonal"], None, 0.0, ""),
        ("A_b", fit["A_b"], None, 0.0, ""),
        ("excess_loss", fit["excess_loss"], None, 0.0, ""),
        ("starts", fit["starts"], None, None, ""),
    ]
