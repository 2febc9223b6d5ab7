"""What is asked twice is done once: a POST request may carry a key, and a repetition of it gets the first answer."""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rmft.endpoint_server.errors import ApiError, invalid
from rmft.endpoint_server.store import Answers

LONGEST_KEY = 255


@dataclass(frozen=True)
class Made:
    """An answer, JSON in one line, and what it cost (store.COUNTED)."""

    response: bytes
    cost: dict[str, int]


Make = Callable[[str], Awaitable[Made]]  # is given a name for what it makes, the same whenever the key is


class Once:
    """Who asks with keys, and what they were answered."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.under_way: dict[bytes, tuple[str, asyncio.Task[bytes]]] = {}

    async def answer(self, route: str, key: str | None, body: bytes, make: Make) -> bytes:
        """Return the answer to a request: that of its key if there is one, else a new one.

        With a key it is made to its end, and kept, even if who asked has gone: they may come again.
        """
        if key is None:
            made = await make(secrets.token_hex(16))
            if made.cost:
                self.answers.record(None, "", b"", made.cost)
            return made.response
        if not 0 < len(key) <= LONGEST_KEY:
            raise invalid(f"Idempotency-Key must have 1 to {LONGEST_KEY} characters.", "Idempotency-Key")
        digest, request = digest_of(f"{route}\n{key}".encode()), digest_of(body).hex()
        if found := self.answers.find(digest):
            _same(found.body, request)
            return found.response
        if digest not in self.under_way:
            task = asyncio.create_task(self._make(digest, request, make))
            self.under_way[digest] = request, task
            task.add_done_callback(lambda done: self._over(digest, done))
        _same(self.under_way[digest][0], request)
        return await asyncio.shield(self.under_way[digest][1])

    def _over(self, digest: bytes, done: asyncio.Task[bytes]) -> None:
        del self.under_way[digest]
        if not done.cancelled():
            done.exception()  # looked at here, since who asked may have gone

    async def _make(self, digest: bytes, request: str, make: Make) -> bytes:
        made = await make(digest.hex())
        self.answers.record(digest, request, made.response, made.cost)
        return made.response


def digest_of(data: bytes) -> bytes:
    """Return a hash of 16 bytes."""
    return hashlib.blake2b(data, digest_size=16).digest()


def _same(known: str, request: str) -> None:
    if known != request:
        message = "This Idempotency-Key was used with another request."
        raise ApiError(422, message, "Idempotency-Key", "idempotency_key_reused")
