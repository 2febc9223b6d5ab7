"""Completions of token ids, as vLLM offers them: ids go in and ids come out, without a chat template.

This is the part of vLLM's protocol that `rmft.agents.vllm` uses.
"""

from typing import Annotated, Literal

from pydantic import Field

from rmft.agents.policy_from_model import TOP
from rmft.endpoint_server.schema import RequestModel
from rmft.endpoint_server.store import Json


class CompletionRequest(RequestModel):
    """A request for a completion of ids. stop_token_ids: without effect, since the model's own ends always count."""

    model: str
    prompt: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] = 16
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop_token_ids: list[int] | None = None
    logprobs: Annotated[int, Field(ge=0, le=TOP)] = 0
    return_token_ids: Literal[True]
    return_tokens_as_token_ids: Literal[True]


def completion_choice(text: str, reason: str, ids: list[int], tops: list[list[tuple[int, float]]]) -> Json:
    """Return the choice of a response. tops: for each token, the likeliest ids with their log-probabilities."""
    likeliest = [{f"token_id:{token}": logprob for token, logprob in top} for top in tops]
    return {
        "index": 0,
        "text": text,
        "finish_reason": reason,
        "token_ids": ids,
        "logprobs": {"top_logprobs": likeliest},
    }
