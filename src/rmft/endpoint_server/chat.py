"""Completions of conversations and of token ids: the schemas of requests, and the parts of responses."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, FailFast, Field

from rmft.agents.policy_from_model import TOP
from rmft.endpoint_server.errors import invalid
from rmft.endpoint_server.schema import Message, RequestModel
from rmft.endpoint_server.store import Json

ONLY: Mapping[str, Sequence[Any]] = {  # values that this server supports; any other value is an error
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "audio": (),
    "prediction": (),
    "moderation": (),
    "web_search_options": (),
}
IGNORED = frozenset(  # parameters without effect on the response
    [
        *("metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
        *("safety_identifier", "service_tier", "store", "user"),
    ]
)
Temperature = Annotated[float, Field(ge=0, le=2)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class StreamOptions(RequestModel):
    """Options of a stream. include_obfuscation: without effect."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(RequestModel):
    """A request for responses to a conversation."""

    model: str
    messages: Annotated[list[Message], FailFast(), Field(min_length=1)]
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    seed: Seed | None = None
    temperature: Temperature | None = None
    stop: str | list[str] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=TOP)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    model_config = ConfigDict(extra="allow")  # until `check`

    def token_limit(self, most: int, left: int | None) -> int:
        """Return the maximum length of a response in tokens.

        most: the server's limit. left: of the context, where it has an end; for a client that names no limit.
        """
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise invalid("Give max_completion_tokens or max_tokens, not both.", "max_tokens")
        fits = most if left is None else max(1, min(most, left))
        limit = self.max_tokens or self.max_completion_tokens or fits
        if limit > most:
            name = "max_tokens" if self.max_tokens else "max_completion_tokens"
            raise invalid(f"{name} is too large: {limit}. A response has at most {most} tokens here.", name)
        return limit

    def stops(self) -> tuple[str, ...]:
        """Return the texts that end a response."""
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if len(stops) > 4 or not all(stops):
            raise invalid("stop is one text or up to four, none of them empty.", "stop")
        return stops

    def check(self) -> None:
        """Raise ApiError for what this server does not support."""
        for name, value in self.model_extra.items():
            if name not in ONLY and name not in IGNORED:
                raise invalid(f"Unrecognized request argument supplied: {name}", name, "unknown_parameter")
            allowed = ONLY.get(name)
            if value is not None and allowed is not None and value not in allowed:
                supported = f"only {allowed[0]!r}" if allowed else "no value"
                raise invalid(f"{name} is not supported here ({supported} is).", name, "unsupported_parameter")
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs needs logprobs to be true.", "top_logprobs")
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options needs stream to be true.", "stream_options")


class CompletionRequest(RequestModel):
    """A request for a completion of token ids: the part of vLLM's protocol that `rmft.agents.vllm` uses.

    stop_token_ids: without effect, since the model's own ends always count.
    """

    model: str
    prompt: Annotated[list[Annotated[int, Field(ge=0)]], FailFast(), Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] = 16
    temperature: Temperature = 1.0
    seed: Seed | None = None
    stop_token_ids: list[int] | None = None
    logprobs: Annotated[int, Field(ge=0, le=TOP)] = 0
    return_token_ids: Literal[True]
    return_tokens_as_token_ids: Literal[True]


def usage(prompt: int, cached: int, completion: int) -> Json:
    """Return the usage of a response in tokens. cached: those of the prompt that were in the model's cache."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def choice(index: int, text: str, reason: Literal["stop", "length"], tokens: list[Json] | None) -> Json:
    """Return one choice of a response. tokens: its tokens with their log-probabilities, if the client wants them."""
    message = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    logprobs = None if tokens is None else {"content": tokens, "refusal": None}
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}


def token_entry(token: tuple[str, bytes], logprob: float) -> Json:
    """Return a token with its log-probability; -9999 stands for minus infinity, which JSON does not have."""
    text, raw = token
    return {"token": text, "bytes": list(raw), "logprob": logprob if math.isfinite(logprob) else -9999.0}


def stream_chunks(response: Json, include_usage: bool) -> Iterator[Json]:
    """Yield a complete response as the chunks of a stream: one for each choice, and one for the usage if wanted."""
    common = {"id": response["id"], "object": "chat.completion.chunk"}
    common |= {name: response[name] for name in ("created", "model", "system_fingerprint")}
    for one in response["choices"]:
        message = one["message"]
        delta = {name: message[name] for name in ("role", "content", "refusal")}
        part = {"index": one["index"], "delta": delta, "logprobs": one["logprobs"]}
        yield {**common, "choices": [{**part, "finish_reason": one["finish_reason"]}]}
    if include_usage:
        yield {**common, "choices": [], "usage": response["usage"]}
