"""Table `entropy` (ours): how undecided policies are, stated in words or read off the probabilities of action tokens.

App. `ssec:distributional-output` of the paper draws the probabilities and gives no numbers.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from rmft.metrics.comparison import standard_error
from rmft.metrics.exploration import relative_entropy
from rmft.metrics.players import PlayerResults
from rmft.tables.layout import RenderedTable, tidy_frame

DECIDED, EXTREME = 0.9, 0.1  # probability of a decided policy; probability that, by the paper, weak models never state
KEYS = ["experiment", "evaluation", "player", "instances"]
HEADERS = {
    "entropy": "entropy / log d",
    "entropy_late": "in the second half of a game",
    "decided": f"policies with a probability ≥ {DECIDED:g}",
    "extreme": f"probabilities < {EXTREME:g}",
}
NOTES = [
    "entropy: of a policy over log d, 1 where it is uniform, 0 where it plays one action; averaged over rounds. ±: "
    "standard error over instances. Where replies are actions, a policy is what the model holds likely at the "
    "action's place.",
    "The paper reports for Gemma-2-9b-it that stated policies of three actions are near the uniform one, and stay "
    "so after training; and holds that a model that never saw a probability below 0.1 cannot state one.",
]


def entropy_table(evaluations: Mapping[tuple[str, str], Mapping[str, PlayerResults]]) -> RenderedTable:
    """Measure the policies of all players of each (experiment, evaluation), and how training changes their entropy."""
    lines, shown = [], []
    for (experiment, evaluation), results in evaluations.items():
        players = {name: entropy_statistics(played) for name, played in results.items()}
        for name, statistics in players.items():
            key = (experiment, evaluation, name, len(statistics["entropy"]))
            lines += [(*key, of, values.mean(), standard_error(values), None, "") for of, values in statistics.items()]
            cells = {HEADERS[of]: _mean_and_error(values) for of, values in statistics.items()}
            shown.append({"experiment": experiment, "evaluation": evaluation, "player": name, **cells})
        change = players["trained"]["entropy"] - players["base"]["entropy"]
        key = (experiment, evaluation, "trained", len(change))
        lines.append((*key, "entropy_change", change.mean(), standard_error(change), None, ""))
        cells = {"player": "trained - base", HEADERS["entropy"]: _mean_and_error(change)}
        shown.append({"experiment": experiment, "evaluation": evaluation, **cells})
    title = "How undecided policies are, before and after training"
    return RenderedTable(title, tidy_frame(KEYS, lines), pd.DataFrame(shown).fillna(""), NOTES)


def entropy_statistics(played: PlayerResults) -> dict[str, np.ndarray]:
    """Return the statistics of each instance's policies (n,), averaged over rounds and training seeds."""
    entropy = relative_entropy(played.policies)
    half = entropy.shape[2] // 2
    return {
        "entropy": entropy.mean(axis=(0, 2)),
        "entropy_late": entropy[:, :, half:].mean(axis=(0, 2)),
        "decided": (played.policies.max(axis=3) >= DECIDED).mean(axis=(0, 2)),
        "extreme": (played.policies < EXTREME).mean(axis=(0, 2, 3)),
    }


def _mean_and_error(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {standard_error(values):.3f}"
