"""Luck in hindsight: how much of the selected trajectories' advantage is left on rewards that are drawn again.

The lowest of L regrets is low partly because the draws happened to favour what was played, and that part is gone when
the same actions meet other draws from the same means. A selection holds, by trajectory, its `scenario`, its `regret` on
the rewards that it met, the same `rerolled`, and whether it was `selected`.
"""

import math

import numpy as np

Selection = dict[str, np.ndarray]


def around_average(selection: Selection, column: str) -> np.ndarray:
    """Return the values (n,) of a column less the average of their scenario."""
    _, place = np.unique(selection["scenario"], return_inverse=True)
    average = np.bincount(place, selection[column]) / np.bincount(place)
    return selection[column] - average[place]


def advantages(selection: Selection) -> tuple[float, float]:
    """Return by how much the selected are below their scenario's average regret: as met, and on rewards drawn again."""
    chosen = selection["selected"]
    in_hindsight, again = (-around_average(selection, column)[chosen].mean() for column in ("regret", "rerolled"))
    return float(in_hindsight), float(again)


def survival(selection: Selection) -> tuple[float, float]:
    """Return the share of the advantage that survives, zero were it all luck, and its standard error over scenarios.

    The error is the jackknife's: each scenario is left out once. NaN where nothing was better than anything.
    """
    scenarios = np.unique(selection["scenario"])
    without = [_share({name: of[selection["scenario"] != one] for name, of in selection.items()}) for one in scenarios]
    error = math.sqrt((len(scenarios) - 1) * np.var(without)) if len(scenarios) > 1 else math.nan
    return _share(selection), error


def _share(selection: Selection) -> float:
    in_hindsight, again = advantages(selection)
    return again / in_hindsight if in_hindsight > 1e-9 else math.nan
