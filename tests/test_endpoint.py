"""Games with a model behind an endpoint, over real HTTP: each response is paid once, whatever happens.

The endpoint is `upstream`, whose responses depend on the request alone and which counts them; a proxy may add faults.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from errno import ENOSPC
from pathlib import Path
from signal import SIGINT, SIGKILL

import numpy as np
import pytest
from faults import AFTER, BEFORE, HARMLESS, KINDS, FaultProxy
from helpers import HEAR_CTRL_C, draw
from upstream import KEY, MODEL, Body, Upstream

from rmft.agents.endpoint import EndpointChatModel
from rmft.endpoint.budget import SpendingLimit, Usage, cost
from rmft.endpoint.connection import Connection, Endpoint, Request, Statistics, _backoff, _most_tokens
from rmft.endpoint.journal import Journal, key_of, read_journal, usage_of
from rmft.endpoint.journal_file import frames
from rmft.errors import InputError
from rmft.language.game import GameSettings, RandomNumbers, Transcript, play_in_words
from rmft.language.prompts import Prompts
from rmft.language.protocol import Protocol
from rmft.params import load
from rmft.params.endpoint import Prices

HERE = Path(__file__).parent
PROMPTS = Prompts.load(HERE.parent / "data" / "prompts" / "plain")
PRICES = Prices(input=0.15, cached_input=0.075, output=0.6, training=3.0)
LISTED = next(model for model in load(HERE.parent / "params.yaml").models.values() if model.kind == "endpoint")
SETTINGS = LISTED.model_copy(
    update={
        "model": MODEL, "base_urls": ["https://api.example.com/v1"], "serves": None, "seeded": True, "prices": PRICES,
        "api_key": "OPENAI_API_KEY", "concurrency": 8, "attempts": 4, "timeout_seconds": 20.0, "context": 8000,
    }
)  # fmt: skip
PACE = 0.002  # factor of all waiting times


@contextmanager
def connected(
    journal: Path, *urls: str, key: str | None = KEY, limit: float | None = None, pace: float = PACE, **settings: object
) -> Iterator[Connection]:
    """Yield a connection to an endpoint at urls, with a journal."""
    with Journal.open(journal) as opened:
        asked = SETTINGS.model_copy(update=settings)
        budget = SpendingLimit(limit, {MODEL: asked.prices}, usage_of([journal]))
        with Connection(Endpoint(asked, asked.model, lambda: urls, key, opened, budget, pace)) as connection:
            yield connection


def games_of(n: int) -> np.ndarray:
    """Return scenario and trajectory of n games, two trajectories each."""
    return np.stack(np.divmod(np.arange(n), 2), axis=1)


def play(
    connection: Connection,
    n: int = 6,
    horizon: int = 4,
    environment: str = "mab",
    output: str = "action",
    interaction: str = "dialogue",
    retries: int = 2,
    words: str = "test",
) -> Transcript:
    """Play n games of three actions. words: the name that calls have, which changes no game."""
    feedback = "full" if environment == "fol" else "bandit"
    protocol = Protocol(interaction, output, feedback, "with-reasoning", 3)
    rules = GameSettings(PROMPTS, protocol, temperature=1.0, retries=retries, tolerance=0.02)
    speaker = EndpointChatModel(
        connection, n, games_of(n), 40, words, logprobs=feedback == "full" and output == "action"
    )
    return play_in_words(speaker, draw("uniform", n, horizon, 3).rewards, rules, RandomNumbers(0, "test", games_of(n)))


def as_json(told: Transcript) -> str:
    """Return all of what was said and done."""
    arrays = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(told).items()}
    return json.dumps(arrays)


def ask(connection: Connection, count: int = 1, begin: int = 0, text: str = "Your action?") -> list[str]:
    """Ask for several answers; return their texts."""
    body = {"messages": [{"role": "user", "content": text}], "temperature": 1.0, "max_completion_tokens": 20}
    numbers = range(begin, begin + count)
    answers = connection.send([Request({**body, "seed": i}, ("test", i), ("game", i)) for i in numbers])
    return [answer["choices"][0]["message"]["content"] for answer in answers]


def keys_in(journal: Path) -> list[str]:
    return [key_of(request) for request, _ in read_journal(journal)]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as endpoint:
        yield endpoint


@pytest.fixture
def journal(tmp_path) -> Path:
    return tmp_path / "journal.jsonl.zst"


# --- On record, and replayed ---


@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
@pytest.mark.parametrize(("environment", "output"), [("fol", "action"), ("mab", "distribution")])
def test_what_was_played_is_replayed_without_a_call(upstream, journal, environment, output, interaction):
    of = {"environment": environment, "output": output, "interaction": interaction}
    with connected(journal, upstream.url) as connection:
        told = play(connection, **of)
    asked = upstream.received.total()
    assert asked == told.attempts.sum() == upstream.paid.total()
    assert set(upstream.received) == set(keys_in(journal))
    assert told.attempts.max() > 1
    with connected(journal, "http://127.0.0.1:1/v1", key=None) as connection:
        assert as_json(play(connection, **of)) == as_json(told)
    assert connection.statistics.replayed == asked
    assert connection.statistics.requests == 0


def test_a_rerun_that_finds_every_answer_needs_no_key_no_endpoint_and_does_not_even_load_the_client(upstream, journal):
    with connected(journal, upstream.url) as connection:
        ask(connection, 3)
    code = f"""
import sys
from pathlib import Path
from test_endpoint import *
with Journal.open(Path({str(journal)!r})) as journal:
    nowhere = lambda: sys.exit("started")
    with Connection(Endpoint(SETTINGS, MODEL, nowhere, None, journal, SpendingLimit(0.0, {{}}))) as connection:
        assert len(ask(connection, 3)) == 3
assert "openai" not in sys.modules and "httpx2" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=HERE, check=False).returncode == 0


def test_more_games_ask_only_for_what_is_not_on_record(upstream, journal):
    with connected(journal, upstream.url) as connection:
        few = play(connection, n=4, horizon=3)
        asked = upstream.received.total()
        more = play(connection, n=8, horizon=3)
    assert [prompts[:4] for prompts in more.prompts] == few.prompts
    assert [replies[:4] for replies in more.replies] == few.replies
    assert upstream.received.total() == asked + more.attempts[:, 4:].sum()


def test_a_conversation_is_sent_whole_and_a_retracted_reply_is_not_in_it(upstream, journal):
    with connected(journal, upstream.url) as connection:
        told = play(connection)
    for request, response in read_journal(journal):
        body = upstream.bodies[key_of(request)]
        assert {**body, "endpoint": request["endpoint"], "words": request["words"]} == request
        _, scenario, trajectory, turn, _ = request["words"]
        game, said = 2 * scenario + trajectory, [message["content"] for message in request["messages"]]
        assert said[0::2] == [prompts[game] for prompts in told.prompts[:turn]]
        assert said[1::2] == [replies[game] for replies in told.replies[: turn - 1]]
        assert [message["role"] for message in request["messages"]] == (["user", "assistant"] * turn)[:-1]
        assert response["model"] == MODEL


def test_a_summary_stands_alone_and_no_two_rounds_share_a_key(upstream, journal):
    with connected(journal, upstream.url) as connection:
        told = play(connection, interaction="summary")
    assert all(len(body["messages"]) == 1 for body in upstream.bodies.values())
    assert len(set(keys_in(journal))) == told.attempts.sum()


def test_requests_say_what_was_asked_for_and_each_has_its_own_seed(upstream, journal):
    uniforms = np.array([[0.25, 0.9], [0.5, 0.9], [1 - 2**-53, 0.9]])
    with connected(journal, upstream.url) as connection:
        talk = EndpointChatModel(connection, 3, games_of(3), 17, "words", logprobs=True, stop=["\n\n"])
        talk.reply(["?"] * 3, temperature=0.7, uniforms=uniforms)
        talk.retract([1])
        talk.reply(None, temperature=0.7, uniforms=uniforms[:1], rows=np.array([1]))
    seeds = sorted(body["seed"] for body in upstream.bodies.values())
    assert seeds == [2**29, 2**29, 2**30, 2**31 - 1]
    for body in upstream.bodies.values():
        assert {name: value for name, value in body.items() if name not in ("messages", "seed")} == {
            "model": MODEL, "temperature": 0.7, "max_completion_tokens": 17, "logprobs": True, "top_logprobs": 5,
            "stop": ["\n\n"],
        }  # fmt: skip
    assert len(set(upstream.received)) == 4


def test_without_seeds_two_trajectories_of_a_scenario_ask_the_same_and_are_told_apart(upstream, journal):
    with connected(journal, upstream.url, seeded=False) as connection:
        talk = EndpointChatModel(connection, 2, games_of(2), 17, "words", logprobs=False)
        talk.reply(["?"] * 2, temperature=1.0, uniforms=np.zeros((2, 1)))
        talk.retract([0])
        talk.reply(None, temperature=1.0, uniforms=np.zeros((1, 1)), rows=[0])
    first, second, third = upstream.bodies.values()
    assert first == second == third
    assert not {"seed", "logprobs", "stop"} & set(first)


def test_a_fine_tuned_model_has_answers_of_its_own(upstream, journal):
    with connected(journal, upstream.url) as connection:
        base = ask(connection, 20)
    with connected(journal, upstream.url, model="ft:teller") as connection:
        assert ask(connection, 20) != base
    assert [body["model"] for body in upstream.bodies.values()] == [MODEL] * 20 + ["ft:teller"] * 20


def test_where_an_endpoint_is_reached_and_how_it_is_asked_changes_no_key(upstream, journal):
    with connected(journal, upstream.url) as connection:
        ask(connection, 5)
    with connected(journal, "http://127.0.0.1:1/v1", concurrency=1, attempts=1, timeout_seconds=1.0) as connection:
        ask(connection, 5)
    assert upstream.received.total() == 5


def test_policies_behind_actions_are_what_the_reply_s_tokens_say(upstream, journal):
    with connected(journal, upstream.url) as connection:
        told = play(connection, environment="fol")
    said = ~told.fallback
    assert said.any()
    assert told.policies[said] == pytest.approx(np.tile(np.array([5, 2, 1]) / 8, (said.sum(), 1)))


@pytest.mark.parametrize(("content", "text"), [(None, ""), ("\ud83d!", "?!"), ("☂", "☂")])
def test_a_reply_that_was_refused_is_empty_and_half_a_character_is_not_sent_back(journal, content, text):
    with Upstream(lambda _: content or "") as upstream, connected(journal, upstream.url) as connection:
        talk = EndpointChatModel(connection, 1, games_of(1), 9, "words", logprobs=False)
        for _ in range(2):
            turns = talk.reply(["?"], temperature=1.0, uniforms=np.zeros((1, 1)))
            assert [turn.text for turn in turns] == [text]
    assert [*upstream.bodies.values()][1]["messages"][1] == {"role": "assistant", "content": text}


def test_an_answer_that_cannot_be_recorded_is_not_used_and_a_journal_that_is_read_only_is_known_before_paying(
    upstream, journal, monkeypatch
):
    def full(_: int) -> None:
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    with connected(journal, upstream.url) as connection:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="cannot be written: No space left on device"):
            ask(connection, 5)
        monkeypatch.undo()
        ask(connection, 5)
        assert len(keys_in(journal)) == 5
    journal.chmod(0o444)
    asked = upstream.received.total()
    with connected(journal, upstream.url) as connection, pytest.raises(InputError, match="may not be written to"):
        ask(connection, 6)
    assert upstream.received.total() == asked


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
        told = ask(connection, 2)
    assert told == [upstream.say(body) for body in upstream.bodies.values()]
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
            told = play(connection, **of)
    assert as_json(told) == as_json(undisturbed)
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


def test_an_endpoint_that_is_not_there_is_a_clear_line(journal):
    said = r"http://127\.0\.0\.1:1/v1: no response after 4 attempts, .* in connection \(.*connection attempts failed"
    with connected(journal, "http://127.0.0.1:1/v1") as connection, pytest.raises(InputError, match=said):
        ask(connection, 3)


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
        connection._paused_until = 0.0

    monkeypatch.setattr(Connection, "_sleep", sleep)
    with connected(journal, upstream.url, pace=1.0) as connection:
        upstream.headers = headers
        ask(connection)
        upstream.headers = {}
        ask(connection, 4, begin=1)
    assert slept == [(pytest.approx(360, abs=30), 1)]
    assert connection.statistics.waits == 1


def test_retry_after_is_a_pause_for_all_and_not_only_for_the_one_that_was_told(upstream, journal, monkeypatch):
    slept = []

    async def sleep(connection: Connection, seconds: float) -> None:
        slept.append((seconds, upstream.received.total()))
        if seconds > 10:
            connection._paused_until = 0.0

    monkeypatch.setattr(Connection, "_sleep", sleep)
    with connected(journal, upstream.url, pace=1.0, concurrency=1) as connection:
        ask(connection)
        upstream.refusals = [(429, {"headers": {"Retry-After": "100"}})]
        ask(connection, 2, begin=1)
    own, everybody = slept
    assert own == (pytest.approx(0.375, abs=0.125), 2)
    assert everybody == (pytest.approx(100, abs=30), 2)  # and nobody was asked in between


def test_an_endpoint_that_asks_to_be_left_alone_for_hours_is_come_back_to_another_day(upstream, journal):
    with connected(journal, upstream.url) as connection:
        upstream.refusals = [(429, {"headers": {"Retry-After": "7200"}})]
        with pytest.raises(InputError, match=r"wants no requests for 2\.0 hours; all responses are kept"):
            ask(connection)


# --- Refusals ---


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (401, {"message": f"Incorrect API key provided: {KEY[:10]}***."}, "refused.*export OPENAI_API_KEY"),
        (403, {"message": "Not from there."}, "may not be used"),
        (404, {"message": "The model does not exist", "code": "model_not_found"}, "no model 'teller'.*/models"),
        (400, {"message": "Too long.", "code": "context_length_exceeded"}, "interaction: summary"),
        (429, {"message": "You exceeded your quota.", "code": "insufficient_quota"}, "no credit left"),
        (400, {"message": "Invalid value."}, "a request was refused"),
    ],
)
def test_what_will_not_get_better_is_asked_once_and_said_in_a_line_without_the_key(
    upstream, journal, status, error, said
):
    upstream.refusals = [(status, {"error": error})] * 100
    with connected(journal, upstream.url) as connection, pytest.raises(InputError, match=said) as refusal:
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
    for key, said in {None: "needs a key: export OPENAI_API_KEY=…", " ": "needs a key", "sk-☂": "no key has"}.items():
        refused = pytest.raises(InputError, match=said)
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
    assert (budget.lost > 0) == counted
    assert budget.spent - budget.lost == pytest.approx(cost(usage_of([journal])[MODEL], PRICES))
    assert not budget.reserved


# --- Many at once ---


def test_so_many_are_asked_at_once_and_never_more(journal):
    together, lock, inside, most = threading.Barrier(8), threading.Lock(), 0, 0

    def hold() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        together.wait(30)  # until eight are here
        with lock:
            inside -= 1

    with Upstream() as upstream, connected(journal, upstream.url) as connection:
        ask(connection)  # one goes ahead
        upstream.hold = hold
        ask(connection, 64, begin=1)
    assert most == 8
    assert upstream.connections <= 8


def test_connections_are_kept_from_one_round_to_the_next_and_closed_at_the_end(upstream, journal):
    threads = set(threading.enumerate())
    with connected(journal, upstream.url, concurrency=3) as connection:
        for turn in range(10):
            ask(connection, 6, begin=6 * turn)
        assert 0 < upstream.open <= 3
    wait_until(lambda: upstream.open == 0, 20)
    assert upstream.received.total() == 60
    assert upstream.connections <= 3
    left = {
        thread for thread in set(threading.enumerate()) - threads if thread.name.startswith(("journal", "Any", "asy"))
    }
    assert not left


def test_games_keep_to_one_of_several_endpoints(journal):
    with ExitStack() as stack:
        servers = [stack.enter_context(Upstream()) for _ in range(3)]
        with connected(journal, *(server.url for server in servers)) as connection:
            play(connection, n=24)
    games: dict[tuple, set[int]] = {}
    for request, _ in read_journal(journal):
        at = [number for number, server in enumerate(servers) if key_of(request) in server.paid]
        games.setdefault(tuple(request["words"][:3]), set()).update(at)
    assert [len(at) for at in games.values()] == [1] * 24
    assert set.union(*games.values()) == {0, 1, 2}


# --- Secrets ---


def test_a_key_is_in_no_journal_and_no_text_of_an_endpoint(upstream, journal):
    with connected(journal, upstream.url) as connection:
        play(connection)
        for text in (repr(connection.endpoint), str(connection.endpoint), repr(connection), str(connection.statistics)):
            assert KEY not in text
    lines = [line for *_, lines in frames(journal, journal.read_bytes()) for line in lines]
    assert lines
    for line in lines:
        assert KEY.encode() not in line
        assert b"Bearer" not in line
        assert upstream.url.encode() not in line  # where it happened to be


# --- Killed ---

CHILD = """
import sys
from pathlib import Path
from test_endpoint import as_json, connected, play
journal, url, results = sys.argv[1:]
with connected(Path(journal), url, timeout_seconds=60.0, concurrency=12) as connection:
    told = play(connection, n=12, horizon=6)
Path(results).write_text(as_json(told))
"""


def begun(journal: Path, url: str, results: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", f"{HEAR_CTRL_C}\n{CHILD}", str(journal), url, str(results)]
    return subprocess.Popen(command, cwd=HERE, stderr=subprocess.PIPE, text=True)


def wait_until(happened: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.002)


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
                wait_until(lambda enough=enough: again.paid.total() >= enough)
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
        kept = keys_in(journal)
        assert 12 < len(kept) == upstream.paid.total() == 24 - len(stuck)
        upstream.received.clear()
        go_on.set()
        with connected(journal, upstream.url) as connection:
            play(connection, n=12, horizon=6)
    assert len(set(keys_in(journal))) == 72
    assert not set(kept) & set(upstream.received)


# --- Counted ---


def test_the_statistics_of_a_connection_are_numbers_and_a_line(upstream, journal):
    with connected(journal, upstream.url) as connection:
        ask(connection, 3)
    with FaultProxy(upstream.url, 0, 1.0, 2, ["503"]) as proxy, connected(journal, proxy.url) as connection:
        ask(connection, 5)
    statistics = connection.statistics
    assert (statistics.requests, statistics.replayed, statistics.usage.answers) == (4, 3, 2)
    assert statistics.retries == {"503": 2}
    assert statistics.usage.prompt + 3 * statistics.usage.prompt // 2 == usage_of([journal])[MODEL].prompt
    assert str(statistics).startswith("2 responses, ")
    assert str(statistics).endswith("s each; 3 replayed; retries: 2 × 503")
    assert str(Statistics()) == "0 responses, 0 + 0 tokens"
