"""Chat completions: what may be asked, and how answers are written."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from rmft.agents.policy_from_model import TOP
from rmft.endpoint_server.errors import invalid
from rmft.endpoint_server.messages import Message, Part

DEFAULTS: Mapping[str, Sequence[Any]] = {  # what this server does; to ask for anything else is an error
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


class StreamOptions(Part):
    """How a stream ends. include_obfuscation: not done either way."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(Part):
    """A request for replies."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1)]
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    stop: str | list[str] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=TOP)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    # Only as they are by default.
    top_p: Any = None
    frequency_penalty: Any = None
    presence_penalty: Any = None
    logit_bias: Any = None
    response_format: Any = None
    modalities: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None
    audio: Any = None
    prediction: Any = None
    moderation: Any = None
    web_search_options: Any = None

    # Without a bearing on the answer.
    metadata: Any = None
    parallel_tool_calls: Any = None
    prompt_cache_key: Any = None
    prompt_cache_options: Any = None
    prompt_cache_retention: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    store: Any = None
    user: Any = None

    def limit(self, most: int) -> int:
        """Return how many tokens a reply may have."""
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise invalid("Give max_completion_tokens or max_tokens, not both.", "max_tokens")
        asked = self.max_tokens or self.max_completion_tokens or most
        if asked > most:
            name = "max_tokens" if self.max_tokens else "max_completion_tokens"
            raise invalid(f"{name} is too large: {asked}. A reply has at most {most} tokens here.", name)
        return asked

    def stops(self) -> tuple[str, ...]:
        """Return the texts that end a reply."""
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if len(stops) > 4 or not all(stops):
            raise invalid("stop is one text or up to four, none of them empty.", "stop")
        return stops

    def check(self) -> None:
        """Raise ApiError for what is not done here."""
        for name, allowed in DEFAULTS.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                does = f"only {allowed[0]!r}" if allowed else "nothing"
                raise invalid(f"{name} is not supported here ({does} is).", name, "unsupported_parameter")
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs needs logprobs to be true.", "top_logprobs")
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options needs stream to be true.", "stream_options")


def usage(prompt: int, cached: int, completion: int) -> dict[str, Any]:
    """Return what an answer cost, in tokens. cached: of the prompt, those that were still in memory."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def choice(index: int, text: str, reason: Literal["stop", "length"], content: list[Any] | None) -> dict[str, Any]:
    """Return one of the replies. content: what is told of its tokens."""
    message = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    logprobs = None if content is None else {"content": content, "refusal": None}
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}


def token_entry(token: tuple[str, bytes], logprob: float) -> dict[str, Any]:
    """Return what is told of a token. No answer has a number that is not finite: -9999 is for the very unlikely."""
    text, written = token
    return {"token": text, "bytes": list(written), "logprob": logprob if math.isfinite(logprob) else -9999.0}


class Chunks:
    """The events of a stream, from what is common to them all."""

    def __init__(self, identity: str, created: int, model: str, fingerprint: str, include_usage: bool) -> None:
        head = {"id": identity, "object": "chat.completion.chunk", "created": created, "model": model}
        self.common = {**head, "system_fingerprint": fingerprint}
        self.include_usage = include_usage

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self.common, "choices": choices, **({"usage": None} if self.include_usage else {})}

    def begin(self, index: int) -> dict[str, Any]:
        """Return the first event of a reply."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return self._chunk([{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}])

    def text(self, index: int, text: str, content: list[Any] | None) -> dict[str, Any]:
        """Return a piece of a reply, with what is told of its tokens."""
        logprobs = None if content is None else {"content": content, "refusal": None}
        return self._chunk([{"index": index, "delta": {"content": text}, "logprobs": logprobs, "finish_reason": None}])

    def end(self, index: int, reason: str) -> dict[str, Any]:
        """Return the last event of a reply."""
        return self._chunk([{"index": index, "delta": {}, "logprobs": None, "finish_reason": reason}])

    def total(self, cost: dict[str, Any]) -> dict[str, Any]:
        """Return the event that says what all replies cost."""
        return {**self.common, "choices": [], "usage": cost}
