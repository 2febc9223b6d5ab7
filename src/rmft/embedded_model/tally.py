"""The tally that the embedded model carries in its replies: its rule, and how replies state it.

Every action has a score from 0 to 9 that starts at 5, goes up by one on a good reward (5 or more) and down by one on a
poor reward. The corpus writes replies by this rule; the fidelity gate and `reasoning` check replies against it.

Symbols: d actions. Actions are 1..d in text and 0-based everywhere else.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from rmft.language.parsing import Decision

START, LOWEST, HIGHEST, GOOD = 5, 0, 9, 5.0
NOTE = re.compile(
    r"\b(\d{1,9}) paid (\d+\.\d\d), (good|poor)(?:: (\d{1,9}) goes from (\d{1,9}) to (\d{1,9})=(\d{1,9}))?\."
)
SCORES = re.compile(r"Scores:(?: \d{1,9}=\d{1,9})+\.")
SCORE = re.compile(r" (\d{1,9})=(\d{1,9})\b")
CHOICE = re.compile(r": (\d+)\.$")


def is_good(reward: float) -> bool:
    """Return whether a reward, rounded to two decimals as in prompts, is good."""
    return round(reward, 2) >= GOOD


def grade(reward: float) -> str:
    """Return the word for a reward."""
    return "good" if is_good(reward) else "poor"


def moved(score: int, reward: float) -> int:
    """Return the next score of an action that paid this reward."""
    return min(max(score + (1 if is_good(reward) else -1), LOWEST), HIGHEST)


def updated(scores: Sequence[int], shown: Mapping[int, float]) -> list[int]:
    """Return the scores (d,) after a round. shown: the revealed rewards, by action."""
    return [moved(score, shown[a]) if a in shown else score for a, score in enumerate(scores)]


def best_of(rewards: Sequence[float]) -> int:
    """Return the action of the highest reward in whole points: in these games, decimals are noise."""
    return int(np.argmax([int(reward) for reward in rewards]))


def agrees(text: str, decision: Decision, tolerance: float) -> bool:
    """Return whether the decision on a reply's last line is the one that its reasoning states."""
    reasoning = text.rpartition("\n")[0]
    stated = CHOICE.search(reasoning)
    if decision.action is not None:
        return stated is not None and int(stated[1]) == decision.action + 1
    if stated is None:
        return reasoning.endswith("alike.") and np.ptp(decision.policy) < tolerance
    return np.argmax(decision.policy) == int(stated[1]) - 1 and np.ptp(decision.policy) > tolerance
