"""The policy behind an action that a model in process wrote: its probability of each action in that place.

The paper (Sec. 5, `ssec:setting-sec5`) takes the five likeliest tokens at the action's position and normalises the
probabilities of those that are feasible actions. An action of several tokens has the product of their probabilities.

Symbols: n completions, d actions. A spelling is the tuple of token ids that writes an action; a prefix is the beginning
of a spelling. `known` maps a prefix to the likeliest tokens after it, with their probabilities.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from rmft.agents.chat_tokenizer import TokenCompletion, text_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tokens = tuple[int, ...]
Probabilities = dict[int, float]  # of the likeliest tokens, by id
TOP = 5  # likeliest tokens that are kept at each position, as the paper and most endpoints do


def action_policies(
    tokenizer: "PreTrainedTokenizerBase",
    completions: Sequence[TokenCompletion],
    spans: Sequence[tuple[int, int]],
    actions: Sequence[int],
    names: Sequence[Sequence[str]],
    likeliest_after: Callable[[list[int], list[int], list[Tokens]], list[Probabilities]],
) -> np.ndarray:
    """Return the policies (n, d) of a model at the places where it wrote its actions.

    completions: (n,). spans: (n,), the characters of each text that are the action. actions: (n,), 0-based, the actions
    written there. names: (n, d), how each action would be written there. likeliest_after: runs the model; takes for
    each case the index of a completion, a token position in it and a prefix put at that position, and returns the
    likeliest tokens that follow the prefix.

    The probability of an action is the product of the probabilities of its tokens, where a token that is not among the
    five likeliest counts as zero (the paper's top-5). Where one action is a prefix of another ("1" of "10"), the
    shorter one must also not be continued like the longer one. Prefixes that the model sampled are on record; for
    others the model is run, so that the result equals an enumeration of all actions. An action counts in one spelling
    only: the tokenizer's, between the characters that share sampled tokens with the action. If no action is among the
    likeliest tokens, the policy is the action taken.
    """
    # Many games have the same reply, and most the same characters around the action.
    spelled, found, tokens_of = [], {}, cache(partial(tokens_of_names, tokenizer))
    for completion, *case in zip(completions, spans, actions, map(tuple, names), strict=True):
        reply = (*completion.ids, *case)
        if reply not in found:
            found[reply] = spellings(tokenizer, completion, *case, tokens_of)
        spelled.append(found[reply])
    known = [
        sampled_prefixes(completion, begin, paths[action])
        for completion, (begin, paths), action in zip(completions, spelled, actions, strict=True)
    ]
    while missing := {i: new for i, (_, paths) in enumerate(spelled) if (new := unknown(paths, known[i])) is not None}:
        cases, prefixes = list(missing), list(missing.values())
        answers = likeliest_after(cases, [spelled[i][0] for i in cases], prefixes)
        for i, new, answer in zip(cases, prefixes, answers, strict=True):
            known[i][new] = answer
    return np.array([policy(paths, known[i], actions[i]) for i, (_, paths) in enumerate(spelled)])


def probabilities(ids: Iterable[int], logprobs: Iterable[float]) -> Probabilities:
    """Return the probabilities of the likeliest tokens."""
    return {int(token): float(np.exp(logprob)) for token, logprob in zip(ids, logprobs, strict=True)}


def spellings(
    tokenizer: "PreTrainedTokenizerBase",
    completion: TokenCompletion,
    span: tuple[int, int],
    action: int,
    names: tuple[str, ...],
    tokens_of: Callable[[str, tuple[str, ...], str], list[Tokens]],
) -> tuple[int, list[Tokens]]:
    """Return the token position at which an action begins, and the spelling of each action at that position.

    tokens_of: see `tokens_of_names`.
    """
    ids, text = completion.ids, completion.text

    @cache
    def length(i: int) -> int:
        return len(text_of(tokenizer, ids[:i]))

    first = bisect_right(range(len(ids)), span[0], key=length) - 1
    behind = next((i for i in range(first + 1, len(ids)) if length(i) >= span[1]), len(ids))
    paths = list(tokens_of(text[length(first) : span[0]], names, text[span[1] : length(behind)]))
    paths[action] = tuple(ids[first:behind])
    return first, paths


def tokens_of_names(
    tokenizer: "PreTrainedTokenizerBase", before: str, names: tuple[str, ...], after: str
) -> list[Tokens]:
    """Return the tokens of each name between two texts."""
    # After a newline, since some tokenizers treat the beginning of a text differently.
    texts = ["\n", *(f"\n{before}{name}{after}" for name in names)]
    newline, *spelled = tokenizer(texts, add_special_tokens=False).input_ids
    return [tuple(tokens[len(newline) :]) for tokens in spelled]


def sampled_prefixes(completion: TokenCompletion, begin: int, path: Tokens) -> dict[Tokens, Probabilities]:
    """Return the likeliest tokens after each prefix of the sampled action, the whole action included.

    llama.cpp does not give the likeliest tokens at every position.
    """
    positions = range(begin, min(begin + len(path) + 1, completion.sampled))
    likeliest = {i: probabilities(completion.top_ids[i], completion.top_logprobs[i]) for i in positions}
    return {path[: i - begin]: tops for i, tops in likeliest.items() if any(tops.values())}


def unknown(paths: Iterable[Tokens], known: dict[Tokens, Probabilities]) -> Tokens | None:
    """Return a prefix of an action that the model may write but whose continuation is not known; None if none is."""
    for path in paths:
        for i, token in enumerate(path):
            if path[:i] not in known:
                return path[:i]
            if token not in known[path[:i]]:
                break
    return None


def policy(paths: Sequence[Tokens], known: dict[Tokens, Probabilities], action: int) -> np.ndarray:
    """Return the policy (d,) over actions with these spellings."""
    weights = np.ones(len(paths))
    for a, path in enumerate(paths):
        for i, token in enumerate(path):
            weights[a] *= known[path[:i]].get(token, 0.0) if weights[a] else 0.0
        onward = {other[len(path)] for other in paths if len(other) > len(path) and other[: len(path)] == path}
        if onward and weights[a]:
            weights[a] *= 1 - sum(known[path].get(token, 0.0) for token in onward)
    return weights / weights.sum() if weights.sum() else np.eye(len(paths))[action]
