"""What is recorded is there, whatever happens to the process that records it, and no message is there twice."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rmft.endpoint.budget import Usage
from rmft.endpoint.journal import SUFFIX, FolderUsage, Journal, key_of, links, read_journal, usage_of
from rmft.endpoint.journal_file import MAGIC, frames
from rmft.errors import InputError

HERE = Path(__file__).parent


def request(number: int, messages: int = 1, model: str = "m", **more: object) -> dict:
    """Return a request in a conversation of so many messages, all conversations beginning alike."""
    conversation = [{"role": ("user", "assistant")[i % 2], "content": f"message {i}"} for i in range(messages)]
    return {"endpoint": "here", "words": ["game", number], "model": model, "messages": conversation, **more}


def response(number: int, prompt: int = 10) -> dict:
    message = {"role": "assistant", "content": f"reply {number} ☂"}
    usage = {"prompt_tokens": prompt, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    return {"id": f"answer {number}", "choices": [{"index": 0, "message": message}], "usage": usage}


def record(journal: Journal, *numbers: int, **more: object) -> None:
    for number in numbers:
        journal.record(key_of(request(number, **more)), request(number, **more), response(number))


def numbers_in(path: Path) -> list[int]:
    return [sent["words"][1] for sent, _ in read_journal(path)]


def filled(path: Path, count: int) -> Path:
    """Return a journal of so many answers, each in a frame of its own."""
    with Journal.open(path) as journal:
        record(journal, *range(count))
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    return filled(tmp_path_factory.mktemp("whole") / f"a{SUFFIX}", 4).read_bytes()


# --- What is there ---


def test_what_was_recorded_is_there_when_the_journal_is_opened_again(tmp_path):
    path = filled(tmp_path / "deep" / f"a{SUFFIX}", 3)
    with Journal.open(path) as journal:
        assert [journal.response(key_of(request(i))) for i in range(4)] == [*map(response, range(3)), None]
        record(journal, 3)
        assert journal.response(key_of(request(3))) == response(3)
        assert len(journal) == 4
    assert list(read_journal(path)) == [(request(i), response(i)) for i in range(4)]


def test_an_answer_is_on_the_disk_when_recording_it_returns(tmp_path):
    with Journal.open(tmp_path / "a") as journal:
        for number in range(5):
            record(journal, number)
            assert numbers_in(tmp_path / "a") == list(range(number + 1))


def test_texts_come_back_to_the_letter_half_a_character_too(tmp_path):
    strange = {"choices": [{"message": {"content": "\ud83d \u2028 \x00 ☂\n"}}]}
    sent = {"model": "m", "messages": [{"role": "user", "content": "\ud83d\n"}]}
    with Journal.open(tmp_path / "a") as journal:
        journal.record(key_of(sent), sent, strange)
        assert journal.response(key_of(sent)) == strange
    assert list(read_journal(tmp_path / "a")) == [(sent, strange)]


def test_frames_of_many_blocks_whatever_their_kind_are_found_whole(tmp_path):
    texts = ["a" * 700_000, np.random.default_rng(0).bytes(300_000).hex(), "words and words " * 50_000]
    with Journal.open(tmp_path / "a") as journal:
        for text in texts:
            sent = {"model": "m", "messages": [{"role": "user", "content": text}]}
            journal.record(key_of(sent), sent, {"text": text})
    data = (tmp_path / "a").read_bytes()
    assert [end for _, end, _ in frames(tmp_path, data)][-1] == len(data)
    assert [response["text"] for _, response in read_journal(tmp_path / "a")] == texts


def test_of_answers_to_one_key_the_last_one_counts_and_all_were_paid_for(tmp_path):
    with Journal.open(tmp_path / "a") as journal:
        for number in range(2):
            journal.record(key_of(request(0)), request(0), response(number))
        assert journal.response(key_of(request(0))) == response(1)
    assert usage_of([tmp_path / "a"])["m"].answers == 2


def test_requests_without_messages_are_recorded_as_they_are(tmp_path):
    sent, received = {"step": "upload", "model": "m"}, {"id": "file-1"}
    with Journal.open(tmp_path / "a") as journal:
        journal.record("0" * 64, sent, received, Usage(trained=70))
        assert journal.response("0" * 64) == received
    assert list(read_journal(tmp_path / "a")) == [(sent, received)]
    assert usage_of([tmp_path / "a"]) == {"m": Usage(trained=70)}


def test_a_journal_is_zstd_and_lines_of_json_for_whoever_has_no_rmft(whole):
    with zstandard.ZstdDecompressor().stream_reader(whole, read_across_frames=True) as file:
        lines = [json.loads(line) for line in file.read().splitlines()]
    assert [line["kind"] for line in lines] == ["message", *["answer"] * 4]
    assert lines[1]["request"]["messages"] == lines[0]["hash"]


# --- Keys and messages ---


def test_a_key_is_of_all_of_a_request_its_words_and_every_message():
    different = [
        request(0), request(1), request(0, 3), request(0, seed=1), request(0, seed=2), request(0, model="n"),
        {**request(0), "endpoint": "there"}, {**request(0, 3), "messages": request(0, 3)["messages"][1:]},
    ]  # fmt: skip
    assert len(set(map(key_of, different))) == len(different)
    assert key_of(dict(reversed(request(0).items()))) == key_of(request(0))


def test_where_one_message_ends_and_another_begins_matters_to_a_key():
    def last_link(*messages: tuple[str, str]) -> str:
        return links([{"role": role, "content": content} for role, content in messages])[-1]

    assert last_link(("user", "a"), ("user", "b")) != last_link(("user", "a\nuser\nb"))
    assert last_link(("user", "a"), ("user", "b")) != last_link(("user", "b"), ("user", "a"))


def test_a_conversation_is_stored_once_however_often_it_is_sent(tmp_path):
    with Journal.open(tmp_path / "a") as journal:
        for messages in (1, 3, 5):
            record(journal, 0, 1, messages=messages)
    with Journal.open(tmp_path / "a") as journal:
        record(journal, 2, messages=7)
    lines = [line for *_, lines in frames(tmp_path / "a", (tmp_path / "a").read_bytes()) for line in lines]
    messages = [line for line in lines if b'"kind":"message"' in line]
    assert len(messages) == len(set(messages)) == 7
    sent = [request for request, _ in read_journal(tmp_path / "a")]
    assert [len(one["messages"]) for one in sent] == [1, 1, 3, 3, 5, 5, 7]
    assert sent[-1] == request(2, 7)


# --- Torn and damaged ---


@pytest.mark.parametrize("rest", [b"", b"\0" * 600], ids=["cut", "zeros"])
def test_torn_at_every_byte_of_its_end_it_opens_without_its_last_frame_and_goes_on(tmp_path, whole, rest):
    ends = [end for _, end, _ in frames(tmp_path, whole)]
    path = tmp_path / "a"
    for length in range(ends[-2], len(whole)):
        path.write_bytes(whole[:length] + rest)
        assert numbers_in(path) == [0, 1, 2]
        with Journal.open(path) as journal:
            assert len(journal) == 3
            record(journal, 7)
        assert numbers_in(path) == [0, 1, 2, 7]
        assert path.stat().st_size < len(whole) + 8


def test_of_a_long_frame_that_was_torn_nothing_is_left_behind_a_short_one(tmp_path):
    long = request(1, text=np.random.default_rng(0).bytes(3000).hex())
    with Journal.open(tmp_path / "a") as journal:
        record(journal, 0)
        journal.record(key_of(long), long, response(1))
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-1])
    with Journal.open(tmp_path / "a") as journal:
        record(journal, 2)
    assert (tmp_path / "a").stat().st_size < 2000
    assert numbers_in(tmp_path / "a") == [0, 2]


@given(cut=st.integers(0, 2000), rest=st.sampled_from([b"", b"\0", b"\0" * 600]))
def test_cut_anywhere_it_loses_the_frame_that_is_cut_and_those_behind_it(tmp_path_factory, whole, cut, rest):
    path = tmp_path_factory.mktemp("cut") / "a"
    path.write_bytes(whole[: cut % len(whole)] + rest)
    left = sum(end <= cut % len(whole) for _, end, _ in frames(path, whole))
    if left or not rest:  # a file of nothing but zeros may be anything
        with Journal.open(path) as journal:
            assert len(journal) == left
        assert numbers_in(path) == list(range(left))


@given(place=st.integers(0, 10_000), bits=st.integers(1, 255))
def test_damage_ahead_of_whole_frames_is_refused_and_nothing_is_cut_off(tmp_path_factory, whole, place, bits):
    path = tmp_path_factory.mktemp("damaged") / "a"
    last = [begin for begin, *_ in frames(path, whole)][-1]
    damaged = bytearray(whole)
    damaged[place % last] ^= bits
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="damaged at byte"):
        Journal.open(path)
    assert path.read_bytes() == damaged


def test_a_frame_that_inflates_beyond_any_use_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("rmft.endpoint.journal_file.MOST_BYTES", 1 << 20)
    path = tmp_path / "a"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"\0" * (1 << 28)))
    with pytest.raises(InputError, match="damaged at byte 0"):
        Journal.open(path)


def test_a_frame_of_more_lines_than_so_many_bytes_can_be_is_refused(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"\n" * (1 << 20)))
    with pytest.raises(InputError, match="damaged at byte 0"):
        Journal.open(path)


def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path):
    for content in (b"seed: 1\n", b'{"a": 1}' * 100, MAGIC[:3] + b"no"):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(InputError, match="or no journal"):
            Journal.open(tmp_path / "a")
        assert (tmp_path / "a").read_bytes() == content


KILLED = """
import sys
from pathlib import Path
from test_journal import Journal, key_of, request, response
journal = Journal.open(Path(sys.argv[1]))
begin = len(journal)
for number in range(begin, begin + 100_000):
    journal.record(key_of(request(number)), request(number), response(number))
    print(number, flush=True)
"""


def test_a_process_killed_while_it_writes_loses_nothing_that_it_was_told_is_there(tmp_path):
    path, confirmed = tmp_path / "a", -1
    for after in (3, 40, 7):
        command = [sys.executable, "-c", KILLED, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=HERE) as child:
            for _ in range(after):
                confirmed = int(child.stdout.readline())
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read().split()
        confirmed = int(rest[-1]) if rest else confirmed
        there = numbers_in(path)
        assert there == list(range(len(there)))
        assert confirmed < len(there) <= confirmed + 2  # what was being written when it was killed, and no more
    with Journal.open(path) as journal:
        assert len(journal) == len(there)


# --- One at a time, many at once ---


def test_two_processes_cannot_write_one_journal_and_the_second_is_told_so(tmp_path):
    with Journal.open(tmp_path / "a") as journal:
        record(journal, 0)
        code = "import sys, pathlib, rmft.endpoint.journal as of; of.Journal.open(pathlib.Path(sys.argv[1]))"
        command = [sys.executable, "-c", code, str(tmp_path / "a")]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "another process is writing to this file" in other.stderr.splitlines()[-1]
        record(journal, 1)
        assert numbers_in(tmp_path / "a") == [0, 1]  # readers need not wait
    Journal.open(tmp_path / "a").close()


def test_what_comes_while_a_frame_is_written_goes_into_the_next_one_together(tmp_path, monkeypatch):
    syncs, begun, go_on = [], threading.Event(), threading.Event()

    def sync(file: int) -> None:
        syncs.append(file)
        begun.set()
        go_on.wait()

    journal = Journal.open(tmp_path / "a")
    monkeypatch.setattr(os, "fsync", sync)
    first = journal.record_soon(key_of(request(0)), request(0), response(0))
    assert begun.wait(30)
    others = [journal.record_soon(key_of(request(i)), request(i), response(i)) for i in range(1, 65)]
    assert not first.done()
    assert not any(other.done() for other in others)
    assert journal.response(key_of(request(0))) is None  # it is not used before it is safe
    go_on.set()
    journal.close()
    assert all(written.done() for written in (first, *others))
    assert len(syncs) == 2
    assert sorted(numbers_in(tmp_path / "a")) == list(range(65))


def test_many_coroutines_and_threads_record_at_once_and_nothing_is_lost(tmp_path):
    async def all_at_once() -> None:
        soon = (journal.record_soon(key_of(request(i)), request(i), response(i)) for i in range(200))
        await asyncio.gather(*map(asyncio.wrap_future, soon))

    with Journal.open(tmp_path / "a") as journal:
        asyncio.run(all_at_once())
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda i: record(journal, i), range(200, 300)))
        assert all(journal.response(key_of(request(i))) == response(i) for i in range(300))
    assert sorted(numbers_in(tmp_path / "a")) == list(range(300))


def test_who_gives_up_waiting_takes_nothing_back_and_leaves_nobody_waiting(tmp_path, monkeypatch):
    sync, go_on = os.fsync, threading.Event()

    def wait_and_sync(file: int) -> None:
        go_on.wait()
        sync(file)

    async def give_up() -> None:
        soon = [journal.record_soon(key_of(request(i)), request(i), response(i)) for i in range(4)]
        first, second, *others = map(asyncio.wrap_future, soon)
        first.cancel()
        second.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait_for(asyncio.gather(*others), 30)

    with Journal.open(tmp_path / "a") as journal:
        monkeypatch.setattr(os, "fsync", wait_and_sync)
        asyncio.run(give_up())
    assert numbers_in(tmp_path / "a") == [0, 1, 2, 3]


# --- Where it cannot be written ---


def test_a_full_disk_is_a_clear_line_and_leaves_what_was_there(tmp_path):
    path = filled(tmp_path / "a", 2)
    size = path.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal.open(path) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, limits[1]))
        try:
            with pytest.raises(InputError, match="cannot be written: File too large"):
                record(journal, 2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.stat().st_size == size
        assert journal.response(key_of(request(2))) is None
        record(journal, 3, messages=3)
    assert numbers_in(path) == [0, 1, 3]
    assert list(read_journal(path))[-1][0] == request(3, 3)


def test_a_journal_without_permission_to_write_is_replayed_and_never_touched(tmp_path, whole):
    path = tmp_path / "a"
    path.write_bytes(whole[:-5])
    path.chmod(0o444)
    with Journal.open(path) as journal, Journal.open(path) as again:
        assert journal.response(key_of(request(2))) == again.response(key_of(request(2))) == response(2)
        with pytest.raises(InputError, match="may not be written to"):
            record(journal, 5)
    assert path.read_bytes() == whole[:-5]


# --- What was used ---


def test_usage_is_added_up_by_model(tmp_path):
    with Journal.open(tmp_path / "a") as journal, Journal.open(tmp_path / "b") as other:
        record(journal, 0, 1)
        record(journal, 2, model="n")
        record(other, 3)
    one = Usage(1, 10, 4, 2)
    assert usage_of([tmp_path / "a", tmp_path / "b"]) == {"m": one + one + one, "n": one}


def test_spending_reads_each_byte_once_and_leaves_out_ones_own_journal(tmp_path, monkeypatch):
    read, begins = sys.modules["rmft.endpoint.journal"].read_from, []

    def noted(path: Path, begin: int = 0) -> bytes:
        begins.append((path.name, begin))
        return read(path, begin)

    filled(tmp_path / f"own{SUFFIX}", 5)
    other = tmp_path / "deep" / f"other{SUFFIX}"
    spending = FolderUsage(tmp_path, but=tmp_path / f"own{SUFFIX}")
    assert spending.usage() == {}
    with Journal.open(other) as journal:
        record(journal, 0)
        assert spending.usage() == {"m": Usage(1, 10, 4, 2)}
        before = other.stat().st_size
        record(journal, 1, 2)
        monkeypatch.setattr("rmft.endpoint.journal.read_from", noted)
        assert spending.usage() == {"m": Usage(3, 30, 12, 6)}
        assert spending.usage() == {"m": Usage(3, 30, 12, 6)}
        assert begins == [(other.name, before)]
    other.write_bytes(other.read_bytes()[:before])  # another one has its name
    assert spending.usage() == {"m": Usage(1, 10, 4, 2)}
    other.unlink()
    assert spending.usage() == {"m": Usage(1, 10, 4, 2)}  # it was spent all the same


def test_spending_counts_a_frame_that_is_being_written_when_it_is_whole(tmp_path, whole):
    path, spending = tmp_path / f"a{SUFFIX}", FolderUsage(tmp_path)
    path.write_bytes(whole[:-5])
    assert spending.usage()["m"].answers == 3
    path.write_bytes(whole)
    assert spending.usage()["m"].answers == 4


CIRCLE = '{"kind":"message","hash":"a","after":"a","role":"user","content":"Which?"}'
ODD_LINES = {
    "no object": "[]",
    "no kind": "{}",
    "too deep": "[" * 100_000,
    "bytes": "\ufffd\x00",
    "no request": '{"kind":"answer","key":"b","usage":{"model":"m"}}',
    "a message that is its own past": CIRCLE + '\n{"kind":"answer","key":"b","request":{"messages":"a"},"response":{}}',
}


@pytest.mark.parametrize("lines", ODD_LINES.values(), ids=ODD_LINES)
def test_whole_frames_of_lines_that_are_no_journals_are_refused(journal, lines):
    journal.write_bytes(zstandard.compress(f"{lines}\n".encode()))
    with pytest.raises(InputError, match=r"journal\.jsonl\.zst: damaged at byte 0, or no journal"):
        list(read_journal(journal))


@pytest.mark.parametrize("rest", ["", ',"beer":1},"request":{}', f',"prompt":{10**400}}},"request":{{}}}}'])
def test_the_cost_of_responses_without_a_readable_cost_is_refused(journal, rest):
    line = f'{{"kind":"answer","key":"b","usage":{{"model":"m"{rest}}}\n'
    journal.write_bytes(zstandard.compress(line.encode()))
    with pytest.raises(InputError, match="damaged at byte 0"):
        usage_of([journal])
