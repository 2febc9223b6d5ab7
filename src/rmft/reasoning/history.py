"""The history that a player has seen before a reply, in the terms that replies use.

Symbols: d actions, 0-based. Rewards have two decimals, as prompts show them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Self

from rmft.embedded_model.tally import START, updated
from rmft.language.protocol import Round

SHOWN_DECIMALS = 2
ROUNDING = 1e-9


@dataclass(frozen=True)
class History:
    """past: the rounds so far. seen: for every action, the rewards shown, by round t = 1, 2, ...

    own: the rewards among them that the player earned by playing the action; under bandit feedback, all of them.
    scores: the tally of the history (`embedded_model.tally`). before: the tally before the last round.
    """

    past: tuple[Round, ...]
    seen: tuple[dict[int, float], ...]
    own: tuple[dict[int, float], ...]
    scores: tuple[int, ...]
    before: tuple[int, ...]

    @classmethod
    def begin(cls, d: int) -> Self:
        """Return the history before the first round."""
        return cls((), tuple({} for _ in range(d)), tuple({} for _ in range(d)), (START,) * d, (START,) * d)

    @classmethod
    def of(cls, d: int, past: Sequence[Round]) -> Self:
        """Return the history of some rounds. Rewards that were not shown are NaN in them."""
        history = cls.begin(d)
        for last in past:
            history = history.after(last)
        return history

    def after(self, last: Round) -> Self:
        """Return the history with one more round."""
        shown = {a: round(reward, SHOWN_DECIMALS) for a, reward in enumerate(last.rewards) if not isnan(reward)}
        seen = tuple({**of, last.t: shown[a]} if a in shown else of for a, of in enumerate(self.seen))
        earned = {last.action: shown[last.action]}
        own = tuple({**of, last.t: earned[a]} if a in earned else of for a, of in enumerate(self.own))
        return type(self)((*self.past, last), seen, own, tuple(updated(self.scores, shown)), self.scores)

    @property
    def last(self) -> Round | None:
        """Return the last round."""
        return self.past[-1] if self.past else None

    @property
    def shown_last(self) -> dict[int, float]:
        """Return the rewards that the last round showed, by action."""
        if not self.past:
            return {}
        return {a: of[self.past[-1].t] for a, of in enumerate(self.seen) if self.past[-1].t in of}

    def times(self, action: int) -> int:
        """Return how often an action was played."""
        return len(self.own[action])

    def averages(self, action: int) -> list[float]:
        """Return the possible values of "the average of an action": over all its rewards shown, or those earned."""
        return [_mean(of[action].values()) for of in (self.seen, self.own) if of[action]]

    def is_extreme(self, action: int, measure: str, *, lowest: bool) -> bool:
        """Return whether no action seen so far has more (lowest: less), in one of the readings of a measure.

        measure: average, total, or any: a plain "highest reward" can mean the largest reward or the largest average.
        """
        readings = {"average": [_mean], "total": [sum], "any": [_mean, max if not lowest else min]}[measure]
        return any(self._leads(action, of, reading, lowest) for reading in readings for of in (self.seen, self.own))

    def _leads(self, action: int, of: Sequence[dict[int, float]], reading: Callable, lowest: bool) -> bool:
        values = {a: reading(rewards.values()) for a, rewards in enumerate(of) if rewards}
        if action not in values:
            return False
        if lowest:
            return values[action] <= min(values.values()) + ROUNDING
        return values[action] >= max(values.values()) - ROUNDING


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
