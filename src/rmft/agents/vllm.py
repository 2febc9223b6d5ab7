"""Language models in vLLM's servers: tokens go in and tokens come out, so that fine-tuning learns the sampled tokens.

`VLLMChatModel` is the counterpart of `local.LocalChatModel`. Servers keep no conversation: each request holds all
of its tokens. All requests of a game go to one server, which has their beginning in its prefix cache.

Symbols: B conversations, n of them in a call, d actions.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from httpx2 import AsyncClient, HTTPError, Limits

from rmft.agents.chat_tokenizer import ChatTokenizer, TokenCompletion
from rmft.agents.endpoint import SEEDS
from rmft.agents.policy_from_model import TOP, Probabilities, Tokens, action_policies, probabilities
from rmft.errors import InputError

TOKEN = "token_id:"  # vLLM writes this before the id of a token

Json = dict[str, Any]


@dataclass(frozen=True)
class VLLMServers:
    """The servers of one model. model: its name there. concurrency: requests in progress at each server."""

    urls: Sequence[str]
    model: str
    key: str
    concurrency: int


class VLLMClient:
    """Connections to servers, on an event loop of their own: `with VLLMClient(servers) as client`."""

    def __init__(self, servers: VLLMServers) -> None:
        self.servers = servers
        self._runner = asyncio.Runner()
        limits = Limits(max_connections=servers.concurrency, max_keepalive_connections=servers.concurrency)
        headers = {"Authorization": f"Bearer {servers.key}"}
        self._clients = [
            AsyncClient(base_url=url, headers=headers, limits=limits, timeout=None, trust_env=False)
            for url in servers.urls
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        for client in self._clients:
            await client.aclose()

    def complete(self, bodies: Sequence[Json], games: Sequence[int]) -> list[Json]:
        """Return the completions of prompts (n,). games: which each belongs to. Raise InputError if a server fails."""
        return self._runner.run(self._complete_all(bodies, games))

    async def _complete_all(self, bodies: Sequence[Json], games: Sequence[int]) -> list[Json]:
        slots = [asyncio.Semaphore(self.servers.concurrency) for _ in self._clients]
        servers = [game % len(self._clients) for game in games]
        return await asyncio.gather(*(self._complete(*one, slots) for one in zip(bodies, servers, strict=True)))

    async def _complete(self, body: Json, server: int, slots: Sequence[asyncio.Semaphore]) -> Json:
        body, url = {"model": self.servers.model, **body}, self.servers.urls[server]
        async with slots[server]:
            try:
                response = await self._clients[server].post("/completions", json=body)
            except HTTPError as error:
                raise InputError(f"{url}: {error or type(error).__name__}") from None
        if response.status_code != 200:
            raise InputError(f"{url}: {response.status_code}, {response.text.strip()}")
        return response.json()["choices"][0]


class VLLMChatModel:
    """Conversations with a model in vLLM.

    games: (B, 2), scenario and trajectory of each. max_tokens: of the longest response.
    """

    def __init__(self, client: VLLMClient, chat_tokenizer: ChatTokenizer, games: np.ndarray, max_tokens: int) -> None:
        self.client, self.chat_tokenizer, self.max_tokens = client, chat_tokenizer, max_tokens
        self.count = len(games)
        self.servers_of = [int(scenario) + int(trajectory) for scenario, trajectory in games]
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
        options = {
            "temperature": temperature,
            "max_tokens": self.max_tokens,
            "stop_token_ids": sorted(self.chat_tokenizer.ends),
        }
        bodies = [
            options | {"prompt": self.ids[row], "seed": int(numbers[0] * SEEDS)}
            for row, numbers in zip(rows, uniforms, strict=True)
        ]
        completions = []
        for row, choice in zip(rows, self._complete(bodies, rows), strict=True):
            tops = _likeliest(choice)
            ids = np.array([[*top, *[0] * (TOP - len(top))] for top in tops], dtype=np.int32)
            logprobs = np.array([[*top.values(), *[-np.inf] * (TOP - len(top))] for top in tops], dtype=np.float32)
            completions.append(self.chat_tokenizer.completion(choice["token_ids"], self.prompts[row], ids, logprobs))
            self.response_start[row] = len(self.ids[row])
            self.ids[row] += completions[-1].ids
        return completions

    def _complete(self, bodies: Sequence[Json], rows: Sequence[int]) -> list[Json]:
        """Return the completions of prompts, with the likeliest tokens at each position."""
        options = {"logprobs": TOP, "return_token_ids": True, "return_tokens_as_token_ids": True}
        return self.client.complete([body | options for body in bodies], [self.servers_of[row] for row in rows])

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
            games = [rows[case] for case in cases]
            bodies = [
                {
                    "prompt": [*self.ids[row][: self.response_start[row] + place], *begun],
                    "max_tokens": 1,
                    "temperature": 0,
                }
                for row, place, begun in zip(games, places, beginnings, strict=True)
            ]
            tops = [_likeliest(choice)[0] for choice in self._complete(bodies, games)]
            return [probabilities(top, top.values()) for top in tops]

        return action_policies(self.chat_tokenizer.tokenizer, completions, spans, actions, names, after)


def _likeliest(choice: Json) -> list[dict[int, float]]:
    """Return the log-probabilities of the likeliest tokens at each position, the likeliest first."""
    tops = [
        sorted(((int(name.removeprefix(TOKEN)), logprob) for name, logprob in top.items()), key=lambda pair: -pair[1])
        for top in choice["logprobs"]["top_logprobs"]
    ]
    return [dict(top[:TOP]) for top in tops]
