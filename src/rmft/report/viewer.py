"""The trajectory viewer: games with their prompts, replies, regrets and selection, in one file that needs no network.

The page reads an index of all games at once. The games themselves are compressed, one piece for each scenario of
training and for each held-out instance, and the page unpacks a piece when the reader opens one of its games.

Symbols: N games, T rounds, d actions.
"""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from rmft.artifacts.evaluations import read_evaluation
from rmft.artifacts.trajectories import read_selection, read_trajectories
from rmft.held_out_games import differs_most, game_of, rows_by_player
from rmft.report.templates import rendered
from rmft.selection import Scoring, TrajectoryColumns, regret_curves, table_of
from rmft.workflow.paths import evaluation_of, iteration_of
from rmft.workflow.records_outputs import ReportedExperiment, ReportJob

INSTANCES = 4  # of each evaluation that the page shows from the first one on
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
        held_out = {}
        for evaluation in settings.held_out:
            held_out[evaluation], games = _held_out(job, files, experiment, evaluation)
            pieces |= {f"{experiment}/{evaluation}/{instance}": packed(of) for instance, of in games.items()}
        described = settings.model_dump(exclude={"mean", "held_out"})
        index[experiment] = {**described, "scenarios": iterations, "held_out": held_out}
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
    scoring = Scoring(settings.environment, settings.regret, settings.mean)
    curves = regret_curves(played, table_of(played), scoring)
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


def _held_out(
    job: ReportJob, files: dict[str, Path], experiment: str, evaluation: str
) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Return what the index says of an evaluation, and the games of some instances.

    The instances are the first ones, which nobody chose, and the one on which base and trained model differ most.
    """
    columns = read_evaluation(files[evaluation_of(experiment, evaluation)])
    rows = rows_by_player(columns)
    played = {
        player: read_trajectories(files[path], tokens=False)
        for player, path in job.in_words[experiment].held_out[evaluation].items()
    }
    base, trained = (rows[player] for player in played)
    final, most = columns["regret"][:, -1], differs_most(columns, base, trained)
    instances = list(dict.fromkeys([*range(min(INSTANCES, len(base))), most]))
    described = {
        "title": job.titles[experiment][evaluation],
        "n": len(base),
        "most": most if final[base[most]] != final[trained[most]] else None,
        "players": list(rows),
        "instances": [[i, round(final[base[i]], 2), round(final[trained[i]], 2)] for i in instances],
    }
    return described, {i: _pair(columns, {player: of[i] for player, of in rows.items()}, played, i) for i in instances}


def _pair(
    columns: dict[str, np.ndarray | None], rows: dict[str, int], played: dict[str, TrajectoryColumns], instance: int
) -> dict[str, Any]:
    """Return all players' games of an instance. rewards: (T, d), None where they depend on the player."""
    transcripts = {player: _row_of(of, instance) for player, of in played.items()}
    first, *others = (of["rewards"] for of in transcripts.values())
    rewards = _rounded(first, 2) if all(other == first for other in others) else None
    games = {}
    for player, row in rows.items():
        game = game_of(columns, player, row, None)
        games[player] = {
            "action": game.actions.tolist(),
            "regret": _rounded(game.regret, 2),
            "policy": None if game.decided else _rounded(game.policies.ravel(), 3),
        }
        if player in transcripts:
            games[player] |= {"prompts": transcripts[player]["prompt"], "replies": transcripts[player]["reply"]}
    return {"d": int(columns["d"][row]), "best": game.best.tolist(), "rewards": rewards, "players": games}


def _row_of(played: TrajectoryColumns, instance: int) -> dict[str, Any]:
    """Return the held-out game of an instance: there the number of the scenario is that of the instance."""
    row = played["scenario"].index(instance)
    return {name: column[row] for name, column in played.items()}


def _rounded(values: Any, digits: int) -> list[float]:  # noqa: ANN401 (a list or an array)
    return np.round(np.asarray(values, dtype=float), digits).tolist()


def _plain(value: Any) -> Any:  # noqa: ANN401 (a number of numpy)
    return round(value.item(), 3) if isinstance(value, np.floating) else int(value)
