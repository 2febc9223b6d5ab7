"""The texts that a chat template puts around messages and completions, found by probing, for token-exact dialogues.

A template is rendered on marker texts, once, and cut at the markers:

    opening + message + head + completion + closing + message + head + completion + closing + …

A conversation is then a list of ids that only grows: each new message is wrapped and tokenised, and sampled tokens stay
as they were sampled. A template that would render past messages differently later on is refused, because a model cannot
have sampled from the history that such a template renders.

# ASSUME: the paper does not say whether Qwen3 thinks. Thinking is turned off (`enable_thinking=False`). Qwen3's
template then opens each completion with an empty thinking block and removes that block from past completions. We keep
the block: `head` is always that of the first completion, so that a model is trained on the context that it sampled
from.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

from rmft.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# date_string: Llama 3.1 and later write today's date into the prompt unless given a date.
VARIABLES = {"enable_thinking": False, "date_string": "26 Jul 2024"}
MESSAGES = ("QuestionOneQ", "QuestionTwoQ", "QuestionThreeQ")
REPLIES = ("AnswerOneA", "AnswerTwoA")
THOUGHT = "ThoughtT"
EMPTY_THOUGHT = re.compile(r"\s*<think>\s*</think>\s*")


@dataclass(frozen=True)
class ChatTemplate:
    """The texts around messages and completions.

    end: the id that ends a completion; `closing` begins with it. trims: whether the template strips messages.
    """

    tokenizer: "PreTrainedTokenizerBase"
    opening: str
    head: str
    closing: str
    end: int
    trims: bool

    @classmethod
    def probe(cls, tokenizer: "PreTrainedTokenizerBase") -> Self:
        """Return the chat template of a tokenizer. Raise InputError where the template rewrites history."""
        first, second, third = MESSAGES
        begin = _render(tokenizer, [first])
        two = _render(tokenizer, [first, REPLIES[0], second])
        three = _render(tokenizer, [first, REPLIES[0], second, REPLIES[1], third])
        opening, head = _cut(tokenizer, begin, first)
        past_head = _between(tokenizer, two, first, REPLIES[0])
        closing = _between(tokenizer, two, REPLIES[0], second)
        parts = [opening, first, past_head, REPLIES[0], closing, second, head]
        if two != "".join(parts):
            raise _refused(tokenizer, "it renders the same message differently in different turns")
        if three != "".join([*parts[:-1], past_head, REPLIES[1], closing, third, head]):
            raise _refused(tokenizer, "it renders the past anew as a conversation grows")
        if past_head != head and not (head.startswith(past_head) and EMPTY_THOUGHT.fullmatch(head[len(past_head) :])):
            raise _refused(tokenizer, f"a reply begins with {head!r} at first and with {past_head!r} once it is past")
        thinks = _render(tokenizer, [first, f"<think>\n{THOUGHT}\n</think>\n\n{REPLIES[0]}", second])
        if THOUGHT not in thinks and "</think>" not in head:
            raise _refused(
                tokenizer, "it drops the thoughts of past replies, and enable_thinking=False does not turn thinking off"
            )
        trims = f" {first} " not in _render(tokenizer, [f" {first} "])
        return cls(tokenizer, opening, head, closing, _end(tokenizer, closing), trims)

    def first(self, text: str) -> list[int]:
        """Return the ids of a first message, from the beginning (BOS included) to where the completion starts."""
        return _encode(self.tokenizer, self.opening + self._content(text) + self.head)

    def next(self, text: str) -> list[int]:
        """Return the ids of a later message, from after the last end token to where the next completion starts."""
        # Tokenised after the end token, since some tokenizers treat the beginning of a text, or what follows a special
        # token, differently.
        return _encode(self.tokenizer, self.closing + self._content(text) + self.head)[1:]

    def completion(self, text: str) -> list[int]:
        """Return the ids of a completion as they stand after the head, end token included."""
        head, whole = self._head_ids, _encode(self.tokenizer, self.head + text)
        ids = whole[len(head) :] if whole[: len(head)] == head else _encode(self.tokenizer, text)
        return [*ids, self.end]

    @cached_property
    def _head_ids(self) -> list[int]:
        return _encode(self.tokenizer, self.head)

    def _content(self, text: str) -> str:
        """Return a message as the template writes it."""
        return text.strip() if self.trims else text


def _render(tokenizer: "PreTrainedTokenizerBase", contents: list[str]) -> str:
    """Return the prompt of a conversation in which user and assistant alternate."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **VARIABLES)
        text.encode()  # a lone surrogate has no UTF-8, and no tokens
        return text
    except Exception as error:  # a template is a program and may raise any exception
        raise _refused(tokenizer, f"it fails where user and assistant take turns: {error}") from None


def _cut(tokenizer: "PreTrainedTokenizerBase", text: str, marker: str) -> list[str]:
    """Return the text before and after a marker, which must occur exactly once."""
    parts = text.split(marker)
    if len(parts) != 2:
        raise _refused(tokenizer, f"a message is written {len(parts) - 1} times in its conversation")
    return parts


def _between(tokenizer: "PreTrainedTokenizerBase", text: str, start: str, stop: str) -> str:
    """Return the text between two markers."""
    return _cut(tokenizer, _cut(tokenizer, text, start)[1], stop)[0]


def _end(tokenizer: "PreTrainedTokenizerBase", closing: str) -> int:
    """Return the id of the special token that ends a completion."""
    ids = _encode(tokenizer, closing)
    if not ids or ids[0] not in tokenizer.added_tokens_decoder or not closing.startswith(tokenizer.decode(ids[:1])):
        raise _refused(tokenizer, f"no special token ends a reply; it is followed by {closing!r}")
    return ids[0]


def _encode(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    """Return the ids of a text without adding special tokens: the template writes BOS itself where it has one.

    Asked through transformers, short messages take half as long again.
    """
    if not tokenizer.is_fast:
        return tokenizer(text, add_special_tokens=False).input_ids
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # as a tokenizer's file may ask for
    backend.no_padding()
    return backend.encode(text, add_special_tokens=False).ids


def _refused(tokenizer: "PreTrainedTokenizerBase", reason: str) -> InputError:
    """Return the error that refuses a template."""
    return InputError(
        f"chat template of {tokenizer.name_or_path or 'the tokenizer'}: {reason}. Give the tokenizer a template "
        "that only appends to a conversation; trl/chat_templates has some, named *_training"
    )
