"""The policy behind an action that a model wrote: what it held likely in that place.

The paper takes the five likeliest tokens where the action stands and normalises the probabilities of those that are
feasible actions. An action of several tokens has the product of their probabilities. None of this needs a model, but
for what it would have gone on with after a beginning that it did not choose.

Symbols: d actions. Tokens are token ids in a row: the spelling of an action, or the beginning of one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rmft.agents.chat_template import TokenCompletion

Tokens = tuple[int, ...]
TOP = 5  # alternatives kept with each token, as an endpoint gives them: the paper's policies are made of them


def action_policies(
    tokenizer: "PreTrainedTokenizerBase",
    turns: Sequence["TokenCompletion"],
    spans: Sequence[tuple[int, int]],
    actions: Sequence[int],
    names: Sequence[Sequence[str]],
    after: Callable[[list[int], list[int], list[Tokens]], list[dict[int, float]]],
) -> np.ndarray:
    """Return the policies (n, d) that a model had in mind where it wrote its actions.

    turns: replies (n,). spans: where in each text the action stands. actions: the 0-based ones that stand there. names:
    what each of the d actions would be written like in its place. after: gives the likeliest tokens after beginnings of
    actions, put at places, by token, of replies, by number.

    The probability of an action is the product of those of its tokens, each among the five likeliest in its place
    or else zero (the paper's top-5), and normalised over the d actions. Where one action begins another ("1" and
    "10") it also has not to go on like the other. What follows a beginning that was sampled is on record; what
    follows one that was not is asked for, so that the result is what enumerating all actions gives. An action counts as
    written in one way only, in the tokenizer's tokens, behind and before whatever else is in the sampled tokens. If no
    action is among the likeliest the policy is the action taken.
    """
    found = [spellings(tokenizer, *case) for case in zip(turns, spans, actions, names, strict=True)]
    known = [on_record(turn, begin, paths[a]) for turn, (begin, paths), a in zip(turns, found, actions, strict=True)]
    while asked := [(i, new) for i, (_, paths) in enumerate(found) if (new := unknown(paths, known[i])) is not None]:
        cases, beginnings = map(list, zip(*asked, strict=True))
        answers = after(cases, [found[i][0] for i in cases], beginnings)
        for i, new, answer in zip(cases, beginnings, answers, strict=True):
            known[i][new] = answer
    return np.array([policy(paths, known[i], actions[i]) for i, (_, paths) in enumerate(found)])


def table(ids: Iterable[int], logprobs: Iterable[float]) -> dict[int, float]:
    """Return the probabilities of the likeliest tokens."""
    return {int(token): float(np.exp(logprob)) for token, logprob in zip(ids, logprobs, strict=True)}


def spellings(
    tokenizer: "PreTrainedTokenizerBase",
    turn: "TokenCompletion",
    span: tuple[int, int],
    action: int,
    names: Sequence[str],
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


def on_record(turn: "TokenCompletion", begin: int, path: Tokens) -> dict[Tokens, dict[int, float]]:
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
