"""Idempotent requests: a POST request with an Idempotency-Key that comes again gets the first response again."""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable

from pydantic_core import to_json

from rmft.endpoint_server.errors import ApiError, invalid
from rmft.endpoint_server.store import Json, Store

LONGEST_KEY = 255
Handler = Callable[[str], Awaitable[Json]]  # its argument: an id for a new object, the same for the same key


class IdempotentRequests:
    """Run the handler of each key once, and keep its response.

    answers: what the responses depend on besides the requests. A server with another base model does not repeat them.
    """

    def __init__(self, store: Store, answers: str) -> None:
        self.store, self.answers = store, answers
        self.running: dict[bytes, tuple[bytes, asyncio.Task[bytes]]] = {}

    async def respond(self, route: str, key: str | None, body: bytes, handler: Handler) -> bytes:
        """Return the recorded response of the key, or else run the handler and record its response.

        With a key, the handler runs to its end even if the client disconnects: the client may send the request again.
        """
        if key is None:
            return self._record(None, b"", await handler(secrets.token_hex(16)))
        if not 0 < len(key) <= LONGEST_KEY:
            raise invalid(f"Idempotency-Key must have 1 to {LONGEST_KEY} characters.", "Idempotency-Key")
        digest, request = digest_of(f"{self.answers}\n{route}\n{key}".encode()), digest_of(body)
        if stored := self.store.response(digest):
            _require_same(stored[0], request)
            return stored[1]
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

    async def _run(self, digest: bytes, request: bytes, handler: Handler) -> bytes:
        return self._record(digest, request, await handler(digest.hex()))

    def _record(self, digest: bytes | None, request: bytes, response: Json) -> bytes:
        """Record a response, and its cost if it was sampled. Return its body."""
        cost, body = {}, to_json(response)
        if usage := response.get("usage"):
            cost = {"requests": 1, "answers": len(response["choices"])}
            cost |= {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}
        self.store.record(digest, request, body, cost)
        return body


def digest_of(data: bytes) -> bytes:
    """Return a hash of 16 bytes."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _require_same(first: bytes, request: bytes) -> None:
    if first != request:
        message = "This Idempotency-Key was used with another request."
        raise ApiError(422, message, "Idempotency-Key", "idempotency_key_reused")
