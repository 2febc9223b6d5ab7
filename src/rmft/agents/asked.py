"""A chat model that is a function: from the messages of a conversation to the reply.

Symbols: d actions.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from rmft.agents.endpoint import SEEDS, EndpointCompletion
from rmft.errors import InputError

Message = dict[str, str]
Ask = Callable[[list[Message], int], str]  # a conversation and a seed → the model's reply
ReplyFunction = Callable[[list[Message]], str]  # the same without a seed


class AskedChatModel:
    """One conversation with a model that a function asks: a `language.game.ChatModel`."""

    def __init__(self, ask: Ask, max_tokens: int) -> None:
        self.ask, self.max_tokens = ask, max_tokens
        self.restart()

    def restart(self) -> None:
        """Begin the conversation anew."""
        self.messages: list[Message] = []

    def retract(self, rows: Iterable[int]) -> None:
        """Remove the last reply."""
        del self.messages[-1]

    def reply(
        self, messages: Sequence[str] | None, *, temperature: float, uniforms: np.ndarray, rows: Sequence[int]
    ) -> list[EndpointCompletion]:
        """Send a message and return the reply. uniforms: (1, …), the first one becomes the seed of the request.

        temperature: not used, since it is an option of the tool that asks.
        """
        if messages is not None:
            self.messages.append({"role": "user", "content": messages[0]})
        text = self.ask(list(self.messages), int(uniforms[0, 0] * SEEDS))
        if not isinstance(text, str):
            raise InputError(f"the function that asks the model returned {type(text).__name__}, not a text")
        self.messages.append({"role": "assistant", "content": text})
        return [EndpointCompletion(text)]

    def action_policies(self, *_: object, **__: object) -> np.ndarray:
        """Raise InputError: a function returns no log-probabilities."""
        raise InputError("actions under full feedback need log-probabilities, which a function does not return")
