"""The advantages of GRPO: what each round of a trajectory is credited with, against the others of its scenario.

Trajectories of a scenario have the same rewards, so they are a group: what one of them earned beyond the others is due
to its own decisions.

Symbols: M scenarios, G trajectories each (a group), n = M · G in all, T rounds, d actions.

# ASSUME: the paper names two kinds of GRPO, "step" and "regret", and defines neither. `step` is what its source calls
# process supervision (DeepSeekMath, Sec. 4.1.3), a round being a step of the process; `regret` is outcome supervision
# (Sec. 4.1.2) with minus the regret for a reward. `round` is ours: what to learn if no round matters to later ones.
"""

from collections.abc import Sequence

import numpy as np

from rmft.params.grpo import Credit

EPSILON = 1e-4  # added to a group's standard deviation, as in TRL: with equal rewards nobody has an advantage


def advantages(credit: Credit, scenario: np.ndarray, rewards: np.ndarray, regrets: np.ndarray) -> np.ndarray:
    """Return the advantages (n, T) of rounds. scenario: (n,). rewards: (n, T), earned. regrets: (n,), at round T.

    All are in standard deviations of the group's values. round: a round's reward against the group's rewards in the
    same round. step: the sum of a round's and all later rewards, each against all rewards of the group. regret: minus
    the regret against the group's, the same for all rounds.
    """
    credited = np.zeros(rewards.shape)
    for number in np.unique(scenario):
        group = scenario == number
        if credit == "regret":
            credited[group] = normalised(-regrets[group, None], axis=0)
        elif credit == "round":
            credited[group] = normalised(rewards[group], axis=0)
        else:
            credited[group] = normalised(rewards[group])[:, ::-1].cumsum(axis=1)[:, ::-1]
    return credited


def normalised(values: np.ndarray, axis: int | None = None) -> np.ndarray:
    """Return deviations from the mean along an axis, or from the mean of all, in standard deviations."""
    mean, deviation = values.mean(axis=axis, keepdims=True), values.std(axis=axis, ddof=1, keepdims=True)
    return (values - mean) / (deviation + EPSILON)


def rounds_of(sampled: Sequence[Sequence[bool]], horizon: int) -> list[np.ndarray]:
    """Return for each token of a game's conversations the round, from 0, in which the model sampled it, else -1.

    sampled: whether the model sampled a token, by conversation: one in a dialogue, T in a summary. Raise ValueError
    where the conversations do not have `horizon` replies.
    """
    by_conversation, replies = [], 0
    for conversation in sampled:
        of_model = np.array([False, *conversation])
        begins = of_model[1:] & ~of_model[:-1]  # a message stands between any two replies
        by_conversation.append(np.where(of_model[1:], replies - 1 + begins.cumsum(), -1))
        replies += begins.sum()
    if replies != horizon:
        raise ValueError(f"conversations have {replies} replies for {horizon} rounds")
    return by_conversation
