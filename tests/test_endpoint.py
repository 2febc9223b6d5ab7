"""Games with a model behind an endpoint, over real HTTP: what is sent, recorded and replayed.

The endpoint is `upstream`, whose responses depend on the request alone and which counts them.
"""

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from errno import ENOSPC

import numpy as np
import pytest
from endpoint_games import HERE, as_json, ask, connected, games_of, keys_in, play
from faults import FaultProxy
from helpers import wait_until
from upstream import KEY, MODEL, Upstream

from rmft.agents.endpoint import EndpointChatModel
from rmft.endpoint.connection import Statistics
from rmft.endpoint.journal import key_of, read_journal, usage_of
from rmft.endpoint.journal_file import frames
from rmft.errors import InputError

# --- On record, and replayed ---


@pytest.mark.parametrize("interaction", ["dialogue", "summary"])
@pytest.mark.parametrize(("environment", "output"), [("fol", "action"), ("mab", "distribution")])
def test_what_was_played_is_replayed_without_a_call(upstream, journal, environment, output, interaction):
    of = {"environment": environment, "output": output, "interaction": interaction}
    with connected(journal, upstream.url) as connection:
        transcript = play(connection, **of)
    sent = upstream.received.total()
    assert sent == transcript.attempts.sum() == upstream.paid.total()
    assert set(upstream.received) == set(keys_in(journal))
    assert transcript.attempts.max() > 1
    with connected(journal, "http://127.0.0.1:1/v1", key=None) as connection:
        assert as_json(play(connection, **of)) == as_json(transcript)
    assert connection.statistics.replayed == sent


def test_a_rerun_that_finds_every_answer_needs_no_key_no_endpoint_and_does_not_even_load_the_client(upstream, journal):
    with connected(journal, upstream.url) as connection:
        ask(connection, 3)
    code = f"""
import sys
from pathlib import Path
from endpoint_games import *
with Journal.open(Path({str(journal)!r})) as journal:
    nowhere = lambda: sys.exit("started")
    with Connection(Endpoint(SETTINGS, nowhere, journal, SpendingLimit(0.0, {{}})), MODEL) as connection:
        assert len(ask(connection, 3)) == 3
assert "openai" not in sys.modules and "aiohttp" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=HERE, check=False).returncode == 0


def test_more_games_ask_only_for_what_is_not_on_record(upstream, journal):
    with connected(journal, upstream.url) as connection:
        few = play(connection, n=4, horizon=3)
        sent = upstream.received.total()
        more = play(connection, n=8, horizon=3)
    assert [prompts[:4] for prompts in more.prompts] == few.prompts
    assert [replies[:4] for replies in more.replies] == few.replies
    assert upstream.received.total() == sent + more.attempts[:, 4:].sum()


def test_a_conversation_is_sent_whole_and_a_retracted_reply_is_not_in_it(upstream, journal):
    with connected(journal, upstream.url) as connection:
        transcript = play(connection)
    for request, response in read_journal(journal):
        body = upstream.bodies[key_of(request)]
        assert {**body, "endpoint": request["endpoint"], "words": request["words"]} == request
        _, scenario, trajectory, turn, _ = request["words"]
        game, texts = 2 * scenario + trajectory, [message["content"] for message in request["messages"]]
        assert texts[0::2] == [prompts[game] for prompts in transcript.prompts[:turn]]
        assert texts[1::2] == [replies[game] for replies in transcript.replies[: turn - 1]]
        assert [message["role"] for message in request["messages"]] == (["user", "assistant"] * turn)[:-1]
        assert response["model"] == MODEL


def test_a_summary_stands_alone_and_no_two_rounds_share_a_key(upstream, journal):
    with connected(journal, upstream.url) as connection:
        transcript = play(connection, interaction="summary")
    assert all(len(body["messages"]) == 1 for body in upstream.bodies.values())
    assert len(set(keys_in(journal))) == transcript.attempts.sum()


def test_requests_say_what_was_asked_for_and_each_has_its_own_seed(upstream, journal):
    uniforms = np.array([[0.25, 0.9], [0.5, 0.9], [1 - 2**-53, 0.9]])
    with connected(journal, upstream.url) as connection:
        talk = EndpointChatModel(connection, games_of(3), 17, "words", logprobs=True)
        talk.reply(["?"] * 3, temperature=0.7, uniforms=uniforms)
        talk.retract([1])
        talk.reply(None, temperature=0.7, uniforms=uniforms[:1], rows=np.array([1]))
    seeds = sorted(body["seed"] for body in upstream.bodies.values())
    assert seeds == [2**29, 2**29, 2**30, 2**31 - 1]
    for body in upstream.bodies.values():
        assert {name: value for name, value in body.items() if name not in ("messages", "seed")} == {
            "model": MODEL, "temperature": 0.7, "max_completion_tokens": 17, "logprobs": True, "top_logprobs": 5
        }  # fmt: skip
    assert len(set(upstream.received)) == 4


def test_without_seeds_two_trajectories_of_a_scenario_ask_the_same_and_are_told_apart(upstream, journal):
    with connected(journal, upstream.url, seeded=False) as connection:
        talk = EndpointChatModel(connection, games_of(2), 17, "words", logprobs=False)
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
        transcript = play(connection, environment="fol")
    valid = ~transcript.fallback
    assert valid.any()
    assert transcript.policies[valid] == pytest.approx(np.tile(np.array([5, 2, 1]) / 8, (valid.sum(), 1)))


@pytest.mark.parametrize(
    ("content", "text", "sent"), [(None, "", "(no reply)"), ("\ud83d!", "?!", "?!"), ("☂", "☂", "☂")]
)
def test_a_reply_that_was_refused_is_empty_and_half_a_character_is_not_sent_back(journal, content, text, sent):
    with Upstream(lambda _: content or "") as upstream, connected(journal, upstream.url) as connection:
        talk = EndpointChatModel(connection, games_of(1), 9, "words", logprobs=False)
        for _ in range(2):
            turns = talk.reply(["?"], temperature=1.0, uniforms=np.zeros((1, 1)))
            assert [turn.text for turn in turns] == [text]
    assert [*upstream.bodies.values()][1]["messages"][1] == {"role": "assistant", "content": sent}


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
    sent = upstream.received.total()
    with connected(journal, upstream.url) as connection, pytest.raises(InputError, match="may not be written to"):
        ask(connection, 6)
    assert upstream.received.total() == sent


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


def test_a_fine_tuned_model_is_asked_where_it_was_made(journal):
    with ExitStack() as stack:
        servers = [stack.enter_context(Upstream()) for _ in range(2)]
        with connected(journal, *(server.url for server in servers)) as connection:
            connection.model = f"ft:{MODEL}"
            play(connection, n=8)
    assert servers[0].paid
    assert not servers[1].paid


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


# --- Counted ---


def test_the_statistics_of_a_connection_are_numbers_and_a_line(upstream, journal):
    with connected(journal, upstream.url) as connection:
        ask(connection, 3)
    with FaultProxy(upstream.url, 0, 1.0, 2, ["503"]) as proxy, connected(journal, proxy.url) as connection:
        ask(connection, 5)
    statistics = connection.statistics
    assert (statistics.replayed, statistics.usage.answers) == (3, 2)
    assert statistics.retries == {"503": 2}
    assert statistics.usage.prompt + 3 * statistics.usage.prompt // 2 == usage_of([journal])[MODEL].prompt
    assert str(statistics).startswith("2 responses, ")
    assert str(statistics).endswith("s each; 3 replayed; retries: 2 × 503")
    assert str(Statistics()) == "0 responses, 0 + 0 tokens"
