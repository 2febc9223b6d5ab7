"""RenderedTable `entropy` (ours): how undecided policies are, stated in words or held over the tokens of actions.

App. `ssec:distributional-output` of the paper draws the probabilities and gives no numbers.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rmft.metrics.entropy import relative_entropy
from rmft.results import PlayerResults, read_players
from rmft.tables.layout import VALUES, RenderedTable
from rmft.workflow.records import TableJob

DECIDED, EXTREME = 0.9, 0.1  # a probability that decides; one that, by the paper, weak models never state
KEYS = ["experiment", "evaluation", "player", "instances"]
HEADERS = {
    "entropy": "entropy / log d",
    "entropy_late": "in the second half of a game",
    "decided": f"policies with a probability ≥ {DECIDED:g}",
    "extreme": f"probabilities < {EXTREME:g}",
}


def entropy_table(job: TableJob, paths: Sequence[Path]) -> RenderedTable:
    """Measure the policies of all players, and by how much training changes their entropy."""
    lines, shown = [], []
    for (experiment, evaluation), path in zip(job.sources, paths, strict=True):
        players = {name: undecided(played) for name, played in read_players(path).items()}
        for name, of in players.items():
            key = (experiment, evaluation, name, len(of["entropy"]))
            lines += [(*key, statistic, values.mean(), _error(values), None, "") for statistic, values in of.items()]
            cells = {HEADERS[statistic]: _said(values) for statistic, values in of.items()}
            shown.append({"experiment": experiment, "evaluation": evaluation, "player": name, **cells})
        change = players["trained"]["entropy"] - players["base"]["entropy"]
        key = (experiment, evaluation, "trained", len(change))
        lines.append((*key, "entropy_change", change.mean(), _error(change), None, ""))
        of_change = {"player": "trained - base", HEADERS["entropy"]: _said(change)}
        shown.append({"experiment": experiment, "evaluation": evaluation, **of_change})
    title = "How undecided policies are, before and after training"
    return RenderedTable(
        title, pd.DataFrame(lines, columns=[*KEYS, *VALUES]), pd.DataFrame(shown).fillna(""), _notes(job)
    )


def undecided(played: PlayerResults) -> dict[str, np.ndarray]:
    """Return the statistics of each instance's policies (n,), averaged over rounds and training seeds."""
    entropy = relative_entropy(played.policies)
    half = entropy.shape[2] // 2
    return {
        "entropy": entropy.mean(axis=(0, 2)),
        "entropy_late": entropy[:, :, half:].mean(axis=(0, 2)),
        "decided": (played.policies.max(axis=3) >= DECIDED).mean(axis=(0, 2)),
        "extreme": (played.policies < EXTREME).mean(axis=(0, 2, 3)),
    }


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def _said(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {_error(values):.3f}"


def _notes(job: TableJob) -> list[str]:
    return [
        "entropy: of a policy over log d, 1 where it is uniform, 0 where it plays one action; averaged over rounds. ±: "
        "standard error over instances. Where replies are actions, a policy is what the model holds likely at the "
        "action's place.",
        "The paper reports for Gemma-2-9b-it that stated policies of three actions are near the uniform one, and stay "
        "so after training; and holds that a model that never saw a probability below 0.1 cannot state one.",
        *([job.scale_note] if job.scale_note else []),
    ]
