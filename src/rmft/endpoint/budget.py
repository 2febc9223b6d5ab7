"""What an endpoint charges, and a limit in dollars, which one process never exceeds.

Everything here is arithmetic; `journal` knows what was used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from rmft.errors import InputError

if TYPE_CHECKING:
    from rmft.params.endpoint import Prices

MILLION = 1e6  # tokens that a price is for
REFRESH_EVERY = 32  # requests between two looks at what other processes have spent


@dataclass(frozen=True)
class Usage:
    """Tokens that were paid for. The fields are stored in journals under these names.

    answers: number of responses. prompt: tokens sent, `cached` of them from the endpoint's cache. completion: tokens
    received. trained: tokens fine-tuned on, in all epochs.
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
        """Return the usage that a response of the protocol states; zero if it states none."""
        usage = response.get("usage")
        if not usage:
            return cls()
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        prompt = usage["prompt_tokens"]
        whole = prompt if cached <= prompt else prompt + cached  # some endpoints do not count what is cached in it
        return cls(1, whole, cached, usage.get("completion_tokens") or 0)


def cost(usage: Usage, prices: "Prices") -> float:
    """Return the cost of a usage in dollars."""
    uncached = usage.prompt - usage.cached
    dollars = uncached * prices.input + usage.cached * prices.cached_input
    return (dollars + usage.completion * prices.output + usage.trained * prices.training) / MILLION


@dataclass(frozen=True, eq=False)
class Reservation:
    """The most that a request in progress can use, and cost where there is a limit."""

    model: str
    most: Usage
    dollars: float


class SpendingLimit:
    """A limit in dollars: what was spent, plus the most that requests in progress can cost, stays within it.

    limit: dollars, or None for no limit. prices: by model id. spent: the usage in our own journal at the start.
    elsewhere: returns the usage in all other journals; it is called at every REFRESH_EVERY-th request that costs
    something, since other processes spend at the same time. So several processes together may exceed the limit, by what
    the others have spent since the last call and by their requests in progress.
    option, cure: the name of the limit and what to do where it is reached, for messages.
    """

    def __init__(
        self,
        limit: float | None,
        prices: Mapping[str, "Prices"],
        spent: Mapping[str, Usage] | None = None,
        elsewhere: Callable[[], Mapping[str, Usage]] = dict,
        *,
        option: str = "budget.dollars",
        cure: str = "all responses are kept: raise it and run again",
    ) -> None:
        self.option, self.cure = option, cure
        self.limit, self.prices, self.elsewhere = limit, prices, elsewhere
        self.ours, self.others = self._dollars(spent or {}), 0.0
        self.reserved: set[Reservation] = set()
        self.requests = 0

    @property
    def spent(self) -> float:
        """Return the dollars that responses have cost, and that lost ones may have cost."""
        return self.ours + self.others

    @property
    def committed(self) -> float:
        """Return the dollars that are spent, or would be if each request in progress cost the most it can."""
        return self.spent + sum(reservation.dollars for reservation in self.reserved)

    def allows(self, model: str, prompt_tokens: int, max_tokens: int) -> bool:
        """Return whether a further request of at most so many tokens would certainly stay within the limit."""
        return self.limit is None or self.committed + self._most(model, prompt_tokens, max_tokens).dollars <= self.limit

    def reserve(self, model: str, prompt_tokens: int, max_tokens: int) -> Reservation:
        """Reserve the most that a request can cost. Raise InputError if this could exceed the limit."""
        reservation = self._most(model, prompt_tokens, max_tokens)
        if not reservation.dollars:  # what costs nothing, or has no limit, need not know what others have spent
            return reservation
        if self.requests % REFRESH_EVERY == 0:
            self.others = self._dollars(self.elsewhere())
        self.requests += 1
        self._require(reservation.dollars, "the next request")
        self.reserved.add(reservation)
        return reservation

    def require(self, usage: Mapping[str, Usage], purpose: str) -> None:
        """Raise InputError if something that uses so much, such as a fine-tuning job, could exceed the limit."""
        if dollars := self._dollars(usage):
            self.others = self._dollars(self.elsewhere())
            self._require(dollars, purpose)

    def _require(self, dollars: float, purpose: str) -> None:
        if self.committed + dollars > self.limit:
            raise InputError(
                f"{self.option}: {self.spent:.4f} of {self.limit:g} dollars are spent, and {purpose} could cost "
                f"{dollars:.4f}; {self.cure}"
            )

    def settle(self, reservation: Reservation, usage: Usage | None) -> None:
        """Replace a reservation by what the request used; None: there was no response, and nothing was charged.

        Where there was no response and the request may have been charged, `usage` is the reservation's `most`.
        """
        self.reserved.discard(reservation)
        if usage is not None and self.limit is not None:
            self.ours += self._dollars({reservation.model: usage})

    def _most(self, model: str, prompt_tokens: int, max_tokens: int) -> Reservation:
        usage = Usage(prompt=prompt_tokens, completion=max_tokens)
        return Reservation(model, usage, self._dollars({model: usage}))

    def _dollars(self, usage: Mapping[str, Usage]) -> float:
        if self.limit is None:
            return 0.0
        try:
            return sum(cost(used, self.prices[model]) for model, used in usage.items())
        except KeyError as error:
            raise InputError(
                f"prices: none are known for {error}, so that {self.option} cannot be kept; add a model of this name, "
                "with its prices, to params.yaml"
            ) from None
