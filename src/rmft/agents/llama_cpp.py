"""The client of llama.cpp's server for `served.ServedChatModel`.

Each conversation has a slot of the server to itself, which keeps the conversation's cache: a round computes only what
is new.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rmft.agents.policy_from_model import TOP
from rmft.agents.served import Json, SampledTokens, ServerConnections, TokenRequest


@dataclass(frozen=True)
class LlamaCppClient:
    """A model in one of llama.cpp's servers."""

    connections: ServerConnections

    def sample(self, requests: Sequence[TokenRequest]) -> list[SampledTokens]:
        """Return the completions of prompts (n,). Raise InputError if the server fails."""
        responses = self.connections.post("/completion", list(map(_body, requests)), [0] * len(requests))
        return [_sampled(response, request) for response, request in zip(responses, requests, strict=True)]


def _body(request: TokenRequest) -> Json:
    return {
        "prompt": request.prompt,
        "id_slot": request.conversation,
        "cache_prompt": True,
        "n_predict": request.max_tokens,
        "samplers": ["temperature"],  # llama.cpp's other samplers would cut the distribution or penalise repetition
        "temperature": request.temperature,
        "seed": request.seed,
        "n_probs": TOP,  # before the temperature, unless post_sampling_probs
        "return_tokens": True,
    }


def _sampled(response: Json, request: TokenRequest) -> SampledTokens:
    """Return the sampled tokens of a response, up to the first that ends a completion.

    llama.cpp ends a completion at the end tokens of its own vocabulary, which has those of the usual chat templates.
    """
    ids = response["tokens"]
    end = next((i + 1 for i, token in enumerate(ids) if token in request.stop), len(ids))
    tops = [position["top_logprobs"] for position in response["completion_probabilities"][:end]]
    return SampledTokens(ids[:end], [{top["id"]: top["logprob"] for top in position} for position in tops])
