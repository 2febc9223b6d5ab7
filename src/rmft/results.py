"""Read evaluations as arrays by player: the form in which figures, tables and metrics take them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rmft.artifacts.evaluations import read_evaluation
from rmft.metrics.players import PlayerResults
from rmft.params.outputs import variant_name


def read_players(path: Path) -> dict[str, PlayerResults]:
    """Return the results of the players of an evaluation, by name, in the order in which they played."""
    columns = read_evaluation(path)
    return {player: _played(columns, columns["player"] == player) for player in dict.fromkeys(columns["player"])}


def read_variants(sources: Sequence[tuple[str, str]], paths: Sequence[Path]) -> dict[str, dict[str, PlayerResults]]:
    """Return the results of the players of several experiments, by evaluation and name.

    sources: (experiment, evaluation) of each file. Of the first experiment all players are returned; of each further
    one, which is a variant of the first, the models, under the names base-<variant> and trained-<variant>.
    """
    results: dict[str, dict[str, PlayerResults]] = {}
    first = sources[0][0]
    for (experiment, evaluation), path in zip(sources, paths, strict=True):
        players = read_players(path)
        if experiment != first:
            players = {f"{name}-{variant_name(first, experiment)}": players[name] for name in ("base", "trained")}
        results.setdefault(evaluation, {}).update(players)
    return results


def _played(columns: dict[str, np.ndarray | None], of_player: np.ndarray) -> PlayerResults:
    """Return one player's rows (a mask) by training seed and instance."""
    order = np.lexsort((columns["instance"][of_player], columns["training_seed"][of_player]))
    seeds = len(np.unique(columns["training_seed"][of_player]))

    def stacked(column: str) -> np.ndarray | None:
        if columns[column] is None:
            return None
        values = columns[column][of_player][order]
        return values.reshape(seeds, len(values) // seeds, -1)

    d = int(columns["d"][of_player][0])
    regret, policies = stacked("regret"), stacked("policy")
    if policies is not None:
        policies = policies.reshape(*regret.shape, d)
    return PlayerResults(d, regret, stacked("action"), stacked("best_action"), policies, stacked("invalid")[..., 0])
