"""Messages of a conversation, as they are asked with and trained on: their schema, and the turns that they make.

A conversation is a tuple of texts in which user and assistant take turns. What a system (or developer) message says
stands ahead of the first text, since not every chat template knows of such a role.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from rmft.endpoint_server.errors import ApiError, invalid


def _text(content: object) -> object:
    """Return the text of a content that may come in parts."""
    if not isinstance(content, list):
        return content
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ValueError("this model reads text, and nothing else")
    return "".join(part["text"] for part in content)


def _nothing(value: object) -> object:
    if value:
        raise ValueError("this model reads text, and nothing else")
    return None


Nothing = Annotated[Any, BeforeValidator(_nothing)]  # where a client may send back what an answer had empty


Metadata = Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)]


class Part(BaseModel):
    """Anything a client sends: unknown keys are refused, types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Message(Part):
    """What was said. name: who said it; not read."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_text)]
    name: str | None = None
    refusal: Nothing = None
    annotations: Nothing = None
    audio: Nothing = None
    function_call: Nothing = None
    tool_calls: Nothing = None


class TrainingMessage(Message):
    """What was said, and, of an assistant, whether it is to be learnt (1, the default) or not (0)."""

    weight: Literal[0, 1] | None = None


class TrainingLine(Part):
    """A conversation to train on."""

    messages: Annotated[list[TrainingMessage], Field(min_length=1)]


def turns_of(messages: Sequence[Message], last: Literal["user", "assistant"]) -> tuple[str, ...]:
    """Return the texts in which user and assistant take turns. Raise ApiError where they do not."""
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
    told = [message.content for message in messages]
    return ("\n\n".join(told[: begin + 1]), *told[begin + 1 :])


def refusal(error: ValidationError) -> ApiError:
    """Return the answer to a request that is not of its schema."""
    found = error.errors(include_url=False)[0]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"]).lstrip(".")
    kind, reason = found["type"], found["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return invalid(f"Unrecognized request argument supplied: {where}", where, "unknown_parameter")
    if kind == "missing":
        return invalid(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    if kind == "json_invalid":
        return invalid(f"We could not parse the JSON body of your request: {reason}.")
    return invalid(f"Invalid value for '{where}': {reason}.", where or None, "invalid_value")
