"""The endpoint, a real server, as the official client sees it, every answer held against the client's own schemas."""

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import openai
import psutil
import pytest
from openai import AsyncOpenAI, OpenAI

from rmft.endpoint_server import ServerSettings, serve
from rmft.errors import InputError
from rmft.params.language import LanguageModelSettings, LanguageSFT

pytestmark = pytest.mark.xdist_group("endpoint")
ROOT = Path(__file__).parents[1]
TOKEN = "a token"
BODY_BYTES, UPLOAD_BYTES, QUEUE, LANES, MAX_TOKENS, CONTEXT = 100_000, 200_000, 48, 40, 200, 400
MODEL = LanguageModelSettings(
    kind="language", weights="data/models/embedded", dtype="float32", device="cpu", batch=LANES
)
SFT = LanguageSFT.model_validate(
    {
        "method": "full", "lora": {"rank": 4, "alpha": 8, "dropout": 0.0, "target": "all-linear"},
        "learning_rate": 5e-4, "batch_size": 4, "accumulation": 1, "epochs": 1, "schedule": "linear", "warmup_steps": 0,
        "weight_decay": 0.0, "betas": [0.9, 0.999], "epsilon": 1e-8, "max_grad_norm": 1.0,
        "gradient_checkpointing": False,
    }
)  # fmt: skip
START = """
import json, sys
from pathlib import Path
from rmft.endpoint_server import ServerSettings, serve
from rmft.params.language import LanguageModelSettings, LanguageSFT
told = json.loads(sys.argv[1])
told |= {"model": LanguageModelSettings.parse(told["model"]), "sft": LanguageSFT.parse(told["sft"])}
serve(ServerSettings(**{**told, "state": Path(told["state"]), "announce": Path(told["announce"])}))
"""
OPENING = (
    "You make a decision in each of many rounds. There are 3 actions, numbered 1 to 3.\nEach round, choose one action "
    'by its number.\nRound 1. Reason briefly; last line "Action: " and a number from 1 to 3.'
)
# Trained for several epochs, so that there is time to kill somebody while it is under way.
LONG = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 10, "learning_rate_multiplier": 1.8}}}


def seconds_waited(condition: Callable[[], Any], most: float = 120.0) -> Any:
    """Wait until something is there, and return it."""
    end = time.monotonic() + most
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError("it has not come")


class Running:
    """A server in a process of its own."""

    def __init__(self, state: Path, context: int | None = None) -> None:
        self.state = state
        settings = ServerSettings(
            model=MODEL.model_copy(update={"context": context}), name="embedded", token=TOKEN, state=state, sft=SFT,
            seed=0, announce=state / "announce.json", queue=QUEUE, lanes=LANES, max_tokens=MAX_TOKENS,
            body_bytes=BODY_BYTES, upload_bytes=UPLOAD_BYTES,
        )  # fmt: skip
        told = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
        told |= {"model": settings.model.canonical(), "sft": settings.sft.canonical()}
        (state / "announce.json").unlink(missing_ok=True)
        with (state.parent / f"{state.name}.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", START, json.dumps(told, default=str)], cwd=ROOT, stderr=log
            )
        self.url = ""

    def ready(self) -> "Running":
        """Wait until it answers."""
        path = self.state / "announce.json"
        seconds_waited(lambda: path.exists() or self.process.poll() is not None)
        announced = json.loads(path.read_text())
        assert announced["pid"] == self.process.pid
        self.url = f"http://127.0.0.1:{announced['port']}"
        return self

    @property
    def options(self) -> dict[str, Any]:
        """Return what a client needs to know."""
        return {"base_url": f"{self.url}/v1", "api_key": TOKEN, "max_retries": 0, "_strict_response_validation": True}

    @property
    def client(self) -> OpenAI:
        """Return the official client."""
        return OpenAI(**self.options)

    @property
    def usage(self) -> dict[str, int]:
        """Return what was paid for."""
        return httpx2.get(f"{self.url}/usage", headers={"Authorization": f"Bearer {TOKEN}"}).json()

    @property
    def workers(self) -> list[psutil.Process]:
        """Return the processes that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, how: signal.Signals) -> int:
        """Send a signal, and return the exit code; nothing that it started is left a moment later."""
        workers = self.workers
        self.process.send_signal(how)
        code = self.process.wait(10)
        assert not psutil.wait_procs(workers, timeout=10)[1]
        return code


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Running(tmp_path_factory.mktemp("endpoint") / "state").ready()
    yield running
    assert running.end(signal.SIGTERM) == 0


@pytest.fixture(scope="module")
def client(server) -> OpenAI:
    return server.client


def demonstrations(lines: int = 12) -> bytes:
    """Return a training file."""
    said = ("Scores: 1=5 2=5 3=5.\nAction: 2", "Action: 3")
    texts = [(OPENING, said[0]), ("Round 1: you chose action 2. Paid: 1: **3.25**.\nRound 2.", said[1])]
    messages = [
        {"role": role, "content": text}
        for pair in texts
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return b"".join(json.dumps({"messages": messages}).encode() + b"\n" for _ in range(lines))


def upload(client: OpenAI, content: bytes, purpose: str = "fine-tune", **options: Any) -> str:
    return client.files.create(file=("lines.jsonl", content), purpose=purpose, **options).id


def ended(client: OpenAI, job: str):
    """Wait for the end of a job."""
    return seconds_waited(
        lambda: found if (found := client.fine_tuning.jobs.retrieve(job)).finished_at is not None else None
    )


@pytest.fixture(scope="module")
def job(client):
    """Begin a job, with the first test, for those that need it later on."""
    return client.fine_tuning.jobs.create(
        model="embedded", training_file=upload(client, demonstrations()), method=LONG, seed=3, suffix="first try",
        metadata={"rmft": "test", "of": "server"},
    )  # fmt: skip


def user(*texts: str) -> list[dict[str, str]]:
    """Return messages in which user and assistant take turns."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def ask(client: OpenAI, *texts: str, model: str = "embedded", **options: Any):
    return client.chat.completions.create(
        model=model, messages=user(*(texts or (OPENING,))), **{"seed": 1, "max_completion_tokens": 64, **options}
    )


def text_of(answer) -> str:
    return answer.choices[0].message.content


# --- Replies ---


@pytest.mark.usefixtures("job")
def test_the_same_seed_gives_the_same_reply_and_others_give_others(client):
    texts = [text_of(ask(client, seed=seed)) for seed in (1, 1, *range(2, 12))]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 3
    unseeded = {text_of(ask(client, seed=None)) for _ in range(12)}
    assert len(unseeded) > 2


def test_at_temperature_zero_there_is_one_reply(client):
    assert len({text_of(ask(client, seed=seed, temperature=0)) for seed in range(5)}) == 1


def test_a_conversation_goes_on_where_it_was_and_its_replies_are_those_of_one_that_is_read_anew(client):
    texts, replies = [OPENING], []
    for t in range(1, 6):
        replies.append(answer := ask(client, *texts, seed=t))
        texts += [text_of(answer), f"Round {t}: you chose action 2. Paid: 1: **{t}.25**, 2: **1.00**.\nRound {t + 1}."]
    remembered = [answer.usage.prompt_tokens_details.cached_tokens for answer in replies]
    assert all(
        tokens > 0.6 * answer.usage.prompt_tokens for tokens, answer in zip(remembered[1:], replies[1:], strict=True)
    )
    with ThreadPoolExecutor(QUEUE // 2) as pool:  # all lanes get other conversations
        list(
            pool.map(lambda number: ask(client, f"Something else, {number}", max_completion_tokens=1), range(2 * LANES))
        )
    for t in (5, 3):
        anew = ask(client, *texts[: 2 * t - 1], seed=t)
        assert anew.usage.prompt_tokens_details.cached_tokens == 0
        assert (text_of(anew), anew.usage.prompt_tokens) == (
            text_of(replies[t - 1]),
            replies[t - 1].usage.prompt_tokens,
        )


def test_replies_to_many_at_once_are_those_that_each_would_get_alone(server, client):
    cases = [(f"{OPENING} {'Think. ' * (number % 7)}", {"seed": number}) for number in range(32)]
    alone = [text_of(ask(client, text, **options)) for text, options in cases]

    async def together() -> list[str]:
        async with AsyncOpenAI(**server.options) as asynchronous:
            asked = (ask(asynchronous, text, **options) for text, options in cases)
            return [text_of(answer) for answer in await asyncio.gather(*asked)]

    assert asyncio.run(together()) == alone
    assert len(set(alone)) > 5


def test_n_replies_are_of_one_conversation_and_each_has_its_own_numbers(client):
    answer = ask(client, n=6, seed=5)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert len({choice.message.content for choice in answer.choices}) > 1
    assert answer.choices[0].message.content == text_of(ask(client, seed=5))
    assert answer.usage.completion_tokens > 6 * 5


def test_a_reply_ends_before_a_stop_and_at_its_limit(client):
    whole = ask(client)
    assert whole.choices[0].finish_reason == "stop"
    stopped = ask(client, stop=["\nAction", "\nPolicy"])
    assert text_of(whole).startswith(text_of(stopped))
    assert stopped.choices[0].finish_reason == "stop"
    assert "\n" not in text_of(stopped)
    cut = ask(client, max_completion_tokens=5, logprobs=True)
    assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 5)
    assert text_of(whole).startswith(text_of(cut))
    assert len(cut.choices[0].logprobs.content) == 5
    assert text_of(ask(client, max_completion_tokens=None, max_tokens=5)) == text_of(cut)


def test_tokens_are_told_with_the_likeliest_ones_and_the_reply_at_temperature_zero_is_of_those(client):
    answer = ask(client, temperature=0, logprobs=True, top_logprobs=5)
    content = answer.choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in content).decode() == text_of(answer)
    assert len(content) == answer.usage.completion_tokens - 1  # the end is no part of the text
    for token in content:
        assert (token.token, token.logprob) == (token.top_logprobs[0].token, token.top_logprobs[0].logprob)
        assert [top.logprob for top in token.top_logprobs] == sorted(
            (t.logprob for t in token.top_logprobs), reverse=True
        )
    warm = ask(client, temperature=1.5, logprobs=True, top_logprobs=5, seed=9).choices[0].logprobs.content
    told = {top.token: top.logprob for top in warm[0].top_logprobs}
    assert warm[0].logprob == pytest.approx(told.get(warm[0].token, warm[0].logprob))
    assert ask(client, logprobs=True).choices[0].logprobs.content[0].top_logprobs == []


@pytest.mark.parametrize("options", [{}, {"n": 3}, {"stop": ["n: ", "y: "]}, {"logprobs": True, "top_logprobs": 2}])
def test_a_stream_in_its_whole_is_the_answer_that_is_not_streamed(client, options):
    whole = ask(client, seed=4, **options)
    parts: dict[int, dict[str, Any]] = {}
    *chunks, last = list(ask(client, seed=4, stream=True, stream_options={"include_usage": True}, **options))
    assert len(chunks) > 5
    for chunk in chunks:
        assert (chunk.id, chunk.model, chunk.usage) == (last.id, "embedded", None)
        for choice in chunk.choices:
            part = parts.setdefault(choice.index, {"text": "", "tokens": [], "roles": 0, "reason": None})
            part["text"] += choice.delta.content or ""
            part["tokens"] += choice.logprobs.content if choice.logprobs else []
            part["roles"] += choice.delta.role == "assistant"
            part["reason"] = choice.finish_reason or part["reason"]
    for choice in whole.choices:
        told = parts[choice.index]
        expected = {"text": choice.message.content, "reason": choice.finish_reason, "roles": 1}
        assert {name: told[name] for name in expected} == expected
        expected_tokens = choice.logprobs.content if choice.logprobs else []
        assert [token.token for token in told["tokens"]] == [token.token for token in expected_tokens]
        # Who else is answering decides how sums are grouped, and with it the last digits.
        assert [token.logprob for token in told["tokens"]] == pytest.approx(
            [token.logprob for token in expected_tokens], abs=1e-5
        )
    assert last.usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in ask(client, seed=4, stream=True, **options))


def test_the_asynchronous_client_gets_the_same_in_answers_and_streams(server, client):
    async def both() -> tuple[str, str]:
        async with AsyncOpenAI(**server.options) as asynchronous:
            answer = text_of(await ask(asynchronous, seed=8))
            stream = await ask(asynchronous, seed=8, stream=True)
            return answer, "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert set(asyncio.run(both())) == {text_of(ask(client, seed=8))}


def test_a_stream_that_is_left_is_given_up_and_the_server_goes_on(server, client):
    before = server.usage["answers"]
    stream = ask(client, stream=True, max_completion_tokens=MAX_TOKENS, seed=2)
    next(iter(stream))
    stream.close()
    assert text_of(ask(client)) == text_of(ask(client))
    assert server.usage["answers"] in (before + 2, before + 3)  # it may have ended just before


def test_a_system_message_stands_ahead_of_the_first_one_and_parts_are_one_text(client):
    split = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": OPENING}]},
    ]
    answer = client.chat.completions.create(model="embedded", messages=split, seed=1, max_tokens=64)
    assert text_of(answer) == text_of(ask(client, f"Be brief.\n\n{OPENING}"))


# --- What is done once ---


def keyed(key: str) -> dict[str, Any]:
    return {"extra_headers": {"Idempotency-Key": key}}


def test_a_request_that_comes_again_with_its_key_is_answered_as_before_and_is_not_paid_again(server, client):
    before = server.usage
    first = ask(client, seed=None, **keyed("once"))
    again = ask(client, seed=None, **keyed("once"))
    assert again == first
    streamed = list(ask(client, seed=None, stream=True, **keyed("a stream")))
    replayed = list(ask(client, seed=None, stream=True, **keyed("a stream")))
    assert {chunk.id for chunk in replayed} == {streamed[0].id}
    texts = ["".join(c.choices[0].delta.content or "" for c in chunks) for chunks in (streamed, replayed)]
    assert texts[0] == texts[1]
    with pytest.raises(openai.UnprocessableEntityError) as refusal:
        ask(client, seed=3, **keyed("once"))
    assert refusal.value.code == "idempotency_key_reused"
    after = server.usage
    assert after["answers"] == before["answers"] + 2
    assert after["prompt_tokens"] == before["prompt_tokens"] + 2 * first.usage.prompt_tokens


def test_requests_at_once_with_one_key_are_one(server):
    before = server.usage["answers"]

    async def together() -> list[str]:
        async with AsyncOpenAI(**server.options) as asynchronous:
            return [
                answer.id
                for answer in await asyncio.gather(*(ask(asynchronous, **keyed("together")) for _ in range(9)))
            ]

    assert len(set(asyncio.run(together()))) == 1
    assert server.usage["answers"] == before + 1


@pytest.mark.usefixtures("job")
def test_a_file_and_a_job_and_a_batch_are_made_once(client):
    ids = {upload(client, b"{}\n", **keyed("file")) for _ in range(2)}
    assert len(ids) == 1
    with pytest.raises(openai.UnprocessableEntityError):
        upload(client, b"{ }\n", **keyed("file"))
    (file,) = ids
    jobs = {client.fine_tuning.jobs.create(model="embedded", training_file=file, **keyed("job")).id for _ in range(2)}
    assert len(jobs) == 1
    assert client.fine_tuning.jobs.cancel(*jobs).status == "cancelled"


# --- Errors ---


def refused(call: Callable[[], object], kind: type[openai.APIStatusError], words: str) -> dict[str, Any]:
    """Return what a call is refused with, which has the protocol's shape."""
    with pytest.raises(kind, match=words) as refusal:
        call()
    body = refusal.value.response.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert refusal.value.response.headers["x-request-id"].startswith("req_")
    return body["error"]


@pytest.mark.parametrize(
    ("options", "param", "words"),
    [
        ({"extra_body": {"temprature": 1}}, "temprature", "Unrecognized request argument"),
        ({"temperature": 3}, "temperature", "less than or equal to 2"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"top_p": 0.9}, "top_p", "not supported"),
        ({"top_logprobs": 6, "logprobs": True}, "top_logprobs", "less than or equal to 5"),
        ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "up to four"),
        ({"max_completion_tokens": MAX_TOKENS + 1}, "max_completion_tokens", "too large"),
        ({"max_tokens": 3}, "max_tokens", "not both"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "not supported"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": user("a", "b")}, "messages", "must be of role user"),
        ({"messages": [*user("a"), *user("b")]}, "messages[1].role", "take turns"),
        ({"messages": [{"role": "tool", "content": "a", "tool_call_id": "b"}]}, "messages[0].role", "Invalid value"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content", "reads text"),
        ({"extra_body": {"messages": None}}, "messages", "Invalid value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "needs stream"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_parameter_that_is_meant(client, options, param, words):
    asked = {"model": "embedded", "messages": user("Hi"), "max_completion_tokens": 5, **options}
    error = refused(lambda: client.chat.completions.create(**asked), openai.BadRequestError, words)
    assert (error["param"], error["type"]) == (param, "invalid_request_error")


def test_whoever_has_not_the_token_is_refused_before_anything_else(server):
    for key in ("another", "a tokem"):
        stranger = OpenAI(**{**server.options, "api_key": key})
        error = refused(stranger.models.list, openai.AuthenticationError, "Incorrect API key")
        assert error["code"] == "invalid_api_key"
        assert TOKEN not in json.dumps(error)
    for path in ("/usage", "/v1/files", "/nowhere"):
        assert httpx2.get(server.url + path).status_code == 401


@pytest.mark.usefixtures("job")
def test_what_is_not_there_is_not_found(server, client):
    error = refused(lambda: ask(client, model="gpt-9"), openai.NotFoundError, "gpt-9")
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    calls = {
        "such model|not exist": lambda: client.models.retrieve("ft:embedded:none::1"),
        "file-none": lambda: client.files.retrieve("file-none"),
        "file-no": lambda: client.files.content("file-no"),
        "ftjob-none": lambda: client.fine_tuning.jobs.retrieve("ftjob-none"),
        "ftjob-no": lambda: client.fine_tuning.jobs.list_events("ftjob-no"),
        "batch_none": lambda: client.batches.retrieve("batch_none"),
        "no such route": lambda: client.embeddings.create(model="embedded", input="Hi"),
    }
    for words, call in calls.items():
        refused(call, openai.NotFoundError, words)
    assert httpx2.put(f"{server.url}/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 405
    create = client.fine_tuning.jobs.create
    refused(lambda: create(training_file="file-none", model="embedded"), openai.BadRequestError, "no file file-none")
    refused(lambda: create(training_file="file-none", model="gpt-9"), openai.NotFoundError, "gpt-9")


def test_what_is_too_large_is_refused_whether_its_size_is_told_or_not(server, client):
    refused(lambda: ask(client, "x" * BODY_BYTES), openai.APIStatusError, "413")
    refused(lambda: upload(client, b"x" * UPLOAD_BYTES), openai.APIStatusError, "413")
    pieces = (b"x" * 10_000 for _ in range(BODY_BYTES // 10_000 + 1))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx2.post(f"{server.url}/v1/chat/completions", content=pieces, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert upload(client, b"x" * (BODY_BYTES + 1), "user_data")


def test_junk_is_refused_in_the_protocols_shape(server):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for path, content in (
        ("chat/completions", b"{"),
        ("fine_tuning/jobs", b"[]"),
        ("batches", b"\xff"),
        ("files", b""),
    ):
        answer = httpx2.post(f"{server.url}/v1/{path}", content=content, headers=headers)
        assert (answer.status_code, list(answer.json()["error"])) == (400, ["message", "type", "param", "code"])


def test_when_too_many_wait_the_next_is_told_to_come_again(server):
    async def crowd() -> list[Any]:
        async with AsyncOpenAI(**server.options) as asynchronous:
            asked = (ask(asynchronous, seed=number) for number in range(3 * QUEUE))
            return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(crowd())
    turned_away = [answer for answer in answers if isinstance(answer, openai.RateLimitError)]
    assert 0 < len(turned_away) <= 2 * QUEUE
    assert {error.response.headers["retry-after"] for error in turned_away} == {"1"}
    assert {error.code for error in turned_away} == {"rate_limit_exceeded"}
    assert len([answer for answer in answers if not isinstance(answer, Exception)]) == 3 * QUEUE - len(turned_away)


# --- Files, batches ---


def test_files_are_kept_listed_read_and_deleted(client):
    content = "Grüße\r\n".encode() * 1000
    ids = [upload(client, content + bytes([number]), "user_data") for number in range(3)]
    told = client.files.retrieve(ids[1])
    assert (told.bytes, told.filename, told.purpose) == (len(content) + 1, "lines.jsonl", "user_data")
    assert client.files.content(ids[1]).content == content + b"\x01"
    assert [file.id for file in client.files.list(purpose="user_data")][:3] == ids[::-1]
    page = client.files.list(purpose="user_data", limit=1, order="asc", after=ids[0])
    assert ([file.id for file in page.data], page.has_more) == ([ids[1]], True)
    assert client.files.delete(ids[1]).deleted
    refused(lambda: client.files.retrieve(ids[1]), openai.NotFoundError, ids[1])
    refused(lambda: client.files.list(limit=0), openai.BadRequestError, "limit")
    refused(lambda: upload(client, b"", "evil"), openai.BadRequestError, "purpose")


def batch_line(number: int, **body: Any) -> str:
    body = {"model": "embedded", "messages": user(OPENING), "seed": number, "max_tokens": 20, **body}
    return json.dumps({"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": body})


def test_a_batch_is_answered_line_by_line_as_its_lines_would_be_alone(client):
    lines = [batch_line(number) for number in range(70)]
    lines[3] = batch_line(3, model="gpt-9")
    file = upload(client, "\n".join(lines).encode(), "batch")
    asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = client.batches.create(**asked, metadata={"a": "b"})
    assert client.batches.list(limit=1).data[0].id == batch.id
    refused(lambda: client.files.delete(file), openai.ConflictError, "in use")
    batch = seconds_waited(lambda: found if (found := client.batches.retrieve(batch.id)).completed_at else None)
    assert (batch.status, batch.metadata) == ("completed", {"a": "b"})
    assert batch.request_counts.to_dict() == {"total": 70, "completed": 69, "failed": 1}
    said = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert [line["custom_id"] for line in said] == [f"c{number}" for number in range(70) if number != 3]
    texts = [line["response"]["body"]["choices"][0]["message"]["content"] for line in said]
    assert texts[0] == text_of(ask(client, seed=0, max_completion_tokens=20))
    (failed,) = client.files.content(batch.error_file_id).text.splitlines()
    assert json.loads(failed)["response"]["status_code"] == 404
    refused(lambda: client.batches.cancel(batch.id), openai.ConflictError, "cannot be cancelled")


def test_a_batch_may_be_cancelled_and_one_that_cannot_be_read_fails_with_its_lines(client):
    file = upload(
        client, "\n".join(map(batch_line, range(2000))).encode()[: UPLOAD_BYTES // 2].rpartition(b"\n")[0], "batch"
    )
    asked = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = client.batches.create(input_file_id=file, **asked)
    assert client.batches.cancel(batch.id).status == "cancelling"
    broken = upload(client, f"{batch_line(1)}\n{{\n{batch_line(1)}".encode(), "batch")
    failed = client.batches.create(input_file_id=broken, **asked)
    failed = seconds_waited(lambda: found if (found := client.batches.retrieve(failed.id)).failed_at else None)
    assert [(error.line, error.code) for error in failed.errors.data] == [
        (2, "invalid_json_line"), (3, "duplicate_custom_id"),
    ]  # fmt: skip
    assert client.batches.retrieve(batch.id).status == "cancelled"
    refused(
        lambda: client.batches.create(input_file_id=file, endpoint="/v1/embeddings", completion_window="24h"),
        openai.BadRequestError, "only /v1/chat/completions",
    )  # fmt: skip


# --- Fine-tuning ---


def test_a_job_says_what_it_was_given_and_is_found_by_its_metadata(client, job):
    assert job.method.supervised.hyperparameters.to_dict() == job.hyperparameters.to_dict()
    assert job.hyperparameters.to_dict() == {"batch_size": 4, "learning_rate_multiplier": 1.8, "n_epochs": 10}
    assert (job.seed, job.metadata) == (3, {"rmft": "test", "of": "server"})
    jobs = client.fine_tuning.jobs.list
    assert [found.id for found in jobs(metadata={"rmft": "test"})] == [job.id]
    assert [found.id for found in jobs(metadata={"rmft": "test", "of": "server"})] == [job.id]
    assert list(jobs(metadata={"rmft": "other"})) == []
    assert job.id not in [found.id for found in jobs(extra_query={"metadata": "null"})]
    assert job.id in [found.id for found in jobs(limit=1)]  # page by page


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"suffix": "x" * 65}, "suffix"),
        ({"method": {"type": "dpo"}}, "method.type"),
        ({"method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 0}}}}, "n_epochs"),
        ({"hyperparameters": {"learning_rate": 1}}, "learning_rate"),
        ({"hyperparameters": {"n_epochs": 1}, "method": LONG}, "not both"),
        ({"validation_file": "file-x"}, "validation_file"),
        ({"integrations": [{"type": "wandb", "wandb": {"project": "x"}}]}, "integrations"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
    ],
)
def test_a_job_that_cannot_be_done_is_refused(client, job, asked, words):
    asked = {"model": "embedded", "training_file": job.training_file, **asked}
    refused(lambda: client.fine_tuning.jobs.create(**asked), openai.BadRequestError, words)


@pytest.fixture(scope="module")
def tuned(client, job):
    """Return the job when it is over."""
    over = ended(client, job.id)
    assert over.status == "succeeded", over.error
    return over


@pytest.fixture(scope="module")
def again(client, tuned):
    """Begin a job that goes on with what the first one has made, with hyperparameters in the old place."""
    file = upload(client, demonstrations().replace(b"Action: 3", b"Action: 1"))
    return client.fine_tuning.jobs.create(
        model=tuned.fine_tuned_model, training_file=file, hyperparameters={"n_epochs": 1, "batch_size": 6}
    )


@pytest.mark.usefixtures("again")
def test_a_job_makes_a_model_that_has_learnt_and_tells_how(client, tuned):
    name = tuned.fine_tuned_model
    assert name.startswith("ft:embedded:first-try::")
    assert name in [model.id for model in client.models.list()]
    assert client.models.retrieve(name).id == name
    learnt = [text_of(ask(client, model=name, seed=seed)) for seed in range(8)]
    assert learnt.count("Scores: 1=5 2=5 3=5.\nAction: 2") > 4
    assert learnt != [text_of(ask(client, seed=seed)) for seed in range(8)]
    events = list(client.fine_tuning.jobs.list_events(tuned.id, limit=7))[::-1]
    steps = [event.data["step"] for event in events if event.type == "metrics"]
    assert steps == list(range(1, 31))
    losses = [event.data["train_loss"] for event in events if event.type == "metrics"]
    assert losses[-1] < losses[0] / 2
    (checkpoint,) = client.fine_tuning.jobs.checkpoints.list(tuned.id)
    assert (checkpoint.step_number, checkpoint.fine_tuned_model_checkpoint) == (30, name)
    rows = client.files.content(tuned.result_files[0]).text.splitlines()
    assert (len(rows), rows[0]) == (31, "step,epoch,train_loss,learning_rate")
    assert tuned.trained_tokens > 10 * 12 * 50


def test_a_fine_tuned_model_is_fine_tuned_further_from_where_it_is(client, tuned, again):
    refused(lambda: client.models.delete(tuned.fine_tuned_model), openai.ConflictError, "in use")
    over = ended(client, again.id)
    assert over.status == "succeeded", over.error
    assert over.hyperparameters.to_dict() == {"batch_size": 6, "learning_rate_multiplier": 1.0, "n_epochs": 1}
    first = next(e for e in list(client.fine_tuning.jobs.list_events(again.id))[::-1] if e.type == "metrics")
    assert first.data["train_loss"] < 1.0  # the base model begins at more than 2
    assert over.fine_tuned_model.startswith("ft:embedded:rmft::")
    assert "Action: 2" in text_of(ask(client, model=over.fine_tuned_model))
    assert client.models.delete(over.fine_tuned_model).deleted
    refused(lambda: ask(client, model=over.fine_tuned_model), openai.NotFoundError, "no longer")
    refused(lambda: client.models.delete("embedded"), openai.PermissionDeniedError, "base model")


@pytest.mark.usefixtures("again")
def test_a_file_that_cannot_be_trained_on_fails_the_job_with_the_line(client):
    file = upload(client, demonstrations(11) + b'{"messages": [{"role": "user", "content": "Hi"}]}\n')
    over = ended(client, client.fine_tuning.jobs.create(model="embedded", training_file=file).id)
    assert (over.status, over.error.param, over.fine_tuned_model) == ("failed", "training_file", None)
    assert "line 12" in over.error.message
    error = next(iter(client.fine_tuning.jobs.list_events(over.id)))
    assert (error.level, "line 12" in error.message) == ("error", True)
    refused(lambda: client.fine_tuning.jobs.cancel(over.id), openai.BadRequestError, "cannot be cancelled")


# --- Ends and beginnings ---


def weights_of(state: Path, model: str) -> bytes:
    """Return the weights of a fine-tuned model that a server keeps."""
    (folder,) = (told.parent for told in (state / "models").glob("*/model.json") if model in told.read_text())
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.long
def test_a_server_that_is_killed_in_the_middle_of_a_job_does_it_once_and_of_a_server_that_ends_nothing_is_left(
    server, tuned, tmp_path
):
    state = tmp_path / "state"
    state.mkdir()
    running = Running(state, CONTEXT).ready()
    client = running.client
    file = upload(client, demonstrations(), **keyed("file"))
    asked = {"model": "embedded", "training_file": file, "method": LONG, "seed": 3, **keyed("job")}
    job = client.fine_tuning.jobs.create(**asked)
    answer = ask(client, **keyed("answer"))
    seconds_waited(lambda: any(event.type == "metrics" for event in client.fine_tuning.jobs.list_events(job.id)))
    assert len(running.workers) == 1
    lines = upload(client, "\n".join(map(batch_line, range(90))).encode(), "batch")
    batch = client.batches.create(input_file_id=lines, endpoint="/v1/chat/completions", completion_window="24h")
    seconds_waited(lambda: running.usage["answers"] > 10)
    running.end(signal.SIGKILL)

    running = Running(state, CONTEXT).ready()
    client = running.client
    assert client.fine_tuning.jobs.create(**asked) == job
    assert ask(client, **keyed("answer")) == answer
    batch = seconds_waited(lambda: found if (found := client.batches.retrieve(batch.id)).completed_at else None)
    said = [
        json.loads(line)["response"]["body"] for line in client.files.content(batch.output_file_id).text.splitlines()
    ]
    assert len({one["id"] for one in said}) == 90
    costs = [answer.usage.to_dict(), *(one["usage"] for one in said)]
    paid = {name: sum(cost[name] for cost in costs) for name in ("prompt_tokens", "completion_tokens")}
    assert running.usage == {"requests": 91, "answers": 91, "jobs": 1, **paid}
    over = ended(client, job.id)
    messages = [event.message for event in client.fine_tuning.jobs.list_events(job.id, limit=100)]
    assert (over.status, len(list(client.fine_tuning.jobs.list()))) == ("succeeded", 1)
    assert sum("begun again" in message for message in messages) == 1
    assert sum("successfully completed" in message for message in messages) == 1
    weights = [weights_of(state, over.fine_tuned_model), weights_of(server.state, tuned.fine_tuned_model)]
    assert weights[0] == weights[1]  # of the same file and seed, whatever happened on the way
    said = text_of(ask(client, model=over.fine_tuned_model))
    assert said == text_of(ask(server.client, model=tuned.fine_tuned_model))

    error = refused(lambda: ask(client, "x " * CONTEXT), openai.BadRequestError, f"maximum context length is {CONTEXT}")
    assert error["code"] == "context_length_exceeded"
    with pytest.raises(InputError, match="another server"):
        serve(dataclasses.replace(SETTINGS, state=state))
    further = client.fine_tuning.jobs.create(model=over.fine_tuned_model, training_file=file)
    seconds_waited(lambda: running.workers)
    assert running.end(signal.SIGTERM) == 0

    running = Running(state, CONTEXT).ready()
    client = running.client
    assert text_of(ask(client, model=over.fine_tuned_model)) == said
    assert client.fine_tuning.jobs.retrieve(further.id).status != "failed"
    assert client.fine_tuning.jobs.cancel(further.id).status == "cancelled"
    seconds_waited(lambda: not running.workers)
    with ThreadPoolExecutor(QUEUE) as pool:  # what is under way is answered, or refused for now
        under_way = [pool.submit(ask, client, max_completion_tokens=MAX_TOKENS, n=3) for _ in range(QUEUE // 3)]
        seconds_waited(lambda: any(asked.done() for asked in under_way))
        assert running.end(signal.SIGINT) == 0
    errors = [asked.exception() for asked in under_way if asked.exception()]
    assert all(isinstance(error, openai.InternalServerError | openai.APIConnectionError) for error in errors)
    assert len(errors) < len(under_way)


SETTINGS = ServerSettings(model=MODEL, name="embedded", token=TOKEN, state=Path("nowhere"), sft=SFT, seed=0)


def test_a_server_needs_a_token_and_a_port_that_is_free(tmp_path, server):
    with pytest.raises(InputError, match="token"):
        serve(dataclasses.replace(SETTINGS, state=tmp_path, token=""))
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(InputError, match=rf"127\.0\.0\.1:{port} cannot be listened at"):
        serve(dataclasses.replace(SETTINGS, state=tmp_path, port=port))


def test_who_imports_rmft_does_not_import_large_libraries():
    code = "import sys, rmft.endpoint_server; sys.exit(bool({'torch', 'transformers', 'fastapi'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, check=False).returncode == 0
