"""What an endpoint charges for, and a limit in dollars that no call may pass.

Everything here is arithmetic; `journal` knows what was used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from rmft.errors import InputError

if TYPE_CHECKING:
    from rmft.params.endpoint import Prices

MILLION = 1e6  # tokens that a price is for
EVERY = 32  # calls between two looks at what other processes have spent


@dataclass(frozen=True)
class Usage:
    """Tokens that were paid for, in so many answers.

    prompt: sent, of which `cached` the endpoint remembered. completion: replied. trained: fine-tuned on, in all epochs.
    """

    answers: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    trained: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Usage)))

    @classmethod
    def of(cls, response: Mapping[str, Any]) -> Self:
        """Return the usage that an answer of the protocol states: none where it says nothing of it."""
        stated = response.get("usage")
        if not stated:
            return cls()
        cached = (stated.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return cls(1, stated["prompt_tokens"], cached, stated.get("completion_tokens") or 0)


def cost(usage: Usage, prices: "Prices") -> float:
    """Return dollars."""
    anew = usage.prompt - usage.cached
    dollars = anew * prices.input + usage.cached * prices.cached_input
    return (dollars + usage.completion * prices.output + usage.trained * prices.training) / MILLION


@dataclass(frozen=True, eq=False)
class Reservation:
    """The most that a call under way can cost."""

    model: str
    dollars: float


class Budget:
    """A limit, and what is spent of it: by us, by others, and at most by calls that are under way.

    limit: dollars, or None. prices: of each model id, fine-tuned ones too. spent: what our own journal holds at the
    start. elsewhere: gives what all other journals hold, see `journal.Spending`; it is asked now and then, since other
    processes spend at the same time. What they have under way we cannot see: all together may pass the limit by that.
    """

    def __init__(
        self,
        limit: float | None,
        prices: Mapping[str, "Prices"],
        spent: Mapping[str, Usage] | None = None,
        elsewhere: Callable[[], Mapping[str, Usage]] = dict,
    ) -> None:
        self.limit, self.prices, self.elsewhere = limit, prices, elsewhere
        self.ours = self._dollars(spent or {})
        self.others = 0.0
        self.reserved: set[Reservation] = set()
        self.lost = 0.0  # at most: for calls whose answers never came, though they may have been paid for
        self.calls = 0

    @property
    def spent(self) -> float:
        """Return the dollars that answers have cost, and lost ones may have."""
        return self.ours + self.others + self.lost

    @property
    def committed(self) -> float:
        """Return the dollars that are spent, or would be if every call under way cost what it can."""
        return self.spent + sum(reservation.dollars for reservation in self.reserved)

    def allows(self, model: str, prompt_tokens: int, max_tokens: int) -> bool:
        """Return whether one more call, of at most so many tokens, would stay within the limit whatever comes back."""
        return self.limit is None or self.committed + self._most(model, prompt_tokens, max_tokens) <= self.limit

    def reserve(self, model: str, prompt_tokens: int, max_tokens: int) -> Reservation:
        """Set aside the most that a call can cost. Raise InputError where the limit could be passed."""
        if self.limit is None:
            return Reservation(model, 0.0)
        if self.calls % EVERY == 0:
            self.others = self._dollars(self.elsewhere())
        self.calls += 1
        most = self._most(model, prompt_tokens, max_tokens)
        self._refuse_past_limit(most, "the next call")
        reservation = Reservation(model, most)
        self.reserved.add(reservation)
        return reservation

    def require(self, used: Mapping[str, Usage], what: str) -> None:
        """Raise InputError where something that is begun once, and uses so much of models, could pass the limit."""
        if self.limit is None:
            return
        self.others = self._dollars(self.elsewhere())
        self._refuse_past_limit(self._dollars(used), what)

    def _refuse_past_limit(self, dollars: float, what: str) -> None:
        if self.committed + dollars > self.limit:
            raise InputError(
                f"budget.dollars: {self.spent:.4f} of {self.limit:g} dollars are spent, and {what} could cost "
                f"{dollars:.4f}; all answers are kept: raise it and run again"
            )

    def settle(self, reservation: Reservation, usage: Usage | None, *, lost: bool = False) -> None:
        """Put what a call was charged in place of its reservation; None: nothing came back.

        lost: something may have been charged although nothing came back, so that the reservation stands as spent.
        """
        self.reserved.discard(reservation)
        if usage is not None and self.limit is not None:
            self.ours += self._dollars({reservation.model: usage})
        elif lost:
            self.lost += reservation.dollars

    def _most(self, model: str, prompt_tokens: int, max_tokens: int) -> float:
        return self._dollars({model: Usage(1, prompt_tokens, 0, max_tokens)})

    def _dollars(self, used: Mapping[str, Usage]) -> float:
        if self.limit is None:
            return 0.0
        return sum(cost(usage, self._prices(model)) for model, usage in used.items())

    def _prices(self, model: str) -> "Prices":
        try:
            return self.prices[model]
        except KeyError:
            raise InputError(f"prices: none are known for {model!r}, so that budget.dollars cannot be kept") from None
