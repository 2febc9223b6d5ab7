"""The trajectory viewer: games with their prompts, replies, regrets and selection, in one file that needs no network.

The page reads an index of all games at once. The games themselves are compressed, one piece for each scenario, and the
page unpacks a piece when the reader opens one of its games.

Symbols: N games, T rounds, d actions.
"""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from rmft.artifacts.trajectories import read_selection, read_trajectories
from rmft.report.templates import rendered
from rmft.selection import TrajectoryColumns
from rmft.tools.show import Scoring, regret_curves
from rmft.workflow.paths import iteration_of
from rmft.workflow.records_outputs import ReportedExperiment, ReportJob

INDEX = ("trajectory", "regret", "rerolled", "rank", "duplicate", "selected", "invalid")


def viewer(job: ReportJob, files: dict[str, Path]) -> str:
    """Return the page."""
    index, pieces = {}, {}
    for experiment, settings in job.in_words.items():
        iterations = []
        for i in range(settings.iterations):
            scenarios = {}
            for scenario, rows, games in _scenarios(job, files, experiment, i):
                scenarios[scenario] = rows
                pieces[f"{experiment}/{i}/{scenario}"] = packed(games)
            iterations.append(scenarios)
        index[experiment] = {**settings.model_dump(exclude={"mean"}), "scenarios": iterations}
    return rendered(
        files,
        "trajectories.html.j2",
        index=index,
        columns=INDEX,
        pieces=pieces,
        scale=job.scale,
        prefix=job.prefix,
    )


def packed(value: Any) -> str:  # noqa: ANN401 (any JSON value)
    """Return a value as compressed JSON in base64; equal values give equal texts."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _scenarios(
    job: ReportJob, files: dict[str, Path], experiment: str, iteration: int
) -> list[tuple[int, list[list[Any]], list[dict[str, Any]]]]:
    """Return (number, index rows, games) of the first scenarios of an iteration, each with all of its games."""
    settings, folder = job.in_words[experiment], iteration_of(experiment, 0, iteration)
    played = read_trajectories(files[f"{folder}/rollouts.parquet"], tokens=False)
    selection = read_selection(files[f"{folder}/selection.parquet"])
    scenario = np.array(played["scenario"])
    numbers = list(dict.fromkeys(scenario.tolist()))
    games_each = len(scenario) // len(numbers)
    kept = numbers[: max(1, job.trajectories // (settings.iterations * games_each))]
    rows = [np.flatnonzero(scenario == number).tolist() for number in kept]
    games = games_of({name: [column[row] for of in rows for row in of] for name, column in played.items()}, settings)
    in_order = iter(games)
    return [
        (number, [[_plain(selection[name][row]) for name in INDEX] for row in of], [next(in_order) for _ in of])
        for number, of in zip(kept, rows, strict=True)
    ]


def games_of(played: TrajectoryColumns, settings: ReportedExperiment) -> list[dict[str, Any]]:
    """Return the games for the viewer: prompts, replies, actions, rewards (T, d), policies (T, d), Regret(t)."""
    curves = regret_curves(played, Scoring(settings.environment, settings.regret, settings.mean))[settings.regret]
    return [
        {
            "d": played["d"][row],
            "prompts": played["prompt"][row],
            "replies": played["reply"][row],
            "action": played["action"][row],
            "rewards": _rounded(played["rewards"][row], 2),
            "means": _rounded(played["means"][row], 2),
            "policy": _rounded(played["policy"][row], 3),
            "regret": _rounded(curve, 2),
            "attempts": played["attempts"][row],
            "fallback": [int(of) for of in played["fallback"][row]],
        }
        for row, curve in enumerate(curves)
    ]


def _rounded(values: Any, digits: int) -> list[float]:  # noqa: ANN401 (a list or an array)
    return np.round(np.asarray(values, dtype=float), digits).tolist()


def _plain(value: Any) -> Any:  # noqa: ANN401 (a number of numpy)
    return round(value.item(), 3) if isinstance(value, np.floating) else int(value)
