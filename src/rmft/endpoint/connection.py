"""Calls to an endpoint that speaks the OpenAI protocol: each answer is on record before it is used, or is replayed.

`Connection.ask` takes requests and returns answers, many at once. It looks them up in the journal, keeps within the
budget, waits where the endpoint is busy, asks again where an answer was lost, and stops at what will not get better.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

from rmft.endpoint.budget import Budget, Reservation, Usage
from rmft.endpoint.failures import (
    LONGEST_PAUSE,
    Failure,
    MalformedError,
    RequestTarget,
    failure_of,
    redacted,
    required_key,
    until_renewed,
    whole,
)
from rmft.endpoint.journal import Journal, key_of
from rmft.errors import InputError
from rmft.params.endpoint import EndpointSettings
from rmft.streams import Word, stream

if TYPE_CHECKING:
    from openai import AsyncOpenAI

SHORTEST_BACKOFF, LONGEST_BACKOFF = 0.5, 60.0  # seconds
IDLE_SECONDS = 30.0  # that a connection is kept
TEMPLATE_TOKENS = 32  # around a message, at most, whatever the chat template
ROUTE = "/chat/completions"
LOOPBACK = ("://127.", "://localhost", "://[::1]")

Json = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """A model of an endpoint, how it is reached, and what is kept of it.

    model: its id there, perhaps a fine-tuned one's. base_urls: gives the addresses; it is called when the first call
    has to be made, so that a rerun which finds every answer on record needs no endpoint. api_key: may then be None.
    pace: what all waiting is multiplied by.
    """

    settings: EndpointSettings
    model: str
    base_urls: Callable[[], Sequence[str]]
    api_key: str | None = field(repr=False)
    journal: Journal = field(repr=False)
    budget: Budget = field(repr=False)
    pace: float = 1.0


@dataclass(frozen=True)
class Call:
    """A request. body: as the protocol has it, but for the model. words: tell it from others with the same body.

    game: of several addresses, calls of the same game go to the same one; none: each goes to any.
    """

    body: Mapping[str, Any]
    words: tuple[Word, ...]
    game: tuple[Word, ...] = ()


@dataclass
class Counts:
    """What has happened on a connection.

    requests: sent, of which some were retries, by reason. replayed: answers from the journal. waits: that an endpoint
    asked for. seconds: from sending requests to their answers, in sum.
    """

    requests: int = 0
    replayed: int = 0
    waits: int = 0
    seconds: float = 0.0
    used: Usage = field(default_factory=Usage)
    retries: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, int | float | dict[str, int]]:
        """Return all counts by name."""
        answers = {f"{name}_tokens": getattr(self.used, name) for name in ("prompt", "cached", "completion")}
        plain = {name: getattr(self, name) for name in ("requests", "replayed", "waits", "seconds")}
        return {**plain, "answers": self.used.answers, **answers, "retries": dict(self.retries)}

    def __str__(self) -> str:
        said = [f"{self.used.answers} answers, {self.used.prompt} + {self.used.completion} tokens"]
        if self.used.answers:
            said.append(f"{self.seconds / self.used.answers:.2f} s each")
        if self.replayed:
            said.append(f"{self.replayed} replayed")
        if self.retries:
            said.append("asked again: " + ", ".join(f"{n} × {reason}" for reason, n in sorted(self.retries.items())))
        return "; ".join(said)


class _Stopped(Exception):  # noqa: N818 (it is no error, but the end of those who wait when there was one)
    """Another call has found out that it is no use to go on."""


class Connection:
    """A connection to an endpoint, for one thread: `with Connection(endpoint) as connection`.

    Its clients and their connections are kept from one `ask` to the next, on an event loop of their own.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.counts = endpoint, Counts()
        self._runner = asyncio.Runner()
        self._clients: list[AsyncOpenAI] = []  # one for every address
        self._reached: set[int] = set()  # addresses, by number, where somebody has answered
        self._quiet_until = 0.0  # on the loop's clock: all are asked to wait until then

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._clients:
            self._runner.run(self._hang_up())
        self._runner.close()

    async def _hang_up(self) -> None:
        for client in self._clients:
            await client.close()

    def ask(self, calls: Sequence[Call]) -> list[Json]:
        """Return the answers to calls, each of which is on record by then.

        Raise InputError where some cannot be had, when all that were under way have ended and are on record. On Ctrl-C
        those that have arrived are recorded, and KeyboardInterrupt goes on.
        """
        journal = self.endpoint.journal
        requests = [self._request(call) for call in calls]
        keys = [key_of(request) for request in requests]
        answers = [journal.answer(key) for key in keys]
        missing = [i for i, answer in enumerate(answers) if answer is None]
        self.counts.replayed += len(calls) - len(missing)
        if missing:
            journal.require_writable()
            self._connect()
            asked = [(requests[i], keys[i], calls[i]) for i in missing]
            for i, answer in zip(missing, self._runner.run(self._ask_all(asked)), strict=True):
                answers[i] = answer
        return answers

    def _request(self, call: Call) -> Json:
        """Return a request as it is recorded: with whom it is for, but not where that is, or with what key."""
        endpoint = self.endpoint
        return {"endpoint": endpoint.settings.name, "words": list(call.words), "model": endpoint.model, **call.body}

    def _connect(self) -> None:
        """Make the clients, if there are none yet; an endpoint of our own may be started by that."""
        endpoint = self.endpoint
        if self._clients:
            return
        key = required_key(endpoint.settings, endpoint.api_key)
        from openai import AsyncOpenAI, DefaultAsyncHttpx2Client

        from rmft.endpoint.connection_pool import ConnectionPool

        for url in endpoint.base_urls():
            http = DefaultAsyncHttpx2Client(
                timeout=endpoint.settings.timeout_seconds,
                transport=ConnectionPool(endpoint.settings.concurrency, IDLE_SECONDS),
                trust_env=behind_proxies(url),
            )
            self._clients.append(AsyncOpenAI(base_url=url, api_key=key, max_retries=0, http_client=http))

    async def _ask_all(self, asked: Sequence[tuple[Json, str, Call]]) -> list[Json]:
        self._stopped, self._landed = asyncio.Event(), asyncio.Event()
        self._slots = asyncio.Semaphore(self.endpoint.settings.concurrency)
        self._first = [asyncio.Lock() for _ in self._clients]
        tasks = [asyncio.create_task(self._in_turn(*one)) for one in asked]
        try:
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            await asyncio.wait(tasks)
            raise
        for error in ended:
            if isinstance(error, BaseException) and not isinstance(error, _Stopped):
                raise error
        return ended

    async def _in_turn(self, request: Json, key: str, call: Call) -> Json:
        """Return an answer; until an address has given one, only one call at a time finds out whether it does."""
        home = int(sha256(repr(call.game or call.words).encode()).hexdigest(), 16) % len(self._clients)
        try:
            if home not in self._reached:
                async with self._first[home]:
                    if home not in self._reached:
                        answer = await self._answer(request, key, home)
                        self._reached.add(home)
                        return answer
            return await self._answer(request, key, home)
        except BaseException:
            self._stopped.set()
            self._landed.set()
            raise

    async def _answer(self, request: Json, key: str, home: int) -> Json:
        """Return an answer that is on record, asked for as often as it takes."""
        attempts = self.endpoint.settings.attempts
        for attempt in range(1, attempts + 1):
            async with self._slots:
                await self._quiet()
                answer = await self._attempt(request, key, home)
            if not isinstance(answer, Failure):
                return answer
            if attempt < attempts:
                self.counts.retries[answer.reason] += 1
                await self._rest(_backoff(key, attempt))
        raise InputError(
            f"{self._url(home)}: no answer after {attempts} attempts, of which the last ended in {answer}; all answers "
            "are kept: run again when it is back"
        )

    async def _attempt(self, request: Json, key: str, home: int) -> Json | Failure:
        """Send a request; return the answer when it is on record, or why there is none."""
        reservation = await self._reserve(request)
        begun = asyncio.get_running_loop().time()
        outcome: Json | Failure = Failure("stopped")
        try:
            self.counts.requests += 1
            outcome = await self._post(request, key, home)
            if not isinstance(outcome, Failure):
                # No await before this: what has arrived is recorded, even if we are interrupted right now.
                recorded = self.endpoint.journal.record_soon(key, request, outcome)
                self.counts.used += Usage.of(outcome)
                self.counts.seconds += asyncio.get_running_loop().time() - begun
                await asyncio.wrap_future(recorded)
        finally:
            self._settle(reservation, outcome)
        return outcome

    def _settle(self, reservation: Reservation, outcome: Json | Failure) -> None:
        """Tell the budget what a call has come to."""
        if isinstance(outcome, Failure):
            # Our own server honours Idempotency-Key, so that what is lost is not paid for twice.
            lost = outcome.paid and self.endpoint.settings.serves is None
            self.endpoint.budget.settle(reservation, None, lost=lost)
        else:
            self.endpoint.budget.settle(reservation, Usage.of(outcome))
        self._landed.set()

    async def _reserve(self, request: Json) -> Reservation:
        """Set money aside, if need be when calls under way have turned out to cost less than they might have."""
        budget = self.endpoint.budget
        most = (
            self.endpoint.model,
            _most_tokens(request),
            request.get("max_completion_tokens", self.endpoint.settings.context),
        )
        while budget.reserved and not budget.allows(*most):
            self._landed.clear()
            await self._landed.wait()
            self._go_on()
        return budget.reserve(*most)

    async def _post(self, request: Json, key: str, home: int) -> Json | Failure:
        """Send a request once; return the answer, or why there is none. Raise InputError where there never will be."""
        from httpx2 import Response
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        settings, client = self.endpoint.settings, self._clients[home]
        body = {name: request[name] for name in sorted(request) if name not in ("endpoint", "words")}
        # Vendors ignore this header. Our own server answers a request that it has seen before as it did then, without
        # sampling it again, so that an answer which was lost on the way costs nothing more. It has to be the same to
        # the byte, hence the order.
        headers = {"Idempotency-Key": key}
        try:
            async with asyncio.timeout(settings.timeout_seconds):  # of all of it, however slowly a body trickles in
                # Not by chat.completions.create, which checks each message of a conversation anew every time.
                reply = await client.post(ROUTE, cast_to=Response, body=body, options={"headers": headers})
            self._pause(until_renewed(reply.headers))
            return whole(reply.content)
        except (TimeoutError, APITimeoutError) as error:
            return Failure("timeout", paid=not _never_sent(error))
        except APIConnectionError as error:
            return Failure("connection", redacted(str(error.__cause__), client.api_key), paid=not _never_sent(error))
        except MalformedError as error:
            return Failure("malformed", str(error), paid=True)
        except APIStatusError as error:
            asked = RequestTarget(self._url(home), self.endpoint.model, settings.api_key, client.api_key)
            found = failure_of(error.status_code, error.response.headers, error.response.content, asked)
            self._pause(found.delay)
            return found

    def _url(self, home: int) -> str:
        return str(self._clients[home].base_url).rstrip("/")

    def _pause(self, seconds: float | None) -> None:
        """Have all calls wait, where an endpoint asks for it."""
        if not seconds:
            return
        if seconds > LONGEST_PAUSE:
            raise InputError(
                f"{self.endpoint.settings.name}: asks to be left alone for {seconds / 3600:.1f} hours; all answers are "
                "kept: run again then"
            )
        self.counts.waits += 1
        until = asyncio.get_running_loop().time() + seconds * self.endpoint.pace
        self._quiet_until = max(self._quiet_until, until)

    async def _quiet(self) -> None:
        """Wait until the endpoint may be asked again."""
        self._go_on()
        while (left := self._quiet_until - asyncio.get_running_loop().time()) > 0:
            await self._sleep(left)

    async def _rest(self, seconds: float) -> None:
        await self._sleep(seconds * self.endpoint.pace)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, unless there comes a reason to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        self._go_on()

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise _Stopped


def behind_proxies(url: str) -> bool:
    """Return whether a proxy of the user's may be between us and an address: not on this machine."""
    return not any(here in url for here in LOOPBACK)


def _backoff(key: str, attempt: int) -> float:
    """Return the seconds before the next attempt: twice as many each time, of which a random half to all."""
    longest = min(LONGEST_BACKOFF, SHORTEST_BACKOFF * 2.0 ** (attempt - 1))
    return longest * (1 + stream(0, "perturbation", "backoff", key, attempt).random()) / 2


def _most_tokens(request: Mapping[str, Any]) -> int:
    """Return a number of tokens that the messages of a request cannot exceed: a token is a byte at least."""
    return sum(len(message["content"].encode()) + TEMPLATE_TOKENS for message in request["messages"])


def _never_sent(error: Exception) -> bool:
    """Return whether a connection failed before anything was sent on it."""
    from httpx2 import ConnectError, ConnectTimeout, PoolTimeout

    return isinstance(error.__cause__, ConnectError | ConnectTimeout | PoolTimeout)
