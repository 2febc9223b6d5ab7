"""How a language model's conversations become token ids and back: its chat template, stop tokens and context limit."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from rmft.agents.chat_template import ChatTemplate
from rmft.agents.context import context_limit
from rmft.errors import InputError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase


@dataclass(frozen=True)
class TokenCompletion:
    """A completion of a language model as tokens.

    ids: the completion's tokens; the last one ends it. text: the completion without that token. prompt_ids: the tokens
    fed to the model since its previous completion.
    cut: whether the limit of tokens ended the completion.
    sampled: how many of `ids` the model sampled. Where the model did not end its completion with the template's end
    token, we append that token, and `ids` is one longer than `sampled`; nothing is learnt from an appended token.
    top_ids, top_logprobs: (sampled, 5), the likeliest tokens at each position, at temperature 1.
    """

    ids: list[int]
    sampled: int
    text: str
    cut: bool
    prompt_ids: list[int]
    top_ids: np.ndarray
    top_logprobs: np.ndarray

    @property
    def replied(self) -> list[bool]:
        """Return for each token of prompt_ids + ids whether the model sampled it."""
        appended = len(self.ids) - self.sampled
        return [False] * len(self.prompt_ids) + [True] * self.sampled + [False] * appended


@dataclass(frozen=True)
class ChatTokenizer:
    """A tokenizer with what the model needs besides: its chat template, its stop tokens, its context limit.

    ends: the ids that end a completion. limit: tokens that a conversation may have; None where every layer has a
    sliding window.
    """

    tokenizer: "PreTrainedTokenizerBase"
    template: ChatTemplate
    ends: frozenset[int]
    limit: int | None

    @classmethod
    def of(
        cls,
        tokenizer: "PreTrainedTokenizerBase",
        config: "PretrainedConfig",
        stops: int | list[int] | None,
        context: int | None,
    ) -> Self:
        """Return the chat tokenizer of a model. stops: the model's own stop ids. context: see `context_limit`."""
        template = ChatTemplate.probe(tokenizer)
        stops = stops if isinstance(stops, list) else [stops] if stops is not None else []
        return cls(tokenizer, template, frozenset([template.end, *stops]), context_limit(config, context))

    def completion(
        self, sampled: list[int], prompt_ids: list[int], top_ids: np.ndarray, top_logprobs: np.ndarray
    ) -> TokenCompletion:
        """Return the completion made of sampled tokens, with the end token appended where they do not end with it."""
        end, n, cut = self.template.end, len(sampled), sampled[-1] not in self.ends
        ids = sampled if sampled[-1] == end else [*sampled, end]
        text = text_of(self.tokenizer, sampled if cut else sampled[:-1])
        return TokenCompletion(ids, n, text, cut, prompt_ids, top_ids[:n], top_logprobs[:n])


def single_tokens(tokenizer: "PreTrainedTokenizerBase", texts: Iterable[str]) -> list[int]:
    """Return the ids of `stop_tokens`. Raise InputError where one of the texts is not a single token."""
    ids = []
    for text in texts:
        tokens = tokenizer(text, add_special_tokens=False).input_ids
        if len(tokens) != 1:
            raise InputError(f"models: stop_tokens: {text!r} is {len(tokens)} tokens of this model, and must be one")
        ids += tokens
    return ids


def text_of(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> str:
    """Return the exact text of tokens."""
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)
