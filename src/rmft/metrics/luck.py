"""Luck in hindsight: how much of the selected trajectories' advantage remains on rewards that are drawn again.

The lowest of L regrets is low partly because the draws favoured the played actions. That part vanishes when the same
actions are scored on new draws from the same means. A selection holds for each trajectory its `scenario`, its `regret`
on the rewards of its game, the same on new draws (`rerolled`), and whether it was `selected`.
"""

import math

import numpy as np

Selection = dict[str, np.ndarray]


def around_average(selection: Selection, column: str) -> np.ndarray:
    """Return the values (n,) of a column minus the average of their scenario."""
    _, place = np.unique(selection["scenario"], return_inverse=True)
    average = np.bincount(place, selection[column]) / np.bincount(place)
    return selection[column] - average[place]


def advantages(selection: Selection) -> tuple[float, float]:
    """Return how far the selected are below their scenario's average regret: in hindsight, and on new draws."""
    chosen = selection["selected"]
    in_hindsight, again = (-around_average(selection, column)[chosen].mean() for column in ("regret", "rerolled"))
    return float(in_hindsight), float(again)


def survival(selection: Selection) -> tuple[float, float]:
    """Return the share of the advantage that remains on new draws, and its jackknife standard error over scenarios.

    The share is 0 if the advantage is all luck, and NaN where there is no advantage.
    """
    scenarios = np.unique(selection["scenario"])
    without = [_share({name: of[selection["scenario"] != one] for name, of in selection.items()}) for one in scenarios]
    error = math.sqrt((len(scenarios) - 1) * np.var(without)) if len(scenarios) > 1 else math.nan
    return _share(selection), error


def _share(selection: Selection) -> float:
    in_hindsight, again = advantages(selection)
    return again / in_hindsight if in_hindsight > 1e-9 else math.nan
