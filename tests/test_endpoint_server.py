"""Our own endpoint, as the official client sees it; the client checks every response against its own schemas."""

import asyncio
import dataclasses
import hashlib
import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
import pytest
from endpoint_games import as_json, connected, keys_in, play
from endpoint_servers import (
    BODY_BYTES,
    MAX_TOKENS,
    MODEL,
    QUEUE,
    ROOT,
    SFT,
    SLOTS,
    TOKEN,
    UPLOAD_BYTES,
    Server,
)
from faults import FaultProxy
from helpers import wait_until
from openai import AsyncOpenAI, OpenAI

from rmft.endpoint_server import fine_tuning_jobs
from rmft.endpoint_server.fine_tuning_jobs import FineTuningJobs
from rmft.endpoint_server.fine_tuning_request import FineTuningJobRequest
from rmft.endpoint_server.models import digest_of_base, require_tuned_weights
from rmft.endpoint_server.server import _background, serve
from rmft.endpoint_server.settings import ServerSettings
from rmft.endpoint_server.store import Store
from rmft.errors import InputError

pytestmark = pytest.mark.xdist_group("endpoint")
CONTEXT = 2000
OPENING = (
    "You make a decision in each of many rounds. There are 3 actions, numbered 1 to 3.\nEach round, choose one action "
    'by its number.\nRound 1. Reason briefly; last line "Action: " and a number from 1 to 3.'
)
RESPONSE = "Scores: 1=5 2=5 3=5.\nAction: 2"
# Trained for several epochs, so that there is time to kill the server while the job runs.
LONG = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 8, "learning_rate_multiplier": 2.0}}}
STEPS = 24
SETTINGS = ServerSettings(model=MODEL, name="embedded", token=TOKEN, state=Path("nowhere"), sft=SFT, seed=0)


@pytest.fixture(scope="session")
def client(server) -> OpenAI:
    return server.client


def demonstrations(lines: int = 12) -> bytes:
    """Return a training file."""
    texts = [OPENING, RESPONSE, "Round 1: you chose action 2. Paid: 1: **3.25**.\nRound 2.", "Action: 3"]
    return b"".join(json.dumps({"messages": conversation(*texts)}).encode() + b"\n" for _ in range(lines))


def conversation(*texts: str) -> list[dict[str, str]]:
    """Return messages in which user and assistant take turns."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def upload(client: OpenAI, content: bytes, purpose: str = "fine-tune", **options: Any) -> str:
    return client.files.create(file=("lines.jsonl", content), purpose=purpose, **options).id


def ended(client: OpenAI, job: str):
    """Wait for the end of a job."""
    return wait_until(lambda: now if (now := client.fine_tuning.jobs.retrieve(job)).finished_at is not None else None)


def complete(client: OpenAI, *texts: str, model: str = "embedded", **options: Any):
    messages = conversation(*(texts or (OPENING,)))
    return client.chat.completions.create(
        model=model, messages=messages, **{"seed": 1, "max_completion_tokens": 64, **options}
    )


def text_of(response) -> str:
    return response.choices[0].message.content


def with_key(key: str) -> dict[str, Any]:
    return {"extra_headers": {"Idempotency-Key": key}}


@pytest.fixture(scope="session")
def job(client):
    """Start a job with the first test, for those that need it later on: one, as there is one server."""
    return client.fine_tuning.jobs.create(
        model="embedded", training_file=upload(client, demonstrations()), method=LONG, seed=3, suffix="first try",
        metadata={"rmft": "test", "of": "server"},
    )  # fmt: skip


# --- Responses ---


@pytest.mark.usefixtures("job")
def test_the_same_seed_gives_the_same_response_and_other_seeds_give_others(client):
    texts = [text_of(complete(client, seed=seed)) for seed in (1, 1, 2, 3, 4)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1
    assert len({text_of(complete(client, seed=None)) for _ in range(5)}) > 1
    assert len({text_of(complete(client, seed=seed, temperature=0)) for seed in range(2)}) == 1


def test_a_conversation_goes_on_in_the_cache_and_its_responses_are_those_of_one_that_is_read_anew(client):
    texts, responses = [OPENING], []
    for t in range(1, 6):
        responses.append(response := complete(client, *texts, seed=t))
        texts += [text_of(response), f"Round {t}: you chose action 2. Paid: 1: **{t}.25**.\nRound {t + 1}."]
    cached = [response.usage.prompt_tokens_details.cached_tokens for response in responses]
    assert all(tokens > 0.6 * one.usage.prompt_tokens for tokens, one in zip(cached[1:], responses[1:], strict=True))
    with ThreadPoolExecutor(QUEUE // 2) as pool:  # fill all slots with other conversations
        list(pool.map(lambda i: complete(client, f"Something else, {i}", max_completion_tokens=1), range(2 * SLOTS)))
    for t in (5, 3):
        anew, before = complete(client, *texts[: 2 * t - 1], seed=t), responses[t - 1]
        assert anew.usage.prompt_tokens_details.cached_tokens == 0
        assert (text_of(anew), anew.usage.prompt_tokens) == (text_of(before), before.usage.prompt_tokens)


def test_responses_to_many_requests_at_once_are_those_to_each_alone(server, client):
    cases = [(f"{OPENING} {'Think. ' * (number % 7)}", {"seed": number}) for number in range(16)]
    alone = [text_of(complete(client, text, **options)) for text, options in cases]

    async def together() -> list[str]:
        async with AsyncOpenAI(**server.options) as asynchronous:
            requests = (complete(asynchronous, text, **options) for text, options in cases)
            return [text_of(response) for response in await asyncio.gather(*requests)]

    assert asyncio.run(together()) == alone
    assert len(set(alone)) > 5


def answers_of_game(client: OpenAI, game: int, rounds: int = 4) -> list[tuple[str, list[float]]]:
    """Play a game; return the texts of the responses with the log-probabilities of their tokens."""
    texts, answers = [f"{OPENING} {'Think. ' * game}"], []
    for t in range(1, rounds + 1):
        (choice,) = complete(client, *texts, seed=100 * game + t, logprobs=True, top_logprobs=5).choices
        bits = [top.logprob for token in choice.logprobs.content for top in token.top_logprobs]
        answers.append((choice.message.content, bits))
        texts += [choice.message.content, f"Round {t}: you chose action 2. Paid: **{game + t / 4}**.\nRound {t + 1}."]
    return answers


@pytest.mark.long
def test_a_game_is_the_same_to_the_last_bit_alone_beside_many_others_and_after_a_restart(tmp_path):
    state, games = tmp_path / "state", range(3)
    with Server(state, CONTEXT) as server, ThreadPoolExecutor(QUEUE - 10) as pool:
        first = [answers_of_game(server.client, game) for game in games]
        crowd = [pool.submit(answers_of_game, server.client, game) for game in range(QUEUE - 10)]
        together = [crowd[game].result() for game in games]
    with Server(state, CONTEXT) as server:
        restarted = [answers_of_game(server.client, game) for game in games]
    runs = [first, restarted, together]
    assert len({text for game in first for text, _ in game}) > len(games)
    depends = "depend on how many requests" in (tmp_path / "state.log").read_text()
    assert not depends or "GenuineIntel" not in Path("/proc/cpuinfo").read_text()
    if depends:  # of another maker's processor
        runs = [[[text for text, _ in game] for game in run] for run in runs]
    assert runs[0] == runs[1] == runs[2]


def test_n_choices_are_of_one_conversation_and_each_has_its_own_random_numbers(client):
    response = complete(client, n=6, seed=5)
    assert [choice.index for choice in response.choices] == list(range(6))
    assert len({choice.message.content for choice in response.choices}) > 1
    assert text_of(response) == text_of(complete(client, seed=5))
    assert response.usage.completion_tokens > 6 * 5


def test_a_response_ends_before_a_stop_and_at_its_limit(client):
    whole = complete(client)
    assert whole.choices[0].finish_reason == "stop"
    stopped = complete(client, stop=["\nAction", "\nPolicy"])
    assert text_of(whole).startswith(text_of(stopped))
    assert stopped.choices[0].finish_reason == "stop"
    assert "\n" not in text_of(stopped)
    cut = complete(client, max_completion_tokens=5, logprobs=True)
    assert (cut.choices[0].finish_reason, cut.usage.completion_tokens) == ("length", 5)
    assert text_of(whole).startswith(text_of(cut))
    assert len(cut.choices[0].logprobs.content) == 5
    assert text_of(complete(client, max_completion_tokens=None, max_tokens=5)) == text_of(cut)


def test_tokens_come_with_the_likeliest_ones_and_temperature_zero_takes_those(client):
    response = complete(client, temperature=0, logprobs=True, top_logprobs=5)
    content = response.choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in content).decode() == text_of(response)
    assert len(content) == response.usage.completion_tokens - 1  # the end token is no part of the text
    for token in content:
        tops = [top.logprob for top in token.top_logprobs]
        assert (token.token, token.logprob) == (token.top_logprobs[0].token, tops[0])
        assert tops == sorted(tops, reverse=True)
    warm = complete(client, temperature=1.5, logprobs=True, top_logprobs=5, seed=9).choices[0].logprobs.content
    tops = {top.token: top.logprob for top in warm[0].top_logprobs}
    assert warm[0].logprob == pytest.approx(tops.get(warm[0].token, warm[0].logprob))
    assert complete(client, logprobs=True).choices[0].logprobs.content[0].top_logprobs == []


def test_a_stream_has_everything_that_the_response_has(client):
    options = {"seed": 4, "n": 2, "logprobs": True, "top_logprobs": 2}
    whole = complete(client, **options)
    *chunks, last = list(complete(client, stream=True, stream_options={"include_usage": True}, **options))
    assert {chunk.id for chunk in chunks} == {last.id}
    for choice, chunk in zip(whole.choices, chunks, strict=True):
        (streamed,) = chunk.choices
        assert (streamed.index, streamed.finish_reason) == (choice.index, choice.finish_reason)
        assert (streamed.delta.role, streamed.delta.content) == ("assistant", choice.message.content)
        tokens = [[token.token for token in of.logprobs.content] for of in (streamed, choice)]
        assert tokens[0] == tokens[1]
    assert last.usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in complete(client, stream=True, **options))


def test_a_system_message_stands_ahead_of_the_first_one_and_parts_are_one_text(client):
    split = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": OPENING}]},
    ]
    response = client.chat.completions.create(model="embedded", messages=split, seed=1, max_tokens=64)
    assert text_of(response) == text_of(complete(client, f"Be brief.\n\n{OPENING}"))


# --- Idempotency ---


def test_a_request_that_comes_again_with_its_key_gets_the_same_response_and_is_not_paid_again(server, client):
    before = server.usage
    first = complete(client, seed=None, **with_key("once"))
    assert complete(client, seed=None, **with_key("once")) == first
    streams = [list(complete(client, seed=None, stream=True, **with_key("a stream"))) for _ in range(2)]
    assert streams[0] == streams[1]
    with pytest.raises(openai.UnprocessableEntityError) as refusal:
        complete(client, seed=3, **with_key("once"))
    assert refusal.value.code == "idempotency_key_reused"

    async def together() -> list[str]:
        async with AsyncOpenAI(**server.options) as asynchronous:
            requests = (complete(asynchronous, **with_key("together")) for _ in range(9))
            return [response.id for response in await asyncio.gather(*requests)]

    assert len(set(asyncio.run(together()))) == 1
    after = server.usage
    assert after["answers"] == before["answers"] + 3
    assert after["prompt_tokens"] == before["prompt_tokens"] + 3 * first.usage.prompt_tokens


def test_a_completion_of_ids_is_sampled_and_counted_once(server, client):
    before = server.usage
    in_ids = {"return_token_ids": True, "return_tokens_as_token_ids": True}
    ask = {"model": "embedded", "prompt": [1, 2, 3], "max_tokens": 4, "extra_body": in_ids, **with_key("of ids")}
    first = client.completions.create(**ask)
    assert client.completions.create(**ask) == first
    grown = {name: server.usage[name] - before[name] for name in ("requests", "answers", "prompt_tokens")}
    assert grown == {"requests": 1, "answers": 1, "prompt_tokens": 3}
    for number in (5_000, 3_000_000_000):
        wrong = partial(client.completions.create, model="embedded", prompt=[number], max_tokens=4, extra_body=in_ids)
        refused(wrong, openai.BadRequestError, "no tokens")


@pytest.mark.usefixtures("job")
def test_a_file_and_a_job_are_created_once(client):
    (file,) = {upload(client, b"{}\n", **with_key("file")) for _ in range(2)}
    with pytest.raises(openai.UnprocessableEntityError):
        upload(client, b"{ }\n", **with_key("file"))
    create = client.fine_tuning.jobs.create
    (job,) = {create(model="embedded", training_file=file, **with_key("job")).id for _ in range(2)}
    assert client.fine_tuning.jobs.cancel(job).status == "cancelled"


# --- Errors ---


def refused(call: Callable[[], object], kind: type[openai.APIStatusError], words: str) -> dict[str, Any]:
    """Return the error of a call, which has the protocol's shape."""
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
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{}] * 20_000}, "messages[0].role", "Missing"),
        ({"messages": conversation("a", "b")}, "messages", "must be of role user"),
        ({"messages": [*conversation("a"), *conversation("b")]}, "messages[1].role", "take turns"),
        ({"messages": [{"role": "tool", "content": "a", "tool_call_id": "b"}]}, "messages[0].role", "Invalid value"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content", "text only"),
        ({"extra_body": {"messages": None}}, "messages", "Invalid value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "needs stream"),
    ],
)
def test_a_request_that_cannot_be_fulfilled_is_refused_with_the_parameter_at_fault(client, options, param, words):
    request = {"model": "embedded", "messages": conversation("Hi"), "max_completion_tokens": 5, **options}
    error = refused(lambda: client.chat.completions.create(**request), openai.BadRequestError, words)
    assert (error["param"], error["type"]) == (param, "invalid_request_error")


def test_a_request_without_the_key_is_refused_before_anything_else(server):
    for key in ("another", f"{TOKEN[:-1]}m"):
        stranger = OpenAI(**{**server.options, "api_key": key})
        error = refused(stranger.models.list, openai.AuthenticationError, "Incorrect API key")
        assert error["code"] == "invalid_api_key"
        assert TOKEN not in json.dumps(error)
    for path in ("/usage", "/v1/files", "/nowhere"):
        assert httpx2.get(server.url + path).status_code == 401


@pytest.mark.usefixtures("job")
def test_what_does_not_exist_is_not_found(server, client):
    error = refused(lambda: complete(client, model="gpt-9"), openai.NotFoundError, "gpt-9")
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    calls = {
        "such model|not exist": lambda: client.models.retrieve("ft:embedded:none::1"),
        "file-none": lambda: client.files.retrieve("file-none"),
        "file-no": lambda: client.files.content("file-no"),
        "ftjob-none": lambda: client.fine_tuning.jobs.retrieve("ftjob-none"),
        "ftjob-no": lambda: client.fine_tuning.jobs.list_events("ftjob-no"),
        "no such route": lambda: client.embeddings.create(model="embedded", input="Hi"),
    }
    for words, call in calls.items():
        refused(call, openai.NotFoundError, words)
    assert httpx2.put(f"{server.url}/v1/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 405
    create = client.fine_tuning.jobs.create
    refused(lambda: create(training_file="file-none", model="embedded"), openai.BadRequestError, "no file file-none")
    refused(lambda: create(training_file="file-none", model="gpt-9"), openai.NotFoundError, "gpt-9")


def test_a_request_that_is_too_large_or_is_no_json_is_refused_in_the_protocols_shape(server, client):
    refused(lambda: complete(client, "x" * BODY_BYTES), openai.APIStatusError, "413")
    refused(lambda: upload(client, b"x" * UPLOAD_BYTES), openai.APIStatusError, "413")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    pieces = (b"x" * 10_000 for _ in range(BODY_BYTES // 10_000 + 1))  # without a Content-Length
    response = httpx2.post(f"{server.url}/v1/chat/completions", content=pieces, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")
    assert upload(client, b"x" * (BODY_BYTES + 1))
    for path, content in (("chat/completions", b"{"), ("fine_tuning/jobs", b"[]"), ("files", b"")):
        response = httpx2.post(f"{server.url}/v1/{path}", content=content, headers=headers)
        assert (response.status_code, list(response.json()["error"])) == (400, ["message", "type", "param", "code"])


def test_an_upload_that_finds_no_room_on_the_disk_is_refused_and_nothing_of_it_stays(tmp_path):
    def post(server: Server) -> int:
        key, files = {"Authorization": f"Bearer {TOKEN}"}, {"file": ("full.jsonl", b"x" * 70_000)}
        purpose = {"purpose": "fine-tune"}
        return httpx2.post(f"{server.url}/v1/files", headers=key, files=files, data=purpose).status_code

    with Server(tmp_path / "state", CONTEXT) as server:  # one of its own: a job that finds no room begins again
        assert post(server) == 200
        before = {*(server.state / "files").iterdir()}
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (60_000, -1))
        assert post(server) == 507
        assert {*(server.state / "files").iterdir()} == before
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
        assert post(server) == 200


def test_a_request_that_finds_the_queue_full_is_to_come_again(server):
    async def crowd() -> list[Any]:
        async with AsyncOpenAI(**server.options) as asynchronous:
            requests = (complete(asynchronous, seed=number) for number in range(2 * QUEUE))
            return await asyncio.gather(*requests, return_exceptions=True)

    results = asyncio.run(crowd())
    refusals = [result for result in results if isinstance(result, openai.RateLimitError)]
    assert 0 < len(refusals) <= QUEUE
    assert {error.response.headers["retry-after"] for error in refusals} == {"1"}
    assert {error.code for error in refusals} == {"rate_limit_exceeded"}
    assert len([result for result in results if not isinstance(result, Exception)]) == 2 * QUEUE - len(refusals)


def test_responses_that_nobody_can_ask_for_again_are_given_up_when_the_client_has_gone(server, client):
    long = {"n": 8, "temperature": 2.0, "max_tokens": MAX_TOKENS}
    body = json.dumps({"model": "embedded", "messages": conversation(OPENING), **long}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def answers() -> bool:
        with suppress(openai.RateLimitError):  # until the server has seen that they have gone
            return bool(text_of(complete(client, seed=1)))
        return False

    before = server.usage["answers"]
    for _ in range(QUEUE // 8):
        with socket.create_connection(("127.0.0.1", urlsplit(server.url).port)) as gone:
            gone.sendall(request)
    wait_until(answers)
    assert server.usage["answers"] < before + QUEUE


# --- Files ---


@pytest.mark.parametrize("operation", ["put", "all"])
def test_an_error_of_the_disk_stops_no_job_for_good(tmp_path, monkeypatch, operation):
    monkeypatch.setattr(fine_tuning_jobs, "RETRY_SECONDS", 0.05)
    tries = []

    def fail(*_: object) -> None:
        tries.append(1)
        raise sqlite3.OperationalError("database or disk is full" if operation == "put" else "disk I/O error")

    async def no_file(_: str) -> None:
        raise InputError("no such file")

    async def until_the_disk_works(jobs: FineTuningJobs) -> list[str]:
        jobs._do = no_file
        setattr(jobs.store, operation, fail)
        working = asyncio.create_task(jobs.work())
        while len(tries) < 3 and not working.done():
            await asyncio.sleep(0.01)
        delattr(jobs.store, operation)
        while jobs.using("file") and not working.done():
            await asyncio.sleep(0.01)
        working.cancel()
        return [job["status"] for job in jobs.all()]

    with closing(Store(tmp_path)) as store:
        for name in ("ftjob-one", "ftjob-two"):
            document = {"id": name, "status": "queued", "training_file": "file", "model": "m"}
            store.put(name, {"job": document, "task": {}, "checkpoints": []})
        jobs = FineTuningJobs(dataclasses.replace(SETTINGS, state=tmp_path), store, None, None)
        assert asyncio.run(until_the_disk_works(jobs)) == ["failed", "failed"]


def test_files_are_kept_listed_read_and_deleted(client):
    content = "Grüße\r\n".encode() * 1000
    ids = [upload(client, content + bytes([number])) for number in range(3)]
    file = client.files.retrieve(ids[1])
    assert (file.bytes, file.filename, file.purpose) == (len(content) + 1, "lines.jsonl", "fine-tune")
    assert client.files.content(ids[1]).content == content + b"\x01"
    assert [file.id for file in client.files.list(purpose="fine-tune")][:3] == ids[::-1]
    page = client.files.list(purpose="fine-tune", limit=1, order="asc", after=ids[0])
    assert ([file.id for file in page.data], page.has_more) == ([ids[1]], True)
    assert client.files.delete(ids[1]).deleted
    refused(lambda: client.files.retrieve(ids[1]), openai.NotFoundError, ids[1])
    again = [upload(client, content, **with_key("again")) for _ in range(2)]
    client.files.delete(again[0])
    assert [upload(client, content, **with_key("again")), again[1]] == again
    assert client.files.content(again[0]).content == content
    refused(lambda: client.files.list(limit=0), openai.BadRequestError, "limit")
    refused(lambda: upload(client, b"", "batch"), openai.BadRequestError, "purpose")


# --- Fine-tuning ---


def test_a_job_states_its_settings_and_is_found_by_its_metadata(client, job):
    assert job.method.supervised.hyperparameters.to_dict() == job.hyperparameters.to_dict()
    assert job.hyperparameters.to_dict() == {"batch_size": 4, "learning_rate_multiplier": 2.0, "n_epochs": 8}
    assert (job.seed, job.metadata) == (3, {"rmft": "test", "of": "server"})
    jobs = client.fine_tuning.jobs.list
    assert [found.id for found in jobs(metadata={"rmft": "test", "of": "server"})] == [job.id]
    assert list(jobs(metadata={"rmft": "other"})) == []
    assert job.id not in [found.id for found in jobs(extra_query={"metadata": "null"})]
    assert job.id in [found.id for found in jobs(limit=1)]  # page by page


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"suffix": "x" * 65}, "suffix"),
        ({"method": {"type": "dpo"}}, "method.type"),
        ({"method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 0}}}}, "n_epochs"),
        ({"hyperparameters": {"n_epochs": 0}}, "n_epochs"),
        ({"validation_file": "file-x"}, "validation_file"),
        ({"integrations": [{"type": "wandb", "wandb": {"project": "x"}}]}, "integrations"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
    ],
)
def test_a_job_that_is_not_supported_is_refused(client, job, options, words):
    request = {"model": "embedded", "training_file": job.training_file, **options}
    refused(lambda: client.fine_tuning.jobs.create(**request), openai.BadRequestError, words)


def test_weights_that_are_not_what_fine_tuning_wrote_are_not_served(tmp_path):
    weights, written = tmp_path / "model.safetensors", b"weights"
    weights.write_bytes(written)
    (tmp_path / "model.json").write_text(json.dumps({"sha256": hashlib.sha256(written).hexdigest()}), encoding="utf-8")
    require_tuned_weights(weights)
    weights.write_bytes(b"others")
    with pytest.raises(InputError, match=r"model\.safetensors: not what fine-tuning wrote"):
        require_tuned_weights(weights)


def test_hyperparameters_may_stand_in_their_older_place_too():
    old = {"model": "embedded", "training_file": "file-x", "hyperparameters": {"n_epochs": 2}}
    assert FineTuningJobRequest(**old).given.n_epochs == 2
    both = old | {"method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 5}}}}
    assert FineTuningJobRequest(**both).given.n_epochs == 5


@pytest.fixture(scope="session")
def tuned(client, job):
    """Return the job when it has ended."""
    over = ended(client, job.id)
    assert over.status == "succeeded", over.error
    return over


@pytest.fixture(scope="session")
def second_job(client, tuned):
    """Start a job from the model of the first one."""
    file = upload(client, demonstrations().replace(b"Action: 3", b"Action: 1"))
    method = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 1, "batch_size": 6}}}
    return client.fine_tuning.jobs.create(model=tuned.fine_tuned_model, training_file=file, method=method)


@pytest.mark.usefixtures("second_job")
def test_a_job_makes_a_model_that_has_learnt_and_reports_each_step(server, client, tuned):
    name = tuned.fine_tuned_model
    assert name.startswith("ft:embedded:first-try::")
    made = json.loads((server.state / "models" / name.rpartition(":")[2] / "model.json").read_text(encoding="utf-8"))
    assert made["base_sha256"] == digest_of_base(MODEL)
    assert name in [model.id for model in client.models.list()]
    assert client.models.retrieve(name).id == name
    learnt = [text_of(complete(client, model=name, seed=seed)) for seed in range(8)]
    assert learnt.count(RESPONSE) > 4
    events = list(client.fine_tuning.jobs.list_events(tuned.id, limit=7))[::-1]
    steps = [event.data for event in events if event.type == "metrics"]
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    assert steps[-1]["train_loss"] < steps[0]["train_loss"] / 2
    (checkpoint,) = client.fine_tuning.jobs.checkpoints.list(tuned.id)
    assert (checkpoint.step_number, checkpoint.fine_tuned_model_checkpoint) == (STEPS, name)
    rows = client.files.content(tuned.result_files[0]).text.splitlines()
    assert (len(rows), rows[0]) == (STEPS + 1, "step,epoch,train_loss,learning_rate")
    assert tuned.trained_tokens > 8 * 12 * 50


def test_a_fine_tuned_model_is_fine_tuned_further_from_its_weights(client, tuned, second_job):
    refused(lambda: client.models.delete(tuned.fine_tuned_model), openai.ConflictError, "in use")
    refused(lambda: client.files.delete(second_job.training_file), openai.ConflictError, "in use")
    over = ended(client, second_job.id)
    assert over.status == "succeeded", over.error
    assert over.hyperparameters.to_dict() == {"batch_size": 6, "learning_rate_multiplier": 1.0, "n_epochs": 1}
    first = next(e for e in list(client.fine_tuning.jobs.list_events(over.id))[::-1] if e.type == "metrics")
    assert first.data["train_loss"] < 1.0  # the base model begins at more than 2
    assert over.fine_tuned_model.startswith("ft:embedded:rmft::")
    assert "Action: 2" in text_of(complete(client, model=over.fine_tuned_model))
    assert client.models.delete(over.fine_tuned_model).deleted
    refused(lambda: complete(client, model=over.fine_tuned_model), openai.NotFoundError, "was deleted")
    refused(lambda: client.models.delete("embedded"), openai.PermissionDeniedError, "base model")


@pytest.mark.usefixtures("second_job")
@pytest.mark.parametrize("line", ['{"messages": [{"role": "user", "content": "Hi"}]}', f'{{"{"a" * 70_000}": 1}}'])
def test_a_file_that_cannot_be_trained_on_fails_the_job_with_the_line(client, line):
    file = upload(client, demonstrations(11) + f"{line}\n".encode())
    over = ended(client, client.fine_tuning.jobs.create(model="embedded", training_file=file).id)
    assert (over.status, over.error.param, over.fine_tuned_model) == ("failed", "training_file", None)
    assert "line 12" in over.error.message
    error = next(iter(client.fine_tuning.jobs.list_events(over.id)))
    assert (error.level, "line 12" in error.message) == ("error", True)
    refused(lambda: client.fine_tuning.jobs.cancel(over.id), openai.BadRequestError, "cannot be cancelled")


# --- Killed and stopped ---


@pytest.fixture(scope="module")
def killed(server, tmp_path_factory) -> Iterator[SimpleNamespace]:
    """Kill a server in the middle of rollouts and of a job, start it again, and return what came of both."""
    folder = tmp_path_factory.mktemp("killed")
    own = {"base_urls": [], "serves": "embedded", "model": "embedded", "attempts": 5000, "timeout_seconds": 5.0}
    game = {"n": 8, "horizon": 4, "retries": 0}
    with connected(folder / "undisturbed", f"{server.url}/v1", **own) as connection:
        undisturbed = play(connection, **game)
    one = Server(folder / "state", CONTEXT)
    client = one.client
    file = upload(client, demonstrations(), **with_key("file"))
    request = {"model": "embedded", "training_file": file, "method": LONG, "seed": 3, **with_key("job")}
    job = client.fine_tuning.jobs.create(**request)
    servers, journal = [one], folder / "journal"

    def kill_and_start_again() -> None:
        wait_until(lambda: any(event.type == "metrics" for event in client.fine_tuning.jobs.list_events(job.id)))
        together.set()
        wait_until(lambda: journal.exists() and len(keys_in(journal)) >= 8)
        one.end(signal.SIGKILL)
        servers.append(Server(folder / "state", CONTEXT, one.port))

    together, killer = threading.Event(), threading.Thread(target=kill_and_start_again)
    killer.start()
    together.wait(120)
    with FaultProxy(f"{one.url}/v1", 0, 0.3, 20) as proxy, connected(journal, proxy.url, **own) as connection:
        disturbed = play(connection, **game)
    killer.join()
    yield SimpleNamespace(
        server=servers[-1], job=job, request=request, games=(undisturbed, disturbed), statistics=connection.statistics
    )
    servers[-1].process.kill()


@pytest.mark.long
def test_a_server_that_is_killed_in_the_middle_of_rollouts_samples_nothing_twice(killed):
    undisturbed, disturbed = killed.games
    assert as_json(disturbed) == as_json(undisturbed)
    assert killed.statistics.retries["connection"] > 0
    usage = killed.server.usage
    assert (usage["requests"], usage["answers"], usage["jobs"]) == (32, 32, 1)
    assert usage["completion_tokens"] == killed.statistics.usage.completion


def weights_of(state: Path, model: str) -> bytes:
    """Return the weights of a fine-tuned model that a server keeps."""
    (folder,) = (path.parent for path in (state / "models").glob("*/model.json") if model in path.read_text())
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.long
def test_a_server_that_is_killed_in_the_middle_of_a_job_does_the_job_once_and_a_stopped_one_leaves_no_process(
    killed, server, tuned
):
    running, client = killed.server, killed.server.client
    assert client.fine_tuning.jobs.create(**killed.request) == killed.job
    over = ended(client, killed.job.id)
    messages = [event.message for event in client.fine_tuning.jobs.list_events(over.id, limit=100)]
    assert (over.status, len(list(client.fine_tuning.jobs.list()))) == ("succeeded", 1)
    assert sum("starts again" in message for message in messages) == 1
    assert sum("successfully completed" in message for message in messages) == 1
    weights = [weights_of(running.state, over.fine_tuned_model), weights_of(server.state, tuned.fine_tuned_model)]
    assert weights[0] == weights[1]  # of the same file and seed, whatever happened on the way
    texts = [
        text_of(complete(of.client, model=of_job.fine_tuned_model)) for of, of_job in ((running, over), (server, tuned))
    ]
    assert texts[0] == texts[1]

    error = refused(lambda: complete(client, "x " * CONTEXT), openai.BadRequestError, f"context length is {CONTEXT}")
    assert error["code"] == "context_length_exceeded"
    tokens = complete(client, "x " * 500).usage.prompt_tokens
    near = "x " * int(500 * (CONTEXT - MAX_TOKENS / 2) / tokens)
    assert complete(client, near, max_completion_tokens=None).usage.total_tokens <= CONTEXT
    with pytest.raises(InputError, match="another server"):
        serve(dataclasses.replace(SETTINGS, state=running.state))
    further = {"model": over.fine_tuned_model, "training_file": over.training_file}
    cancelled = client.fine_tuning.jobs.create(**further)
    wait_until(lambda: running.workers)
    assert client.fine_tuning.jobs.cancel(cancelled.id).status == "cancelled"
    wait_until(lambda: not running.workers)
    client.fine_tuning.jobs.create(**further)
    wait_until(lambda: running.workers)
    with ThreadPoolExecutor(QUEUE) as pool:  # requests in progress get their response, or are refused for now
        requests = [pool.submit(complete, client, max_completion_tokens=MAX_TOKENS, n=3) for _ in range(QUEUE // 3)]
        wait_until(lambda: any(request.done() for request in requests))
        assert running.end(signal.SIGINT) == 0
    errors = [request.exception() for request in requests if request.exception()]
    assert all(isinstance(error, openai.InternalServerError | openai.APIConnectionError) for error in errors)
    assert len(errors) < len(requests)


def test_a_server_needs_a_key_and_a_free_port(tmp_path, server):
    with pytest.raises(InputError, match="needs a key"):
        serve(dataclasses.replace(SETTINGS, state=tmp_path, token=""))
    with pytest.raises(InputError, match=rf"cannot listen at 127\.0\.0\.1:{server.port}"):
        serve(dataclasses.replace(SETTINGS, state=tmp_path, port=server.port))


def test_who_starts_a_server_does_not_import_large_libraries():
    imports = "import sys, rmft.endpoint_server.launch, rmft.endpoint_server.settings"
    code = f"{imports}; sys.exit(bool({{'torch', 'transformers', 'fastapi'}} & {{*sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, check=False).returncode == 0


def test_the_server_says_where_it_answers_unless_a_program_waits_for_the_announcement(tmp_path, capsys):
    engine = SimpleNamespace(start=lambda: None, stop=lambda: None, thread=SimpleNamespace(join=id))
    services = SimpleNamespace(
        generator=SimpleNamespace(engine=engine), jobs=SimpleNamespace(work=asyncio.Event().wait)
    )

    async def run(host: str, announce: Path | None) -> str:
        settings = SimpleNamespace(name="embedded", host=host, announce=announce)
        async with _background(services, settings, 8000):
            return capsys.readouterr().out

    assert "embedded at http://127.0.0.1:8000/v1; Ctrl-C" in asyncio.run(run("127.0.0.1", None))
    assert "http://[::1]:8000/v1" in asyncio.run(run("::1", None))
    assert asyncio.run(run("127.0.0.1", tmp_path / "announced")) == ""
