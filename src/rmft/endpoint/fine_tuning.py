"""Fine-tune a model whose weights are out of reach, by a job of an endpoint that speaks the OpenAI protocol: Section 6.

A request becomes one job, whatever happens on the way. What is about to be asked and every answer are in the journal
before they count. A job that was asked for, and whose answer was lost, is found among the endpoint's jobs: by our
request's hash, which it carries, or by its file, which is no other request's. No job is created before that search.

# ASSUME: an endpoint counts all tokens of a conversation as trained on, those of messages too. A token is
# CHARACTERS_A_TOKEN characters where it is not said otherwise, and a message costs TOKENS_A_MESSAGE more, for its role
# and its end.
"""

import base64
import binascii
import csv
import hashlib
import io
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import openai
from openai.pagination import SyncCursorPage
from openai.types import FileObject
from openai.types.fine_tuning import FineTuningJob, FineTuningJobEvent

from rmft.endpoint.budget import Usage
from rmft.endpoint.failures import BUSY, LONGEST_PAUSE, UNPAID, delay_asked, redacted
from rmft.errors import InputError
from rmft.params.endpoint import FineTuningSettings
from rmft.params.language import LEAST_LINES

if TYPE_CHECKING:
    from rmft.endpoint.journal import Journal

CHARACTERS_A_TOKEN, TOKENS_A_MESSAGE = 4.0, 4
FIELDS = {"role", "content", "weight"}  # of a message
LOG = ("step", "epoch", "loss", "learning_rate")  # columns of a training log

NAME, REQUEST = "rmft", "rmft_request"  # a job's metadata: what it is for, the hash of its request
ENDED_BADLY = ("failed", "cancelled")
PAGE = 100  # items of a list that are asked for at once
CLOSED = (
    "the vendor may have closed fine-tuning to your organisation (reported of OpenAI: to new ones since 2026-05, to all"
    " from 2027-01-06, and gpt-4o-mini itself on 2027-01-14); point base_urls at an endpoint that fine-tunes, e.g."
    " `rmft serve`"
)

NOTHING = Usage()

T = TypeVar("T")


# --- The file ---


def training_lines(demonstrations: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return demonstrations as conversations to train on; what says nothing worth learning as a whole is left out."""
    lines = [{"messages": list(map(_message, item["messages"]))} for item in demonstrations]
    return [line for line in lines if any(map(_learnt, line["messages"]))]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    said = {"role": message["role"], "content": message["content"]}
    return said if message.get("weight", 1) else {**said, "weight": 0}


def _learnt(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant" and message.get("weight", 1) != 0


def file_of(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a training file, a conversation a line."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def cost_tokens(lines: Iterable[Mapping[str, Any]], characters_per_token: float = CHARACTERS_A_TOKEN) -> int:
    """Return about how many tokens an epoch trains on."""
    lengths = (len(message["content"]) for line in lines for message in line["messages"])
    return sum(math.ceil(length / characters_per_token) + TOKENS_A_MESSAGE for length in lengths)


def validate(
    lines: Sequence[Mapping[str, Any]], context_tokens: int, characters_per_token: float = CHARACTERS_A_TOKEN
) -> None:
    """Raise InputError, naming the line, for what an endpoint would refuse after the upload, or cut."""
    if len(lines) < LEAST_LINES:
        advice = "raise rmft.scenarios or rmft.selected"
        raise InputError(f"training file: {len(lines)} conversations, at least {LEAST_LINES} are needed; {advice}")
    for number, line in enumerate(lines, start=1):
        if fault := _fault(line):
            raise InputError(f"training file: line {number}: {fault}")
        if (tokens := cost_tokens([line], characters_per_token)) > context_tokens:
            reason = f"about {tokens} tokens, more than the model's context of {context_tokens}"
            raise InputError(
                f"training file: line {number}: {reason}; take a shorter horizon T, or summary interaction"
            )


def _fault(line: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a conversation, if anything is."""
    messages = line.get("messages") if isinstance(line, Mapping) else None
    if not isinstance(messages, list) or not messages:
        return "no messages"
    for place, message in enumerate(messages, start=1):
        if fault := _fault_of_message(message):
            return f"message {place}: {fault}"
    spoken = messages[1:] if messages[0]["role"] in ("system", "developer") else messages
    roles = [message["role"] for message in spoken]
    if not roles or len(roles) % 2 or roles != ["user", "assistant"] * (len(roles) // 2):
        return f"after an opening system message user and assistant must take turns, and here are {', '.join(roles)}"
    return None if any(map(_learnt, messages)) else "no assistant message is to be learnt: all have weight 0"


def _fault_of_message(message: object) -> str | None:
    if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys() <= FIELDS:
        return "it must have role and content, and an assistant's may have weight, but nothing else"
    if not isinstance(message["content"], str):
        return "its content is no text"
    if message.get("weight", 1) not in (0, 1) or ("weight" in message and message["role"] != "assistant"):
        return "weight is 0 or 1, and an assistant's alone"
    if not message["content"] and (message["role"] != "assistant" or _learnt(message)):
        return "its content is empty"
    return None


# --- The request and what comes of it ---


@dataclass(frozen=True)
class FineTuningRequest:
    """A supervised fine-tuning job.

    endpoint: its name, of EndpointSettings. base: the model there. file: its text, jsonl. seed: 0 to 2³¹ - 1. suffix:
    of the new model's name, at most 64 characters. key: what the job is for (experiment, training seed, iteration).
    """

    endpoint: str
    base: str
    file: str
    settings: FineTuningSettings
    seed: int
    suffix: str
    key: str

    @cached_property
    def described(self) -> dict[str, Any]:
        """Return all of it, with the file's hash in its place."""
        file = hashlib.sha256(self.file.encode()).hexdigest()
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**plain, "file": file, "settings": self.settings.model_dump()}

    @cached_property
    def sha256(self) -> str:
        """Return the hash of all of it."""
        return self._hash()

    def journal_key(self, step: str) -> str:
        """Return the key under which a step on the way has its place in the journal."""
        return self._hash(step)

    def _hash(self, *words: str) -> str:
        return hashlib.sha256(json.dumps([self.described, *words], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class TunedModel:
    """A model that a job made.

    id: its name at the endpoint. file: that it was trained on, there. trained_tokens: that were charged, if it is said.
    checkpoints: models along the way, each with `step` and `model`. hyperparameters: as the endpoint took them.
    log: a row a step, its columns LOG, of which the learning rate may be None.
    """

    id: str
    job: str
    file: str
    base: str
    trained_tokens: int | None
    checkpoints: list[dict[str, Any]]
    hyperparameters: dict[str, Any]
    log: list[dict[str, float | None]]


@dataclass(frozen=True)
class JobEvent:
    """Something to tell of a job under way.

    step, of how many steps, and its loss: of a step that is over. estimated_finish: the job's, in seconds since 1970.
    """

    level: str
    message: str
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    estimated_finish: int | None = None


@dataclass(frozen=True)
class Patience:
    """How trouble that passes is met, and news waited for: after pauses that double from `first` to `most` seconds.

    attempts: failures in a row after which we give up, None for never.
    """

    attempts: int | None = 20
    first: float = 2.0
    most: float = 30.0

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        return min(self.first * 2.0 ** min(failures - 1, 30), self.most)


def fine_tune(
    client: openai.OpenAI,
    journal: "Journal",
    request: FineTuningRequest,
    on_event: Callable[[JobEvent], object],
    before_paying: Callable[[], object] = lambda: None,
    patience: Patience = Patience(),
) -> TunedModel:
    """Fine-tune, or go on where an earlier call was stopped, at whatever moment that was; what is done costs no call.

    on_event: told all events of the job, from its first one, and of trouble that is waited out. before_paying: called
    before a job is created, to refuse it, by InputError, where it would cost too much. Raise InputError where no
    waiting helps: the key is refused, the endpoint does not fine-tune, the job failed or was cancelled.
    """
    if done := recorded(journal, request):
        return done
    run = _Run(client.with_options(max_retries=0), journal, request, on_event, before_paying, patience)
    tuned = run.follow(run.job())
    run.record("model", asdict(tuned), Usage(trained=tuned.trained_tokens or 0))
    return tuned


def recorded(journal: "Journal", request: FineTuningRequest) -> TunedModel | None:
    """Return what an earlier call has come to, if one has."""
    done = journal.answer(request.journal_key("model"))
    return TunedModel(**done) if done else None


class _MalformedError(Exception):
    """An answer that came whole, and is not what the protocol says."""


@dataclass(frozen=True)
class _Run:
    """A request on its way."""

    client: openai.OpenAI
    journal: "Journal"
    request: FineTuningRequest
    on_event: Callable[[JobEvent], object]
    before_paying: Callable[[], object]
    patience: Patience

    def recorded(self, step: str) -> dict[str, Any] | None:
        return self.journal.answer(self.request.journal_key(step))

    def record(self, step: str, answer: dict[str, Any], usage: Usage = NOTHING) -> dict[str, Any]:
        asked = {"model": self.request.base, "step": step, "fine_tuning": self.request.described}
        self.journal.record(self.request.journal_key(step), asked, answer, usage)
        return answer

    # --- To one job ---

    def job(self) -> str:
        """Return the id of the request's job, which is created if it is not there yet."""
        if job := self.recorded("job"):
            return job["id"]
        over = self._passed_over()
        file = self.recorded("file")
        if file:  # a killed process may have asked for the job: what it sent may still be on its way
            time.sleep(self.patience.first)
        found = self._ask("looking for the job", partial(self._find, file and file["id"], over))
        if not found:
            file = file or self.record("file", {"id": self._ask("uploading the training file", self._upload).id})
            found = self._ask(
                "creating the job", lambda: self._find(file["id"], over) or self._create(file["id"], over)
            )
        return self.record("job", {"id": found.id, "file": found.training_file})["id"]

    def _passed_over(self) -> list[str]:
        """Return earlier jobs of this request that ended badly, after which it was begun again: before anything is."""
        if intent := self.recorded("intent"):
            return intent["passed_over"]
        mine = self._ask("looking for the job", lambda: list(self._jobs(None)))
        over = [job.id for job in mine if job.status in ENDED_BADLY]
        return self.record("intent", {"passed_over": over})["passed_over"]

    def _jobs(self, file: str | None) -> Iterator[FineTuningJob]:
        """Yield the endpoint's jobs that are this request's."""
        for job in _items(self.client.fine_tuning.jobs.list):
            if (job.metadata or {}).get(REQUEST) == self.request.sha256 or (file and job.training_file == file):
                yield _whole_job(job)

    def _find(self, file: str | None, over: list[str]) -> FineTuningJob | None:
        return next((job for job in self._jobs(file) if job.id not in over), None)

    def _upload(self) -> FileObject:
        # Without an answer it is sent again: twice the same file costs nothing, and only one is used.
        file = self.client.files.create(
            file=(f"rmft-{self.request.sha256[:16]}.jsonl", self.request.file.encode(), "application/jsonl"),
            purpose="fine-tune",
            extra_headers={"Idempotency-Key": self.request.journal_key("file")},
        )
        if not isinstance(file, FileObject) or not isinstance(file.id, str):
            raise _MalformedError("the answer is no file")
        return file

    def _create(self, file: str, over: list[str]) -> FineTuningJob:
        settings = self.request.settings
        asked = {
            "n_epochs": settings.epochs,
            "batch_size": settings.batch_size,
            "learning_rate_multiplier": settings.learning_rate_multiplier,
        }
        hyperparameters = {name: value for name, value in asked.items() if value is not None}
        self.before_paying()
        job = self.client.fine_tuning.jobs.create(
            model=self.request.base,
            training_file=file,
            method={"type": "supervised", "supervised": {"hyperparameters": hyperparameters}},
            seed=self.request.seed,
            suffix=self.request.suffix,
            metadata={NAME: self.request.key, REQUEST: self.request.sha256},
            extra_headers={"Idempotency-Key": self.request.journal_key(f"job {len(over)}")},
        )
        return _whole_job(job)

    # --- To its end ---

    def follow(self, job: str) -> TunedModel:
        """Tell of a job until it is over, and return what it made."""
        lost = f"it knows no such job: it is another endpoint, or has lost it; {self._anew}"
        seen: dict[str, FineTuningJobEvent] = {}
        idle = 0
        while True:
            now = self._ask(f"following job {job}", lambda: _whole_job(self._jobs_api.retrieve(job)), lost)
            new = self._ask(f"following job {job}", partial(self._new_events, job, seen), lost)
            for event in new:
                self.on_event(_told(event, now.estimated_finish))
            seen |= {event.id: event for event in new}
            if now.status == "succeeded":
                return self._tuned(now, list(seen.values()))
            if now.status in ENDED_BADLY:
                raise InputError(self._ended_badly(now))
            idle = 1 if new else idle + 1
            time.sleep(self.patience.pause(idle))

    @property
    def _jobs_api(self) -> openai.resources.fine_tuning.Jobs:
        return self.client.fine_tuning.jobs

    @property
    def _anew(self) -> str:
        return f"to begin again, delete {self.journal.path} and run again"

    def _new_events(self, job: str, seen: Mapping[str, FineTuningJobEvent]) -> list[FineTuningJobEvent]:
        """Return the events after those seen, in the order in which they happened; lists begin with the last one."""
        new = []
        for event in _items(partial(self._jobs_api.list_events, job)):
            if event.id in seen:
                break
            new.append(event)
        return new[::-1]

    def _ended_badly(self, job: FineTuningJob) -> str:
        if job.status == "cancelled":
            return f"fine-tuning {self.request.key}: job {job.id} was cancelled at the endpoint; {self._anew}"
        reason = self._one_line(job.error.message if job.error and job.error.message else "it gives no reason")
        return f"fine-tuning {self.request.key}: job {job.id} failed: {reason}; {self._anew}"

    def _tuned(self, job: FineTuningJob, events: list[FineTuningJobEvent]) -> TunedModel:
        supervised = job.method.supervised if job.method else None
        taken = (supervised.hyperparameters if supervised else None) or job.hyperparameters
        hyperparameters = taken.to_dict(mode="json") if taken else {}
        epochs = hyperparameters.get("n_epochs")
        losses = self._ask("reading the losses", lambda: self._losses(job)) or list(_losses_told(events))
        return TunedModel(
            id=job.fine_tuned_model,
            job=job.id,
            file=job.training_file,
            base=job.model,
            trained_tokens=job.trained_tokens,
            checkpoints=self._ask("reading the checkpoints", lambda: self._checkpoints(job.id)),
            hyperparameters=hyperparameters,
            log=_log(losses, epochs if isinstance(epochs, int) else self.request.settings.epochs or 1),
        )

    def _losses(self, job: FineTuningJob) -> list[tuple[int, float, float | None]]:
        """Return steps, losses and, if they are there, learning rates of the job's results, if there are any."""
        for file in job.result_files or []:
            content = _unless_missing(lambda file=file: self.client.files.content(file).content)
            if found := list(_losses_in(content or b"")):
                return found
        return []

    def _checkpoints(self, job: str) -> list[dict[str, Any]]:
        found = _unless_missing(lambda: list(_items(partial(self._jobs_api.checkpoints.list, job)))) or []
        named = [{"step": one.step_number, "model": one.fine_tuned_model_checkpoint} for one in found]
        return sorted(named, key=lambda one: one["step"])

    # --- Asking ---

    def _ask(self, doing: str, call: Callable[[], T], refused: str = CLOSED) -> T:
        """Call until there is an answer; raise InputError for one that another call will not change.

        refused: what it means that there is no such thing there, or not for us.
        """
        failures = 0
        while True:
            try:
                return call()
            except openai.APIStatusError as error:
                trouble, wait = self._reason(error), delay_asked(error.response.headers) or 0.0
                if advice := _advice(error, refused):
                    raise InputError(f"{self.request.endpoint}: {doing}: {advice} ({trouble})") from None
            except (json.JSONDecodeError, UnicodeDecodeError):
                trouble, wait = "the answer cannot be read", 0.0
            except (openai.APIError, _MalformedError) as error:
                trouble, wait = self._one_line(error), 0.0
            failures += 1
            if failures == self.patience.attempts:
                raise InputError(
                    f"{self.request.endpoint}: {doing}: {trouble}, {failures} times in a row;"
                    " run again when it can be reached: nothing is lost, and no job is created twice"
                )
            pause = max(self.patience.pause(failures), min(wait, LONGEST_PAUSE))
            self.on_event(JobEvent("warn", f"{doing}: {trouble}; again in {pause:.0f} s"))
            time.sleep(pause)

    def _reason(self, error: openai.APIStatusError) -> str:
        said = error.body.get("message") if isinstance(error.body, dict) else None
        return f"{error.status_code}: {self._one_line(said)}" if said else f"status {error.status_code}"

    def _one_line(self, text: object) -> str:
        """Return what an endpoint says as one line in which our key is not."""
        return " ".join(redacted(str(text), self.client.api_key).split())[:300].rstrip(".")


def _advice(error: openai.APIStatusError, refused: str) -> str | None:
    """Return what to do about an answer that will not change, None if it may."""
    status = error.status_code
    if UNPAID & {error.code, error.type}:
        return "the key's quota is used up: raise it at the endpoint and run again"
    if status == 401:
        return "the key is not accepted: set the environment variable that api_key names"
    if error.code == "model_not_found":
        return f"it has no such model to fine-tune: correct `model`; or {refused}"
    if status in (403, 404, 405, 501):
        return refused
    if status == 413:
        return "the training file is too large: select fewer demonstrations"
    return None if status in BUSY or status >= 500 else "it refuses the request"


# --- Reading answers ---


def _whole_job(job: FineTuningJob) -> FineTuningJob:
    """Return the job, if it says what is needed of one."""
    if not isinstance(job, FineTuningJob) or not isinstance(job.id, str) or not isinstance(job.status, str):
        raise _MalformedError("the answer is no job")
    if job.status == "succeeded" and not job.fine_tuned_model:
        raise _MalformedError("the job has succeeded and names no model")
    return job


def _items(call: Callable[..., SyncCursorPage[T]]) -> Iterator[T]:
    """Yield the items of all pages of a list."""
    after: dict[str, str] = {}
    while True:
        try:
            page = call(limit=PAGE, **after)
        except AttributeError:  # what the client makes of a page that is not JSON
            raise _MalformedError("the answer is no list") from None
        if not isinstance(page.data, list) or not all(isinstance(item.id, str) for item in page.data):
            raise _MalformedError("the answer is no list")
        yield from page.data
        full = len(page.data) == PAGE
        if not page.data or not (full if page.has_more is None else page.has_more):
            return
        after = {"after": page.data[-1].id}


def _unless_missing(call: Callable[[], T]) -> T | None:
    """Return what an endpoint need not have."""
    try:
        return call()
    except openai.NotFoundError:
        return None


def _told(event: FineTuningJobEvent, estimated_finish: int | None) -> JobEvent:
    data = event.data if isinstance(event.data, dict) else {}
    numbers = (data.get("step"), data.get("total_steps"), data.get("train_loss"))
    return JobEvent(event.level, event.message, *numbers, estimated_finish)


def _losses_told(events: Iterable[FineTuningJobEvent]) -> Iterator[tuple[int, float, float | None]]:
    for event in events:
        told = _told(event, None)
        if told.step is not None and told.loss is not None:
            yield told.step, told.loss, None


def _losses_in(content: bytes) -> Iterator[tuple[int, float, float | None]]:
    """Yield what a file of results says of every step; OpenAI wraps it in base64."""
    if content.lstrip().startswith((b"<", b"{")):
        raise _MalformedError("the answer is no file of results")
    if b"," not in content:
        with suppress(binascii.Error):
            content = base64.b64decode(content)
    for row in csv.DictReader(io.StringIO(content.decode())):
        if row.get("step") and row.get("train_loss"):
            rate = row.get("learning_rate")
            try:
                yield int(float(row["step"])), float(row["train_loss"]), float(rate) if rate else None
            except ValueError:
                raise _MalformedError("the answer is no file of results") from None


def _log(losses: list[tuple[int, float, float | None]], epochs: int) -> list[dict[str, float | None]]:
    """Return the rows of a training log; steps are taken to be equal parts of the epochs, as they are in sft.py."""
    last = max((step for step, *_ in losses), default=0)
    rows = ((step, epochs * step / last, loss, rate) for step, loss, rate in sorted(losses))
    return [dict(zip(LOG, row, strict=True)) for row in rows]
