"""Training files for fine-tuning jobs: write demonstrations as conversations, and check what an endpoint would refuse.

# ASSUME: an endpoint charges for all tokens of a conversation, those of the user's messages too.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rmft.errors import InputError
from rmft.params.language import LEAST_LINES

MESSAGE_TOKENS = 4  # ASSUME: around each message, as OpenAI's own counting example has it


def training_lines(
    demonstrations: Iterable[Mapping[str, Any]], as_sent: Callable[[dict[str, Any]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return demonstrations as conversations. as_sent: returns a message as the endpoint was sent it in the game."""
    return [{"messages": [as_sent(message) for message in of["messages"]]} for of in demonstrations]


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
        if (tokens := estimated_tokens([line], characters_per_token)) > context_tokens:
            reason = f"about {tokens} tokens, more than the model's context of {context_tokens}"
            raise InputError(
                f"training file: line {number}: {reason}; take a shorter horizon T, or summary interaction"
            )
