"""Completions of tokens, as vLLM gives them: ids go in and ids come out, and no chat template comes between.

Only what `rmft.agents.vllm` asks for. Conversations are read anew each time: chat completions are found again by their
texts, and there are none here.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from rmft.agents.policy_from_model import TOP
from rmft.endpoint_server.messages import Part


class CompletionRequest(Part):
    """A request for what follows a list of ids. stop_token_ids: what ends a reply here anyway."""

    model: str
    prompt: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] = 16
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop_token_ids: list[int] | None = None
    logprobs: Annotated[int, Field(ge=0, le=TOP)] = 0
    return_token_ids: Literal[True]
    return_tokens_as_token_ids: Literal[True]


def completion(text: str, reason: str, ids: list[int], tops: list[list[tuple[int, float]]]) -> dict[str, Any]:
    """Return what follows a prompt."""
    likeliest = [{f"token_id:{token}": logprob for token, logprob in top} for top in tops]
    return {
        "index": 0,
        "text": text,
        "finish_reason": reason,
        "token_ids": ids,
        "logprobs": {"top_logprobs": likeliest},
    }
