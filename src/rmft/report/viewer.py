"""The trajectory viewer: games as they were told, scored and selected, in one file that needs no network.

An index of all games is read at once; what was said in them lies in it compressed, one piece a scenario, and is opened
when it is asked for.

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
from rmft.workflow.records import ReportedExperiment, ReportJob

INDEX = ("trajectory", "regret", "rerolled", "rank", "duplicate", "selected", "invalid")


def viewer(job: ReportJob, files: dict[str, Path]) -> str:
    """Return the page."""
    index, pieces = {}, {}
    for experiment, told in job.told.items():
        iterations = []
        for i in range(told.iterations):
            scenarios = {}
            for scenario, games, texts in _scenarios(job, files, experiment, i):
                scenarios[scenario] = games
                pieces[f"{experiment}/{i}/{scenario}"] = packed(texts)
            iterations.append(scenarios)
        index[experiment] = {**told.model_dump(exclude={"mean"}), "scenarios": iterations}
    return rendered(files, "trajectories.html.j2", index=index, columns=INDEX, pieces=pieces, scale=job.scale)


def packed(value: Any) -> str:  # noqa: ANN401 (any JSON value)
    """Return JSON, compressed, as letters; the same value gives the same letters."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _scenarios(
    job: ReportJob, files: dict[str, Path], experiment: str, iteration: int
) -> list[tuple[int, list[list[Any]], list[dict[str, Any]]]]:
    """Return the first scenarios of an iteration, whole: their numbers, an index of their games, and the games."""
    told, folder = job.told[experiment], iteration_of(experiment, 0, iteration)
    played = read_trajectories(files[f"{folder}/rollouts.parquet"], tokens=False)
    found = read_selection(files[f"{folder}/selection.parquet"])
    scenario = np.array(played["scenario"])
    numbers = list(dict.fromkeys(scenario.tolist()))
    games_each = len(scenario) // len(numbers)
    kept = numbers[: max(1, job.trajectories // (told.iterations * games_each))]
    rows = [np.flatnonzero(scenario == number).tolist() for number in kept]
    games = games_of({name: [column[row] for of in rows for row in of] for name, column in played.items()}, told)
    lines = iter(games)
    return [
        (number, [[_plain(found[name][row]) for name in INDEX] for row in of], [next(lines) for _ in of])
        for number, of in zip(kept, rows, strict=True)
    ]


def games_of(played: TrajectoryColumns, told: ReportedExperiment) -> list[dict[str, Any]]:
    """Return all that the viewer shows of games: texts, actions, rewards (T, d), policies (T, d), Regret(t)."""
    curves = regret_curves(played, Scoring(told.environment, told.regret, told.mean))[told.regret]
    return [
        {
            "d": played["d"][row],
            "told": played["prompt"][row],
            "said": played["reply"][row],
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


def _plain(value: Any) -> Any:  # noqa: ANN401 (a number of numpy's)
    return round(value.item(), 3) if isinstance(value, np.floating) else int(value)
