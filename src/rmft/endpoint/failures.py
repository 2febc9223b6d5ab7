"""What it means when an endpoint does not answer: ask again, and when, or stop and say what to do.

These are the parts of `endpoint.Connection` that need no network.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from rmft.errors import InputError

if TYPE_CHECKING:
    from rmft.params.endpoint import EndpointSettings

BUSY = frozenset({408, 409, 425, 429})  # and all from 500: to be asked again
GAVE_UP = frozenset({504, 524})  # a gateway, on an endpoint that may have answered
UNPAID = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
TOO_LONG = frozenset({"context_length_exceeded", "string_above_max_length"})
LONGEST_PAUSE = 900.0  # seconds: an endpoint that asks for more is to be come back to another day
LONGEST_MESSAGE = 200  # characters of an endpoint's own words
KEY_LIKE = re.compile(r"\b(?:sk|rk|pk|gsk|hf|sess)[-_][\w.*…-]+|\S*\*{3,}\S*")
DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?")
DURATION_UNITS = (86400.0, 3600.0, 60.0, 1.0, 0.001)  # seconds in each


class MalformedError(Exception):
    """An answer that is not one of the protocol's."""


def required_key(settings: "EndpointSettings", key: str | None) -> str:
    """Return the key to an endpoint. Raise InputError where there is none, or one that cannot be."""
    key = (key or "").strip()
    if not key:
        raise InputError(f"{settings.name}: needs a key: export {settings.api_key}=…")
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{settings.api_key}: has characters that no key has; export it again")
    return key


@dataclass(frozen=True)
class Failure:
    """Why there is no answer yet. reason: a status, `timeout`, `connection` or `malformed`. detail: its words.

    delay: seconds that the endpoint asks everybody to wait, or None. paid: whether there may have been an answer.
    """

    reason: str
    detail: str = ""
    delay: float | None = None
    paid: bool = False

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


@dataclass(frozen=True)
class RequestTarget:
    """Whom a request went to, for the words of a refusal. variable: the environment variable that holds `key`."""

    url: str
    model: str
    variable: str
    key: str


def failure_of(status: int, headers: Mapping[str, str], body: bytes, asked: RequestTarget) -> Failure:
    """Return why an endpoint that replied with a status has no answer for now. Raise InputError where it never will."""
    code, said = _error(body)
    said = redacted(said, asked.key)
    if code in UNPAID:
        raise InputError(
            f"{asked.url}: there is no credit left ({said}); add some there and run again: all answers are kept"
        )
    if status in BUSY or status >= 500:
        return Failure(str(status), said, delay_asked(headers), paid=status in GAVE_UP)
    raise InputError(f"{asked.url}: {_refusal(status, code, said, asked)}")


def _refusal(status: int, code: str, said: str, asked: RequestTarget) -> str:
    """Return what was refused for good, and what to do about it."""
    detail = f"({status}{': ' if said else ''}{said})"
    if status == 401:
        return f"the key is refused {detail}; give the right one: export {asked.variable}=…"
    if status == 403:
        return f"the key in {asked.variable} may not be used for {asked.model!r} from here {detail}"
    if status == 404 and "model" in f"{code} {said}":
        return f"there is no model {asked.model!r} {detail}; name one that there is, see {asked.url}/models"
    if status == 404:
        return f"nothing is there {detail}; base_urls end as the endpoint's manual says, mostly in /v1"
    if status == 413 or code in TOO_LONG or "context length" in said or "context window" in said:
        return (
            f"a conversation is longer than {asked.model!r} reads {detail}; play fewer rounds, allow shorter replies "
            "or use interaction: summary, and say in `context` how much it reads"
        )
    return f"a request is refused {detail}"


def _error(body: bytes) -> tuple[str, str]:
    """Return the code (or else the type) and the message of an error's body, whatever shape it has."""
    try:
        value = json.loads(body)
    except ValueError:
        text = re.sub(rb"<[^>]*>", b" ", body[: 50 * LONGEST_MESSAGE]).decode(errors="replace")
        return "", text
    value = value[0] if isinstance(value, list) and value else value
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return "", str(error)
    codes = [str(error[name]) for name in ("code", "type") if error.get(name) is not None]
    unpaid = [code for code in codes if code in UNPAID]
    return [*unpaid, *codes, ""][0], str(error.get("message") or error.get("detail") or "")


def redacted(text: str, key: str) -> str:
    """Return the words of an endpoint in a line, without the key or anything that looks like a part of one."""
    text = KEY_LIKE.sub("[key]", " ".join((text.replace(key, "[key]") if key else text).split()))
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def delay_asked(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an endpoint asks to be left alone, or None where it does not say.

    retry-after-ms, Retry-After in seconds or as a date, and else when a used-up limit (x-ratelimit-*) is renewed.
    """
    waits = [_seconds(_first(headers.get("retry-after-ms")), 0.001), _retry_after(headers.get("retry-after"))]
    return next((wait for wait in waits if wait is not None), until_renewed(headers))


def until_renewed(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until all limits that are used up are renewed, or None where none is.

    What is longer than any pause is no duration, but a time in some unit, or a limit of a day's.
    """
    waits = []
    for what in ("requests", "tokens"):
        if (headers.get(f"x-ratelimit-remaining-{what}") or "").strip() == "0":
            waits.append(_duration((headers.get(f"x-ratelimit-reset-{what}") or "").strip()))
    return max((wait for wait in waits if wait is not None and wait <= LONGEST_PAUSE), default=None)


def _duration(text: str) -> float | None:
    """Return the seconds of a duration as OpenAI (6m0s, 20ms) or others (seconds) write it."""
    match = DURATION.fullmatch(text)
    if not text or not match:
        return _seconds(text, 1.0)
    try:
        parts = zip(match.groups(), DURATION_UNITS, strict=True)
        return sum(float(number) * unit for number, unit in parts if number)
    except ValueError:
        return None


def _retry_after(text: str | None) -> float | None:
    seconds = _seconds(_first(text), 1.0)
    if seconds is not None or not text:
        return seconds
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _first(text: str | None) -> str:
    """Return the first of the values of a header that came twice."""
    return (text or "").partition(",")[0]


def _seconds(text: str, unit: float) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number * unit if math.isfinite(number) and number >= 0 else None


def whole(body: bytes) -> dict[str, Any]:
    """Return an answer of the protocol with everything in it that is used. Raise MalformedError where it is none."""
    try:
        answer = json.loads(body)
        choice, usage = answer["choices"][0], answer["usage"]
        text, tokens = choice["message"].get("content"), (choice.get("logprobs") or {}).get("content") or []
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        counts = [usage["prompt_tokens"], usage["completion_tokens"], cached]
        places = [
            (place["token"], [(top["token"], top["logprob"]) for top in place["top_logprobs"]]) for place in tokens
        ]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise MalformedError(f"{type(error).__name__}: {error}") from None
    if not isinstance(text, str | None) or not all(isinstance(count, int) and count >= 0 for count in counts):
        raise MalformedError("values of the wrong kind")
    if not all(isinstance(token, str) and all(isinstance(p, int | float) for _, p in tops) for token, tops in places):
        raise MalformedError("tokens of the wrong kind")
    return answer
