"""Which replies pass over the best action: Fig. `reasoning-variance`."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rmft.artifacts.replies import read_replies
from rmft.figures.frames import CURVE, PRINTED, joined, printed, rows, wilson
from rmft.figures.style import add_legend, draw_curves, label, panels, share_limits
from rmft.metrics.agreement import agreement
from rmft.params.outputs import Style
from rmft.reasoning import SHARE, SHARE_ERROR
from rmft.workflow.records_outputs import FigureJob

JUDGES = {"unstable": "by words", "unstable_judged": "by a model"}  # columns of the replies
NOTE = "Lines: shares of replies. Bands: 95% intervals of a share (Wilson)."


def avoidance(job: FigureJob, paths: Sequence[Path]) -> tuple[Figure, pd.DataFrame]:
    """Draw which share of replies passes over the best action because of unstable rewards, and for whatever reason.

    A line of panels an evaluation: one panel for each judge that judged replies, then whatever the reason.
    """
    tables = [read_replies(path) for path in paths]
    judges = [name for name in JUDGES if any(replies[name].notna().any() for replies in tables)]
    figure, axes = panels(job.style, len(tables), len(judges) + 1)
    frames = []
    for row, source, replies in zip(axes, job.figure.sources, tables, strict=True):
        for ax, column in zip(row, [*judges, "passes_over"], strict=True):
            why = f"unstable rewards, {JUDGES[column]}" if column in JUDGES else "whatever the reason"
            panel = f"{', '.join(source)}: {why}"
            frames.append(joined(_shares(panel, player, replies, column) for player in job.figure.players))
            _draw(ax, frames[-1], job.style, f"Best action passed over:\n{why}")
        share_limits(row)
        row[0].set_ylabel("Share of replies")
        if len(judges) > 1:
            frames.append(_draw_agreement(row[1], ", ".join(source), replies))
    add_legend(figure, job.style, NOTE)
    return figure, joined(frames)


def _shares(panel: str, player: str, replies: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the share of a player's replies in each round for which a column holds, and that of all rounds."""
    judged = replies[replies["player"] == player].dropna(subset=column).astype({column: float})
    by_round = judged.groupby("t")
    share, n = by_round[column].mean(), by_round["instance"].nunique()  # trainings share their instances
    low, high = wilson(share.to_numpy(), n.to_numpy())
    curve = rows(panel, player, CURVE, share.index, share.to_numpy(), low=low, high=high)
    total, error = float(judged[column].mean()), error_over_instances(judged, column)
    return joined([curve, printed(panel, player, SHARE, total), printed(panel, player, SHARE_ERROR, error)])


def error_over_instances(replies: pd.DataFrame, column: str) -> float:
    """Return the standard error of a share of replies, those of one instance being alike: of a ratio of two means."""
    by_instance = replies[column].astype(float).groupby(replies["instance"])
    yes, n = by_instance.sum(), by_instance.size()
    residuals = yes - n * yes.sum() / n.sum()
    instances = len(n)
    return float(np.sqrt((residuals**2).sum() * instances / (instances - 1)) / n.sum()) if instances > 1 else math.nan


def _draw(ax: Axes, frame: pd.DataFrame, style: Style, title: str) -> None:
    draw_curves(ax, frame, style)
    ax.set(xlabel="Round $t$", ylabel="")
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    lines = [title]
    for player, of in frame[frame["series"].str.startswith(PRINTED)].groupby("player", sort=False):
        share, error = of["y"]
        spread = "" if math.isnan(error) else f" ± {error:.1%}"  # of one instance there is none
        lines.append(label(style, player) + (": not judged" if math.isnan(share) else f" {share:.1%}{spread}"))
    ax.set_title("\n".join(lines), fontsize="small")


def _draw_agreement(ax: Axes, panel: str, replies: pd.DataFrame) -> pd.DataFrame:
    """Write how the two judges agree on replies that pass over the best action; return the numbers."""
    both = replies[replies["passes_over"]].dropna(subset=list(JUDGES))
    judged = agreement(*(both[name].to_numpy(dtype=bool) for name in JUDGES))
    kappa = "undefined" if np.isnan(judged.kappa) else f"{judged.kappa:.2f}"
    text = f"the judges agree on {judged.equal:.1%}\nof {judged.n:,} replies ($\\kappa$ = {kappa})"
    ax.text(0.97, 0.97, text, transform=ax.transAxes, ha="right", va="top", fontsize="x-small")
    numbers = {"share equal": judged.equal, "Cohen's kappa": judged.kappa}
    return joined(printed(panel, "judges", what, value) for what, value in numbers.items())
