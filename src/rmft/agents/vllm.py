"""Language models in vLLM's servers: tokens go in and tokens come out, so that what is played is what is learnt.

`VLLMChatModel` is to vLLM what `local.VLLMChatModel` is to a model in process. Servers keep no conversation: each
request brings all of its tokens, whose beginning the server has in its prefix cache, so that all requests of a game go
to one server.

Symbols: B conversations, n of them asked, d actions.
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

TOKEN = "token_id:"  # what vLLM writes before the id of a token

Json = dict[str, Any]


@dataclass(frozen=True)
class Servers:
    """Where the servers of one model are, and how they call it. concurrency: requests under way at each."""

    urls: Sequence[str]
    model: str
    key: str
    concurrency: int


class Engine:
    """Connections to servers, on an event loop of their own: `with Engine(servers) as engine`."""

    def __init__(self, servers: Servers) -> None:
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
        self._runner.run(self._hang_up())
        self._runner.close()

    async def _hang_up(self) -> None:
        for client in self._clients:
            await client.aclose()

    def complete(self, bodies: Sequence[Json], games: Sequence[int]) -> list[Json]:
        """Return what follows prompts (n,). games: that they belong to. Raise InputError where a server fails."""
        return self._runner.run(self._all(bodies, games))

    async def _all(self, bodies: Sequence[Json], games: Sequence[int]) -> list[Json]:
        slots = [asyncio.Semaphore(self.servers.concurrency) for _ in self._clients]
        homes = [game % len(self._clients) for game in games]
        return await asyncio.gather(*(self._one(*one, slots) for one in zip(bodies, homes, strict=True)))

    async def _one(self, body: Json, home: int, slots: Sequence[asyncio.Semaphore]) -> Json:
        async with slots[home]:
            try:
                answer = await self._clients[home].post("/completions", json={"model": self.servers.model, **body})
            except HTTPError as error:
                raise InputError(f"{self.servers.urls[home]}: {error or type(error).__name__}") from None
        if answer.status_code != 200:
            raise InputError(f"{self.servers.urls[home]}: {answer.status_code}, {answer.text.strip()}")
        return answer.json()["choices"][0]


class VLLMChatModel:
    """VLLMChatModel with a model in vLLM.

    games: (B, 2), scenario and trajectory of each. max_tokens: of the longest reply.
    """

    def __init__(self, engine: Engine, chat_tokenizer: ChatTokenizer, games: np.ndarray, max_tokens: int) -> None:
        self.engine, self.chat_tokenizer, self.max_tokens = engine, chat_tokenizer, max_tokens
        self.count = len(games)
        self.homes = [int(scenario) + int(trajectory) for scenario, trajectory in games]
        self.restart()

    def restart(self) -> None:
        """Begin every conversation anew."""
        self.ids: list[list[int]] = [[] for _ in range(self.count)]  # said and told so far
        self.prompts: list[list[int]] = [[] for _ in range(self.count)]  # the last ones
        self.answered = np.zeros(self.count, dtype=np.int64)  # tokens before the last reply

    def retract(self, rows: Iterable[int]) -> None:
        """Forget the last reply of some conversations; what they were asked stands, to be answered again."""
        for row in rows:
            del self.ids[row][self.answered[row] :]

    def reply(
        self,
        messages: Sequence[str] | None,
        *,
        temperature: float,
        uniforms: np.ndarray,
        rows: Sequence[int] | None = None,
    ) -> list[TokenCompletion]:
        """Send messages (n) and return the replies; with messages None, have retracted replies given anew.

        uniforms: (n, …) in [0, 1); a request has one seed, made of the first. rows: (n,) the conversations that are
        meant, None for all.
        """
        rows = range(self.count) if rows is None else [int(row) for row in rows]
        if messages is not None:
            for row, message in zip(rows, messages, strict=True):
                template = self.chat_tokenizer.template
                self.prompts[row] = template.next(message) if self.ids[row] else template.first(message)
                self.ids[row] += self.prompts[row]
        asked = {
            "temperature": temperature,
            "max_tokens": self.max_tokens,
            "stop_token_ids": sorted(self.chat_tokenizer.ends),
        }
        bodies = [
            asked | {"prompt": self.ids[row], "seed": int(numbers[0] * SEEDS)}
            for row, numbers in zip(rows, uniforms, strict=True)
        ]
        turns = []
        for row, choice in zip(rows, self._complete(bodies, rows), strict=True):
            tops = _likeliest(choice)
            ids = np.array([[*top, *[0] * (TOP - len(top))] for top in tops], dtype=np.int32)
            logprobs = np.array([[*top.values(), *[-np.inf] * (TOP - len(top))] for top in tops], dtype=np.float32)
            turns.append(self.chat_tokenizer.completion(choice["token_ids"], self.prompts[row], ids, logprobs))
            self.answered[row] = len(self.ids[row])
            self.ids[row] += turns[-1].ids
        return turns

    def _complete(self, bodies: Sequence[Json], rows: Sequence[int]) -> list[Json]:
        """Return what follows prompts, with its tokens and the likeliest ones in each place."""
        told = {"logprobs": TOP, "return_token_ids": True, "return_tokens_as_token_ids": True}
        return self.engine.complete([body | told for body in bodies], [self.homes[row] for row in rows])

    def action_policies(
        self,
        completions: Sequence[TokenCompletion],
        spans: Sequence[tuple[int, int]],
        actions: Sequence[int],
        names: Sequence[Sequence[str]],
        rows: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Return the policies (n, d) that the model had in mind where it wrote its actions.

        See `policy_from_model.action_policies`. What follows a beginning that was not sampled is asked for.
        """
        rows = list(range(self.count)) if rows is None else [int(row) for row in rows]

        def after(cases: list[int], places: list[int], beginnings: list[Tokens]) -> list[Probabilities]:
            meant = [rows[case] for case in cases]
            bodies = [
                {"prompt": [*self.ids[row][: self.answered[row] + place], *begun], "max_tokens": 1, "temperature": 0}
                for row, place, begun in zip(meant, places, beginnings, strict=True)
            ]
            tops = [_likeliest(choice)[0] for choice in self._complete(bodies, meant)]
            return [probabilities(top, top.values()) for top in tops]

        return action_policies(self.chat_tokenizer.tokenizer, completions, spans, actions, names, after)


def _likeliest(choice: Json) -> list[dict[int, float]]:
    """Return the log-probabilities of the likeliest tokens in each place, the likeliest first."""
    tops = [
        sorted(((int(name.removeprefix(TOKEN)), logprob) for name, logprob in top.items()), key=lambda pair: -pair[1])
        for top in choice["logprobs"]["top_logprobs"]
    ]
    return [dict(top[:TOP]) for top in tops]
