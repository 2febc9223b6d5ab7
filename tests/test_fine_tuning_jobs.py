"""Fine-tuning jobs over the OpenAI protocol: what is uploaded, and that one request is one job whatever happens.

The endpoint is our own server. On the way to it is a proxy that takes away what a vendor does not know of.
"""

import base64
import json
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import openai
import pytest

from rmft.endpoint.fine_tuning import (
    FineTuningRequest,
    Patience,
    cost_tokens,
    file_of,
    fine_tune,
    training_lines,
    validate,
)
from rmft.endpoint.journal import Journal, read_journal, usage_of
from rmft.errors import InputError
from rmft.params import load as load_params
from rmft.params.endpoint import FineTuningSettings

ROOT = Path(__file__).parents[1]
SETTINGS = FineTuningSettings(method="api", learning_rate_multiplier=1.8, epochs=2, batch_size=5)
CONTEXT = 1000


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def dialogue(*messages):
    return {"messages": [said("user", "Choose."), said("assistant", "Action: 1"), *messages]}


DIALOGUES = [dialogue(said("user", f"Reward: {i}."), said("assistant", "Action: 2")) for i in range(10)]


def with_line(line, *, place=3):
    return [*DIALOGUES[:place], line, *DIALOGUES[place:]]


# --- The file ---


def test_ten_dialogues_that_fit_are_accepted():
    validate(DIALOGUES, CONTEXT)


def test_nine_dialogues_are_too_few():
    with pytest.raises(InputError, match="9 conversations, at least 10"):
        validate(DIALOGUES[:9], CONTEXT)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ({}, "no messages"),
        ({"messages": []}, "no messages"),
        (["user", "Hi"], "no messages"),
        (dialogue(said("user", "Reward: 3.")), "take turns, and here are user, assistant, user"),
        (dialogue(said("assistant", "Action: 2")), "take turns, and here are user, assistant, assistant"),
        ({"messages": [said("system", "Play.")]}, "take turns"),
        (dialogue(said("system", "Play on."), said("assistant", "Yes.")), "take turns"),
        (dialogue(said("user", "Next."), said("tool", "Action: 2")), "take turns"),
        (dialogue("Next."), "message 3: it must have role and content"),
        (
            dialogue(said("user", "Next.", name="Anna"), said("assistant", "2")),
            "message 3: it must have role and content",
        ),
        (dialogue(said("user", None), said("assistant", "2")), "message 3: its content is no text"),
        (dialogue(said("user", ""), said("assistant", "2")), "message 3: its content is empty"),
        (dialogue(said("user", "Next."), said("assistant", "")), "message 4: its content is empty"),
        (dialogue(said("user", "Next."), said("assistant", "2", weight=0.5)), "message 4: weight is 0 or 1"),
        (dialogue(said("user", "Next.", weight=0), said("assistant", "2")), "message 3: weight is 0 or 1"),
        ({"messages": [said("user", "Choose."), said("assistant", "Hm?", weight=0)]}, "no assistant message is to be"),
        (dialogue(said("user", "x" * 4 * CONTEXT), said("assistant", "2")), "tokens, more than the model's context of"),
    ],
)
def test_a_line_that_an_endpoint_would_refuse_is_named_with_what_is_wrong(line, fault):
    with pytest.raises(InputError, match=f"line 4: .*{fault}"):
        validate(with_line(line), CONTEXT)


def test_a_system_message_may_open_a_dialogue_and_an_empty_reply_may_stand_where_it_is_not_learnt():
    opened = {"messages": [said("system", "Play."), *dialogue()["messages"]]}
    spoilt = dialogue(said("user", "Next."), said("assistant", "", weight=0))
    validate(with_line(opened), CONTEXT)
    validate(with_line(spoilt), CONTEXT)


def test_a_dialogue_may_be_as_long_as_the_context_and_no_longer():
    tokens = cost_tokens(DIALOGUES[:1])
    validate(DIALOGUES, tokens)
    with pytest.raises(InputError, match="line 1: about"):
        validate(DIALOGUES, tokens - 1)


def test_tokens_are_counted_by_four_characters_and_four_a_message():
    assert cost_tokens([{"messages": [said("user", "12345678"), said("assistant", "123456789")]}]) == (2 + 4) + (3 + 4)


def test_replies_that_say_nothing_valid_have_weight_0_and_what_they_leave_empty_is_left_out():
    lost = {"messages": [said("user", "Choose."), said("assistant", "Hm?", weight=0)], "scenario": 1, "ids": [1, 2]}
    mixed = {"messages": [*lost["messages"], said("user", "Next."), said("assistant", "Action: 2", weight=1)]}
    assert training_lines([lost, mixed]) == [
        {
            "messages": [
                said("user", "Choose."),
                said("assistant", "Hm?", weight=0),
                said("user", "Next."),
                said("assistant", "Action: 2"),
            ]
        }
    ]


def test_a_file_has_a_line_for_every_dialogue_and_no_line_end_within_one():
    text = file_of([dialogue(said("user", "one\ntwo\u2028three"), said("assistant", "Ümlaut")), *DIALOGUES])
    assert text.count("\n") == 11
    assert "Ümlaut" in text


# --- The request ---


def request(**changes):
    asked = {"endpoint": "here", "base": "embedded", "file": file_of(DIALOGUES), "settings": SETTINGS}
    return FineTuningRequest(**(asked | {"seed": 1, "suffix": "test", "key": "test/seed-0/iteration-1"} | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoint": "there"},
        {"base": "another"},
        {"file": file_of(DIALOGUES[::-1])},
        {"settings": SETTINGS.model_copy(update={"epochs": 3})},
        {"seed": 2},
        {"suffix": "other"},
        {"key": "test/seed-0/iteration-2"},
    ],
)
def test_a_request_that_differs_in_anything_is_another_one(changes):
    assert request(**changes).sha256 != request().sha256
    assert request(**changes).journal_key("job") != request().journal_key("job")


# --- The way to an endpoint ---

TOKEN = "sk-test-0123456789abcdef"
SECONDS = 120  # that a process or a request may take, at the very most
QUICK = Patience(attempts=8, first=0.05, most=0.4)
HTML = b"<html><body>Bad gateway</body></html>"


class Road:
    """A proxy that takes Idempotency-Key away, and does to requests what it is told: `with Road(url) as road`.

    faults: by method and the end of the path, what befalls requests to come, one after another: None, nothing. A status
    (with a code, in a pair) is answered in the endpoint's place. The endpoint's answer is cut off, in base64 (as OpenAI
    has it), or another page.
    A request that is held is not answered any more; the endpoint has been asked (after) or not (before).
    passed: how many requests the endpoint has had, and keys: of idempotency, of all that came; by method and path too.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.faults = defaultdict(list)
        self.passed = Counter()
        self.keys = defaultdict(list)
        self.held, self._over = threading.Event(), threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}{self.upstream.path}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        road = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.meet()

            def do_POST(self) -> None:
                self.meet()

            def meet(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                where = self.command, "/" + urlsplit(self.path).path.rpartition("/")[2]
                fault = road.faults[where].pop(0) if road.faults[where] else None
                road.keys[where].append(self.headers["Idempotency-Key"])
                if fault == "hold before":
                    return self.hold()
                if isinstance(fault, tuple):
                    status, code = fault
                    told = {"message": f"Not with {TOKEN}.", "type": "test", "param": None, "code": code}
                    return self.send(status, "application/json", json.dumps({"error": told}).encode())
                status, kind, answer = self.ask(body)
                road.passed[where] += 1
                if fault == "hold after":
                    return self.hold()
                if fault == "cut":
                    self.close_connection = True
                    return self.send(status, kind, answer[: len(answer) // 2], len(answer))
                if fault == "HTML":
                    return self.send(200, "text/html", HTML)
                return self.send(status, kind, base64.b64encode(answer) if fault == "base64" else answer)

            def ask(self, body: bytes) -> tuple[int, str, bytes]:
                onward = HTTPConnection(road.upstream.hostname, road.upstream.port, timeout=SECONDS)
                names = ("Content-Type", "Authorization", "Accept")
                headers = {name: self.headers[name] for name in names if name in self.headers}
                onward.request(self.command, self.path, body, headers)
                reply = onward.getresponse()
                answer = reply.read()
                onward.close()
                return reply.status, reply.headers["Content-Type"], answer

            def send(self, status: int, kind: str, body: bytes, length: int | None = None) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                self.wfile.write(body)

            def hold(self) -> None:
                road.held.set()
                road._over.wait()
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


SERVE = """
import sys
from pathlib import Path
from rmft.endpoint_server import ServerSettings, serve
from rmft.params.language import LanguageModelSettings, LanguageSFT

model, sft, token, state, port = sys.argv[1:]
serve(
    ServerSettings(
        model=LanguageModelSettings.parse(model),
        name="embedded",
        token=token,
        state=Path(state),
        sft=LanguageSFT.parse(sft),
        seed=0,
        port=int(port),
        announce=Path(state, "announced.json"),
    )
)
"""


class Server:
    """Our own server, around the embedded model: `with Server(folder) as server`."""

    def __init__(self, state: Path) -> None:
        self.state, self.port = state, 0

    def __enter__(self) -> Self:
        params = load_params(ROOT / "params.yaml")
        settings = [params.models["embedded"].canonical(), params.server.sft.canonical(), TOKEN, str(self.state)]
        self.process = subprocess.Popen([sys.executable, "-c", SERVE, *settings, str(self.port)], cwd=ROOT)
        begun, announced = time.monotonic(), self.state / "announced.json"
        while not announced.exists():
            assert self.process.poll() is None, "the server did not start"
            assert time.monotonic() - begun < SECONDS, "the server takes too long to start"
            time.sleep(0.05)
        self.port = json.loads(announced.read_text())["port"]
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(SECONDS)

    @property
    def url(self) -> str:
        """Return where it is."""
        return f"http://127.0.0.1:{self.port}/v1"

    def kill_and_start_again(self) -> None:
        """Kill it, and start it at the same port with what it has left."""
        self.process.kill()
        self.process.wait(SECONDS)
        (self.state / "announced.json").unlink()
        self.__enter__()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("state")) as one:
        yield one


@pytest.fixture
def road(server):
    with Road(server.url) as way:
        yield way


def client_of(url, key=TOKEN):
    return openai.OpenAI(base_url=url, api_key=key, timeout=SECONDS)


def tune(url, journal, asked, on_event=lambda _: None, *, key=TOKEN, **more):
    """Fine-tune at a URL, with a journal at a path."""
    with Journal.open(journal) as record, client_of(url, key) as client:
        return fine_tune(client, record, asked, on_event, patience=QUICK, **more)


def tune_in_a_process(url, journal, name):
    """Fine-tune in a process of its own."""
    call = f"from test_fine_tuning_jobs import *; tune({url!r}, Path({str(journal)!r}), request(key={name!r}))"
    return subprocess.Popen([sys.executable, "-c", call], cwd=Path(__file__).parent)


def stop_when_held(road, process, method, path, moment):
    """Kill a process when a request of its is held, before it has reached the endpoint or after."""
    road.faults[method, path] = [f"hold {moment}"]
    try:
        assert road.held.wait(SECONDS)
    finally:
        process.kill()
        process.wait()


class EnoughError(Exception):
    """Raised when the first news of a job comes in: no more is needed of it."""


def only_until_there_are_news(event):
    if "again in" not in event.message:
        raise EnoughError


def jobs_at(url, name):
    """Return the jobs that the endpoint has under a name."""
    with client_of(url) as client:
        return [job for job in client.fine_tuning.jobs.list() if job.metadata["rmft"] == name]


def stop(url, *jobs):
    with client_of(url) as client:
        for job in jobs:
            with suppress(openai.APIStatusError):  # it is over already
                client.fine_tuning.jobs.cancel(job.id)


# --- One request, one job ---


def test_a_job_comes_to_its_end_though_client_and_server_are_killed_and_every_request_meets_trouble(
    server, road, tmp_path
):
    journal, asked = tmp_path / "tuning.jsonl.zst", request(key="troubled")
    stop_when_held(road, tune_in_a_process(road.url, journal, asked.key), "GET", "/events", "before")

    troubles = [(503, None), "cut", "HTML", (429, "rate_limit_exceeded"), (408, None), (409, None)]
    on_the_way = [("GET", f"/{what}") for what in ("events", "content", "checkpoints")]
    for where in on_the_way:
        road.faults[where] = list(troubles)
    road.faults["GET", "/content"].append("base64")
    told = []

    def at_first_news_kill_the_server(event):
        told.append(event)
        if event.message.startswith("Created"):
            server.kill_and_start_again()

    tuned = tune(road.url, journal, asked, at_first_news_kill_the_server)
    assert not any(road.faults[where] for where in on_the_way)
    assert [(event.step, event.steps) for event in told if event.loss is not None] == [(i, 4) for i in (1, 2, 3, 4)]

    [job] = jobs_at(road.url, asked.key)
    assert road.passed["POST", "/jobs"] == 1
    assert (tuned.job, tuned.file, tuned.base, tuned.id) == (
        job.id,
        job.training_file,
        "embedded",
        job.fine_tuned_model,
    )
    assert tuned.trained_tokens == job.trained_tokens == usage_of([journal])["embedded"].trained > 0
    assert tuned.checkpoints == [{"step": 4, "model": tuned.id}]
    assert tuned.hyperparameters == {"n_epochs": 2, "batch_size": 5, "learning_rate_multiplier": 1.8}
    assert [(row["step"], row["epoch"]) for row in tuned.log] == [(1, 0.5), (2, 1), (3, 1.5), (4, 2)]
    assert all(row["loss"] > 0 and row["learning_rate"] > 0 for row in tuned.log)
    with client_of(road.url) as client:
        reply = client.chat.completions.create(model=tuned.id, messages=DIALOGUES[0]["messages"][:1], max_tokens=5)
    assert reply.model == tuned.id

    road.faults["GET", "/content"] = [(404, None)]
    found = tune(road.url, tmp_path / "another.jsonl.zst", asked)  # whose losses are taken from events
    assert found == replace(tuned, log=[row | {"learning_rate": None} for row in tuned.log])

    nowhere = "http://127.0.0.1:9/v1"
    assert tune(nowhere, journal, asked) == tuned
    assert TOKEN not in json.dumps(list(read_journal(journal)))


@pytest.mark.parametrize(
    ("path", "moment", "created"),
    [("/files", "after", False), ("/jobs", "before", False), ("/jobs", "after", True)],
    ids=["its file is not on record", "no job is created", "its job is not on record"],
)
def test_a_process_that_is_killed_is_gone_on_with_and_there_is_one_job(road, tmp_path, path, moment, created):
    journal, name = tmp_path / "tuning.jsonl.zst", f"killed {moment} {path}"
    stop_when_held(road, tune_in_a_process(road.url, journal, name), "POST", path, moment)
    before = jobs_at(road.url, name)
    with suppress(EnoughError):
        tune(road.url, journal, request(key=name), only_until_there_are_news)
    jobs = jobs_at(road.url, name)
    stop(road.url, *jobs)
    assert [job.id for job in before] == [job.id for job in jobs] * created
    assert len(jobs) == 1


def test_a_job_whose_answer_is_lost_is_found_and_not_created_again(road, tmp_path):
    road.faults["POST", "/files"] = [(503, None), "cut", "HTML"]
    road.faults["POST", "/jobs"] = [(503, None), "cut"]
    with suppress(EnoughError):
        tune(road.url, tmp_path / "tuning.jsonl.zst", request(key="answer lost"), only_until_there_are_news)
    jobs = jobs_at(road.url, "answer lost")
    stop(road.url, *jobs)
    assert len(jobs) == 1
    assert road.passed["POST", "/jobs"] == 1
    (upload, *uploads), (creation, *creations) = road.keys["POST", "/files"], road.keys["POST", "/jobs"]
    assert uploads == [upload] * 3
    assert creations == [creation]
    assert None not in (upload, creation)
    assert upload != creation


def test_a_job_is_found_though_its_journal_is_lost_and_goes_on_without_another_upload(road, tmp_path):
    for journal in ("one", "another"):
        with suppress(EnoughError):
            tune(road.url, tmp_path / journal, request(key="lost"), only_until_there_are_news)
    jobs = jobs_at(road.url, "lost")
    stop(road.url, *jobs)
    assert len(jobs) == 1
    assert road.passed["POST", "/files"] == 1


def test_a_cancelled_job_stays_cancelled_until_its_journal_is_deleted_and_then_there_is_a_new_one(server, tmp_path):
    journal, asked = tmp_path / "tuning.jsonl.zst", request(key="cancelled")

    def cancel(_):
        stop(server.url, *jobs_at(server.url, asked.key))

    for _ in range(2):
        with pytest.raises(InputError, match=f"was cancelled at the endpoint; to begin again, delete {journal}"):
            tune(server.url, journal, asked, cancel)
    assert len(jobs_at(server.url, asked.key)) == 1
    journal.unlink()
    with suppress(EnoughError):
        tune(server.url, journal, asked, only_until_there_are_news)
    jobs = jobs_at(server.url, asked.key)
    stop(server.url, *jobs)
    assert len(jobs) == 2


def test_a_failed_job_says_why(road, tmp_path):
    asked = request(key="failed", file=file_of(DIALOGUES[:9]))  # not validated
    with pytest.raises(InputError, match=r"failed: job ftjob.* failed: .*9 conversations.*; to begin again, delete"):
        tune(road.url, tmp_path / "tuning.jsonl.zst", asked)


# --- What no waiting helps ---


def test_a_wrong_key_is_a_line_without_the_key(road, tmp_path):
    with pytest.raises(InputError, match=r"here: looking for the job: the key is not accepted: set .*\(401") as stop:
        tune(road.url, tmp_path / "tuning.jsonl.zst", request(), key="sk-wrong-9876543210")
    assert "9876543210" not in str(stop.value)


def test_a_model_that_is_not_there_is_a_line_that_names_the_way_out(road, tmp_path):
    with pytest.raises(InputError, match=r"creating the job: it has no such model.* `rmft serve` .*nobody"):
        tune(road.url, tmp_path / "tuning.jsonl.zst", request(base="nobody"))


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ((403, None), "creating the job: the vendor may have closed .*2027-01-06.* `rmft serve`"),
        ((404, None), "creating the job: the vendor may have closed"),
        ((429, "insufficient_quota"), "creating the job: the key's quota is used up: raise it"),
        ((400, "invalid_value"), "creating the job: it refuses the request"),
    ],
)
def test_a_refusal_is_a_line_without_the_key(road, tmp_path, answer, line):
    road.faults["POST", "/jobs"] = [answer]
    with pytest.raises(InputError, match=line) as stop:
        tune(road.url, tmp_path / "tuning.jsonl.zst", request(key="refused"))
    assert f"({answer[0]}: Not with" in str(stop.value)
    assert TOKEN not in str(stop.value)
    assert "\n" not in str(stop.value)


def test_an_endpoint_that_stays_out_of_reach_is_given_up_after_so_many_attempts(road, tmp_path):
    road.faults["POST", "/files"] = [(503, None)] * 8
    with pytest.raises(InputError, match=r"uploading the training file: 503: .*, 8 times in a row; run again"):
        tune(road.url, tmp_path / "tuning.jsonl.zst", request(key="away"))


def test_a_job_that_would_cost_too_much_is_not_created(road, tmp_path):
    def refuse():
        raise InputError("too much")

    with pytest.raises(InputError, match="too much"):
        tune(road.url, tmp_path / "tuning.jsonl.zst", request(key="dear"), before_paying=refuse)
    assert not jobs_at(road.url, "dear")
