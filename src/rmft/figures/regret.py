"""Regret over time and its final distribution, in full-information online learning."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from rmft.figures.style import Drawing
from rmft.jobs import FigureJob
from rmft.results import Played, ks_of_seeds, pick, read_players


def title(name: str) -> str:
    """Return a process's or evaluation's name as the paper writes it."""
    return name.replace("-", " ").title().replace("Sine Trend", "Sine-trend")


def players_by_evaluation(job: FigureJob, paths: Sequence[Path]) -> Iterator[tuple[str, dict[str, Played]]]:
    """Yield each evaluation with the players to draw.

    Of the first experiment these are the figure's players; a further experiment adds its trained model, under
    the name trained-<what its own name adds>.
    """
    files = dict(zip(job.figure.sources, paths, strict=True))
    first, *others = job.figure.experiments
    for evaluation in job.figure.evaluations:
        path = files[first, evaluation]
        everyone = read_players(path)
        shown = {name: pick(everyone, name, path) for name in job.figure.players}
        for other in others:
            suffix, path = other.removeprefix(f"{first}_").replace("_", "-"), files[other, evaluation]
            shown[f"trained-{suffix}"] = pick(read_players(path), "trained", path)
        yield evaluation, shown


def draw_regret(drawing: Drawing, ax: Axes, panel: str, players: dict[str, Played], *, band: bool) -> None:
    """Draw mean Regret(t), a thin line for each training seed and, as a band, one standard deviation over instances."""
    for name, played in players.items():
        rounds = np.arange(1, played.curve.size + 1)
        if band:
            spread = played.by_instance.std(axis=0)
            drawing.band(ax, panel, name, rounds, played.curve - spread, played.curve + spread)
        if len(played.regret) > 1:
            drawing.thin_lines(ax, panel, name, rounds, played.regret.mean(axis=1))
    for name, played in players.items():  # means last, above all bands
        drawing.line(ax, panel, name, np.arange(1, played.curve.size + 1), played.curve)
    ax.set(xlabel="Round $t$", ylabel="Regret($t$)")


def draw_distribution(drawing: Drawing, ax: Axes, panel: str, players: dict[str, Played], base: Played) -> None:
    """Draw the distribution of final regrets over instances, and the KS test of trained against base."""
    for name, played in players.items():
        drawing.distribution(ax, panel, name, played.final.ravel())
    p = ks_of_seeds(players["trained"], base)
    verdict = "all instances are alike" if np.isnan(p) else f"KS, trained < base:\n$p$ = {p:.2g}"
    ax.annotate(
        verdict,
        (0.97, 0.05),
        xycoords="axes fraction",
        ha="right",
        va="bottom",
        fontsize="x-small",
    )
    ax.set(xlabel="Final regret", ylabel="Share of instances", ylim=(0, 1.02))


def regret_of_all_processes(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw Fig. `simplex_tf_all` or `ball_tf_all`: one panel a reward process."""
    columns = 4
    rows = -(-len(job.figure.evaluations) // columns)
    drawing = Drawing(job.style, job.size, rows, columns)
    panels = drawing.axes.flatten()
    for ax, (evaluation, players) in zip(panels, players_by_evaluation(job, paths), strict=False):
        draw_regret(drawing, ax, evaluation, players, band=True)
        ax.set_title(title(evaluation))
    for ax in panels[len(job.figure.evaluations) :]:
        ax.set_axis_off()
    for ax in drawing.axes[:, 1:].flat:
        ax.set_ylabel("")
    drawing.legend()
    return drawing


def regret_and_distribution(job: FigureJob, paths: Sequence[Path]) -> Drawing:
    """Draw Fig. `regret-dynamics-noisy`: regret over time above, its final distribution below."""
    drawing = Drawing(job.style, job.size, 2, len(job.figure.evaluations))
    files = dict(zip(job.figure.sources, paths, strict=True))
    for column, (evaluation, players) in enumerate(players_by_evaluation(job, paths)):
        base = read_players(files[job.figure.experiments[0], evaluation])["base"]
        above, below = drawing.axes[:, column]
        draw_regret(drawing, above, f"{evaluation}: regret", players, band=True)
        draw_distribution(drawing, below, f"{evaluation}: final regret", players, base)
        above.set_title(title(evaluation))
    drawing.legend()
    return drawing
