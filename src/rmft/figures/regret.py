"""Regret over time and its final distribution, in full-information online learning."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from rmft.figures.style import Drawing
from rmft.metrics.players import PlayerResults, ks_by_seed
from rmft.results import read_variants
from rmft.workflow.records import FigureJob


def title(name: str) -> str:
    """Return a process's or evaluation's name as the paper writes it."""
    return name.replace("-", " ").title().replace("Sine Trend", "Sine-trend")


def read_shown(
    job: FigureJob, paths: Sequence[Path]
) -> Iterator[tuple[str, dict[str, PlayerResults], dict[str, PlayerResults]]]:
    """Yield each evaluation with the players to draw, and with everyone who played."""
    for evaluation, everyone in read_variants(job.figure.sources, paths).items():
        yield evaluation, {name: everyone[name] for name in job.figure.players}, everyone


def draw_regret(drawing: Drawing, ax: Axes, panel: str, players: dict[str, PlayerResults], *, band: bool) -> None:
    """Draw mean Regret(t), a thin line for each training seed and, as a band, one standard deviation over instances."""
    for name, played in players.items() if band else ():
        spread = played.regret.std(axis=1).mean(axis=0)  # within a training seed
        rounds = np.arange(1, spread.size + 1)
        drawing.band(ax, panel, name, rounds, played.curve - spread, played.curve + spread)
    for name, played in players.items():  # after all bands, so above them
        drawing.by_seed(ax, panel, name, played.regret.mean(axis=1))
    ax.set(xlabel="Round $t$", ylabel="Regret($t$)")


def draw_distribution(
    drawing: Drawing, ax: Axes, panel: str, shown: dict[str, PlayerResults], everyone: dict[str, PlayerResults]
) -> None:
    """Draw the distribution of final regrets, and above it the KS test of every trained model against its base."""
    for name, played in shown.items():
        drawing.distribution(ax, panel, name, played.final.ravel())
    ax.set(xlabel="Final regret", ylabel="Share of instances", ylim=(0, 1.02))
    tests = [_ks_text(drawing, name, everyone) for name in shown if name.startswith("trained")]
    ax.set_title("\n".join(tests), fontsize="x-small")


def _ks_text(drawing: Drawing, name: str, everyone: dict[str, PlayerResults]) -> str:
    p = np.median(ks_by_seed(everyone[name], everyone[name.replace("trained", "base", 1)]))
    return f"{drawing.label(name)}: " + ("no KS test, instances are alike" if np.isnan(p) else f"KS $p$ = {p:.2g}")


def regret_of_all_processes(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw Fig. `simplex_tf_all` or `ball_tf_all`: one panel a reward process."""
    columns = min(4, len(job.figure.evaluations))
    rows = -(-len(job.figure.evaluations) // columns)
    drawing = Drawing(job.style, job.scale_note, rows, columns)
    panels = drawing.axes.flatten()
    for ax, (evaluation, shown, _) in zip(panels, read_shown(job, paths), strict=False):
        draw_regret(drawing, ax, evaluation, shown, band=True)
        ax.set_title(title(evaluation))
    for ax in panels[len(job.figure.evaluations) :]:
        ax.set_axis_off()
    for ax in drawing.axes[:, 1:].flat:
        ax.set_ylabel("")
    drawing.legend()
    return drawing


def regret_and_distribution(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw regret over time above its final distribution; of a single evaluation, beside it.

    Fig. `regret-dynamics-noisy`, `open-FOL-*` and `phi-*`.
    """
    evaluations = len(job.figure.evaluations)
    shape = (2, evaluations) if evaluations > 1 else (1, 2)
    drawing = Drawing(job.style, job.scale_note, *shape)
    pairs = drawing.axes.reshape(2, evaluations).T
    for (over_time, final), (evaluation, shown, everyone) in zip(pairs, read_shown(job, paths), strict=True):
        draw_regret(drawing, over_time, f"{evaluation}: regret", shown, band=True)
        draw_distribution(drawing, final, f"{evaluation}: final regret", shown, everyone)
        over_time.set_title(title(evaluation))
    drawing.legend()
    return drawing
