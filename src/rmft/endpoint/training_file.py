"""Training files for fine-tuning jobs: write demonstrations as conversations, and check what an endpoint would refuse.

# ASSUME: an endpoint charges for all tokens of a conversation, those of the user's messages too.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rmft.errors import InputError
from rmft.params.language import LEAST_LINES

MESSAGE_TOKENS = 4  # ASSUME: around each message, as OpenAI's own counting example has it
FIELDS = {"role", "content", "weight"}  # of a message


def training_lines(demonstrations: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return demonstrations as conversations; those in which no message is to be learnt are left out."""
    lines = [{"messages": list(map(_message, item["messages"]))} for item in demonstrations]
    return [line for line in lines if any(map(_is_learnt, line["messages"]))]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    text = {"role": message["role"], "content": message["content"]}
    return text if message.get("weight", 1) else {**text, "weight": 0}


def _is_learnt(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant" and message.get("weight", 1) != 0


def as_text(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a training file, with a conversation on each line."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def estimated_tokens(lines: Iterable[Mapping[str, Any]], characters_per_token: float) -> int:
    """Return about how many tokens an epoch trains on."""
    lengths = (len(message["content"]) for line in lines for message in line["messages"])
    return sum(math.ceil(length / characters_per_token) + MESSAGE_TOKENS for length in lengths)


def validate(lines: Sequence[Mapping[str, Any]], context_tokens: int, characters_per_token: float) -> None:
    """Raise InputError, naming the line, for a file that an endpoint would refuse after the upload, or truncate."""
    if len(lines) < LEAST_LINES:
        advice = "raise rmft.scenarios or rmft.selected"
        raise InputError(f"training file: {len(lines)} conversations, at least {LEAST_LINES} are needed; {advice}")
    for number, line in enumerate(lines, start=1):
        if fault := _fault(line):
            raise InputError(f"training file: line {number}: {fault}")
        if (tokens := estimated_tokens([line], characters_per_token)) > context_tokens:
            reason = f"about {tokens} tokens, more than the model's context of {context_tokens}"
            raise InputError(
                f"training file: line {number}: {reason}; take a shorter horizon T, or summary interaction"
            )


def _fault(line: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a conversation, if anything is."""
    messages = line.get("messages") if isinstance(line, Mapping) else None
    if not isinstance(messages, list) or not messages:
        return "no messages"
    for place, message in enumerate(messages, start=1):
        if fault := _message_fault(message):
            return f"message {place}: {fault}"
    turns = messages[1:] if messages[0]["role"] in ("system", "developer") else messages
    roles = [message["role"] for message in turns]
    if not roles or len(roles) % 2 or roles != ["user", "assistant"] * (len(roles) // 2):
        return f"after an opening system message user and assistant must take turns, and here are {', '.join(roles)}"
    return None if any(map(_is_learnt, messages)) else "no assistant message is to be learnt: all have weight 0"


def _message_fault(message: object) -> str | None:
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys() <= FIELDS:
        return "it must have role and content, and an assistant's may have weight, but nothing else"
    if not isinstance(message["content"], str):
        return "its content is no text"
    if message.get("weight", 1) not in (0, 1) or ("weight" in message and message["role"] != "assistant"):
        return "weight is 0 or 1, and an assistant's alone"
    if not message["content"] and (message["role"] != "assistant" or _is_learnt(message)):
        return "its content is empty"
    return None
