"""How a language model plays a decision problem, as one record: App. `prompt-open-weight`.

Actions are 1..d in text, as in the paper, and 0-based everywhere else. Symbols: d actions, p features of a context.
"""

import itertools
from dataclasses import dataclass
from typing import Literal

MOST_TOKENS = 1 << 17  # of a completion: a random number is drawn for each before it begins
NOT_LEARNT = -100  # the label of tokens that the model did not sample, as in transformers and TRL

Interaction = Literal["dialogue", "summary"]
Output = Literal["action", "distribution"]
Feedback = Literal["full", "bandit"]
Format = Literal["policy-only", "with-reasoning"]


@dataclass(frozen=True)
class Scenario:
    """A text that describes a decision problem, and a name for each action."""

    text: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Protocol:
    """The prompts of a game, the form of its replies, and its feedback.

    interaction: `dialogue` adds a turn each round; `summary` repeats all past rounds in each prompt, which then stands
    alone. format: whether the reply reasons before it decides. scenario: None for numbered actions without a text.
    features: p of the context shown before each round; 0 without contexts.
    """

    interaction: Interaction
    output: Output
    feedback: Feedback
    format: Format
    d: int
    scenario: Scenario | None = None
    features: int = 0


@dataclass(frozen=True)
class Round:
    """A past round, as prompts show it.

    t: 1-based. action: 0-based. policy: (d,) as replied, or None. rewards: (d,). context: (p,), empty without contexts.
    """

    t: int
    action: int
    policy: tuple[float, ...] | None
    rewards: tuple[float, ...]
    context: tuple[float, ...] = ()


def all_protocols(d: int, scenario: Scenario | None = None) -> list[Protocol]:
    """Return every protocol for d actions."""
    options = itertools.product(
        ("dialogue", "summary"), ("action", "distribution"), ("full", "bandit"), ("policy-only", "with-reasoning")
    )
    return [Protocol(*option, d, scenario) for option in options]
