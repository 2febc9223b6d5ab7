"""The chat models that play: a language model in process, in servers of vLLM or llama.cpp, or behind an endpoint."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rmft.agents.context import context_needed
from rmft.language.game import ChatModel, GameSettings
from rmft.language.protocol import Protocol, Round, Scenario
from rmft.params.language_model import LanguageModelSettings

if TYPE_CHECKING:
    from rmft.agents.chat_tokenizer import ChatTokenizer
    from rmft.endpoint.connection import Connection


@dataclass(frozen=True)
class ChatModels:
    """open: returns a chat model for games (n, 2), the scenario and trajectory of each. batch: games played at a time.

    summary: returns a line about an endpoint's responses, once all games are over; empty for other models.
    """

    open: Callable[[np.ndarray], ChatModel]
    batch: int
    summary: Callable[[], str] = str


@dataclass(frozen=True)
class Conversations:
    """The conversations of games. horizon: T. max_tokens: of a completion. scenarios: texts that games are about."""

    settings: GameSettings
    horizon: int
    max_tokens: int
    scenarios: Sequence[Scenario] | None = None

    @property
    def likeliest(self) -> bool:
        """Return whether policies are computed from the likeliest tokens at the place of an action."""
        return self.settings.protocol.output == "action" and self.settings.protocol.feedback == "full"

    def capacity(self, chat_tokenizer: "ChatTokenizer") -> int:
        """Return how many tokens a conversation may come to. Raise InputError if the model cannot read so many."""
        template, limit = chat_tokenizer.template, chat_tokenizer.limit
        messages = [self._messages(protocol, action) for protocol in self._protocols() for action in range(protocol.d)]
        if self.settings.protocol.interaction == "summary":
            prompt = max(len(template.first(last)) for _, last in messages)
            return context_needed(limit, prompt, 1, 0, self.max_tokens)
        opening = max(len(template.first(first)) for first in {first for first, _ in messages})
        feedback = max(len(template.next(last)) for last in {last for _, last in messages})
        return context_needed(limit, opening, self.horizon, feedback, self.max_tokens)

    def characters(self) -> tuple[int, int]:
        """Return how many characters the first message of a dialogue has, and each later one, at most."""
        messages = [self._messages(protocol, protocol.d - 1) for protocol in self._protocols()]
        first, last = (max(map(len, some)) for some in zip(*messages, strict=True))
        return first, last

    def _protocols(self) -> list[Protocol]:
        """Return the protocols of the games, each once."""
        return [self.settings.about(scenario) for scenario in dict.fromkeys(self.scenarios or [None])]

    def _messages(self, protocol: Protocol, action: int) -> tuple[str, str]:
        """Return the first and the last message of a game in which one action was played in every round."""
        context, prompts = typical_context(protocol), self.settings.prompts
        history = [typical_round(protocol, t, action, (10.0,) * protocol.d) for t in range(1, self.horizon)]
        return prompts.message(protocol, [], context), prompts.message(protocol, history, context)


def typical_context(protocol: Protocol) -> tuple[float, ...]:
    """Return a context whose message is as long as that of any other; empty where games have none."""
    return (1 / protocol.features,) * protocol.features if protocol.features else ()


def typical_round(protocol: Protocol, t: int, action: int, rewards: tuple[float, ...]) -> Round:
    """Return round t as messages show it, with a policy and a context that are as long as any other. rewards: (d,)."""
    policy = (1 / protocol.d,) * protocol.d if protocol.output == "distribution" else None
    return Round(t, action, policy, rewards, typical_context(protocol))


@contextmanager
def in_process(
    settings: LanguageModelSettings, weights: Path | None, conversations: Conversations
) -> Iterator[ChatModels]:
    """Yield chat models in this process. weights: the file that fine-tuning wrote; None for the base model."""
    from rmft.agents.checkpoint import load_chat_tokenizer, note_model
    from rmft.agents.local import LocalChatModel, free_memory, games_at_a_time, load
    from rmft.agents.memory import say_memory_to_play, size_of_model

    note_model(settings)
    max_tokens = conversations.max_tokens
    if (size := size_of_model(settings)).is_large:
        say_memory_to_play(settings, size, conversations.capacity(load_chat_tokenizer(settings)), max_tokens)
    model = load(settings, weights)
    capacity = conversations.capacity(model.chat_tokenizer)
    batch = games_at_a_time(model, capacity, max_tokens, settings.batch, free_memory(model.model.device))

    def open_chat_model(games: np.ndarray) -> ChatModel:
        return LocalChatModel(model, len(games), capacity, max_tokens, likeliest=conversations.likeliest)

    yield ChatModels(open_chat_model, batch)


@contextmanager
def in_vllm(
    settings: LanguageModelSettings, weights: Path | None, conversations: Conversations, log: Path
) -> Iterator[ChatModels]:
    """Yield chat models in vLLM's servers, which end with this context. log: the file of their output."""
    from rmft.agents.checkpoint import load_chat_tokenizer, note_model
    from rmft.agents.served import ServedChatModel
    from rmft.agents.vllm_servers import start_vllm

    note_model(settings)
    chat_tokenizer, max_tokens = load_chat_tokenizer(settings), conversations.max_tokens
    capacity = conversations.capacity(chat_tokenizer)
    with start_vllm(settings, weights, settings.context or capacity, log) as client:
        yield ChatModels(lambda games: ServedChatModel(client, chat_tokenizer, games, max_tokens), settings.batch)


@contextmanager
def in_llama_cpp(
    settings: LanguageModelSettings, weights: Path | None, conversations: Conversations, log: Path
) -> Iterator[ChatModels]:
    """Yield chat models in llama.cpp's server, which ends with this context. log: the file of its output."""
    from rmft.agents.checkpoint import load_chat_tokenizer, note_model
    from rmft.agents.llama_cpp_servers import start_llama_cpp
    from rmft.agents.served import ServedChatModel

    note_model(settings, weights=False)
    chat_tokenizer, max_tokens = load_chat_tokenizer(settings), conversations.max_tokens
    capacity = conversations.capacity(chat_tokenizer)
    with start_llama_cpp(settings, weights, chat_tokenizer, capacity, log) as client:
        yield ChatModels(lambda games: ServedChatModel(client, chat_tokenizer, games, max_tokens), settings.batch)


def at_endpoint(connection: "Connection", conversations: Conversations, words: str) -> ChatModels:
    """Return chat models behind an endpoint. words: the name of the games' random streams."""
    from rmft.agents.endpoint import EndpointChatModel

    def open_chat_model(games: np.ndarray) -> ChatModel:
        return EndpointChatModel(connection, games, conversations.max_tokens, words, conversations.likeliest)

    return ChatModels(open_chat_model, connection.endpoint.settings.batch, lambda: str(connection.statistics))
