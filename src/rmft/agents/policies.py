"""The policy behind an action that a model wrote: what it held likely in that place.

The paper takes the five likeliest tokens where the action stands and normalises the probabilities of those that are
feasible actions. An action of several tokens has the product of their probabilities. These are the parts of
`Conversations.action_policies` that need no model.

Symbols: d actions. Tokens are token ids in a row: the spelling of an action, or the beginning of one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmft.agents.local import Turn

Tokens = tuple[int, ...]


def table(ids: Iterable[int], logprobs: Iterable[float]) -> dict[int, float]:
    """Return the probabilities of the likeliest tokens."""
    return {int(token): float(np.exp(logprob)) for token, logprob in zip(ids, logprobs, strict=True)}


def spellings(
    tokenizer: "PreTrainedTokenizerBase", turn: "Turn", span: tuple[int, int], action: int, names: Sequence[str]
) -> tuple[int, list[Tokens]]:
    """Return which token of a reply an action begins in, and the tokens of each action in that place."""

    def length(i: int) -> int:
        return len(text_of(tokenizer, turn.ids[:i]))

    first = bisect_right(range(len(turn.ids)), span[0], key=length) - 1
    behind = bisect_left(range(len(turn.ids)), span[1], key=length)
    before, after = turn.text[length(first) : span[0]], turn.text[span[1] : length(behind)]
    newline, *spelled = tokenizer(
        ["\n", *(f"\n{before}{name}{after}" for name in names)], add_special_tokens=False
    ).input_ids  # behind a line end, since some tokenizers treat the beginning of a text in a way of their own
    paths = [tuple(ids[len(newline) :]) for ids in spelled]
    paths[action] = tuple(turn.ids[first:behind])
    return first, paths


def text_of(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> str:
    """Return the text of tokens, to the letter."""
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False)


def on_record(turn: "Turn", begin: int, path: Tokens) -> dict[Tokens, dict[int, float]]:
    """Return what is known of the tokens after each beginning of the action that was sampled, itself included."""
    places = range(begin, min(begin + len(path) + 1, turn.sampled))
    return {path[: i - begin]: table(turn.top_ids[i], turn.top_logprobs[i]) for i in places}


def unknown(paths: Iterable[Tokens], known: dict[Tokens, dict[int, float]]) -> Tokens | None:
    """Return a beginning of an action that is possible, and after which it is not known what follows."""
    for path in paths:
        for i, token in enumerate(path):
            if path[:i] not in known:
                return path[:i]
            if token not in known[path[:i]]:
                break
    return None


def policy(paths: Sequence[Tokens], known: dict[Tokens, dict[int, float]], action: int) -> np.ndarray:
    """Return the policy (d,) over actions written as paths, from the likeliest tokens after each beginning."""
    weights = np.ones(len(paths))
    for a, path in enumerate(paths):
        for i, token in enumerate(path):
            weights[a] *= known[path[:i]].get(token, 0.0) if weights[a] else 0.0
        onward = {other[len(path)] for other in paths if len(other) > len(path) and other[: len(path)] == path}
        if onward and weights[a]:
            weights[a] *= 1 - sum(known[path].get(token, 0.0) for token in onward)
    return weights / weights.sum() if weights.sum() else np.eye(len(paths))[action]
