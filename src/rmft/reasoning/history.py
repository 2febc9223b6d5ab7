"""What a player has been shown before a reply, in the terms in which replies speak of it.

Symbols: d actions, 0-based. Rewards count as they are shown: with two decimals.
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
    """past: the rounds so far. seen: of every action, the rewards that were shown, by round t = 1, 2, ...

    own: those of them that were earned, since the action was played. Under bandit feedback the two are the same.
    scores: the tally that all of it gives (`models.tally`); before: that before the last round.
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
        """Return what "the average of an action" can mean: of all rewards that were shown of it, or of those earned."""
        return [_mean(of[action].values()) for of in (self.seen, self.own) if of[action]]

    def is_extreme(self, action: int, measure: str, *, lowest: bool) -> bool:
        """Return whether no action that was seen has more (lowest: less), in one of the readings of a measure.

        measure: average, total, or any: a plain "highest reward" can mean the largest one or the largest average.
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
