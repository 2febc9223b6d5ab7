"""Failures of an endpoint: when to retry, and the error where no retry helps."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from httpx2 import Headers
from hypothesis import given
from hypothesis import strategies as st

from rmft.endpoint.failures import (
    LONGEST_MESSAGE,
    NO_KEY,
    Failure,
    MalformedError,
    ReportedError,
    RequestTarget,
    UnusableError,
    failure_of,
    key_in,
    parse_response,
    redacted,
    requested_delay,
    text_of,
)
from rmft.errors import InputError, first_line

KEY = "sk-proj-abcdefgh1234567890"
TARGET = RequestTarget("https://api.example.com/v1", "teller", "OPENAI_API_KEY", KEY)


def error(message: str = "", code: str | None = None, kind: str | None = None) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}).encode()


def test_a_model_that_our_own_server_has_lost_is_refused_with_how_to_make_it_again():
    model, missing = (
        "ft:embedded:closed_mab-1::1a2b",
        error("The model does not exist", "model_not_found"),
    )
    for own, cure in ((True, r"rm \$\(grep .* '\"ft:embedded:' results\); snakemake$"), (False, "/models lists those")):
        with pytest.raises(InputError, match=f"no model '{model}' .*{cure}"):
            failure_of(404, {}, missing, replace(TARGET, model=model, own=own))


# --- Ask again ---


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 529, 599])
@pytest.mark.parametrize(
    "body", [error("Later."), b"", b"<html>Bad gateway</html>", b"[]", b'"x"', b"\xff", b'{"a": 1}']
)
def test_what_passes_is_asked_again_whatever_the_body_says(status, body):
    found = failure_of(status, {}, body, TARGET)
    assert replace(found, in_protocol=False) == Failure(str(status), found.detail, paid=status == 504)
    assert "\n" not in str(found)


def test_what_is_said_of_trouble_is_in_it_without_the_key():
    assert str(failure_of(503, {}, error(f"Overloaded, {KEY}."), TARGET)) == "503 (Overloaded, [key].)"
    assert str(failure_of(503, {}, b"", TARGET)) == "503"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "Retry-After": "7"}, 1.5),
        ({"retry-after-ms": "soon", "Retry-After": "7"}, 7),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "7, 7"}, 7),
        ({"Retry-After": "Mon, 01 Jan 2024 00:00:00 GMT"}, 0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}, 1),
        ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "1s"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m30.5s"}, 90.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "59.4"}, 59.4),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1741305600000"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h2m3s"}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": ""}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1.2.3s"}, None),
        ({"Retry-After": "2", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "5s"}, 2),
    ],
)
def test_an_endpoint_is_left_alone_for_as_long_as_it_asks(headers, seconds):
    assert requested_delay(Headers(headers)) == (seconds if seconds is None else pytest.approx(seconds))
    assert failure_of(429, Headers(headers), error(), TARGET).delay == requested_delay(Headers(headers))


def test_a_date_to_come_back_at_counts_from_now():
    when = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert requested_delay({"retry-after": when}) == pytest.approx(3600, abs=60)


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens"]), st.text()))
def test_no_header_is_strange_enough_to_fail_over(headers):
    seconds = requested_delay({**headers, "x-ratelimit-remaining-tokens": "0"})
    assert seconds is None or seconds >= 0


# --- Stop ---


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, error("Incorrect API key provided."), "the key is refused (401: Incorrect.*export OPENAI_API_KEY=…"),
        (401, b"", "the key is refused (401); .*export OPENAI_API_KEY=…"),
        (403, error("Country not supported."), "OPENAI_API_KEY may not be used for 'teller' from here (403: Country"),
        (404, error("The model `x` does not exist", "model_not_found"), "no model 'teller' (404: .*lists those"),
        (404, b"<html><h1>Not Found</h1></html>", "no endpoint at this address (404: Not Found); base_urls"),
        (400, error("This model's maximum …", "context_length_exceeded"), "the context of 'teller' (400: .*summary"),
        (400, error("maximum context length is 4096"), "longer than the context of 'teller' (400: .*play fewer rounds"),
        (413, b"", "longer than the context of 'teller' (413)"),
        (400, error("Invalid 'temperature'."), "a request was refused (400: Invalid 'temperature'.)"),
        (422, b'{"detail": [{"loc": ["body"]}]}', "a request was refused (422"),
        (405, b"\xff\xfe", "a request was refused (405"),
        (307, b"", "sends requests on to an address that it does not name (307)"),
        (429, error("You exceeded …", "insufficient_quota"), "there is no credit left (You exceeded …); add some"),
        (429, error("You exceeded …", None, "insufficient_quota"), "there is no credit left"),
        (400, error("Hard limit.", "billing_hard_limit_reached"), "there is no credit left (Hard limit.)"),
        (400, json.dumps([{"error": {"message": "Ours is a list."}}]).encode(), "refused (400: Ours is a list.)"),
        (400, b'{"object": "error", "message": "Ours is flat.", "code": 400}', "refused (400: Ours is flat.)"),
    ],
)
def test_what_will_not_pass_stops_with_one_line_that_says_what_to_do(status, body, words):
    with pytest.raises(InputError) as refusal:
        failure_of(status, {"Retry-After": "1"}, body, TARGET)
    line = str(refusal.value)
    assert line.startswith("https://api.example.com/v1: ")
    begin, _, rest = words.partition(".*")
    assert begin in line
    assert all(part in line for part in rest.split(".*"))
    assert "\n" not in line
    assert len(line) < 600


def test_a_long_message_of_the_endpoints_is_cut():
    with pytest.raises(InputError) as refusal:
        failure_of(400, {}, error("word \n" * 10_000), TARGET)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    "leak",
    [
        KEY,
        KEY[:12],
        "sk-proj-****7890",
        "sk-pr…7890",
        "****7890",
        f"'{KEY}'.",
        "hf_abcdefgh",
        "gsk_abc123",
        "abc***xyz",
    ],
)
def test_no_key_nor_part_of_one_is_ever_said(leak):
    for status in (401, 403, 400, 404):
        with pytest.raises(InputError) as refusal:
            failure_of(status, {}, error(f"Incorrect API key provided: {leak} You can find yours."), TARGET)
        assert "[key]" in str(refusal.value)
        for part in (KEY, KEY[:8], KEY[-4:], "abc", "xyz"):
            assert part not in str(refusal.value)
        assert "You can find yours." in str(refusal.value)


def test_messages_of_any_length_are_read_in_no_time():
    assert redacted("a" * 10**6, KEY) == f"{'a' * LONGEST_MESSAGE}…"
    assert requested_delay({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1" * 10**6}) is None
    with pytest.raises(InputError, match=r"a request was refused \(400: \[\[\["):
        failure_of(400, {}, b"[" * 100_000, TARGET)


def test_a_new_address_is_said_without_what_it_may_hide():
    with pytest.raises(InputError, match=r"on to https://b\.example:8443/v1/x \(307\)"):
        failure_of(307, {"location": "https://u:pw@b.example:8443/v1/x?api_key=other"}, b"", TARGET)


@pytest.mark.parametrize("value", ["http://u:s3cret@host:1/api", "https://u:p%40s3cret@host"])
def test_what_other_libraries_say_is_shown_without_passwords(value):
    assert "s3cret" not in first_line(ValueError(f"404 Not Found for url '{value}'"))
    assert first_line(ValueError("for url 'http://host/a@b'")) == "for url 'http://host/a@b'"


def test_a_key_of_any_form_is_redacted_where_it_stands_in_full():
    assert redacted("Bearer tok3n is wrong", "tok3n") == "Bearer [key] is wrong"
    assert redacted("We ask for a task-based risk-free sketch.", "") == "We ask for a task-based risk-free sketch."
    assert redacted("none of the models", NO_KEY) == "none of the models"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "Later."}}', True),
        (b"<html>502 Bad Gateway</html>", False),
        (b"{}", False),
        (b"", False),
    ],
)
def test_only_a_server_of_the_protocol_says_later_in_its_words(body, said):
    assert failure_of(502, {}, body, RequestTarget("https://x/v1", "m", "KEY", "k")).in_protocol is said


# --- Whole answers ---

ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": "Hi"}, "logprobs": None}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}
PLACE = {"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": [{"token": "Hi", "logprob": -0.1}]}


def changed(*path: str | int, to: object) -> bytes:
    answer = json.loads(json.dumps(ANSWER))
    inside = answer
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = to
    return json.dumps(answer).encode()


def test_an_answer_is_taken_as_it_is_with_whatever_else_there_is_in_it():
    for body in (
        changed("id", to="x"),
        changed("choices", 0, "message", "content", to=None),
        changed("choices", 0, "logprobs", to={"content": [PLACE]}),
        changed("choices", 0, "logprobs", to={"content": None}),
    ):
        assert parse_response(body) == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b"{}", b"<html></html>", b"\xff", b'"text"', b"3", b"[" * 100_000,
        changed("choices", to=[]), changed("choices", to=None), changed("choices", 0, to="Hi"),
        changed("choices", 0, "message", to=None), changed("choices", 0, "message", "content", to=3),
        changed("usage", to=None), changed("usage", "prompt_tokens", to="3"), changed("usage", "prompt_tokens", to=-1),
        *(changed("usage", "prompt_tokens_details", to=of) for of in ([1], "12", {"cached_tokens": "12"})),
        changed("choices", 0, "logprobs", to=[1]), changed("choices", 0, "logprobs", to={"content": [{"token": "Hi"}]}),
        changed("choices", 0, "logprobs", to={"content": [{**PLACE, "token": 3}]}),
        changed("usage", "completion_tokens", to=10**400),
        *(changed("choices", 0, "logprobs", to={"content": [{**PLACE, "bytes": of}]}) for of in ("zz", [300], 3)),
        *(changed("choices", 0, "logprobs", to={"content": [{**PLACE, "top_logprobs": [{"token": "", "logprob": of}]}]})
          for of in ("", math.nan, math.inf, 1e308, 10**400, -(10**400))),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_not_taken_for_one(body):
    with pytest.raises(MalformedError):
        parse_response(body)


def test_of_an_answer_in_parts_the_text_is_the_reply():
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Action: 1"}]
    assert text_of(parse_response(changed("choices", 0, "message", "content", to=parts))) == "Action: 1"
    with pytest.raises(UnusableError):
        parse_response(changed("choices", 0, "message", "content", to=["Action: 1"]))


@pytest.mark.parametrize(
    "body",
    [
        changed("choices", 0, "error", to={"message": "Overloaded", "code": 502}),
        changed("choices", 0, "finish_reason", to="error"),
        changed("choices", 0, "finish_reason", to="insufficient_system_resource"),
        json.dumps({"choices": [{"error": {"message": "Overloaded"}, "finish_reason": "error"}]}).encode(),  # no usage
    ],
)
def test_text_that_a_failure_has_ended_is_no_answer(body):
    with pytest.raises(ReportedError, match=r"Overloaded|error|insufficient_system_resource"):
        parse_response(body)


def test_a_key_is_what_a_header_can_hold():
    assert key_in("RMFT_API_KEY", "secret \r\n") == "secret"
    assert key_in("RMFT_API_KEY", None) == ""
    with pytest.raises(InputError, match="RMFT_API_KEY: has characters that no key has"):
        key_in("RMFT_API_KEY", "schlüssel")


@given(st.integers(0, 200))
def test_an_answer_that_was_cut_anywhere_is_not_taken_for_one(length):
    body = json.dumps(ANSWER).encode()
    with pytest.raises(MalformedError):
        parse_response(body[: length % len(body)])
