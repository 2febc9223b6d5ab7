"""Our own endpoint: training files as they are read, and what is kept on disk."""

import asyncio
import io
import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from endpoint_servers import MODEL as EMBEDDED
from pydantic_core import to_json
from test_chat_template import byte_tokenizer

from rmft.agents.chat_template import ChatTemplate
from rmft.endpoint_server import store
from rmft.endpoint_server.errors import ApiError
from rmft.endpoint_server.idempotency import IdempotentRequests
from rmft.endpoint_server.models import ServedModels, digest_of_base
from rmft.endpoint_server.store import Store
from rmft.endpoint_server.tokenisation import ConversationTokenizer
from rmft.endpoint_server.training_file import TrainingFileError, read_training_file, tokenise
from rmft.endpoint_server.worker import WorkerTask, fine_tune
from rmft.errors import InputError
from rmft.language.protocol import NOT_LEARNT
from rmft.params import load
from rmft.params.language import LEAST_LINES

ANSWER = {"choices": [{"n": 1}], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}
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
    ((_, line), *_) = read_training_file(lines_file(tmp_path, json.dumps({"messages": messages})))
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


def test_a_conversation_that_is_longer_than_the_context_is_the_files_fault_and_named_by_its_line(tmp_path):
    turns = [{"role": "user", "content": "A " * 100}, {"role": "assistant", "content": "B"}]
    path = lines_file(tmp_path)
    path.write_text(f"\n{json.dumps({'messages': turns})}\n{path.read_text()}")
    base, sft = EMBEDDED.model_copy(update={"context": 64}), load().experiments["open_mab_qwen"].sft
    task = WorkerTask(str(path), base.canonical(), sft.canonical(), None, str(tmp_path), "ft", "embedded", 0)
    with pytest.raises(TrainingFileError, match=r"^line 2 has [0-9]+ tokens, the context 64$"):
        fine_tune(task, tmp_path, io.StringIO())


def test_too_few_lines_are_refused(tmp_path):
    path = lines_file(tmp_path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: LEAST_LINES - 1]))
    with pytest.raises(InputError, match=f"has {LEAST_LINES - 1} conversations"):
        read_training_file(path)


# --- What is kept ---


def test_models_that_were_tuned_from_another_base_model_are_left_out_and_named(tmp_path, capsys):
    base = EMBEDDED.model_copy(update={"weights": str(tmp_path / "base")})
    (tmp_path / "base").mkdir()
    weights = tmp_path / "base/model.safetensors"
    weights.write_bytes(b"old")
    for name, of in (("of-this", {"base_sha256": digest_of_base(base)}), ("silent", {})):
        (tmp_path / "models" / name).mkdir(parents=True)
        model = {"id": name, "base": "embedded", "created": 1, "sha256": "0", **of}
        (tmp_path / "models" / name / "model.json").write_text(json.dumps(model))
    assert {*ServedModels(tmp_path / "models", "embedded", base).by_id} == {"embedded", "of-this", "silent"}
    assert not capsys.readouterr().err
    weights.write_bytes(b"new")
    assert {*ServedModels(tmp_path / "models", "embedded", base).by_id} == {"embedded", "silent"}
    assert capsys.readouterr().err == "rmft serve: left out, since the base model was another one: of-this\n"


KILLED = """
import sys
from pathlib import Path
from test_endpoint_state import COST, Store
store = Store(Path(sys.argv[1]))
begin = store.cost["requests"]
for number in range(begin, begin + 100_000):
    store.put(f"file-{number}", {"n": number})
    store.record(b"%d" % number, b"request", b"x" * 5000, COST)
    print(number, flush=True)
"""


def test_a_server_killed_while_it_writes_loses_nothing_that_was_sent(tmp_path):
    for after in (3, 40, 7):
        command = [sys.executable, "-c", KILLED, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent) as child:
            lines = [child.stdout.readline() for _ in range(after)]
            child.send_signal(signal.SIGKILL)
            lines += child.stdout.read().split()
        confirmed = int(lines[-1])
        with closing(Store(tmp_path)) as store:
            count = store.cost["requests"]
            assert confirmed < count <= confirmed + 2
            assert store.cost == {name: count * value for name, value in COST.items()}
            assert store.response(b"%d" % (count - 1)) == (b"request", b"x" * 5000)
            assert [file["n"] for file in store.all("file-")][: confirmed + 1] == list(range(confirmed + 1))


def test_the_latest_responses_are_kept_and_the_cost_of_all(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "KEPT_RESPONSES", 10)
    with closing(Store(tmp_path)) as kept:
        for number in range(25):
            kept.record(b"%d" % number, b"request", b"response", COST)
            kept.record(None, b"", b"", COST)
        assert [number for number in range(25) if kept.response(b"%d" % number)] == list(range(15, 25))
        assert kept.cost == {name: 50 * value for name, value in COST.items()}


def test_documents_come_back_in_the_order_of_their_creation_and_a_damaged_file_is_named(tmp_path):
    with closing(Store(tmp_path)) as shelf:
        for name in ("file-b", "file-a", "job-a", "file-c"):
            shelf.put(name, {"of": name})
        shelf.put("file-b", {"of": "b", "more": 1})
        shelf.delete("file-a")
        with pytest.raises(InputError, match="another server keeps its state there"):
            Store(tmp_path)
    with closing(Store(tmp_path)) as shelf:
        assert shelf.all("file-") == [{"of": "b", "more": 1}, {"of": "file-c"}]
        assert shelf.get("file-a") is None
    (tmp_path / "state.sqlite").write_bytes(b"x" * 5000)
    with pytest.raises(InputError, match=r"state\.sqlite: damaged"):
        Store(tmp_path)


def test_what_is_asked_with_a_key_is_made_once_even_if_who_asked_has_gone(tmp_path):
    made = []

    async def make(name: str) -> dict:
        made.append(name)
        await asyncio.sleep(0.05)
        if len(made) == 1:
            raise ApiError(500, "once")
        return ANSWER

    async def play() -> None:
        requests = IdempotentRequests(kept, "base")
        with pytest.raises(ApiError):  # a failed request may be sent again
            await requests.respond("/a", "key", b"body", make)
        gone = asyncio.create_task(requests.respond("/a", "key", b"body", make))
        await asyncio.sleep(0.01)
        gone.cancel()
        same = await asyncio.gather(*(requests.respond("/a", "key", b"body", make) for _ in range(3)))
        assert same == [to_json(ANSWER)] * 3
        assert await IdempotentRequests(kept, "base").respond("/a", "key", b"body", make) == to_json(ANSWER)
        assert len(made) == 2
        assert made[0] == made[1]  # the name, so that what was half made is found
        with pytest.raises(ApiError, match="another request") as refusal:
            await requests.respond("/a", "key", b"other", make)
        assert refusal.value.status_code == 422
        await requests.respond("/b", "key", b"other", make)
        await IdempotentRequests(kept, "another base").respond("/a", "key", b"body", make)  # is asked anew
        await requests.respond("/a", None, b"body", make)
        await requests.respond("/a", None, b"body", make)
        assert len(set(made)) == 5
        assert kept.cost["answers"] == 5

    with closing(Store(tmp_path)) as kept:
        asyncio.run(play())
