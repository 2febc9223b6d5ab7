"""Idempotent requests: a POST request with an Idempotency-Key that comes again gets the first response again."""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rmft.endpoint_server.errors import ApiError, invalid
from rmft.endpoint_server.store import ResponseLog

LONGEST_KEY = 255


@dataclass(frozen=True)
class HandlerResult:
    """A response, JSON in one line, and its cost by the names in store.COUNTED; an empty cost is not counted."""

    response: bytes
    cost: dict[str, int]


Handler = Callable[[str], Awaitable[HandlerResult]]  # its argument: an id for a new object, the same for the same key


class IdempotentRequests:
    """Run the handler of each key once, and keep its response."""

    def __init__(self, log: ResponseLog) -> None:
        self.log = log
        self.running: dict[bytes, tuple[str, asyncio.Task[bytes]]] = {}

    async def respond(self, route: str, key: str | None, body: bytes, handler: Handler) -> bytes:
        """Return the recorded response of the key, or else run the handler and record its response.

        With a key, the handler runs to its end even if the client disconnects: the client may send the request again.
        """
        if key is None:
            result = await handler(secrets.token_hex(16))
            if result.cost:
                self.log.record(None, "", b"", result.cost)
            return result.response
        if not 0 < len(key) <= LONGEST_KEY:
            raise invalid(f"Idempotency-Key must have 1 to {LONGEST_KEY} characters.", "Idempotency-Key")
        digest, request = digest_of(f"{route}\n{key}".encode()), digest_of(body).hex()
        if stored := self.log.find(digest):
            _require_same(stored.request, request)
            return stored.response
        if digest not in self.running:
            task = asyncio.create_task(self._run(digest, request, handler))
            self.running[digest] = request, task
            task.add_done_callback(lambda done: self._remove(digest, done))
        _require_same(self.running[digest][0], request)
        return await asyncio.shield(self.running[digest][1])

    def _remove(self, digest: bytes, done: asyncio.Task[bytes]) -> None:
        del self.running[digest]
        if not done.cancelled():
            done.exception()  # without this, asyncio warns of an exception where the client has disconnected

    async def _run(self, digest: bytes, request: str, handler: Handler) -> bytes:
        result = await handler(digest.hex())
        self.log.record(digest, request, result.response, result.cost)
        return result.response


def digest_of(data: bytes) -> bytes:
    """Return a hash of 16 bytes."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _require_same(first: str, request: str) -> None:
    if first != request:
        message = "This Idempotency-Key was used with another request."
        raise ApiError(422, message, "Idempotency-Key", "idempotency_key_reused")
