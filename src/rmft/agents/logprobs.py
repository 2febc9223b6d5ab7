"""The policy behind an action that a model wrote, from what an endpoint tells of its tokens.

The paper takes the five likeliest tokens where the action stands and normalises the probabilities of those that are
feasible actions. `policies` does the same for a model in process, which can be asked what it would have gone on with.
An endpoint has told what it has told: the likeliest tokens in each place of the one reply that it gave. So a token
counts for the action that it begins, if it can be the beginning of no other one; what two actions begin with is
followed along the reply, where the next tokens tell them apart, and is an error elsewhere.

Tokens are bytes here, since one may end within a character.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmft.errors import InputError

NEGLIGIBLE = 1e-3  # probability that may be of nobody knows which action: next to nothing is always among the likeliest


@dataclass(frozen=True)
class Token:
    """A token of a reply, and the probabilities of the likeliest ones in its place."""

    written: bytes
    likeliest: Mapping[bytes, float]


def tokens_of(choice: Mapping[str, Any]) -> tuple[Token, ...]:
    """Return the tokens of a reply as the protocol has them; none where they were not asked for."""
    content = (choice.get("logprobs") or {}).get("content") or []
    return tuple(
        Token(_bytes(place), {_bytes(top): float(np.exp(top["logprob"])) for top in place["top_logprobs"]})
        for place in content
    )


def _bytes(token: Mapping[str, Any]) -> bytes:
    written = token.get("bytes")
    return bytes(written) if written else token["token"].encode(errors="replace")


def policy(text: str, tokens: Sequence[Token], span: tuple[int, int], action: int, names: Sequence[str]) -> np.ndarray:
    """Return the policy (d,) that a model had in mind where it wrote an action.

    span: the characters of the text where the action stands. names: what each of the d actions would be written like
    there. If no action is among the likeliest tokens the policy is the action taken. Raise InputError where the tokens
    do not tell.
    """
    first, behind = (len(text[:place].encode()) for place in span)
    at, begin = _token_at(text, tokens, first)
    before = text.encode()[begin:first]
    spelled = [(before + name.encode()).lower() for name in names]
    spelled[action] = text.encode()[begin:behind].lower()  # as it stands, if it has two ways to be written
    weights, doubtful = _shares(tokens[at:], spelled, len(before))
    if doubtful > NEGLIGIBLE * (weights.sum() + doubtful):
        raise InputError(
            f"actions {_listed(names)} cannot be told apart by the first of their tokens, and the endpoint tells no "
            "more: use output: distribution"
        )
    return weights / weights.sum() if weights.sum() else np.eye(len(names))[action]


def _token_at(text: str, tokens: Sequence[Token], place: int) -> tuple[int, int]:
    """Return which token a byte of a text is in, and where that token begins."""
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


def _shares(tokens: Sequence[Token], spelled: Sequence[bytes], before: int) -> tuple[np.ndarray, float]:
    """Return the probability of each action (d,), and that of tokens which more than one action can go on with.

    tokens: of the reply, from the one on that the action begins in. before: bytes in it that are ahead of the action.
    """
    weights, doubtful = np.zeros(len(spelled)), 0.0
    reached, written = 1.0, b""  # by the tokens of the reply so far
    for token in tokens:
        for other, probability in token.likeliest.items():
            fit = _fitting(written + other, spelled, before)
            if len(fit) == 1:
                weights[fit] += reached * probability
            elif fit and other != token.written:
                doubtful += reached * probability
        reached *= token.likeliest.get(token.written, 0.0)
        written += token.written
        if len(_fitting(written, spelled, before)) <= 1 and len(written) > before:
            return weights, doubtful
    return weights, doubtful + reached


def _fitting(written: bytes, spelled: Sequence[bytes], before: int) -> list[int]:
    """Return the actions that are written, or of which some is; what has not come to the action yet fits none."""
    if len(written) <= before:
        return []
    return [action for action, whole in enumerate(spelled) if _fits(written.lower(), whole)]


def _fits(written: bytes, whole: bytes) -> bool:
    """Return whether a text is a beginning of an action, or the action with no letter or digit behind it."""
    behind = written[len(whole) :].decode(errors="replace")
    return whole.startswith(written) or (written.startswith(whole) and not behind[:1].isalnum())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
