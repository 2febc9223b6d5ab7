"""Requests to an endpoint of the OpenAI protocol: each response is on record before it is used, or is replayed.

`Connection.send` takes many requests at once and returns their responses. It looks them up in the journal, stays within
the budget, waits where the endpoint is busy, retries where a response was lost, and stops at errors that will not pass.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self, get_args

from rmft.artifacts.files import note_response
from rmft.endpoint.access import Endpoint, is_local
from rmft.endpoint.budget import Reservation, Usage
from rmft.endpoint.failures import (
    LONGEST_PAUSE,
    ROUTE,
    Failure,
    MalformedError,
    ReportedError,
    RequestTarget,
    UnusableError,
    failure_of,
    parse_response,
    redacted,
    until_renewed,
)
from rmft.endpoint.journal import Json, key_of
from rmft.errors import InputError
from rmft.params.endpoint import TokenLimit
from rmft.progress import now_and_then
from rmft.streams import Word, stream

if TYPE_CHECKING:
    from rmft.endpoint.http_client import HttpClient

SHORTEST_BACKOFF, LONGEST_BACKOFF = 0.5, 60.0  # seconds
TEMPLATE_TOKENS = 32  # more than any chat template adds to a message, for the most that a request can cost
BUSY, UNUSABLE = "429", "unusable"
MOST_UNUSABLE = 2  # attempts: each is paid, and the next response most likely lacks the same
NO_REPLY = "(no reply)"  # sent in the place of an empty reply, which some vendors refuse as a message


@dataclass(frozen=True)
class Request:
    """A chat request. body: as in the protocol, without the model. words: tell requests with the same body apart.

    game: requests of the same game go to the same one of several addresses; without a game, to any.
    """

    body: Mapping[str, Any]
    words: tuple[Word, ...]
    game: tuple[Word, ...] = ()


@dataclass
class Statistics:
    """What has happened on a connection.

    replayed: responses from the journal. seconds: from requests to their responses, in sum. usage: of new responses.
    retries: by reason.
    """

    replayed: int = 0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    retries: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        parts = [f"{self.usage.answers} responses, {self.usage.prompt} + {self.usage.completion} tokens"]
        if self.usage.answers:
            parts.append(f"{self.seconds / self.usage.answers:.2f} s each")
        if self.replayed:
            parts.append(f"{self.replayed} replayed")
        if self.retries:
            parts.append("retries: " + ", ".join(f"{n} × {reason}" for reason, n in sorted(self.retries.items())))
        return "; ".join(parts)


class _StoppedError(Exception):
    """Another request has failed for good."""


class Connection:
    """A connection to a model of an endpoint, for one thread: `with Connection(endpoint, model) as connection`.

    model: its id there, perhaps a fine-tuned one's. The HTTP clients stay open from one `send` to the next, on an event
    loop of their own.
    """

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self.endpoint, self.model, self.statistics = endpoint, model, Statistics()
        self._runner = asyncio.Runner()
        self._clients: list[HttpClient] = []  # one for each address
        self._reached: set[int] = set()  # addresses, by number, that have responded
        self._report = now_and_then(0.0)
        self._paused_until: list[float] = []  # on the loop's clock: an address wants no requests until then

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._clients:
            self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        for client in self._clients:
            await client.close()

    def send(self, requests: Sequence[Request]) -> list[Json]:
        """Return the responses to requests; all of them are on record by then.

        If some requests fail for good, raise InputError after all requests in progress have ended and are on record.
        On Ctrl-C, responses that have arrived are recorded, and KeyboardInterrupt is raised.
        """
        journal = self.endpoint.journal
        records = [self._record(request) for request in requests]
        keys = [key_of(record) for record in records]
        responses = [journal.response(key) for key in keys]
        missing = [i for i, response in enumerate(responses) if response is None]
        for record, response in zip(records, responses, strict=True):
            if response is not None:  # one that was refused is on record, too
                self._require_kept_limit(record, Usage.of(response))
        self.statistics.replayed += len(requests) - len(missing)
        if missing:
            journal.require_writable()
            self._connect()
            new = self._runner.run(self._send_all([(records[i], keys[i], requests[i]) for i in missing]))
            for i, response in zip(missing, new, strict=True):
                responses[i] = response
        for key, response in zip(keys, responses, strict=True):
            note_response(key, response)
        return responses

    def _record(self, request: Request) -> Json:
        """Return a request as it is recorded: with the endpoint's name, which is its first address, without the key."""
        name, words = self.endpoint.settings.name, list(request.words)
        return {"endpoint": name, "words": words, "model": self.model, **request.body}

    def _connect(self) -> None:
        """Create the clients, unless they exist; this may start our own server."""
        if self._clients:
            return
        settings = self.endpoint.settings
        urls, self._key = self.endpoint.access()
        from rmft.endpoint.http_client import HttpClient

        for url in urls:
            client = HttpClient(
                url,
                settings.concurrency,
                headers={"Authorization": f"Bearer {self._key}"},
                timeout=settings.timeout_seconds,
                trust_env=not is_local(url),
            )
            self._clients.append(client)
        self._paused_until = [0.0] * len(self._clients)

    async def _send_all(self, requests: Sequence[tuple[Json, str, Request]]) -> list[Json]:
        self._stopped = asyncio.Event()  # set when a request has failed for good
        self._settled = asyncio.Event()  # set whenever a reservation of the budget ends
        self._slots = asyncio.Semaphore(self.endpoint.settings.concurrency)
        self._first = [asyncio.Lock() for _ in self._clients]  # until an address has responded once
        tasks = [asyncio.create_task(self._send(*one)) for one in requests]
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            await asyncio.wait(tasks)
            raise
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, _StoppedError):
                raise result
        return results

    async def _send(self, record: Json, key: str, request: Request) -> Json:
        """Return a response. Until an address has responded once, it gets one request at a time."""
        address = self._address_of(request)
        try:
            if address not in self._reached:
                async with self._first[address]:
                    if address not in self._reached:
                        response = await self._send_with_retries(record, key, address)
                        self._reached.add(address)
                        return response
            return await self._send_with_retries(record, key, address)
        except BaseException:  # whatever ends this request ends the others too
            self._stopped.set()
            self._settled.set()
            raise

    def _address_of(self, request: Request) -> int:
        """Return the number of the address for a request: the first for a tuned model, which is there alone."""
        tuned = self.model != self.endpoint.settings.model
        addresses = 1 if tuned else len(self._clients)
        return int(sha256(repr(request.game or request.words).encode()).hexdigest(), 16) % addresses

    async def _send_with_retries(self, record: Json, key: str, address: int) -> Json:
        """Return a response that is on record, after as many attempts as it takes.

        They are counted anew after a refusal for being busy (429) if the endpoint has answered other requests since. A
        second completion that lacks something is the last.
        """
        attempts = self.endpoint.settings.attempts
        counted = tries = unusable = 0
        answered = self.statistics.usage.answers
        while True:
            await self._wait_for_pause(address)
            async with self._slots:
                self._raise_if_stopped()
                if self._pause_left(address) > 0:  # since it waited for a slot, which others can use meanwhile
                    continue
                outcome = await self._attempt(record, key, address)
            if not isinstance(outcome, Failure):
                return outcome
            tries += 1
            before, answered = answered, self.statistics.usage.answers
            counted = 0 if outcome.reason == BUSY and answered > before else counted + 1
            unusable += outcome.reason == UNUSABLE
            if counted == attempts or unusable == MOST_UNUSABLE:
                break
            self.statistics.retries[outcome.reason] += 1
            if address not in self._reached:  # so that nobody waits for a wrong address without a word
                self._report(f"{self._url(address)}: {outcome}; attempt {counted + 1} of {attempts} follows")
            await self._sleep(_backoff(key, tries) * self.endpoint.pace)
        cure = "all responses are kept: run again when it is back"
        if outcome.reason == BUSY:
            cure += ", or with a lower `concurrency`"
        elif not outcome.in_protocol and address not in self._reached:
            cure += ", or correct the address: no server of the OpenAI protocol has answered there"
        raise InputError(
            f"{self._url(address)}: no response after {tries} attempts, of which the last ended in {outcome}; {cure}"
        )

    async def _attempt(self, record: Json, key: str, address: int) -> Json | Failure:
        """Send a request once. Return the response when it is on record, or the failure."""
        reservation = await self._reserve(record)
        begun = asyncio.get_running_loop().time()
        # Our own server honours Idempotency-Key, so that a lost response is not paid for twice.
        bills_lost = reservation.dollars > 0 and self.endpoint.settings.serves is None
        usage = None
        try:
            outcome = await self._post(record, key, address)
            if isinstance(outcome, Failure):
                if outcome.paid and bills_lost:
                    usage = reservation.most
                    await asyncio.wrap_future(self._record_lost(key, reservation))
                self._pause(address, outcome.delay)
            else:
                # No await before this line: a response that has arrived is recorded even if we are interrupted now.
                recorded = self.endpoint.journal.record_soon(key, record, outcome)
                usage = Usage.of(outcome)
                self.statistics.usage += usage
                self.statistics.seconds += asyncio.get_running_loop().time() - begun
                await asyncio.wrap_future(recorded)
                self._require_kept_limit(record, usage)
            return outcome
        except asyncio.CancelledError:  # by Ctrl-C: the endpoint may go on to generate the response, and bill it
            if usage is None and bills_lost:
                usage = reservation.most
                self._record_lost(key, reservation)
            raise
        finally:
            self.endpoint.budget.settle(reservation, usage)
            self._settled.set()

    def _record_lost(self, key: str, reservation: Reservation) -> "Future[None]":
        """Record the most that a request without a response may have cost: a budget counts it in later runs.

        Return a future that is done when it is on the disk.
        """
        of_lost, request = sha256(f"lost {key}".encode()).hexdigest(), {"model": self.model, "lost": key}
        return self.endpoint.journal.record_soon(of_lost, request, {}, reservation.most)

    def _require_kept_limit(self, record: Json, usage: Usage) -> None:
        """Raise InputError where a completion has more tokens than its request allows."""
        settings = self.endpoint.settings
        limit = record.get(settings.token_limit)
        if limit is not None and usage.completion > limit + 1:  # some count the token that ends a completion
            other = next(name for name in get_args(TokenLimit) if name != settings.token_limit)
            raise InputError(
                f"{settings.name}: a completion has {usage.completion} tokens, and its request allows {limit}: the "
                f"endpoint does not know {settings.token_limit}; set token_limit: {other} (rmft eval: --token-limit)"
            )

    async def _reserve(self, record: Json) -> Reservation:
        """Reserve the most that a request can cost; if necessary, wait until others have cost less than reserved."""
        budget = self.endpoint.budget
        max_tokens = record.get(self.endpoint.settings.token_limit, self.endpoint.settings.context)
        most = (self.model, _most_tokens(record), max_tokens)
        while budget.reserved and not budget.allows(*most):
            self._settled.clear()
            await self._settled.wait()
            self._raise_if_stopped()
        return budget.reserve(*most)

    async def _post(self, record: Json, key: str, address: int) -> Json | Failure:
        """Send a request once; return the response or the failure. Raise InputError if no retry can succeed."""
        from rmft.endpoint.http_client import NoResponseError

        settings = self.endpoint.settings
        # Our own server answers a request that it has seen before, with the same Idempotency-Key, from its records, so
        # that a lost response costs nothing more; vendors ignore the header. The body has to be the same to the byte,
        # hence the order.
        body = {name: record[name] for name in sorted(record) if name not in ("endpoint", "words")}
        if settings.serves is None:
            body["messages"] = [sendable(message) for message in body["messages"]]
        target = RequestTarget(self._url(address), self.model, settings.api_key, self._key, own=bool(settings.serves))
        try:
            response = await self._clients[address].post(ROUTE, body, {"Idempotency-Key": key})
            if response.is_success:
                self._pause(address, until_renewed(response.headers))
                return parse_response(response.content)
        except NoResponseError as error:
            if error.timeout:
                return Failure("timeout", paid=error.sent)
            return Failure("connection", redacted(str(error), target.key), paid=error.sent)
        except ReportedError as error:
            return Failure("error", redacted(str(error), target.key), paid=True, in_protocol=True)
        except UnusableError as error:
            return Failure(UNUSABLE, str(error), paid=True, in_protocol=True)
        except MalformedError as error:
            return Failure("malformed", str(error), paid=True)
        return failure_of(response.status, response.headers, response.content, target)

    def _url(self, address: int) -> str:
        return self._clients[address].url

    def _pause(self, address: int, seconds: float | None) -> None:
        """Make all requests to an address wait, where it wants none for a while."""
        if not seconds:
            return
        if seconds > LONGEST_PAUSE:
            raise InputError(
                f"{self._url(address)}: asks us to wait {seconds / 3600:.1f} hours; all responses are "
                "kept: run again then"
            )
        until = asyncio.get_running_loop().time() + seconds * self.endpoint.pace
        self._paused_until[address] = max(self._paused_until[address], until)

    async def _wait_for_pause(self, address: int) -> None:
        """Wait until an address accepts requests again."""
        self._raise_if_stopped()
        while (left := self._pause_left(address)) > 0:
            await self._sleep(left)

    def _pause_left(self, address: int) -> float:
        return self._paused_until[address] - asyncio.get_running_loop().time()

    async def _sleep(self, seconds: float) -> None:
        """Sleep, unless another request fails for good meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        self._raise_if_stopped()

    def _raise_if_stopped(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError


def sendable(message: Json) -> Json:
    """Return a message as vendors accept it: one that is empty says so."""
    return message if message["content"].strip() else {**message, "content": NO_REPLY}


def _backoff(key: str, attempt: int) -> float:
    """Return the seconds before the next attempt: they double each time, up to a limit; half of them is random."""
    longest = min(LONGEST_BACKOFF, SHORTEST_BACKOFF * 2.0 ** (attempt - 1))
    return longest * (1 + stream(0, "perturbation", "backoff", key, attempt).random()) / 2


def _most_tokens(record: Mapping[str, Any]) -> int:
    """Return a number of tokens that the messages of a request cannot exceed: a token has at least one byte."""
    return sum(len(sendable(message)["content"].encode()) + TEMPLATE_TOKENS for message in record["messages"])
