"""Games with a model behind an endpoint, through faults, refusals and kills: each response is paid for once.

The endpoint is `upstream`, whose responses depend on the request alone and which counts them; a proxy adds faults.
"""

import asyncio
import re
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from signal import SIGINT, SIGKILL

import numpy as np
import pytest
from endpoint_games import HERE, PRICES, SETTINGS, as_json, ask, connected, keys_in, play
from faults import AFTER, BEFORE, HARMLESS, KINDS, NO_USAGE, FaultProxy
from helpers import HEAR_CTRL_C, wait_until
from upstream import KEY, MODEL, Body, Upstream

from rmft.endpoint.budget import Usage, cost
from rmft.endpoint.connection import Connection, Request, _backoff, _most_tokens
from rmft.endpoint.journal import key_of, read_journal, usage_of
from rmft.errors import InputError

# --- Faults ---

REASONS = {  # of a retry, by fault; of the others, the status that they have
    "cut before": "connection", "cut in the body": "connection", "two lengths": "connection", "no answer": "timeout",
    "stuck in the body": "timeout", "dripping body": "timeout", "never passed on": "timeout", "garbage": "malformed",
    "HTML": "malformed", "empty object": "malformed",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_fault_alone_costs_a_retry_and_neither_an_answer_nor_a_second_payment(upstream, journal, kind):
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(upstream.url, 0, 1.0, 1, [kind]))
        connection = stack.enter_context(connected(journal, proxy.url, timeout_seconds=0.4))
        texts = ask(connection, 2)
    assert texts == [upstream.say(body) for body in upstream.bodies.values()]
    assert set(upstream.paid.values()) == {1}
    assert proxy.injected == {kind: 1}
    reason = REASONS.get(kind, kind.partition(",")[0])
    expected = {} if kind in HARMLESS else {reason: 1}
    if reason != "timeout":  # a busy machine may be late more often
        assert {name: n for name, n in connection.statistics.retries.items() if name != "timeout"} == expected
    else:
        assert connection.statistics.retries["timeout"] >= 1
    assert upstream.received.total() >= 2 + (kind in AFTER)


def test_through_hundreds_of_faults_of_every_kind_the_games_are_the_same_and_every_answer_is_paid_for_once(tmp_path):
    of = {"n": 60, "horizon": 3, "retries": 0}
    with Upstream() as quiet, connected(tmp_path / "quiet", quiet.url, concurrency=32) as connection:
        undisturbed = play(connection, **of)
    with Upstream() as upstream, FaultProxy(upstream.url, 0, 0.75, 300) as proxy:
        reliable = {"attempts": 200, "timeout_seconds": 0.3, "concurrency": 32}
        with connected(tmp_path / "faulty", proxy.url, **reliable) as connection:
            transcript = play(connection, **of)
    assert as_json(transcript) == as_json(undisturbed)
    assert proxy.injected.total() == 300
    assert min(proxy.injected[kind] for kind in KINDS) > 3
    assert sorted(upstream.paid) == sorted(keys_in(tmp_path / "faulty")) == sorted(quiet.paid)
    assert set(upstream.paid.values()) == {1}
    assert upstream.received.total() > upstream.paid.total()
    assert connection.statistics.retries.total() >= sum(proxy.injected[kind] for kind in (*BEFORE, *AFTER))


def test_an_endpoint_that_never_answers_is_asked_so_often_and_no_more(upstream, journal):
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(upstream.url, 0, 1.0, 10**6, ["503"]))
        connection = stack.enter_context(connected(journal, proxy.url))
        with pytest.raises(InputError, match=r"no response after 4 attempts, .* in 503 \(Later\.\); .* run again"):
            ask(connection, 20)
    assert proxy.injected.total() == 4  # by the one that was sent ahead
    assert upstream.received.total() == 0


def test_an_endpoint_that_is_not_there_is_a_clear_line(journal, capsys):
    words = r"http://127\.0\.0\.1:1/v1: no response after 4 attempts, .* in connection \(.*Connect call failed"
    with connected(journal, "http://127.0.0.1:1/v1") as connection, pytest.raises(InputError, match=words):
        ask(connection, 3)
    waiting = capsys.readouterr().err.splitlines()
    assert len(waiting) == 3
    assert re.fullmatch(r"http://127\.0\.0\.1:1/v1: connection .*; attempt 2 of 4 follows", waiting[0])


def test_the_pause_before_each_retry_doubles_up_to_a_limit_and_is_different_for_different_calls():
    pauses = np.array([[_backoff(f"key {i}", attempt) for attempt in range(1, 13)] for i in range(200)])
    longest = np.minimum(0.5 * 2.0 ** np.arange(12), 60)
    assert (pauses >= longest / 2).all()
    assert (pauses <= longest).all()
    assert pauses.mean(axis=0) == pytest.approx(0.75 * longest, rel=0.05)
    assert _backoff("key 7", 3) == pauses[7, 2]


@pytest.mark.parametrize(
    "headers",
    [
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"},
        {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "360"},
    ],
)
def test_when_a_limit_is_used_up_everybody_waits_until_it_is_renewed(upstream, journal, monkeypatch, headers):
    slept = []

    async def sleep(connection: Connection, seconds: float) -> None:
        slept.append((seconds, upstream.received.total()))
        connection._paused_until = [0.0]

    monkeypatch.setattr(Connection, "_sleep", sleep)
    with connected(journal, upstream.url, pace=1.0) as connection:
        upstream.headers = headers
        ask(connection)
        upstream.headers = {}
        ask(connection, 4, begin=1)
    assert slept == [(pytest.approx(360, abs=30), 1)]


def test_retry_after_is_a_pause_for_all_and_not_only_for_the_one_that_was_told(upstream, journal, monkeypatch):
    slept = []

    async def sleep(connection: Connection, seconds: float) -> None:
        slept.append((seconds, upstream.received.total()))
        if seconds > 10:
            connection._paused_until = [0.0]

    monkeypatch.setattr(Connection, "_sleep", sleep)
    with connected(journal, upstream.url, pace=1.0, concurrency=1) as connection:
        ask(connection)
        upstream.refusals = [(429, {"headers": {"Retry-After": "100"}})]
        ask(connection, 2, begin=1)
    own, everybody = slept
    assert own == (pytest.approx(0.375, abs=0.125), 2)
    assert everybody == (pytest.approx(100, abs=30), 2)  # and no request was sent in between


def test_a_pause_of_one_address_keeps_nobody_from_another(journal):
    with Upstream() as here, Upstream() as there, connected(journal, here.url, there.url, pace=1.0) as connection:
        ask(connection)

        async def wait(address: int) -> None:
            connection._pause(0, 100.0)
            await asyncio.wait_for(connection._wait_for_pause(address), 0.2)

        connection._runner.run(wait(1))
        with pytest.raises(TimeoutError):
            connection._runner.run(wait(0))


def test_a_request_that_waits_for_its_address_leaves_its_slot_to_others(journal, monkeypatch):
    async def attempt(connection: Connection, _record: dict, _key: str, address: int) -> dict:
        await asyncio.sleep(0)  # so that the next request waits for this one's slot
        connection._pause(0, 100.0)
        return {"address": address}

    monkeypatch.setattr(Connection, "_attempt", attempt)
    with Upstream() as here, Upstream() as there, connected(journal, here.url, there.url, pace=1.0) as connection:
        connection._connect()

        async def send() -> None:
            connection._stopped, connection._slots = asyncio.Event(), asyncio.Semaphore(1)
            sent = [asyncio.create_task(connection._send_with_retries({}, "", address)) for address in (0, 0, 1)]
            ended, waiting = await asyncio.wait(sent, timeout=1.0)
            assert (ended, waiting) == ({sent[0], sent[2]}, {sent[1]})
            sent[1].cancel()

        connection._runner.run(send())


def test_an_answer_that_lacks_something_is_not_paid_for_again_and_again(upstream, journal):
    with FaultProxy(upstream.url, 0, 1.0, 9, [NO_USAGE]) as proxy, connected(journal, proxy.url) as connection:
        stopped = pytest.raises(InputError, match=r"no response after 2 attempts, .* unusable \(KeyError: 'usage'\)")
        with stopped:
            ask(connection)
    assert upstream.received.total() == 2


def test_an_empty_reply_is_sent_back_as_a_message_that_says_so(upstream, journal):
    texts = ("user", "Play."), ("assistant", " "), ("user", "Go on.")
    messages = [{"role": role, "content": text} for role, text in texts]
    with connected(journal, upstream.url) as connection:
        connection.send([Request({"messages": messages, "max_completion_tokens": 50}, ("empty",))])
    (body,) = upstream.bodies.values()
    assert [message["content"] for message in body["messages"]] == ["Play.", "(no reply)", "Go on."]
    (sent, _), *_ = read_journal(journal)
    assert sent["messages"] == messages


def test_an_endpoint_that_asks_to_be_left_alone_for_hours_is_come_back_to_another_day(upstream, journal):
    with connected(journal, upstream.url) as connection:
        upstream.refusals = [(429, {"headers": {"Retry-After": "7200"}})]
        with pytest.raises(InputError, match=r"asks us to wait 2\.0 hours; all responses are kept"):
            ask(connection)


class Limited(Upstream):
    """Answers every fifth request, and has no time for the others."""

    def reply(self, key: str, body: Body, authorised: bool) -> tuple[int, Body]:
        """Return a refusal, or an answer."""
        with self._lock:
            busy = self.received.total() % 5 < 4
            self.received[key] += busy
        return (429, {"error": {"message": "Slow down."}}) if busy else super().reply(key, body, authorised)


def test_a_limit_on_the_rate_ends_no_run_as_long_as_other_requests_are_answered(journal):
    with Limited() as limited, connected(journal, limited.url, concurrency=16, attempts=5) as connection:
        ask(connection, 60)
        assert len(keys_in(journal)) == 60
    assert connection.statistics.retries["429"] > 60 * 3


def test_a_limit_that_leaves_no_request_through_ends_the_run_with_advice(upstream, journal):
    with connected(journal, upstream.url) as connection:
        ask(connection)
        upstream.refusals = [(429, {"error": {"message": "Slow down."}})] * 100
        with pytest.raises(InputError, match=r"no response after 4 attempts, .* in 429 .* with a lower `concurrency`"):
            ask(connection, begin=1)


# --- Refusals ---


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (401, {"message": f"Incorrect API key provided: {KEY[:10]}***."}, "refused.*export OPENAI_API_KEY"),
        (403, {"message": "Not from there."}, "may not be used"),
        (404, {"message": "The model does not exist", "code": "model_not_found"}, "no model 'teller'.*/models"),
        (400, {"message": "Too long.", "code": "context_length_exceeded"}, "interaction: summary"),
        (429, {"message": "You exceeded your quota.", "code": "insufficient_quota"}, "no credit left"),
        (400, {"message": "Invalid value."}, "a request was refused"),
        (400, {"message": "500 tokens are over the available context size", "code": 400}, "interaction: summary"),
        (400, {"message": "Long.", "code": 400, "type": "exceed_context_size_error"}, "interaction: summary"),
        (422, {"message": "extra: max_completion_tokens"}, "token_limit .* says what it calls the limit"),
    ],
)
def test_what_will_not_get_better_is_asked_once_and_said_in_a_line_without_the_key(
    upstream, journal, status, error, words
):
    upstream.refusals = [(status, {"error": error})] * 100
    with connected(journal, upstream.url) as connection, pytest.raises(InputError, match=words) as refusal:
        play(connection)
    assert upstream.received.total() == 1
    assert "\n" not in str(refusal.value)
    assert KEY[:10] not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert keys_in(journal) == []


def test_a_wrong_key_is_refused_by_the_endpoint_and_no_key_before_it_is_asked(upstream, journal):
    refused = pytest.raises(InputError, match="refused")
    with connected(journal, upstream.url, key="sk-wrong-000") as connection, refused:
        ask(connection, 5)
    assert upstream.received.total() == 1
    for key, words in {None: "needs a key: export OPENAI_API_KEY=…", " ": "needs a key", "sk-☂": "no key has"}.items():
        refused = pytest.raises(InputError, match=words)
        with connected(journal, upstream.url, key=key) as connection, refused:
            ask(connection, 5)
    assert upstream.received.total() == 1


def test_when_credit_ends_in_the_middle_those_under_way_end_and_are_kept_and_hardly_any_others_begin(upstream, journal):
    together, inside = threading.Barrier(8), iter(range(100))

    def hold() -> None:
        if next(inside) < 8:
            together.wait(30)

    with connected(journal, upstream.url) as connection:
        ask(connection)
        upstream.hold, upstream.quota = hold, 5
        with pytest.raises(InputError, match="no credit left"):
            ask(connection, 90, begin=1)
    assert upstream.paid.total() == len(keys_in(journal)) == 5
    assert 9 <= upstream.received.total() <= 13  # each of the four answers may have let one more begin


def test_an_address_that_has_moved_is_a_line_that_names_the_new_one(upstream, journal):
    upstream.refusals = [(301, {"headers": {"Location": "https://example.org/v1/chat/completions"}})]
    words = r"sends requests on to https://example\.org/v1/chat/completions \(301\); name that address"
    with connected(journal, upstream.url) as connection, pytest.raises(InputError, match=words):
        ask(connection, 3)
    assert upstream.received.total() == 1


def test_an_error_with_a_status_of_success_is_retried_and_said(upstream, journal):
    overloaded = (200, {"error": {"message": f"Overloaded, {KEY}."}})
    upstream.refusals = [overloaded]
    with connected(journal, upstream.url) as connection:
        assert len(ask(connection)) == 1
        upstream.refusals = [overloaded] * 100
        with pytest.raises(InputError, match=r"ended in error \(Overloaded, \[key\]\.\); .* when it is back$"):
            ask(connection, begin=1)


def test_an_endpoint_that_does_not_know_the_limit_of_tokens_by_its_name_is_noticed(journal):
    with Upstream(say=lambda _: "x" * 100) as upstream, connected(journal, upstream.url) as connection:
        words = r"a completion has 100 tokens, and its request allows 20: .* set token_limit: max_tokens"
        with pytest.raises(InputError, match=words):
            ask(connection)
        assert len(keys_in(journal)) == 1  # it was paid for
        with pytest.raises(InputError, match=words):  # it is on record, and is not used either
            ask(connection)
    assert SETTINGS.model_copy(update={"token_limit": "max_tokens"}).options(7, 1) == {"max_tokens": 7, "seed": 1}


# --- Budget ---


def test_a_budget_stops_the_run_before_it_is_exceeded_with_all_answers_kept(upstream, journal):
    with connected(journal, upstream.url) as connection:
        undisturbed = play(connection, n=8, horizon=6)
    whole = cost(usage_of([journal])[MODEL], PRICES)
    journal.unlink()
    spent = 0.0
    for share in (0.3, 0.6):
        stopped = pytest.raises(InputError, match=r"budget\.dollars: .* raise it and run again")
        with connected(journal, upstream.url, limit=share * whole) as connection, stopped:
            play(connection, n=8, horizon=6)
        before, spent = spent, cost(usage_of([journal])[MODEL], PRICES)
        assert before < spent <= share * whole
        assert spent > 0.5 * share * whole  # it stops near the limit, not at the first call
        assert spent == pytest.approx(connection.endpoint.budget.spent)
    upstream.received.clear()
    kept = set(keys_in(journal))
    with connected(journal, upstream.url, limit=3 * whole) as connection:
        assert as_json(play(connection, n=8, horizon=6)) == as_json(undisturbed)
    assert not kept & set(upstream.received)
    assert cost(usage_of([journal])[MODEL], PRICES) == pytest.approx(whole)


def test_a_reservation_is_more_than_any_answer_costs(upstream, journal):
    with connected(journal, upstream.url, limit=1.0) as connection:
        play(connection, output="distribution")
    for request, response in read_journal(journal):
        used = Usage.of(response)
        assert used.prompt <= _most_tokens(request)
        assert used.completion <= request["max_completion_tokens"]


@pytest.mark.parametrize(("own", "counted"), [(False, True), (True, False)])
def test_an_answer_that_was_lost_counts_as_spent_unless_the_endpoint_knows_it_by_its_key(
    upstream, journal, own, counted
):
    where = {"base_urls": [], "serves": "embedded"} if own else {}
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(upstream.url, 0, 1.0, 1, ["garbage"]))
        connection = stack.enter_context(connected(journal, proxy.url, limit=1.0, **where))
        ask(connection)
    budget = connection.endpoint.budget
    used = usage_of([journal])[MODEL]
    assert budget.spent == pytest.approx(cost(used, PRICES))  # so that a later run knows it, too
    answered = sum((Usage.of(response) for _, response in read_journal(journal)), Usage())
    assert (used.prompt > answered.prompt) == counted
    assert not budget.reserved


# --- Killed ---

CHILD = """
import sys
from pathlib import Path
from endpoint_games import as_json, connected, play
journal, url, results = sys.argv[1:]
with connected(Path(journal), url, timeout_seconds=60.0, concurrency=12, limit=1.0) as connection:
    transcript = play(connection, n=12, horizon=6)
Path(results).write_text(as_json(transcript))
"""


def begun(journal: Path, url: str, results: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", f"{HEAR_CTRL_C}\n{CHILD}", str(journal), url, str(results)]
    return subprocess.Popen(command, cwd=HERE, stderr=subprocess.PIPE, text=True)


def test_killed_again_and_again_it_ends_with_the_same_bytes_and_asks_nothing_again_that_is_on_record(
    tmp_path, upstream
):
    with connected(tmp_path / "quiet", upstream.url) as connection:
        undisturbed = as_json(play(connection, n=12, horizon=6))
    journal, again = tmp_path / "journal.jsonl.zst", Upstream()
    answers = upstream.paid.total()
    with again:
        for kill in range(2):
            kept = set(keys_in(journal)) if kill else set()
            again.received.clear()
            enough = again.paid.total() + answers // 3
            with begun(journal, again.url, tmp_path / "results") as child:
                wait_until(lambda enough=enough: again.paid.total() >= enough, every=0.002)
                child.send_signal(SIGKILL)
            assert not (tmp_path / "results").exists()
            assert not kept & set(again.received)
        kept = set(keys_in(journal))
        assert kept
        again.received.clear()
        with begun(journal, again.url, tmp_path / "results") as child:
            assert child.wait() == 0
    assert not kept & set(again.received)
    assert (tmp_path / "results").read_text() == undisturbed
    assert set(again.paid.values()) == {1}  # what was under way when it was killed is known by its key


def test_ctrl_c_keeps_what_has_arrived_and_goes_on_at_once(tmp_path, journal):
    stuck, go_on = [], threading.Event()

    def say(body: Body) -> str:
        if len(body["messages"]) > 1 and body["seed"] % 3 == 0:
            stuck.append(body)
            go_on.wait()
        return "Action: 1"

    with Upstream(say) as upstream:
        with begun(journal, upstream.url, tmp_path / "results") as child:
            # All twelve games in their second round: some have no answer, all others are on record.
            wait_until(lambda: journal.exists() and len(keys_in(journal)) + len(stuck) == 24)
            child.send_signal(SIGINT)
            assert child.wait(20) != 0
            assert child.stderr.read().strip().endswith("KeyboardInterrupt")
        recorded = list(read_journal(journal))
        kept = [key_of(request) for request, _ in recorded if "lost" not in request]
        assert 12 < len(kept) == upstream.paid.total() == 24 - len(stuck)
        assert len(recorded) == 24  # those without an answer may be billed, which later runs count
        upstream.received.clear()
        go_on.set()
        with connected(journal, upstream.url) as connection:
            play(connection, n=12, horizon=6)
    assert len(set(keys_in(journal))) == 72 + len(recorded) - len(kept)
    assert not set(kept) & set(upstream.received)
