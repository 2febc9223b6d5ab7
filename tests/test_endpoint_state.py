"""Our own endpoint: training files as they are read, and what is kept on disk."""

import asyncio
import json
from pathlib import Path

import pytest
from test_chat_template import byte_tokenizer

from rmft.agents.chat_template import ChatTemplate
from rmft.endpoint_server import store
from rmft.endpoint_server.errors import ApiError
from rmft.endpoint_server.idempotency import HandlerResult, IdempotentRequests
from rmft.endpoint_server.store import DocumentStore, LineFile, ResponseLog
from rmft.endpoint_server.tokenisation import ConversationTokenizer
from rmft.endpoint_server.training_file import read_training_file, tokenise
from rmft.errors import InputError
from rmft.language.protocol import NOT_LEARNT
from rmft.params.language import LEAST_LINES

COST = {"requests": 1, "answers": 1, "prompt_tokens": 5, "completion_tokens": 3}


# --- Training files ---


def lines_file(tmp_path: Path, *changed: str) -> Path:
    """Return a training file whose first lines are others than usual."""
    usual = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}
    lines = [*changed, *[json.dumps(usual)] * (LEAST_LINES - len(changed))]
    path = tmp_path / "training.jsonl"
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return path


def test_replies_are_learnt_with_their_ends_unless_their_weight_is_zero(tmp_path):
    texts = [("system", "Be brief."), ("user", "A"), ("assistant", "B"), ("user", "C"), ("assistant", "D")]
    messages = [{"role": role, "content": content} for role, content in texts]
    messages[2]["weight"] = 0
    (line, *_) = read_training_file(lines_file(tmp_path, json.dumps({"messages": messages})))
    tokenizer = byte_tokenizer("phi3_5")
    made = tokenise(line, ConversationTokenizer(ChatTemplate.probe(tokenizer)))
    learnt = [label for label in made["labels"] if label != NOT_LEARNT]
    assert tokenizer.decode(learnt) == "D<|end|>"
    assert len(made["ids"]) == len(made["labels"])
    whole = tokenizer.decode(made["ids"])
    assert whole.startswith("<|user|>\nBe brief.\n\nA<|end|>\n<|assistant|>\nB<|end|>\n<|user|>\nC<|end|>")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1: .*JSON"),
        ('{"messages": []}', "line 1: .*messages"),
        ('{"messages": [{"role": "user", "content": "A"}], "tools": []}', "line 1: .*tools"),
        ('{"messages": [{"role": "user", "content": "A"}]}', "line 1: The last message must be of role assistant"),
        ('{"messages": [{"role": "assistant", "content": "A"}]}', "line 1: .* take turns"),
        ('{"messages": [{"role": "user", "content": 3}, {"role": "assistant", "content": "A"}]}', "line 1: .*content"),
        (
            '{"messages": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B", "weight": 0}]}',
            "line 1: .*weight 0",
        ),
    ],
)
def test_a_line_that_cannot_be_trained_on_is_named(tmp_path, line, words):
    with pytest.raises(InputError, match=words) as refusal:
        read_training_file(lines_file(tmp_path, line))
    assert "\n" not in str(refusal.value)


def test_too_few_lines_are_refused(tmp_path):
    path = lines_file(tmp_path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: LEAST_LINES - 1]))
    with pytest.raises(InputError, match=f"has {LEAST_LINES - 1} conversations"):
        read_training_file(path)


# --- What is kept ---


def test_a_line_that_a_kill_has_torn_is_cut_off_and_the_others_are_found_where_they_were(tmp_path):
    lines = LineFile(tmp_path / "lines")
    places = [lines.append(f"{'x' * length}\n".encode()) for length in (3, 100_000, 7)]
    lines.close()
    with (tmp_path / "lines").open("ab") as file:
        file.write(b"y" * 200_000)
    lines = LineFile(tmp_path / "lines")
    assert [len(lines.line_at(place)) for place in places] == [3, 100_000, 7]
    assert len(lines.line_at(lines.append(b"new\n"))) == 3
    assert [len(line) for _, line in lines] == [4, 100_001, 8, 4]


def test_answers_and_what_they_cost_are_there_again_after_a_kill_however_often_files_were_begun_anew(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(store, "ROTATE_BYTES", 2000)
    answers, count = ResponseLog(tmp_path), 40
    for number in range(count):
        answers.record(bytes([number] * 16), "b", json.dumps({"text": "x" * 100, "n": number}).encode(), COST)
        answers.record(None, "", b"", COST)
    for kept in (answers, ResponseLog(tmp_path)):
        assert kept.cost == {name: 2 * count * value for name, value in COST.items()}
        found = [kept.find(bytes([number] * 16)) for number in range(count)]
        known = [number for number, one in enumerate(found) if one]
        assert known == list(range(known[0], count))  # the latest ones
        assert 5 < len(known) < count
        assert json.loads(found[-1].response)["n"] == count - 1
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 6000


def test_a_document_is_replaced_whole_and_all_come_back_in_the_order_in_which_they_were_made(tmp_path):
    shelf = DocumentStore(tmp_path)
    for name in ("b", "a", "c"):
        shelf.put(name, {"of": name})
    shelf.put("b", {"of": "b", "more": 1})
    shelf.delete("a")
    assert list(DocumentStore(tmp_path).documents) == ["b", "c"]
    assert DocumentStore(tmp_path).documents["b"]["more"] == 1
    (tmp_path / "c.json").write_text("{")
    with pytest.raises(InputError, match=r"c\.json: damaged"):
        DocumentStore(tmp_path)


def test_what_is_asked_with_a_key_is_made_once_even_if_who_asked_has_gone(tmp_path):
    made = []

    async def make(name: str) -> HandlerResult:
        made.append(name)
        await asyncio.sleep(0.05)
        if len(made) == 1:
            raise ApiError(500, "once")
        return HandlerResult(b'{"n": 1}', COST)

    async def play() -> None:
        requests = IdempotentRequests(ResponseLog(tmp_path))
        with pytest.raises(ApiError):  # a failed request may be sent again
            await requests.respond("/a", "key", b"body", make)
        gone = asyncio.create_task(requests.respond("/a", "key", b"body", make))
        await asyncio.sleep(0.01)
        gone.cancel()
        same = await asyncio.gather(*(requests.respond("/a", "key", b"body", make) for _ in range(3)))
        assert same == [b'{"n": 1}'] * 3
        assert await IdempotentRequests(ResponseLog(tmp_path)).respond("/a", "key", b"body", make) == b'{"n": 1}'
        assert len(made) == 2
        assert made[0] == made[1]  # the name, so that what was half made is found
        with pytest.raises(ApiError, match="another request") as refusal:
            await requests.respond("/a", "key", b"other", make)
        assert refusal.value.status == 422
        await requests.respond("/b", "key", b"other", make)
        await requests.respond("/a", None, b"body", make)
        await requests.respond("/a", None, b"body", make)
        assert len(set(made)) == 4
        assert requests.log.cost["answers"] == 4

    asyncio.run(play())
