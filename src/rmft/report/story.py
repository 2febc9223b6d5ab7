"""The numbers in the six pictures of the method: one scenario's games, their regrets, and the change by training.

They come from one experiment of this build, so that the pictures are results and not sketches.

Symbols: L games of a scenario, T rounds, d actions, I iterations.
"""

import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmft.artifacts.trajectories import read_selection, read_trajectories
from rmft.results import read_players
from rmft.workflow.paths import evaluation_of, iteration_of
from rmft.workflow.records_outputs import ReportJob

WIDTH, HEIGHT = 260.0, 120.0  # of the curves in a picture, in its own units
LETTERS = 150  # of a message in a picture, at most


@dataclass(frozen=True)
class Story:
    """actions: (L, T), 0-based, of the first scenario's games. regrets, selected: (L,), of the same games.

    prompt, reply: of the last round of a selected game. means: (I, 2), the mean regret of all games of an iteration,
    and of its selected games. base, trained: mean Regret(t) in the evaluation, as points of polylines within
    WIDTH x HEIGHT. final: mean final regret of base and trained model.
    """

    experiment: str
    evaluation: str
    model: str
    d: int
    T: int
    actions: list[list[int]]
    regrets: list[float]
    selected: list[bool]
    prompt: str
    reply: str
    means: list[tuple[float, float]]
    base: str
    trained: str
    final: tuple[float, float]
    instances: int


def read_story(job: ReportJob, experiment: str, evaluation: str, files: dict[str, Path]) -> Story:
    """Read the numbers of the pictures, from one experiment and one evaluation of it."""
    settings = job.in_words[experiment]
    folders = [iteration_of(experiment, 0, i) for i in range(settings.iterations)]
    selections = [read_selection(files[f"{folder}/selection.parquet"]) for folder in folders]
    played = read_trajectories(files[f"{folders[0]}/rollouts.parquet"], tokens=False)
    rows = [row for row, scenario in enumerate(played["scenario"]) if scenario == played["scenario"][0]]
    first = selections[0]
    best = next((row for row in rows if first["selected"][row]), rows[0])
    players = read_players(files[evaluation_of(experiment, evaluation)])
    curves = {name: players[name].curve for name in ("base", "trained")}
    top = max(float(curve.max()) for curve in curves.values())
    return Story(
        experiment=experiment,
        evaluation=evaluation,
        model=settings.model,
        d=played["d"][0],
        T=settings.T,
        actions=[played["action"][row] for row in rows],
        regrets=[float(first["regret"][row]) for row in rows],
        selected=[bool(first["selected"][row]) for row in rows],
        prompt=_shortened(played["prompt"][best][-1]),
        reply=_shortened(played["reply"][best][-1]),
        means=[(float(of["regret"].mean()), float(of["regret"][of["selected"]].mean())) for of in selections],
        base=polyline(curves["base"], top),
        trained=polyline(curves["trained"], top),
        final=(float(curves["base"][-1]), float(curves["trained"][-1])),
        instances=players["base"].regret.shape[1],
    )


def _shortened(text: str) -> str:
    """Return the beginning of a message."""
    return textwrap.shorten(text, LETTERS, placeholder=" …")


def polyline(curve: np.ndarray, top: float) -> str:
    """Return the points of a curve (T,) for SVG; the curve begins at 0 before the first round."""
    values = np.concatenate([[0.0], curve])
    x = np.linspace(0, WIDTH, len(values))
    y = HEIGHT * (1 - values / (top or 1))
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
