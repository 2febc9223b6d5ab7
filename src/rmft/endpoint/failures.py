"""Interpret the responses of an endpoint: a failure to retry, and after what delay, or an error that ends the run.

These are the parts of `connection.Connection` that need no network.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rmft.errors import InputError

if TYPE_CHECKING:
    from rmft.params.endpoint import EndpointSettings

NO_KEY = "none"  # what a server on this machine is sent where no key is set
NOT_IMPLEMENTED = 501  # by a web server that takes no such requests
RETRIED = frozenset({408, 409, 425, 429})  # statuses after which a request is retried, besides all from 500
GATEWAY_TIMEOUTS = frozenset({504, 524})  # a gateway gave up on an endpoint that may have generated a response
UNPAID = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
TOO_LONG = frozenset({"context_length_exceeded", "string_above_max_length", "exceed_context_size_error"})
TOO_LONG_MESSAGE = re.compile("context (length|size|window)")
MOVED = frozenset({301, 302, 303, 307, 308})
ROUTE = "/chat/completions"
FAILED = frozenset({"error", "network_error", "insufficient_system_resource"})  # why text ended at some gateways
LONGEST_PAUSE = 900.0  # seconds: a run ends where an endpoint asks for a longer pause
LONGEST_MESSAGE = 200  # characters of an endpoint's error message
KEY_LIKE = re.compile(r"\b(?:sk|rk|pk|gsk|hf|sess)[-_][\w.*…-]+")
STARS = "***"  # in a word: an endpoint has hidden a part of a key itself
LONGEST_DURATION = 40  # characters
LARGEST_COUNT = 1 << 53  # of tokens: a larger number is no count, and no floating-point number either
LEAST_LOGPROB, MOST_LOGPROB = -1e9, 1e-3  # beside minus infinity; rounding may leave a certain token a little above 0
DURATION = re.compile(r"([\d.]+)(ms|[dhms])")
DURATION_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}  # seconds in each


class MalformedError(Exception):
    """A response that does not follow the protocol."""


class UnusableError(MalformedError):
    """A completion that lacks something that is used, such as the number of its tokens."""


class ReportedError(Exception):
    """A response that holds an error in place of a completion, though its status is one of success."""


def required_key(settings: "EndpointSettings", key: str | None) -> str:
    """Return the API key of an endpoint. Raise InputError if there is none, or one that no header can hold."""
    key = key_in(settings.api_key, key)
    if not key:
        raise InputError(f"{settings.name}: needs a key: export {settings.api_key}=…")
    return key


def key_in(variable: str, key: str | None) -> str:
    """Return the key in an environment variable, or "". Raise InputError where no header can hold it."""
    key = (key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{variable}: has characters that no key has; export it again")
    return key


@dataclass(frozen=True)
class Failure:
    """Why a request has no response yet. detail: the message.

    reason: a status, `timeout`, `connection`, or of a response with a status of success: `error`, `malformed`, or
    `unusable` for a completion that lacks something.

    delay: seconds for which the endpoint wants no requests, or None. paid: whether the request may have been charged.
    in_protocol: whether a server of the OpenAI protocol said so; else it may be something else that is at the address.
    """

    reason: str
    detail: str = ""
    delay: float | None = None
    paid: bool = False
    in_protocol: bool = False

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


@dataclass(frozen=True)
class RequestTarget:
    """Where a request was sent, for error messages. variable: the environment variable that holds `key`.

    own: whether a run has started the server, which keeps its fine-tuned models in .rmft.
    """

    url: str
    model: str
    variable: str
    key: str
    own: bool = False


def is_retried(status: int) -> bool:
    """Return whether a request that was answered with this status may succeed later."""
    return status in RETRIED or (status >= 500 and status != NOT_IMPLEMENTED)


def failure_of(status: int, headers: Mapping[str, str], body: bytes, target: RequestTarget) -> Failure:
    """Return the failure of a response with an error status. Raise InputError if no retry can succeed."""
    codes, message, in_protocol = _error(body)
    message = redacted(message, target.key)
    if UNPAID & codes:
        raise InputError(
            f"{target.url}: there is no credit left ({message}); add some there and run again: all responses are kept"
        )
    if is_retried(status):
        return Failure(str(status), message, requested_delay(headers), status in GATEWAY_TIMEOUTS, in_protocol)
    if status in MOVED:
        new = redacted(_plain_address(headers.get("location") or ""), target.key)
        raise InputError(f"{target.url}: sends requests on to {new} ({status}); name that address, without {ROUTE}")
    raise InputError(f"{target.url}: {_refusal(status, codes, message, target)}")


def _plain_address(url: str) -> str:
    """Return the scheme, host and path of an address: the rest may hold a secret."""
    try:
        parts = urlsplit(url)
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return "an address that cannot be read"
    return (f"{parts.scheme}://{host}{parts.path}" if host else parts.path) or "an address that it does not name"


def _refusal(status: int, codes: frozenset[str], message: str, target: RequestTarget) -> str:
    """Return what the endpoint refused, and what to do about it."""
    detail = f"({status}{': ' if message else ''}{message})"
    if status == 401 and target.key == NO_KEY:
        return f"the server wants a key {detail}: export {target.variable}=…"
    if status == 401:
        return f"the key is refused {detail}; set the right one: export {target.variable}=…"
    if status == 403:
        return f"the key in {target.variable} may not be used for {target.model!r} from here {detail}"
    if status == 404 and any("model" in text for text in (*codes, message)):
        lost = target.own and "::" in target.model
        cure = how_to_restore(target.model) if lost else f"{target.url}/models lists those that there are"
        return f"there is no model {target.model!r} {detail}; {cure}"
    if status == 404:
        return f"there is no endpoint at this address {detail}; base_urls mostly end in /v1: see the endpoint's manual"
    if status == 413 or TOO_LONG & codes or TOO_LONG_MESSAGE.search(message):
        return (
            f"a conversation is longer than the context of {target.model!r} {detail}; play fewer rounds, allow shorter "
            "responses or use interaction: summary, and set `context` to the model's limit"
        )
    if "max_completion_tokens" in message or "max_tokens" in message:
        return f"a request was refused {detail}; token_limit (rmft eval: --token-limit) says what it calls the limit"
    return f"a request was refused {detail}"


def how_to_restore(model: str) -> str:
    """Return what to do where our own server has lost a fine-tuned model, named `ft:BASE:SUFFIX::PART`.

    It lost all that were tuned from BASE. Their jobs run again where the files with their names are gone.
    """
    of_base = model.partition("::")[0].rpartition(":")[0]
    files = f"$(grep -rl --include=model.json '\"{of_base}:' results)"
    return f"if .rmft was deleted, fine-tune what was in it again: rm {files}; snakemake"


def _error(body: bytes) -> tuple[frozenset[str], str, bool]:
    """Return the code and the type, as far as there are any, and the message of an error response of any shape.

    Last, whether it has the protocol's shape, an object that says something.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        text = re.sub(rb"<[^>]*>", b" ", body[: 50 * LONGEST_MESSAGE]).decode(errors="replace")
        return frozenset(), text, False
    is_object = isinstance(value, dict)
    value = value[0] if isinstance(value, list) and value else value
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return frozenset(), str(error), is_object and bool(error)
    codes = frozenset(str(error[name]) for name in ("code", "type") if error.get(name) is not None)
    message = str(error.get("message") or error.get("detail") or "")
    return codes, message, is_object and bool(codes or message)


def redacted(text: str, key: str) -> str:
    """Return an endpoint's message as one line, without the key or anything that looks like a part of one."""
    words = (text.replace(key, "[key]") if key and key != NO_KEY else text).split()
    text = KEY_LIKE.sub("[key]", " ".join("[key]" if STARS in word else word for word in words))
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


def requested_delay(headers: Mapping[str, str]) -> float | None:
    """Return the seconds for which an endpoint wants no requests, or None if it does not say.

    Read from retry-after-ms, Retry-After (seconds or a date), or the renewal of a used-up limit (x-ratelimit-*).
    """
    delays = [_seconds(headers.get("retry-after-ms"), 0.001), _retry_after(headers.get("retry-after"))]
    return next((delay for delay in delays if delay is not None), until_renewed(headers))


def until_renewed(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until all used-up limits are renewed, or None if no limit is used up.

    A value above LONGEST_PAUSE is ignored: it is a point in time, or the limit of a whole day.
    """
    delays = []
    for unit in ("requests", "tokens"):
        if (headers.get(f"x-ratelimit-remaining-{unit}") or "").strip() == "0":
            delays.append(_duration((headers.get(f"x-ratelimit-reset-{unit}") or "").strip()))
    return max((delay for delay in delays if delay is not None and delay <= LONGEST_PAUSE), default=None)


def _duration(text: str) -> float | None:
    """Return the seconds of a duration, written as at OpenAI (6m0s, 20ms) or as a number of seconds."""
    if not text or len(text) > LONGEST_DURATION or DURATION.sub("", text):
        return _seconds(text, 1.0)
    try:
        return sum(float(number) * DURATION_UNITS[unit] for number, unit in DURATION.findall(text))
    except ValueError:
        return None


def _retry_after(text: str | None) -> float | None:
    seconds = _seconds(text, 1.0)
    if seconds is not None or not text:
        return seconds
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _seconds(text: str | None, unit: float) -> float | None:
    """Return the seconds in a header of so many units; the first value counts of a header that came twice."""
    try:
        number = float((text or "").partition(",")[0])
    except ValueError:
        return None
    return number * unit if math.isfinite(number) and number >= 0 else None


def parse_response(body: bytes) -> dict[str, Any]:
    """Return a chat response in which everything that is used is present.

    Raise UnusableError for a completion that lacks something, MalformedError for what is no completion, and
    ReportedError for an error with a status of success, as gateways send it, of the response or of its choice.
    """
    try:
        response = json.loads(body)
        if "choices" not in response and response.get("error"):
            raise ReportedError(_error(body)[1])
        choice = response["choices"][0]
        if choice.get("error") or choice.get("finish_reason") in FAILED:  # what text there is, is no reply
            raise ReportedError(str(choice.get("error") or f"finish_reason {choice['finish_reason']}"))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedError(f"{type(error).__name__}: {error}") from None
    try:
        usage = response["usage"]
        text, tokens = text_of(response), (choice.get("logprobs") or {}).get("content") or []
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        counts = [usage["prompt_tokens"], usage["completion_tokens"], cached]
        likeliest = [top for place in tokens for top in place["top_logprobs"]]
        texts = [(of["token"], of.get("bytes")) for of in (*tokens, *likeliest)]
        logprobs = [top["logprob"] for top in likeliest]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise UnusableError(f"{type(error).__name__}: {error}") from None
    if not isinstance(text, str) or not all(isinstance(count, int) and 0 <= count < LARGEST_COUNT for count in counts):
        raise UnusableError("text, or numbers of tokens, of the wrong type")
    if not all(isinstance(token, str) and _are_bytes(its_bytes) for token, its_bytes in texts):
        raise UnusableError("tokens of the wrong type")
    if not all(isinstance(logprob, int | float) and _is_logprob(logprob) for logprob in logprobs):
        raise UnusableError("log-probabilities that are none")
    return response


def _are_bytes(value: object) -> bool:
    """Return whether a value is what a token may have as its bytes: a list of them, or null."""
    return value is None or (isinstance(value, list) and all(isinstance(b, int) and 0 <= b < 256 for b in value))


def _is_logprob(value: float) -> bool:
    return value == -math.inf or LEAST_LOGPROB <= value <= MOST_LOGPROB


def text_of(response: dict[str, Any]) -> str:
    """Return the text of a chat response; of a refused or filtered one, an empty text.

    Some models that think return a list of parts, of which those of type "text" are the reply.
    """
    content = response["choices"][0]["message"].get("content")
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part["type"] == "text")
    return "" if content is None else content
