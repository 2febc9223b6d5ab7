"""Fine-tuning jobs over the OpenAI protocol: one request is one job, whatever happens.

The endpoint is our own server, behind a proxy that removes the Idempotency-Key, which vendors ignore.
"""

import base64
import json
import re
import shutil
import subprocess
import sys
import threading
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
from endpoint_games import SETTINGS as ENDPOINT
from endpoint_servers import TOKEN, Server
from test_training_file import DIALOGUES

from rmft.endpoint.access import Endpoint
from rmft.endpoint.budget import SpendingLimit
from rmft.endpoint.fine_tuning import FineTuningRequest, RetryPolicy, TunedModel, fine_tune
from rmft.endpoint.journal import Journal, read_journal, usage_of
from rmft.endpoint.session import fine_tune_at_endpoint
from rmft.endpoint.training_file import as_text
from rmft.endpoint_server import launch
from rmft.errors import InputError
from rmft.params.endpoint import FineTuningSettings

pytestmark = pytest.mark.xdist_group("endpoint")
SETTINGS = FineTuningSettings(method="api", learning_rate_multiplier=1.8, epochs=2, batch_size=5)
# --- The request ---


def request(**changes):
    wanted = {"endpoint": "here", "base": "embedded", "file": as_text(DIALOGUES), "settings": SETTINGS}
    return FineTuningRequest(**(wanted | {"seed": 1, "suffix": "test", "key": "test/seed-0/iteration-1"} | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoint": "there"},
        {"base": "another"},
        {"file": as_text(DIALOGUES[::-1])},
        {"settings": SETTINGS.model_copy(update={"epochs": 3})},
        {"seed": 2},
        {"suffix": "other"},
        {"key": "test/seed-0/iteration-2"},
    ],
)
def test_a_request_that_differs_in_anything_is_another_one(changes):
    assert request(**changes).digest() != request().digest()
    assert request(**changes).digest("job") != request().digest("job")


# --- The way to an endpoint ---

SECONDS = 120  # that a process or a request may take at most
QUICK = RetryPolicy(attempts=8, first=0.05, longest=0.1)
HTML = b"<html><body>Bad gateway</body></html>"


class Proxy:
    """A proxy that removes Idempotency-Key and injects faults: `with Proxy(url) as proxy`.

    faults: by method and end of the path, the faults of the next requests, None for no fault. A pair of status and code
    is sent in place of a response. The endpoint's response may be cut off, sent in base64 (as at OpenAI), or replaced
    by HTML, or by an empty list. A request that is held gets no response; it has reached the endpoint (after) or not
    (before).
    passed: requests that reached the endpoint. keys: idempotency keys of all requests. Both by method and path.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.faults = defaultdict(list)
        self.passed = Counter()
        self.keys = defaultdict(list)
        self.held, self._over = threading.Event(), threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Relay,), {"proxy": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}{self.upstream.path}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


class _Relay(BaseHTTPRequestHandler):
    """Handle the requests of one connection."""

    proxy: Proxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.handle_request()

    def do_POST(self) -> None:
        self.handle_request()

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        where = self.command, "/" + urlsplit(self.path).path.rpartition("/")[2]
        fault = self.proxy.faults[where].pop(0) if self.proxy.faults[where] else None
        self.proxy.keys[where].append(self.headers["Idempotency-Key"])
        if fault == "hold before":
            return self.hold()
        if isinstance(fault, tuple):
            status, code = fault
            error = {"message": f"Not with {TOKEN}.", "type": "test", "param": None, "code": code}
            return self.send(status, "application/json", json.dumps({"error": error}).encode())
        status, kind, response = self.forward(body)
        self.proxy.passed[where] += 1
        if fault == "hold after":
            return self.hold()
        if fault == "cut":
            self.close_connection = True
            return self.send(status, kind, response[: len(response) // 2], len(response))
        if fault == "HTML":
            return self.send(200, "text/html", HTML)
        if fault == "empty list":
            return self.send(200, kind, b'{"object": "list", "data": [], "has_more": false}')
        return self.send(status, kind, base64.b64encode(response) if fault == "base64" else response)

    def forward(self, body: bytes) -> tuple[int, str, bytes]:
        onward = HTTPConnection(self.proxy.upstream.hostname, self.proxy.upstream.port, timeout=SECONDS)
        names = ("Content-Type", "Authorization", "Accept")
        headers = {name: self.headers[name] for name in names if name in self.headers}
        onward.request(self.command, self.path, body, headers)
        response = onward.getresponse()
        content = response.read()
        onward.close()
        return response.status, response.headers["Content-Type"], content

    def send(self, status: int, kind: str, body: bytes, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def hold(self) -> None:
        self.proxy.held.set()
        self.proxy._over.wait()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy(server):
    with Proxy(f"{server.url}/v1") as one:
        yield one


def client_of(url, key=TOKEN):
    return openai.OpenAI(base_url=url, api_key=key, timeout=SECONDS)


def tune(url, journal, wanted, on_event=lambda _: None, *, key=TOKEN, **more):
    """Fine-tune at a URL, with a journal at a path."""
    with Journal.open(journal) as record, client_of(url, key) as client:
        return fine_tune(client, record, wanted, on_event, retry_policy=QUICK, **more)


def tune_in_a_process(url, journal, name):
    """Fine-tune in a process of its own."""
    call = f"from test_fine_tuning_jobs import *; tune({url!r}, Path({str(journal)!r}), request(key={name!r}))"
    return subprocess.Popen([sys.executable, "-c", call], cwd=Path(__file__).parent)


def stop_when_held(proxy, process, method, path, moment):
    """Kill a process when a request of its is held, before it has reached the endpoint or after."""
    proxy.faults[method, path] = [f"hold {moment}"]
    try:
        assert proxy.held.wait(SECONDS)
    finally:
        process.kill()
        process.wait()


class EnoughError(Exception):
    """Raised at the first event of a job, where no more of it is needed."""


def stop_at_first_event(message):
    if "again in" not in message:
        raise EnoughError


def jobs_at(url, name):
    """Return the jobs that the endpoint has under a name."""
    with client_of(url) as client:
        return [job for job in client.fine_tuning.jobs.list() if (job.metadata or {}).get("rmft") == name]


def stop(url, *jobs):
    with client_of(url) as client:
        for job in jobs:
            with suppress(openai.APIStatusError):  # it is over already
                client.fine_tuning.jobs.cancel(job.id)


# --- One request, one job ---


def test_a_job_comes_to_its_end_though_the_client_stops_and_every_request_meets_faults(proxy, tmp_path):
    journal, wanted = tmp_path / "tuning.jsonl.zst", request(key="faulty")
    with pytest.raises(EnoughError):
        tune(proxy.url, journal, wanted, stop_at_first_event, expected_tokens=12345)
    assert usage_of([journal])["embedded"].trained == 12345  # other jobs leave room for it
    faults = [(503, None), "cut", "HTML", (429, "rate_limit_exceeded"), (408, None), (409, None)]
    paths = [("GET", f"/{name}") for name in ("events", "content", "checkpoints")]
    for path in paths:
        proxy.faults[path] = list(faults)
    proxy.faults["GET", "/content"].append("base64")
    events = []
    tuned = tune(proxy.url, journal, wanted, events.append)
    assert not any(proxy.faults[path] for path in paths)
    assert [event.split(":")[0] for event in events if "training loss=" in event] == [
        f"Step {i}/4" for i in (1, 2, 3, 4)
    ]

    [job] = jobs_at(proxy.url, wanted.key)
    assert proxy.passed["POST", "/jobs"] == 1
    expected = (job.id, job.training_file, "embedded", job.fine_tuned_model)
    assert (tuned.job, tuned.file, tuned.base, tuned.id) == expected
    assert tuned.trained_tokens == job.trained_tokens == usage_of([journal])["embedded"].trained > 0
    assert tuned.checkpoints == [{"step": 4, "model": tuned.id}]
    assert tuned.hyperparameters == {"n_epochs": 2, "batch_size": 5, "learning_rate_multiplier": 1.8}
    assert [(row["step"], row["epoch"]) for row in tuned.log] == [(1, 0.5), (2, 1), (3, 1.5), (4, 2)]
    assert all(row["loss"] > 0 and row["learning_rate"] > 0 for row in tuned.log)

    proxy.faults["GET", "/content"] = [(404, None)]
    found = tune(proxy.url, tmp_path / "another.jsonl.zst", wanted)  # whose losses are taken from events
    assert found == replace(tuned, log=[row | {"learning_rate": None} for row in tuned.log])

    nowhere = "http://127.0.0.1:9/v1"
    assert tune(nowhere, journal, wanted) == tuned
    assert TOKEN not in json.dumps(list(read_journal(journal)))


@pytest.mark.parametrize(
    ("path", "moment", "created"),
    [("/files", "after", False), ("/jobs", "before", False), ("/jobs", "after", True)],
    ids=["its file is not on record", "no job is created", "its job is not on record"],
)
def test_a_process_that_is_killed_is_gone_on_with_and_there_is_one_job(proxy, tmp_path, path, moment, created):
    journal, name = tmp_path / "tuning.jsonl.zst", f"killed {moment} {path}"
    stop_when_held(proxy, tune_in_a_process(proxy.url, journal, name), "POST", path, moment)
    before = jobs_at(proxy.url, name)
    with suppress(EnoughError):
        tune(proxy.url, journal, request(key=name), stop_at_first_event)
    jobs = jobs_at(proxy.url, name)
    stop(proxy.url, *jobs)
    assert [job.id for job in before] == [job.id for job in jobs] * created
    assert len(jobs) == 1


def test_a_job_whose_answer_is_lost_is_found_and_not_created_again(proxy, tmp_path):
    proxy.faults["POST", "/files"] = [(503, None), "cut", "HTML"]
    proxy.faults["POST", "/jobs"] = [(503, None), "cut"]
    with suppress(EnoughError):
        tune(proxy.url, tmp_path / "tuning.jsonl.zst", request(key="answer lost"), stop_at_first_event)
    jobs = jobs_at(proxy.url, "answer lost")
    stop(proxy.url, *jobs)
    assert len(jobs) == 1
    assert proxy.passed["POST", "/jobs"] == 1
    (upload, *uploads), (creation, *creations) = proxy.keys["POST", "/files"], proxy.keys["POST", "/jobs"]
    assert uploads == [upload] * 3
    assert creations == [creation]
    assert None not in (upload, creation)
    assert upload != creation


def test_a_job_whose_answer_is_lost_is_found_though_the_endpoint_lists_it_late(proxy, tmp_path):
    proxy.faults["POST", "/jobs"] = ["HTML"]
    proxy.faults["GET", "/jobs"] = [None, None, "empty list", "empty list"]  # two looks before the job, two after it
    with suppress(EnoughError):
        tune(proxy.url, tmp_path / "tuning.jsonl.zst", request(key="listed late"), stop_at_first_event)
    stop(proxy.url, *jobs_at(proxy.url, "listed late"))
    assert proxy.passed["POST", "/jobs"] == 1


def test_a_job_is_found_though_its_journal_is_lost_and_goes_on_without_another_upload(proxy, tmp_path):
    for journal in ("one", "another"):
        with suppress(EnoughError):
            tune(proxy.url, tmp_path / journal, request(key="lost"), stop_at_first_event)
    jobs = jobs_at(proxy.url, "lost")
    stop(proxy.url, *jobs)
    assert len(jobs) == 1
    assert proxy.passed["POST", "/files"] == 1


def test_a_cancelled_job_stays_cancelled_until_its_journal_is_gone_and_then_there_is_a_new_one(server, tmp_path):
    journal, wanted = tmp_path / "tuning.jsonl.zst", request(key="cancelled")

    url = f"{server.url}/v1"

    def cancel(_):
        stop(url, *jobs_at(url, wanted.key))

    for _ in range(2):
        with pytest.raises(
            InputError, match=rf"was cancelled at the endpoint; .*run `mv {journal} \S+-tuning\.jsonl\.zst;"
        ):
            tune(url, journal, wanted, cancel)
    assert len(jobs_at(url, wanted.key)) == 1
    journal.unlink()
    with suppress(EnoughError):
        tune(url, journal, wanted, stop_at_first_event)
    jobs = jobs_at(url, wanted.key)
    stop(url, *jobs)
    assert len(jobs) == 2


def test_a_failed_job_says_why(proxy, tmp_path):
    wanted = request(key="failed", file=as_text(DIALOGUES[:9]))  # not validated
    with pytest.raises(InputError, match=r"failed: job ftjob.* failed: .*9 conversations.*; to begin again, run `mv "):
        tune(proxy.url, tmp_path / "tuning.jsonl.zst", wanted)


@pytest.mark.long
def test_what_our_own_server_has_lost_is_made_again_under_its_name_once_the_server_is_needed(tmp_path, monkeypatch):
    state, messages = tmp_path / "own-server-of-embedded", []
    own = ENDPOINT.model_copy(update={"base_urls": [], "serves": "embedded", "model": "embedded"})
    monkeypatch.setattr(launch, "STATE", tmp_path)

    def tuned(base: str = "embedded", url: str = "http://127.0.0.1:9", words: str = "lost/iteration-1") -> TunedModel:
        with Journal.open(tmp_path / words.replace("/", "-")) as journal:
            endpoint = Endpoint(own, lambda: ([f"{url}/v1"], TOKEN), journal, SpendingLimit(None, {}))
            return fine_tune_at_endpoint(endpoint, DIALOGUES, base, SETTINGS, 0, words, messages.append)

    with Server(state) as server:
        first = tuned(url=server.url)
    shutil.rmtree(state)
    assert tuned() == first  # from the journal, without a server
    with Server(state) as server:
        lost = re.escape(f"no model {first.id!r} any more; if .rmft was deleted, fine-tune what was in it again: rm $(")
        with pytest.raises(InputError, match=rf"{lost}.*'\"ft:embedded:' results\); snakemake$"):
            tuned(first.id, server.url, "lost/iteration-2")
        assert not any("has lost" in message for message in messages)
        assert tuned(url=server.url) == first
        assert any(f"has lost {first.id}, and fine-tunes it again" in message for message in messages)
        assert first.id in [model.id for model in server.client.models.list()]
        assert tuned() == first
        server.client.models.delete(first.id)  # whose job the server still has
        again = tuned(url=server.url)
        assert again.id != first.id
        assert again.id in [model.id for model in server.client.models.list()]
        assert tuned(url=server.url) == again


# --- What no waiting helps ---


def test_a_wrong_key_is_a_line_without_the_key(proxy, tmp_path):
    with pytest.raises(InputError, match=r"here: looking for the job: the key is not accepted: set .*\(401") as stop:
        tune(proxy.url, tmp_path / "tuning.jsonl.zst", request(), key="sk-wrong-9876543210")
    assert "9876543210" not in str(stop.value)


def test_a_model_that_is_not_there_is_a_line_that_names_the_way_out(proxy, tmp_path):
    with pytest.raises(InputError, match=r"creating the job: it has no such model.* `rmft serve` .*nobody"):
        tune(proxy.url, tmp_path / "tuning.jsonl.zst", request(base="nobody"))


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ((403, None), "creating the job: the vendor may have closed .*2027-01-06.* `rmft serve`"),
        ((404, None), "creating the job: the vendor may have closed"),
        ((429, "insufficient_quota"), "creating the job: the key's quota is used up: raise it"),
        ((400, "invalid_value"), "creating the job: it refuses the request"),
    ],
)
def test_a_refusal_is_a_line_without_the_key(proxy, tmp_path, answer, line):
    proxy.faults["POST", "/jobs"] = [answer]
    with pytest.raises(InputError, match=line) as stop:
        tune(proxy.url, tmp_path / "tuning.jsonl.zst", request(key="refused"))
    assert f"({answer[0]}: Not with" in str(stop.value)
    assert TOKEN not in str(stop.value)
    assert "\n" not in str(stop.value)


def test_an_endpoint_that_stays_out_of_reach_is_given_up_after_so_many_attempts(proxy, tmp_path):
    proxy.faults["POST", "/files"] = [(503, None)] * 8
    with pytest.raises(InputError, match=r"uploading the training file: 503: .*, 8 times in a row; run again"):
        tune(proxy.url, tmp_path / "tuning.jsonl.zst", request(key="away"))


def test_a_job_that_would_cost_too_much_is_not_created(proxy, tmp_path):
    def refuse():
        raise InputError("too much")

    with pytest.raises(InputError, match="too much"):
        tune(proxy.url, tmp_path / "tuning.jsonl.zst", request(key="dear"), before_paying=refuse)
    assert not jobs_at(proxy.url, "dear")
