"""The client of vLLM's servers for `served.ServedChatModel`.

All requests of a game go to one server, which has their beginning in its prefix cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rmft.agents.policy_from_model import TOP
from rmft.agents.served import Json, SampledTokens, ServerConnections, TokenRequest

TOKEN = "token_id:"  # vLLM writes this before the id of a token


@dataclass(frozen=True)
class VLLMClient:
    """A model in vLLM's servers. model: its name there."""

    connections: ServerConnections
    model: str

    def sample(self, requests: Sequence[TokenRequest]) -> list[SampledTokens]:
        """Return the completions of prompts (n,). Raise InputError if a server fails."""
        servers = [request.game % len(self.connections.urls) for request in requests]
        responses = self.connections.post("/completions", [self._body(request) for request in requests], servers)
        choices = [response["choices"][0] for response in responses]
        return [SampledTokens(choice["token_ids"], _likeliest(choice)) for choice in choices]

    def likeliest(self, requests: Sequence[TokenRequest]) -> list[dict[int, float]]:
        """Return the likeliest tokens after prompts (n,). Raise InputError if a server fails."""
        return [sampled.likeliest[0] for sampled in self.sample(requests)]

    def _body(self, request: TokenRequest) -> Json:
        return {
            "model": self.model,
            "prompt": request.prompt,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "stop_token_ids": request.stop,
            "logprobs": TOP,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }


def _likeliest(choice: Json) -> list[dict[int, float]]:
    """Return the log-probabilities of the likeliest tokens at each position, the likeliest first."""
    tops = [
        sorted(((int(name.removeprefix(TOKEN)), logprob) for name, logprob in top.items()), key=lambda pair: -pair[1])
        for top in choice["logprobs"]["top_logprobs"]
    ]
    return [dict(top[:TOP]) for top in tops]
