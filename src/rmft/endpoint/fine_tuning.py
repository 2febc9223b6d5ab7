"""Fine-tune a model behind an endpoint with a job of the OpenAI protocol (Section 6).

A request becomes exactly one job. Every step is in the journal before the next one begins. If the response to a job's
creation was lost, the job is found among the endpoint's jobs: by the hash of our request, which is in its metadata, or
by its training file, which no other request uses. A job is created only after this search has found none; where a
request for the job may have arrived already, the search is repeated for a while, since an endpoint may list it late.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import openai
from openai.types import FileObject
from openai.types.fine_tuning import FineTuningJob, FineTuningJobEvent

from rmft.artifacts.here import move_away
from rmft.endpoint.budget import Usage
from rmft.endpoint.failures import LONGEST_PAUSE, MalformedError, redacted, requested_delay
from rmft.endpoint.fine_tuning_responses import (
    Loss,
    advice,
    checked_job,
    list_items,
    losses_in_events,
    losses_in_file,
    training_log,
    unless_missing,
)
from rmft.errors import InputError
from rmft.params.endpoint import FineTuningSettings

if TYPE_CHECKING:
    from rmft.endpoint.journal import Journal

NAME, REQUEST = "rmft", "rmft_request"  # a job's metadata: what it is for, and the hash of its request
ENDED_BADLY = ("failed", "cancelled")
CLOSED = (
    "the vendor may have closed fine-tuning to your organisation (reported of OpenAI: to new ones since 2026-05, to all"
    " from 2027-01-06, and gpt-4o-mini itself on 2027-01-14); point base_urls at an endpoint that fine-tunes, e.g."
    " `rmft serve`"
)

T = TypeVar("T")


@dataclass(frozen=True)
class FineTuningRequest:
    """A supervised fine-tuning job. The fields are hashed under these names: renaming one changes all requests.

    endpoint: its name, see EndpointSettings. base: the model's id there. file: the text of the training file. seed: 0
    to 2³¹ - 1. suffix: of the new model's name, at most 64 characters. key: the purpose of the job: experiment,
    training seed, iteration.
    """

    endpoint: str
    base: str
    file: str
    settings: FineTuningSettings
    seed: int
    suffix: str
    key: str

    @cached_property
    def description(self) -> dict[str, Any]:
        """Return all fields, with a hash in place of the file."""
        file = hashlib.sha256(self.file.encode()).hexdigest()
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "file": file, "settings": self.settings.model_dump()}

    def digest(self, *step: str) -> str:
        """Return the hash of the request, or the key of a step in the journal."""
        return hashlib.sha256(json.dumps([self.description, *step], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class TunedModel:
    """A model that a job made. The fields are written to model.json and to journals.

    id: its name at the endpoint. job, file: ids of the job and its training file. trained_tokens: that were charged, if
    the endpoint says so. checkpoints: earlier models, each with `step` and `model`. hyperparameters: as the endpoint
    took them. log: rows with LOG_COLUMNS, one for each step; the learning rate may be None.
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
class RetryPolicy:
    """Pauses between retries, and between looks at a job: they double from `first` to `longest` seconds.

    attempts: failures in a row after which to give up. looks: for a job that may have been created, before another one
    is.
    """

    attempts: int = 20
    looks: int = 5
    first: float = 2.0
    longest: float = 30.0

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row."""
        return min(self.first * 2.0 ** min(failures - 1, 30), self.longest)


def fine_tune(
    client: openai.OpenAI,
    journal: "Journal",
    request: FineTuningRequest,
    on_event: Callable[[str], object],
    before_paying: Callable[[], object] = lambda: None,
    retry_policy: RetryPolicy = RetryPolicy(),
    begin_again: str | None = None,
    expected_tokens: int = 0,
    lost: str | None = None,
) -> TunedModel:
    """Fine-tune, or continue where an earlier call was stopped, at whatever moment that was.

    on_event: called with a message for each event of the job, and for each failure that is retried. before_paying:
    called before a job is created; it raises InputError if the job would cost too much. begin_again: what a message
    says about another job where this one failed; None for moving the journal out of the way. expected_tokens: that the
    job will be charged for; they are on record as spent from its creation on, until the endpoint says how many it was.
    lost: a model of this request that the endpoint has no more: the job that made it is passed over.

    Raise InputError for an error that a retry cannot fix: the key is refused, the endpoint does not fine-tune, the job
    failed or was cancelled.
    """
    if tuned := recorded_model(journal, request):
        return tuned
    again = begin_again or f"to begin again, run `{move_away(journal.path)}; snakemake`"
    run = _Run(client.with_options(max_retries=0), journal, request, on_event, before_paying, retry_policy, again, lost)
    tuned = run.follow(run.job(expected_tokens))
    counted = run.recorded("job").get("counted_tokens", 0)
    charged = counted if tuned.trained_tokens is None else tuned.trained_tokens
    run.record("model", asdict(tuned), Usage(trained=charged - counted))
    return tuned


def recorded_model(journal: "Journal", request: FineTuningRequest) -> TunedModel | None:
    """Return the model that an earlier call recorded, or None."""
    values = journal.response(request.digest("model"))
    return TunedModel(**values) if values else None


@dataclass(frozen=True)
class _Run:
    """The steps from a request to its model."""

    client: openai.OpenAI
    journal: "Journal"
    request: FineTuningRequest
    on_event: Callable[[str], object]
    before_paying: Callable[[], object]
    retry_policy: RetryPolicy
    begin_again: str
    lost: str | None

    def recorded(self, step: str) -> dict[str, Any] | None:
        return self.journal.response(self.request.digest(step))

    def record(self, step: str, response: dict[str, Any], usage: Usage | None = None) -> dict[str, Any]:
        request = {"model": self.request.base, "step": step, "fine_tuning": self.request.description}
        self.journal.record(self.request.digest(step), request, response, usage)
        return response

    # --- Find or create the job ---

    def job(self, expected_tokens: int) -> str:
        """Return the id of the request's job; create the job if there is none yet."""
        if job := self.recorded("job"):
            return job["id"]
        earlier = self._earlier_jobs()
        file = self.recorded("file")
        may_exist = file is not None  # a killed process may have sent the request for a job
        job = self._retry("looking for the job", partial(self._find, file and file["id"], earlier))
        if not job:
            file = file or self.record("file", {"id": self._retry("uploading the training file", self._upload).id})

            def created_once() -> FineTuningJob:
                """Create the job, but first look for it where an earlier request for it may have arrived."""
                nonlocal may_exist
                if may_exist and (found := self._find_patiently(file["id"], earlier)):
                    return found
                before, may_exist = may_exist, True
                try:
                    return self._create(file["id"], earlier)
                except openai.RateLimitError:  # this request has created nothing
                    may_exist = before
                    raise

            job = self._retry("creating the job", created_once)
        created = {"id": job.id, "file": job.training_file, "counted_tokens": expected_tokens}
        return self.record("job", created, Usage(trained=expected_tokens))["id"]

    def _earlier_jobs(self) -> list[str]:
        """Return jobs of this request that ended badly, or whose model is lost, before it was begun again.

        They are recorded before any other step.
        """
        if intent := self.recorded("intent"):
            return intent["passed_over"]
        jobs = self._retry("looking for the job", lambda: list(self._jobs(None)))
        gone = [job for job in jobs if self.lost and job.fine_tuned_model == self.lost]
        earlier = [job.id for job in jobs if job.status in ENDED_BADLY or job in gone]
        return self.record("intent", {"passed_over": earlier})["passed_over"]

    def _jobs(self, file: str | None) -> Iterator[FineTuningJob]:
        """Yield the endpoint's jobs that belong to this request."""
        for job in list_items(self.client.fine_tuning.jobs.list):
            if (job.metadata or {}).get(REQUEST) == self.request.digest() or (file and job.training_file == file):
                yield checked_job(job)

    def _find(self, file: str | None, earlier: list[str]) -> FineTuningJob | None:
        return next((job for job in self._jobs(file) if job.id not in earlier), None)

    def _find_patiently(self, file: str, earlier: list[str]) -> FineTuningJob | None:
        for looks in range(1, self.retry_policy.looks + 1):
            time.sleep(self.retry_policy.pause(looks))
            if job := self._find(file, earlier):
                return job
        return None

    def _upload(self) -> FileObject:
        # A retry may upload the file twice: this costs nothing, and only one of the two is used.
        file = self.client.files.create(
            file=(f"rmft-{self.request.digest()[:16]}.jsonl", self.request.file.encode(), "application/jsonl"),
            purpose="fine-tune",
            extra_headers={"Idempotency-Key": self.request.digest("file")},
        )
        if not isinstance(file, FileObject) or not isinstance(file.id, str):
            raise MalformedError("the response is no file")
        return file

    def _create(self, file: str, earlier: list[str]) -> FineTuningJob:
        hyperparameters = self.request.settings.model_dump(exclude={"method"}, exclude_none=True)
        if "epochs" in hyperparameters:
            hyperparameters["n_epochs"] = hyperparameters.pop("epochs")
        self.before_paying()
        job = self.client.fine_tuning.jobs.create(
            model=self.request.base,
            training_file=file,
            method={"type": "supervised", "supervised": {"hyperparameters": hyperparameters}},
            seed=self.request.seed,
            suffix=self.request.suffix,
            metadata={NAME: self.request.key, REQUEST: self.request.digest()},
            extra_headers={"Idempotency-Key": self.request.digest(f"job {len(earlier)}")},
        )
        return checked_job(job)

    # --- Follow the job to its end ---

    def follow(self, job_id: str) -> TunedModel:
        """Report the events of a job until it ends, and return its model."""
        doing = f"following job {job_id}"
        unknown = f"it knows no such job: it is another endpoint, or has lost it; {self.begin_again}"
        seen: dict[str, FineTuningJobEvent] = {}
        idle = 0
        while True:
            job = self._retry(doing, lambda: checked_job(self.client.fine_tuning.jobs.retrieve(job_id)), unknown)
            new = self._retry(doing, partial(self._new_events, job_id, seen), unknown)
            for event in new:
                self.on_event(event.message)
            seen |= {event.id: event for event in new}
            if job.status == "succeeded":
                return self._tuned_model(job, list(seen.values()))
            if job.status in ENDED_BADLY:
                raise InputError(self._end_of(job))
            idle = 1 if new else idle + 1
            time.sleep(self.retry_policy.pause(idle))

    def _new_events(self, job_id: str, seen: Mapping[str, FineTuningJobEvent]) -> list[FineTuningJobEvent]:
        """Return the events after those seen, the oldest first; the endpoint lists the latest first."""
        new = []
        for event in list_items(partial(self.client.fine_tuning.jobs.list_events, job_id)):
            if event.id in seen:
                break
            new.append(event)
        return new[::-1]

    def _end_of(self, job: FineTuningJob) -> str:
        reason = self._one_line(job.error.message if job.error and job.error.message else "it gives no reason")
        end = "was cancelled at the endpoint" if job.status == "cancelled" else f"failed: {reason}"
        return f"fine-tuning {self.request.key}: job {job.id} {end}; {self.begin_again}"

    def _tuned_model(self, job: FineTuningJob, events: list[FineTuningJobEvent]) -> TunedModel:
        supervised = job.method.supervised if job.method else None
        values = (supervised.hyperparameters if supervised else None) or job.hyperparameters
        hyperparameters = values.to_dict(mode="json") if values else {}
        epochs = hyperparameters.get("n_epochs")
        losses = self._retry("reading the losses", lambda: self._losses(job)) or list(losses_in_events(events))
        return TunedModel(
            id=job.fine_tuned_model,
            job=job.id,
            file=job.training_file,
            base=job.model,
            trained_tokens=job.trained_tokens,
            checkpoints=self._retry("reading the checkpoints", lambda: self._checkpoints(job.id)),
            hyperparameters=hyperparameters,
            log=training_log(losses, epochs if isinstance(epochs, int) else self.request.settings.epochs or 1),
        )

    def _losses(self, job: FineTuningJob) -> list[Loss]:
        """Return the losses in the job's result files, if there are any."""
        for file in job.result_files or []:
            content = unless_missing(lambda file=file: self.client.files.content(file).content)
            if losses := list(losses_in_file(content or b"")):
                return losses
        return []

    def _checkpoints(self, job_id: str) -> list[dict[str, Any]]:
        listed = partial(self.client.fine_tuning.jobs.checkpoints.list, job_id)
        checkpoints = unless_missing(lambda: list(list_items(listed))) or []
        named = [{"step": one.step_number, "model": one.fine_tuned_model_checkpoint} for one in checkpoints]
        return sorted(named, key=lambda one: one["step"])

    # --- Retries ---

    def _retry(self, doing: str, call: Callable[[], T], if_refused: str = CLOSED) -> T:
        """Call until there is a result; raise InputError for an error that a retry cannot fix.

        if_refused: what to do if the endpoint does not offer this, or not to us.
        """
        failures = 0
        while True:
            delay = 0.0
            try:
                return call()
            except openai.APIStatusError as error:
                failure, delay = self._message(error), requested_delay(error.response.headers) or 0.0
                if line := advice(error, if_refused):
                    raise InputError(f"{self.request.endpoint}: {doing}: {line} ({failure})") from None
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
                failure = "the response cannot be read"
            except (openai.APIError, MalformedError) as error:
                failure = self._one_line(error)
            failures += 1
            if failures == self.retry_policy.attempts:
                raise InputError(
                    f"{self.request.endpoint}: {doing}: {failure}, {failures} times in a row;"
                    " run again when it can be reached: nothing is lost, and no job is created twice"
                )
            pause = max(self.retry_policy.pause(failures), min(delay, LONGEST_PAUSE))
            self.on_event(f"{doing}: {failure}; again in {pause:.0f} s")
            time.sleep(pause)

    def _message(self, error: openai.APIStatusError) -> str:
        message = error.body.get("message") if isinstance(error.body, dict) else None
        return f"{error.status_code}: {self._one_line(message)}" if message else f"status {error.status_code}"

    def _one_line(self, text: object) -> str:
        return redacted(str(text), self.client.api_key).rstrip(".")
