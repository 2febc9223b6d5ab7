"""How a decision problem is told and answered: App. `prompt-open-weight`, as one record.

Actions are 1..d in text, as in the paper, and 0-based everywhere else.
"""

from dataclasses import dataclass
from typing import Literal

NOT_LEARNT = -100  # the label of a token that a model did not choose, as transformers and TRL have it

Interaction = Literal["dialogue", "summary"]
Output = Literal["action", "distribution"]
Feedback = Literal["full", "bandit"]
Format = Literal["policy-only", "with-reasoning"]


@dataclass(frozen=True)
class Scenario:
    """What the actions stand for: a text, and a name for each action."""

    text: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Protocol:
    """What a model is told, what it must reply, and how much it sees.

    interaction: `dialogue` goes on turn by turn; `summary` puts all past rounds into each prompt, which then stands
    alone. scenario: None for actions that are mere numbers. features: of the context that is shown before each round,
    0 where there is none.
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
    """What one round brought.

    t: 1-based. action: 0-based. policy: as replied, or None. rewards: (d,), all of them. context: (p,), what was shown
    before it.
    """

    t: int
    action: int
    policy: tuple[float, ...] | None
    rewards: tuple[float, ...]
    context: tuple[float, ...] = ()
