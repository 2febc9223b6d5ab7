"""Token-exact turns for any chat template: what goes before a message, before a reply and after one, found by probing.

A template is rendered on marker texts, once, and cut at the markers:

    opening + message + head + reply + closing + message + head + reply + closing + …

From then on a history is a list of ids that only ever grows: each new message is wrapped and tokenised, and what was
sampled stays as it was sampled. A template that would render the past differently later on is refused, because its
histories are not ones that a model can have sampled from.

Models that may think (Qwen3) are told not to (`enable_thinking=False`). Qwen3's template then opens each reply with an
empty thinking block, and leaves it out of the replies of the past. We keep it there: `head` is always what it is for
the first reply, so that what a model is trained on is what it saw.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from rmft.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# date_string: Llama-3.1 and later write today's date into the prompt if they are not told one.
VARIABLES = {"enable_thinking": False, "date_string": "26 Jul 2024"}
MESSAGES = ("QuestionOneQ", "QuestionTwoQ", "QuestionThreeQ")
REPLIES = ("AnswerOneA", "AnswerTwoA")
THOUGHT = "ThoughtT"
EMPTY_THOUGHT = re.compile(r"\s*<think>\s*</think>\s*")


@dataclass(frozen=True)
class TokenCompletion:
    """A reply. ids: its tokens; the last one ends it. text: without that one. prompt_ids: what was fed before.

    sampled: how many ids the model chose. The one more that there is in a reply cut short, or ended in the model's own
    way rather than the template's, is the end token put there by us: not a thing to learn from.
    top_ids, top_logprobs: (sampled, 5), the likeliest tokens at each place, at temperature 1.
    """

    ids: list[int]
    sampled: int
    text: str
    prompt_ids: list[int]
    top_ids: np.ndarray
    top_logprobs: np.ndarray

    @property
    def replied(self) -> list[bool]:
        """Return which of prompt_ids + ids the model chose."""
        forced = len(self.ids) - self.sampled
        return [False] * len(self.prompt_ids) + [True] * self.sampled + [False] * forced


@dataclass(frozen=True)
class ChatTemplate:
    """The texts around messages and replies. end: the id that ends a reply, with which `closing` begins.

    trims: whether the template strips white space off messages.
    """

    tokenizer: "PreTrainedTokenizerBase"
    opening: str
    head: str
    closing: str
    end: int
    trims: bool

    @classmethod
    def probe(cls, tokenizer: "PreTrainedTokenizerBase") -> Self:
        """Return the turns of a tokenizer's chat template. Raise InputError where it rewrites history."""
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
        """Return the ids from the beginning of a conversation to where the first reply starts; BOS is among them."""
        return _encode(self.tokenizer, self.opening + self._content(text) + self.head)

    def next(self, text: str) -> list[int]:
        """Return the ids from behind a reply's end token to where the next reply starts."""
        # Tokenised behind the end token, since some tokenizers treat the beginning of a text, or what follows a
        # special token, in a way of their own.
        return _encode(self.tokenizer, self.closing + self._content(text) + self.head)[1:]

    def _content(self, text: str) -> str:
        """Return a message as the template would write it."""
        return text.strip() if self.trims else text


def _render(tokenizer: "PreTrainedTokenizerBase", contents: list[str]) -> str:
    """Return the prompt for a conversation in which user and assistant take turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **VARIABLES)
    except Exception as error:  # a template is a program of its own and may raise anything
        raise _refused(tokenizer, f"it fails where user and assistant take turns: {error}") from None


def _cut(tokenizer: "PreTrainedTokenizerBase", text: str, marker: str) -> list[str]:
    """Return what is before and after a marker that must be there exactly once."""
    parts = text.split(marker)
    if len(parts) != 2:
        raise _refused(tokenizer, f"a message is written {len(parts) - 1} times in its conversation")
    return parts


def _between(tokenizer: "PreTrainedTokenizerBase", text: str, start: str, stop: str) -> str:
    """Return what is between two markers."""
    return _cut(tokenizer, _cut(tokenizer, text, start)[1], stop)[0]


def _end(tokenizer: "PreTrainedTokenizerBase", closing: str) -> int:
    """Return the id that ends a reply: a token of its own, which no text can contain."""
    ids = _encode(tokenizer, closing)
    if not ids or ids[0] not in tokenizer.added_tokens_decoder or not closing.startswith(tokenizer.decode(ids[:1])):
        raise _refused(tokenizer, f"no special token ends a reply; it is followed by {closing!r}")
    return ids[0]


def _encode(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    """Return the ids of a text as it is; whether there is a BOS is the template's business."""
    return tokenizer(text, add_special_tokens=False).input_ids


def _refused(tokenizer: "PreTrainedTokenizerBase", reason: str) -> InputError:
    """Return the error for a template that cannot be used."""
    return InputError(
        f"chat template of {tokenizer.name_or_path or 'the tokenizer'}: {reason}. Give the tokenizer a template "
        "that only appends to a conversation; trl/chat_templates has some, named *_training"
    )
