"""The client of llama.cpp's server for `served.ServedChatModel`.

Each conversation has a slot of the server to itself, which keeps the conversation's cache: a round computes only what
is new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmft.agents.policy_from_model import TOP
from rmft.agents.served import Json, SampledTokens, ServerConnections, TokenRequest

FORCED = 1e6  # added to the logit of a token that is to be sampled
Top = dict[int, float]  # the log-probabilities of the likeliest tokens


@dataclass(frozen=True)
class LlamaCppClient:
    """A model in one of llama.cpp's servers. ends: the tokens that end a completion, and their texts."""

    connections: ServerConnections
    ends: Mapping[int, str]

    def sample(self, requests: Sequence[TokenRequest]) -> list[SampledTokens]:
        """Return the completions of prompts (n,). Raise InputError if the server fails.

        llama.cpp ends a completion at the end tokens of its own vocabulary, or after a text. Where neither is a token
        that ends a completion of this model, the completion is continued.
        """
        ids: list[list[int]] = [[] for _ in requests]
        likeliest: list[list[Top]] = [[] for _ in requests]
        going = list(range(len(requests)))
        while going:
            bodies = [_body(requests[i], ids[i]) | {"stop": list(self.ends.values())} for i in going]
            responses = dict(zip(going, self.connections.post("/completion", bodies, [0] * len(bodies)), strict=True))
            for i, response in responses.items():
                likeliest[i] += _likeliest(response)
                ids[i] += response["tokens"]
            going = [i for i, response in responses.items() if _goes_on(requests[i], ids[i], response)]
        return [SampledTokens(*of_one) for of_one in zip(ids, likeliest, strict=True)]

    def likeliest(self, requests: Sequence[TokenRequest]) -> list[Top]:
        """Return the likeliest tokens after prompts (n,). Raise InputError if the server fails.

        An end token is forced, because llama.cpp gives none before a token that begins a character and does not end it.
        The forced token does not change the log-probabilities.
        """
        forced = {"logit_bias": [[next(iter(self.ends)), FORCED]]}
        bodies = [_body(request, []) | forced for request in requests]
        return [_likeliest(response)[0] for response in self.connections.post("/completion", bodies, [0] * len(bodies))]


def _goes_on(request: TokenRequest, sampled: list[int], response: Json) -> bool:
    """Return whether llama.cpp ended a completion at a token that ends none of this model."""
    early = response["stop_type"] in ("eos", "word") and len(sampled) < request.max_tokens
    return early and sampled[-1] not in request.stop


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


def _likeliest(response: Json) -> list[Top]:
    """Return the log-probabilities of the likeliest tokens at each position; none where llama.cpp gives none.

    llama.cpp leaves out a token after which the text ends in the middle of a character (an emoji of several tokens),
    and a text that ends the completion.
    """
    likeliest, left = [], iter(response.get("completion_probabilities", []))
    position = next(left, None)
    for token in response["tokens"]:
        if position and position["id"] == token:
            likeliest.append({top["id"]: top["logprob"] for top in position["top_logprobs"]})
            position = next(left, None)
        else:
            likeliest.append({})
    return likeliest
