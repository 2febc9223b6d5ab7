"""What GRPO credits each round of a trajectory with, relative to the other trajectories of its scenario.

TrajectoryColumns of a scenario meet the same rewards, so they are a group: what one of them earned beyond the others is
owed to what it did.

Symbols: M scenarios, G trajectories each (a group), n = M · G in all, T rounds, d actions.

# ASSUME: the paper names two kinds of GRPO, "step" and "regret", and defines neither. `step` is what its source calls
# process supervision (DeepSeekMath, Sec. 4.1.3), a round being a step of the process; `regret` is outcome supervision
# (Sec. 4.1.2) with minus the regret for a reward. `round` is ours: what to learn if no round matters to later ones.
"""

from collections.abc import Sequence

import numpy as np

from rmft.params.grpo import Credit

LEAST = 1e-4  # added to a group's standard deviation, as TRL has it: of equal rewards nobody has an advantage


def advantages(credit: Credit, scenario: np.ndarray, rewards: np.ndarray, regrets: np.ndarray) -> np.ndarray:
    """Return the advantages (n, T) of rounds. scenario: (n,). rewards: (n, T), earned. regrets: (n,), at round T.

    round: a round's reward against the group's rewards in the same round, in standard deviations of these.
    step: a round's and all later rewards, each against all rewards of the group, in standard deviations of these.
    regret: minus the regret against the group's, in standard deviations of these, the same for all rounds.
    """
    found = np.zeros(rewards.shape)
    for one in np.unique(scenario):
        group = scenario == one
        if credit == "regret":
            found[group] = normalised(-regrets[group, None], axis=0)
        elif credit == "round":
            found[group] = normalised(rewards[group], axis=0)
        else:
            found[group] = normalised(rewards[group])[:, ::-1].cumsum(axis=1)[:, ::-1]
    return found


def normalised(values: np.ndarray, axis: int | None = None) -> np.ndarray:
    """Return deviations from the mean along an axis, or from the mean of all, in standard deviations."""
    mean, deviation = values.mean(axis=axis, keepdims=True), values.std(axis=axis, ddof=1, keepdims=True)
    return (values - mean) / (deviation + LEAST)


def rounds_of(replied: Sequence[Sequence[bool]], valid: Sequence[bool]) -> list[np.ndarray]:
    """Return the round, from 0, in which each token of a game's conversations was chosen by the model, else -1.

    replied: of each conversation, one in a dialogue and T in a summary. valid: (T,), whether the round's reply was;
    what was not is nowhere marked as replied (# ASSUME: nor learnt from, as in SFT).
    """
    found, left = [], iter(np.flatnonzero(valid))
    for conversation in replied:
        chosen = np.array([False, *conversation])
        begins = np.flatnonzero(chosen[1:] & ~chosen[:-1])  # a message stands between any two replies
        played = np.array([next(left) for _ in begins], dtype=int)
        which = np.zeros(len(conversation), dtype=int)
        which[begins] = 1
        found.append(np.where(chosen[1:], np.array([-1, *played])[which.cumsum()], -1))
    if next(left, None) is not None:
        raise ValueError("a valid reply has no token that the model chose")
    return found
