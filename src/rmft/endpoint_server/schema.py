"""The schema of request bodies, and conversations as texts in which user and assistant take turns.

System (or developer) messages are put before the first user message, since not every chat template has such a role.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rmft.endpoint_server.errors import ApiError, invalid

TEXT_ONLY = "this model reads text only"


def _text(content: object) -> object:
    """Return the text of a content that may be a list of parts."""
    if not isinstance(content, list):
        return content
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ValueError(TEXT_ONLY)
    return "".join(part["text"] for part in content)


def _empty(value: object) -> None:
    if value:
        raise ValueError(TEXT_ONLY)


Empty = Annotated[Any, BeforeValidator(_empty)]  # a client may send back the empty fields of a response
Metadata = Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)]


class RequestModel(BaseModel):
    """A part of a request's body: unknown keys are refused, types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Message(RequestModel):
    """A message of a conversation. name: not read."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_text)]
    name: str | None = None
    refusal: Empty = None
    annotations: Empty = None
    audio: Empty = None
    function_call: Empty = None
    tool_calls: Empty = None


def texts_of(messages: Sequence[Message], last: Literal["user", "assistant"]) -> tuple[str, ...]:
    """Return the texts in which user and assistant take turns. Raise ApiError if they do not.

    last: the role that the last message must have.
    """
    begin = 0
    while begin < len(messages) and messages[begin].role in ("system", "developer"):
        begin += 1
    for place, message in enumerate(messages[begin:], start=begin):
        if message.role != ("user", "assistant")[(place - begin) % 2]:
            raise invalid(
                "After any system messages user and assistant must take turns, the user first; "
                f"message {place + 1} is of role {message.role}.",
                f"messages[{place}].role",
            )
    if begin == len(messages) or messages[-1].role != last:
        raise invalid(f"The last message must be of role {last}.", "messages")
    texts = [message.content for message in messages]
    return ("\n\n".join(texts[: begin + 1]), *texts[begin + 1 :])


def schema_error(first: Mapping[str, Any]) -> ApiError:
    """Return the response to a request that does not follow its schema. first: the first error of pydantic."""
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    kind, reason = first["type"], first["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return invalid(f"Unrecognized request argument supplied: {where}", where, "unknown_parameter")
    if kind == "missing":
        return invalid(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    if kind == "json_invalid":
        return invalid(f"We could not parse the JSON body of your request: {reason}.")
    return invalid(f"Invalid value for '{where}': {reason}.", where or None, "invalid_value")
