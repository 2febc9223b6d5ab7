"""The history that a player has seen before a reply, in the terms that replies use.

Symbols: d actions, 0-based. Rewards have two decimals, as prompts show them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isnan

from rmft.embedded_model.tally import START, updated
from rmft.language.protocol import Round

SHOWN_DECIMALS = 2
ROUNDING = 1e-9


@dataclass(frozen=True)
class History:
    """The rounds so far of a game with d actions. Rewards that were not shown are NaN in them."""

    d: int
    past: Sequence[Round] = ()

    @cached_property
    def seen(self) -> list[dict[int, float]]:
        """Return for every action the rewards shown, by round t = 1, 2, ..."""
        shown = [(past.t, _shown(past)) for past in self.past]
        return [{t: rewards[action] for t, rewards in shown if action in rewards} for action in range(self.d)]

    @cached_property
    def own(self) -> list[dict[int, float]]:
        """Return the rewards in `seen` that the player earned by playing the action; under bandit feedback, all."""
        return [{past.t: of[past.t] for past in self.past if past.action == a} for a, of in enumerate(self.seen)]

    @cached_property
    def tallies(self) -> list[list[int]]:
        """Return the scores (d,) of `embedded_model.tally` before the first round, and after each."""
        tallies = [[START] * self.d]
        for past in self.past:
            tallies.append(updated(tallies[-1], _shown(past)))
        return tallies

    @property
    def scores(self) -> list[int]:
        """Return the tally of the history."""
        return self.tallies[-1]

    @property
    def before(self) -> list[int]:
        """Return the tally before the last round."""
        return self.tallies[-2:][0]

    @property
    def last(self) -> Round | None:
        """Return the last round."""
        return self.past[-1] if self.past else None

    @property
    def shown_last(self) -> dict[int, float]:
        """Return the rewards that the last round showed, by action."""
        return _shown(self.past[-1]) if self.past else {}

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


def _shown(past: Round) -> dict[int, float]:
    """Return the rewards that a round showed, by action, as the prompt rounds them."""
    return {a: round(reward, SHOWN_DECIMALS) for a, reward in enumerate(past.rewards) if not isnan(reward)}


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)
