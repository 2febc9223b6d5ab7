"""Luck in hindsight (the winner's curse): how much of the selected trajectories' advantage remains on fresh rewards.

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


def lead_of_selected(selection: Selection) -> tuple[float, float]:
    """Return how far the selected are below their scenario's average regret: in hindsight, and on new draws."""
    in_hindsight, again = (-values.mean() for values in _of_selected(selection))
    return float(in_hindsight), float(again)


def survival(selection: Selection) -> tuple[float, float]:
    """Return the share of the advantage that remains on new draws, and its jackknife standard error over scenarios.

    The share is 0 if the advantage is all luck, and NaN where there is no advantage.
    """
    in_hindsight, again = _of_selected(selection)
    scenarios, place = np.unique(selection["scenario"], return_inverse=True)
    place = place[selection["selected"]]
    rows = np.split(np.argsort(place, kind="stable"), np.searchsorted(np.sort(place), np.arange(1, len(scenarios))))
    # Each mean is summed anew. A total minus one scenario's part has a rounding error, which would be the whole
    # standard error where all these shares are equal.
    without = [_share(np.delete(in_hindsight, of), np.delete(again, of)) for of in rows]
    error = math.sqrt((len(scenarios) - 1) * np.var(without)) if len(scenarios) > 1 else math.nan
    return _share(in_hindsight, again), error


def _of_selected(selection: Selection) -> tuple[np.ndarray, np.ndarray]:
    """Return the regrets (m,) of the selected minus their scenario's average: in hindsight, and on new draws."""
    chosen = selection["selected"]
    return around_average(selection, "regret")[chosen], around_average(selection, "rerolled")[chosen]


def _share(in_hindsight: np.ndarray, again: np.ndarray) -> float:
    """Return the share of the advantage that remains. in_hindsight, again: (m,), as `_of_selected` has them."""
    if not len(in_hindsight):
        return math.nan
    advantage = -float(in_hindsight.mean())
    return -float(again.mean()) / advantage if advantage > 1e-9 else math.nan
