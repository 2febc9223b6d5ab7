"""The policy behind an action that a model at an endpoint wrote, from the log-probabilities of its completion.

As in `policy_from_model`, but the model cannot be run again: an endpoint returns the likeliest tokens at each position
of the one completion that it sampled. A token counts for the action that it begins, if it begins no other action. Where
actions share their first token, the next tokens of the completion may tell them apart; if not, that is an error.

Tokens are bytes here, because a token may end within a character. Symbols: d actions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmft.errors import InputError

NEGLIGIBLE = 1e-3  # share of probability that may belong to undecided actions: the top five always hold unlikely ones


@dataclass(frozen=True)
class Token:
    """A token of a completion, and the probabilities of the likeliest tokens at its position."""

    written: bytes
    likeliest: Mapping[bytes, float]


def tokens_of(choice: Mapping[str, Any]) -> tuple[Token, ...]:
    """Return the tokens of a choice of the OpenAI protocol; none where logprobs were not requested."""
    content = (choice.get("logprobs") or {}).get("content") or []
    return tuple(Token(_bytes(position), _likeliest(position["top_logprobs"])) for position in content)


def _likeliest(tops: Sequence[Mapping[str, Any]]) -> dict[bytes, float]:
    """Return the probabilities of the likeliest tokens; two tokens of the same bytes count as one."""
    found: dict[bytes, float] = {}
    for top in tops:
        written = _bytes(top)
        found[written] = found.get(written, 0.0) + float(np.exp(top["logprob"]))
    return found


def _bytes(token: Mapping[str, Any]) -> bytes:
    written = token.get("bytes")
    return bytes(written) if written else token["token"].encode(errors="replace")


def policy(text: str, tokens: Sequence[Token], span: tuple[int, int], action: int, names: Sequence[str]) -> np.ndarray:
    """Return the policy (d,) of a model at the place where it wrote an action.

    span: the characters of the text that are the action. action: 0-based. names: (d,), how each action would be written
    there. If no action is among the likeliest tokens, the policy is the action taken. Raise InputError where the tokens
    do not tell the actions apart.
    """
    first, behind = (len(text[:place].encode()) for place in span)
    at, begin = _token_at(text, tokens, first)
    before = text.encode()[begin:first]
    spelled = [(before + name.encode()).lower() for name in names]
    spelled[action] = text.encode()[begin:behind].lower()  # as written, where an action has two spellings
    weights, undecided = _weights(tokens[at:], spelled, len(before))
    if undecided > NEGLIGIBLE * (weights.sum() + undecided):
        raise InputError(
            f"actions {', '.join(names)} cannot be told apart by the first of their tokens, and the endpoint returns no"
            " others: use output: distribution"
        )
    return weights / weights.sum() if weights.sum() else np.eye(len(names))[action]


def _token_at(text: str, tokens: Sequence[Token], place: int) -> tuple[int, int]:
    """Return the index of the token that holds a byte of the text, and the byte at which that token begins."""
    if not b"".join(token.written for token in tokens).startswith(text.encode()):
        raise InputError(
            "the endpoint does not say how likely the tokens of its replies are (logprobs): use output: distribution"
        )
    end = 0
    for at, token in enumerate(tokens):
        begin, end = end, end + len(token.written)
        if place < end:
            return at, begin
    raise ValueError(f"no byte {place} in {text!r}")


def _weights(tokens: Sequence[Token], spelled: Sequence[bytes], before: int) -> tuple[np.ndarray, float]:
    """Return the probability of each action (d,), and the probability of tokens that fit more than one action.

    tokens: of the completion, from the one in which the action begins. before: bytes of it that precede the action.
    """
    weights, undecided = np.zeros(len(spelled)), 0.0
    reached, written = 1.0, b""  # the probability and the text of the completion's tokens so far
    for token in tokens:
        for other, probability in token.likeliest.items():
            fit = _fitting(written + other, spelled, before)
            if len(fit) == 1:
                weights[fit] += reached * probability
            elif fit and other != token.written:
                undecided += reached * probability
        reached *= token.likeliest.get(token.written, 0.0)
        written += token.written
        if len(_fitting(written, spelled, before)) <= 1 and len(written) > before:
            return weights, undecided
    return weights, undecided + reached


def _fitting(written: bytes, spelled: Sequence[bytes], before: int) -> list[int]:
    """Return the actions that begin with, or are followed by, what is written; none before the action begins."""
    if len(written) <= before:
        return []
    return [action for action, whole in enumerate(spelled) if _fits(written.lower(), whole)]


def _fits(written: bytes, whole: bytes) -> bool:
    """Return whether a text is a prefix of an action, or the action with no letter or digit after it."""
    after = written[len(whole) :].decode(errors="replace")
    return whole.startswith(written) or (written.startswith(whole) and not after[:1].isalnum())
