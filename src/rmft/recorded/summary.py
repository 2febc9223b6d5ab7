"""What a built experiment gave: its metrics, how its players explore, and how much of the selected games was luck."""

from pathlib import Path
from typing import Any

import numpy as np

from rmft.artifacts.trajectories import read_selection
from rmft.metrics.exploration import explored
from rmft.metrics.luck import lead_of_selected, survival
from rmft.metrics.players import PlayerResults
from rmft.metrics.summary import Metrics, all_metrics
from rmft.params import Params
from rmft.params.files import evaluation_of, iteration_of
from rmft.results import read_players


def built_metrics(params: Params, experiment: str, root: Path = Path()) -> Metrics:
    """Return the metrics of an experiment's evaluations that are built, as results/metrics.json has them.

    root: the folder of the clone.
    """
    paths = {name: root / evaluation_of(experiment, name) for name in params.experiments[experiment].evaluations}
    played = ((experiment, name, read_players(path)) for name, path in paths.items() if path.exists())
    return all_metrics(played, params.seed, params.evaluation.floor)


def summary_of(shown: Params, experiment: str) -> dict[str, Any]:
    """Return how each player explores in every evaluation, and what each iteration of each training learnt from."""
    chosen = shown.experiments[experiment]
    players = {name: read_players(Path(evaluation_of(experiment, name))) for name in chosen.evaluations}
    return {
        "exploration": {
            evaluation: {name: _exploration(of) for name, of in by_name.items()}
            for evaluation, by_name in players.items()
        },
        "training": [
            {
                "seed": seed,
                "iteration": i,
                **_learnt_from(Path(iteration_of(experiment, seed, i)) / "selection.parquet"),
            }
            for seed in range(chosen.loop.training_seeds)
            for i in range(chosen.loop.iterations if chosen.selects else 0)
        ],
    }


def _exploration(played: PlayerResults) -> dict[str, float]:
    """Return shares of games and rounds (see data/recorded/real-models.md.j2), and invalid replies a round."""
    seeds, n, T = played.actions.shape
    actions, best = (of.reshape(seeds * n, -1) for of in (played.actions, played.best_actions))
    first = actions[:, : played.d]
    return {
        **explored(actions, best, played.d),
        "all_tried": float(np.all([(first == action).any(axis=1) for action in range(played.d)], axis=0).mean()),
        "invalid": float(played.invalid.mean() / T),
    }


def _learnt_from(path: Path) -> dict[str, float]:
    """Return regrets of all and of the selected games, and the share of their advantage that was no luck."""
    selection = read_selection(path)
    in_hindsight, again = lead_of_selected(selection)
    share, error = survival(selection)
    return {
        "games": len(selection["regret"]),
        "regret": float(selection["regret"].mean()),
        "regret_selected": float(selection["regret"][selection["selected"]].mean()),
        "advantage": in_hindsight,
        "advantage_redrawn": again,
        "no_luck": share,
        "no_luck_se": error,
        "invalid": float(selection["invalid"].mean()),
    }
