"""How long the conversations of a job are, estimated without the model and its tokenizer."""

import re
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Self

from rmft.agents.chat_models import Conversations
from rmft.language.prompts import Prompts
from rmft.language.protocol import Scenario
from rmft.workflow.games import game_settings_of
from rmft.workflow.records import RolloutsJob

# Tokenizers seldom cut finer: words, single digits, spaces before digits, and every other character alone. Those of
# Gemma 3 and Qwen 2.5 give 79% to 103% of this count for our messages: tests/test_contexts.py.
PIECE = re.compile(r"[^\W\d]+| (?=\d)|\S|\n")
TURN = 12  # tokens that a chat template puts around a message and its completion


@dataclass(frozen=True)
class EstimatedTokenizer:
    """Counts tokens in place of a `ChatTokenizer`. limit: tokens that the model can read."""

    limit: int

    @property
    def template(self) -> Self:
        """Return what counts the tokens of messages."""
        return self

    def first(self, message: str) -> Sized:
        """Return as many numbers as the message has tokens, about and at most."""
        return range(len(PIECE.findall(message)) + TURN)

    next = first


def conversations_of(job: RolloutsJob, prompts: Prompts, scenarios: Sequence[Scenario] | None) -> Conversations:
    """Return the conversations of a job's games about these scenarios; None: actions are mere numbers."""
    settings, max_tokens = game_settings_of(job, prompts), job.problem.protocol.max_tokens
    return Conversations(settings, job.T, max_tokens, tuple(scenarios) if scenarios else None)


def most_tokens(conversations: Conversations, limit: int) -> int:
    """Return about how many tokens a conversation has at most. Raise InputError if that exceeds the limit."""
    return conversations.capacity(EstimatedTokenizer(limit))
