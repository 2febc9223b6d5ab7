"""The client of llama.cpp's server for `served.ServedChatModel`.

Each conversation has a slot of the server to itself, which keeps the conversation's cache: a round computes only what
is new.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rmft.agents.policy_from_model import TOP
from rmft.agents.served import Json, SampledTokens, ServerConnections, TokenRequest

Top = dict[int, float]  # the log-probabilities of the likeliest tokens


@dataclass(frozen=True)
class LlamaCppClient:
    """A model in one of llama.cpp's servers."""

    connections: ServerConnections

    def sample(self, requests: Sequence[TokenRequest]) -> list[SampledTokens]:
        """Return the completions of prompts (n,). Raise InputError if the server fails.

        llama.cpp also ends a completion at end tokens that end none in the model's chat template, and knows no other
        stop tokens than its own. Such completions are continued, or cut.
        """
        ids: list[list[int]] = [[] for _ in requests]
        likeliest: list[list[Top]] = [[] for _ in requests]
        going = list(range(len(requests)))
        while going:
            bodies = [_body(requests[i], ids[i]) for i in going]
            responses = dict(zip(going, self.connections.post("/completion", bodies, [0] * len(bodies)), strict=True))
            for i, response in responses.items():
                likeliest[i] += _likeliest(response["tokens"], response["completion_probabilities"])
                ids[i] += response["tokens"]
            going = [i for i, response in responses.items() if _goes_on(requests[i], ids[i], response)]
        return [SampledTokens(*of_one) for of_one in map(_cut, requests, ids, likeliest)]


def _goes_on(request: TokenRequest, sampled: list[int], response: Json) -> bool:
    """Return whether the last sampled token is one that only llama.cpp ends a completion at."""
    return response["stop_type"] == "eos" and sampled[-1] not in request.stop and len(sampled) < request.max_tokens


def _cut(request: TokenRequest, sampled: list[int], likeliest: list[Top]) -> tuple[list[int], list[Top]]:
    """Return a completion up to its first stop token."""
    end = next((i + 1 for i, token in enumerate(sampled) if token in request.stop), len(sampled))
    return sampled[:end], likeliest[:end]


def _body(request: TokenRequest, sampled: list[int]) -> Json:
    """Return the request for the rest of a completion. sampled: its first tokens."""
    return {
        "prompt": request.prompt + sampled,
        "id_slot": request.conversation,
        "cache_prompt": True,
        "n_predict": request.max_tokens - len(sampled),
        "samplers": ["temperature"],  # llama.cpp's other samplers would cut the distribution or penalise repetition
        "temperature": request.temperature,
        "seed": request.seed + len(sampled),
        "n_probs": TOP,  # before the temperature, unless post_sampling_probs
        "return_tokens": True,
    }


def _likeliest(ids: list[int], positions: list[Json]) -> list[Top]:
    """Return the log-probabilities of the likeliest tokens at each position; none inside a character.

    llama.cpp leaves out a token after which the text ends in the middle of a character (an emoji of several tokens).
    """
    likeliest, left = [], iter(positions)
    position = next(left, None)
    for token in ids:
        if position and position["id"] == token:
            likeliest.append({top["id"]: top["logprob"] for top in position["top_logprobs"]})
            position = next(left, None)
        else:
            likeliest.append({})
    return likeliest
