"""Every notion of regret in the paper, Sec. `ssec:regret` and App. `regret-instantitaion`.

Symbols: n instances, T rounds, d actions. A regret is a comparator's cumulative reward minus the agent's, and
is returned as (n, T): at round t it holds Regret(t), with the comparator *of round t* and not that of round T.

| notion   | agent earns   | comparator, FOL           | comparator, all bandits    |
|----------|---------------|---------------------------|----------------------------|
| expected | ⟨π_t, values⟩ | best fixed policy on R    | Σ max_a r_t(a)             |
| pseudo   | r_t(a_t)      | best fixed policy on r    | Σ max_a r_t(a)             |
| realized | R_t(a_t)      | best fixed policy on R    | Σ max_a r_t(a)             |
| dynamic  | r_t(a_t)      | -                         | Σ max_a r_t(a)             |

values are the draws R in FOL and the means r in MAB. The means of MAB do not change, so there Σ max_a r_t(a) is
t max_a r(a); in NS-MAB the same sum follows the best action of each round, which makes every notion dynamic, and in CB,
contextual bandits, the best action for each round's context.
"""

from typing import Literal

import numpy as np

from rmft.environments.tables import RewardTable, one_hot
from rmft.errors import InputError

Notion = Literal["expected", "pseudo", "realized", "dynamic"]
# By which evaluations score games. ASSUME: also where a model states an action, as a policy of probability 1; that
# regret is realized there, the paper says of training alone (App. `regret-instantitaion`).
EVALUATED: Notion = "expected"
Mean = Literal["nominal", "clipped"]


def best_fixed_policy(values: np.ndarray, radius: float | None = None) -> np.ndarray:
    """Return max_π Σ_{τ≤t} ⟨π, values_τ⟩ as (n, T), for values (n, T, d).

    Over the simplex it is the best action's total; over the ℓ2 ball of `radius` it is radius · ‖total‖₂.
    """
    totals = values.cumsum(axis=1)
    return totals.max(axis=2) if radius is None else radius * np.linalg.norm(totals, axis=2)


def best_mean(means: np.ndarray) -> np.ndarray:
    """Return Σ_{τ≤t} max_a r_τ(a) as (n, T), for means (n, T, d)."""
    return means.max(axis=2).cumsum(axis=1)


def earned(
    notion: Notion,
    comparator: str,
    table: RewardTable,
    policies: np.ndarray,
    actions: np.ndarray | None,
    *,
    mean: Mean = "nominal",
) -> np.ndarray:
    """Return the agent's reward in each round (n, T) as a notion of regret counts it; see `regret`."""
    if notion != "expected" and actions is None:
        raise InputError(f"{notion} regret needs actions; on the ball only expected regret is defined")
    played = policies if notion == "expected" else one_hot(actions, table.shape[2])
    drawn = notion == "realized" or (notion == "expected" and comparator == "hindsight")
    return (played * (table.rewards if drawn else means_of(table, mean))).sum(axis=2)


def means_of(table: RewardTable, mean: Mean) -> np.ndarray:
    """Return the nominal means (n, T, d), or the means of the clipped draws."""
    return table.means if mean == "nominal" else table.clipped_means


def regret(
    notion: Notion,
    comparator: str,
    table: RewardTable,
    policies: np.ndarray,
    actions: np.ndarray | None,
    *,
    mean: Mean = "nominal",
    radius: float | None = None,
) -> np.ndarray:
    """Return Regret(t) as (n, T).

    policies: (n, T, d). actions: (n, T), 0-based, or None where policies are no distributions (the ball).
    comparator: "hindsight" or "best mean", as in `ENVIRONMENTS`. Raises InputError for a notion that needs
    actions where there are none, and for dynamic regret in FOL.
    """
    total = earned(notion, comparator, table, policies, actions, mean=mean).cumsum(axis=1)
    if comparator == "best mean":
        return best_mean(means_of(table, mean)) - total
    if notion == "dynamic":
        raise InputError("dynamic regret is computed in bandits, where it is the regret against the best mean")
    return best_fixed_policy(means_of(table, mean) if notion == "pseudo" else table.rewards, radius) - total


def best_actions(comparator: str, table: RewardTable, mean: Mean = "nominal") -> np.ndarray:
    """Return the comparator's action in each round (n, T): the best in hindsight, or the best mean's.

    Of several the first: with full information, above all under Alternating rewards, many are equally good in
    hindsight, and how often this one is played says little.
    """
    if comparator == "hindsight":
        best = table.rewards.sum(axis=1).argmax(axis=1)
        return np.broadcast_to(best[:, None], table.shape[:2])
    return means_of(table, mean).argmax(axis=2)
