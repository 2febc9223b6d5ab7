"""Conversations with a language model in servers that take and return token ids: vLLM's or llama.cpp's.

`ServedChatModel` is the counterpart of `local.LocalChatModel`: tokens go in and tokens come out, so that fine-tuning
learns the sampled tokens. A request holds all tokens of a conversation; the server has their beginning in its cache.

Symbols: B conversations, n of them in a call, d actions.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from rmft.agents.chat_tokenizer import ChatTokenizer, TokenCompletion
from rmft.agents.endpoint import SEEDS
from rmft.agents.policy_from_model import TOP, Probabilities, Tokens, action_policies, probabilities
from rmft.endpoint.http_client import HttpClient, NoResponseError
from rmft.errors import InputError

Json = dict[str, Any]

HANG_SECONDS = 3600.0  # a server that sends nothing for so long hangs
ATTEMPTS = 3  # a server may close a connection as it is used again; requests are seeded and cost nothing


@dataclass(frozen=True)
class TokenRequest:
    """A prompt to continue. conversation: its row. game: its scenario + its trajectory, the same in every batch."""

    conversation: int
    game: int
    prompt: list[int]
    max_tokens: int
    temperature: float
    seed: int = 0
    stop: tuple[int, ...] = ()  # the ids that end a completion


@dataclass(frozen=True)
class SampledTokens:
    """A completion of a prompt. likeliest: log-probabilities of the likeliest tokens at each position, in order."""

    ids: list[int]
    likeliest: list[dict[int, float]]


class TokenClient(Protocol):
    """A connection to a language model that continues prompts of token ids."""

    def sample(self, requests: Sequence[TokenRequest]) -> list[SampledTokens]:
        """Return the completions of prompts (n,). Raise InputError if a server fails."""

    def likeliest(self, requests: Sequence[TokenRequest]) -> list[dict[int, float]]:
        """Return log-probabilities of the likeliest tokens after prompts (n,). Raise InputError if a server fails."""


class ServedChatModel:
    """Conversations with a model in a server.

    games: (B, 2), scenario and trajectory of each. max_tokens: of a completion.
    """

    def __init__(self, client: TokenClient, chat_tokenizer: ChatTokenizer, games: np.ndarray, max_tokens: int) -> None:
        self.client, self.chat_tokenizer, self.max_tokens = client, chat_tokenizer, max_tokens
        self.games = [int(scenario) + int(trajectory) for scenario, trajectory in games]
        self.count = len(games)
        self.restart()

    def restart(self) -> None:
        """Begin every conversation anew."""
        self.ids: list[list[int]] = [[] for _ in range(self.count)]  # of the conversations so far
        self.prompts: list[list[int]] = [[] for _ in range(self.count)]  # ids of the last messages
        self.response_start = np.zeros(self.count, dtype=np.int64)  # tokens before the last response

    def retract(self, rows: Iterable[int]) -> None:
        """Remove the last response of some conversations, so that `reply` can generate it again."""
        for row in rows:
            del self.ids[row][self.response_start[row] :]

    def reply(
        self,
        messages: Sequence[str] | None,
        *,
        temperature: float,
        uniforms: np.ndarray,
        rows: Sequence[int] | None = None,
    ) -> list[TokenCompletion]:
        """Send messages (n,) and return the responses; with messages None, generate retracted responses again.

        uniforms: (n, …) in [0, 1); the first one becomes the seed of a request. rows: (n,) the conversations, None for
        all.
        """
        rows = range(self.count) if rows is None else [int(row) for row in rows]
        if messages is not None:
            for row, message in zip(rows, messages, strict=True):
                template = self.chat_tokenizer.template
                self.prompts[row] = template.next(message) if self.ids[row] else template.first(message)
                self.ids[row] += self.prompts[row]
        stop = tuple(sorted(self.chat_tokenizer.ends))
        seeds = [int(numbers[0] * SEEDS) for numbers in uniforms]
        requests = [
            TokenRequest(row, self.games[row], self.ids[row], self.max_tokens, temperature, seed, stop)
            for row, seed in zip(rows, seeds, strict=True)
        ]
        completions = []
        for row, sampled in zip(rows, self.client.sample(requests), strict=True):
            tops = sampled.likeliest
            ids = np.array([[*top, *[0] * (TOP - len(top))] for top in tops], dtype=np.int32)
            logprobs = np.array([[*top.values(), *[-np.inf] * (TOP - len(top))] for top in tops], dtype=np.float32)
            completions.append(self.chat_tokenizer.completion(sampled.ids, self.prompts[row], ids, logprobs))
            self.response_start[row] = len(self.ids[row])
            self.ids[row] += completions[-1].ids
        return completions

    def action_policies(
        self,
        completions: Sequence[TokenCompletion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Return the policies (n, d) of the model at the position of its actions.

        See `policy_from_model.action_policies`. Probabilities after tokens that were not sampled take a request each.
        """
        rows = list(range(self.count)) if rows is None else [int(row) for row in rows]

        def after(cases: list[int], places: list[int], beginnings: list[Tokens]) -> list[Probabilities]:
            requests = []
            for case, place, begun in zip(cases, places, beginnings, strict=True):
                row = rows[case]
                prompt = [*self.ids[row][: self.response_start[row] + place], *begun]
                requests.append(TokenRequest(row, self.games[row], prompt, max_tokens=1, temperature=0))
            return [probabilities(top, top.values()) for top in self.client.likeliest(requests)]

        return action_policies(self.chat_tokenizer.tokenizer, completions, spans, actions, names, after)


class ServerConnections:
    """Connections to servers, on an event loop of their own: `with ServerConnections(urls, key, 8, log) as …`.

    concurrency: requests in progress at each server. log: file of the servers' output, for messages.
    """

    def __init__(self, urls: Sequence[str], key: str, concurrency: int, log: Path) -> None:
        self.urls, self.concurrency, self.log = urls, concurrency, log
        self._runner = asyncio.Runner()
        headers = {"Authorization": f"Bearer {key}"}
        self._clients = [
            HttpClient(url, concurrency, headers=headers, timeout=HANG_SECONDS, trust_env=False) for url in urls
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        for client in self._clients:
            await client.close()

    def post(self, path: str, bodies: Sequence[Json], servers: Sequence[int]) -> list[Json]:
        """Return the responses to requests (n,), each at one of the servers. Raise InputError if a server fails."""
        return self._runner.run(self._post_all(path, bodies, servers))

    async def _post_all(self, path: str, bodies: Sequence[Json], servers: Sequence[int]) -> list[Json]:
        room = [asyncio.Semaphore(self.concurrency) for _ in self._clients]
        return await asyncio.gather(
            *(self._post(path, body, server, room[server]) for body, server in zip(bodies, servers, strict=True))
        )

    async def _post(self, path: str, body: Json, server: int, room: asyncio.Semaphore) -> Json:
        async with room:
            attempts_left = ATTEMPTS
            while True:
                attempts_left -= 1
                try:
                    response = await self._clients[server].post(path, body)
                    if response.status != 200:
                        raise InputError(f"{self.urls[server]}: {response.status}, {response.text.strip()}")
                    return json.loads(response.content)
                except (
                    NoResponseError,
                    JSONDecodeError,
                    UnicodeDecodeError,
                ) as error:  # of a body that was cut off, too
                    if not attempts_left or getattr(error, "timeout", False):
                        raise InputError(f"{self.urls[server]}: {error}; {self.log} may say why") from None
