"""The tally that the embedded model carries in its replies: how it is kept, how it is written, how it is read back.

Every action has a score from 0 to 9 that starts at 5, goes up by one on a good reward (5 or more) and down by one on a
poorer one. The corpus writes replies by this rule; the gate and `reasoning` hold replies against it.

Symbols: d actions. Actions are 1..d in text and 0-based everywhere else.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from rmft.language.parsing import Decision

START, LOWEST, HIGHEST, GOOD = 5, 0, 9, 5.0
NOTE = re.compile(r"(\d+) paid (\d+\.\d\d), (good|poor)(?:: (\d+) goes from (\d+) to (\d+)=(\d+))?\.")
SCORES = re.compile(r"Scores:(?: \d+=\d+)+\.")
SCORE = re.compile(r" (\d+)=(\d+)")
CHOICE = re.compile(r": (\d+)\.$")


def is_good(reward: float) -> bool:
    """Return whether a reward, as it is shown, is good."""
    return round(reward, 2) >= GOOD


def grade(reward: float) -> str:
    """Return the word for a reward."""
    return "good" if is_good(reward) else "poor"


def moved(score: int, reward: float) -> int:
    """Return an action's score after it has paid a reward."""
    return min(max(score + (1 if is_good(reward) else -1), LOWEST), HIGHEST)


def updated(scores: Sequence[int], shown: Mapping[int, float]) -> list[int]:
    """Return the scores (d) after a round. shown: the rewards that were shown, by action."""
    return [moved(score, shown[a]) if a in shown else score for a, score in enumerate(scores)]


def best_of(rewards: Sequence[float]) -> int:
    """Return the action that paid most: in whole points, since a difference in the decimals is noise in these games."""
    return int(np.argmax([int(reward) for reward in rewards]))


def agrees(text: str, read: Decision, tolerance: float) -> bool:
    """Return whether the last line of a reply does what the words before it say. read: what it decides."""
    words = text.rpartition("\n")[0]
    said = CHOICE.search(words)
    if read.action is not None:
        return said is not None and int(said[1]) == read.action + 1
    if said is None:
        return words.endswith("alike.") and np.ptp(read.policy) < tolerance
    return np.argmax(read.policy) == int(said[1]) - 1 and np.ptp(read.policy) > tolerance
