"""Fine-tuning jobs: one at a time, each in a process of its own, begun again after the server was killed."""

import asyncio
import json
import logging
import math
import os
import re
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from rmft.artifacts.job import JOB_OF
from rmft.endpoint_server.errors import invalid, missing
from rmft.endpoint_server.files import Files
from rmft.endpoint_server.messages import Metadata, Part
from rmft.endpoint_server.models import MODEL, Models
from rmft.endpoint_server.once import digest_of
from rmft.endpoint_server.settings import ServerSettings
from rmft.endpoint_server.store import Lines, Shelf, read_json
from rmft.endpoint_server.worker import Task
from rmft.params.language import LanguageSFT

Json = dict[str, Any]
ENDED = ("succeeded", "failed", "cancelled")
SUFFIX = "rmft"  # of models whose job names none
SEEDS = 1 << 31
SHORT = 8  # digits of a model's own part of its id

log = logging.getLogger(__name__)


class Hyperparameters(Part):
    """What a job asks for; `auto`, or nothing, is what the server was started with."""

    batch_size: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] | None = None
    learning_rate_multiplier: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto"] | None = None
    n_epochs: Annotated[int, Field(ge=1, le=1000)] | Literal["auto"] | None = None

    def settle(self, sft: LanguageSFT) -> "Hyperparameters":
        """Return them with nothing left open."""

        def settled(value: Any, default: float) -> Any:  # noqa: ANN401 (a number)
            return default if value in (None, "auto") else value

        return Hyperparameters(
            batch_size=settled(self.batch_size, sft.batch_size),
            learning_rate_multiplier=settled(self.learning_rate_multiplier, 1.0),
            n_epochs=settled(self.n_epochs, sft.epochs),
        )

    def applied(self, sft: LanguageSFT) -> LanguageSFT:
        """Return the settings of a training in which these, settled, have their place."""
        changed = {
            "epochs": self.n_epochs,
            "batch_size": self.batch_size,
            "accumulation": math.gcd(self.batch_size, sft.accumulation),
            "learning_rate": sft.learning_rate * self.learning_rate_multiplier,
        }
        return LanguageSFT.model_validate({**sft.model_dump(), **changed})


class Supervised(Part):
    """The one method that there is."""

    hyperparameters: Hyperparameters | None = None


class Method(Part):
    """How it is fine-tuned."""

    type: Literal["supervised"]
    supervised: Supervised | None = None


class JobRequest(Part):
    """A request for a job."""

    model: str
    training_file: str
    method: Method | None = None
    hyperparameters: Hyperparameters | None = None
    suffix: Annotated[str, Field(max_length=64)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    metadata: Metadata | None = None
    validation_file: None = None
    integrations: Annotated[list[Any], Field(max_length=0)] | None = None

    def asked(self) -> Hyperparameters:
        """Return the hyperparameters, wherever they are. Raise ApiError where they are twice."""
        method = self.method and self.method.supervised and self.method.supervised.hyperparameters
        if method and self.hyperparameters:
            raise invalid("Give hyperparameters in method, or beside it, not both.", "hyperparameters")
        return method or self.hyperparameters or Hyperparameters()


class Jobs:
    """The jobs by their ids: a document <id>.json, its events in <id>.events.jsonl, what libraries say in <id>.log."""

    def __init__(self, settings: ServerSettings, files: Files, models: Models) -> None:
        self.settings, self.files, self.models = settings, files, models
        self.shelf = Shelf(settings.state / "jobs")
        self.news = asyncio.Event()
        self.process: Process | None = None
        self.running: str | None = None
        self.began = 0.0  # when the running job's training began

    # --- Asked by clients ---

    def create(self, request: JobRequest, name: str) -> Json:
        """Return a new job; the one that was made of this request before, if a kill came before its answer."""
        name = f"ftjob-{name[:24]}"
        if name in self.shelf.documents:
            return self.told(name)
        start = self.models.get(request.model)
        self.files.for_purpose(request.training_file, "fine-tune", "training_file")
        hyperparameters = request.asked().settle(self.settings.sft)
        try:
            sft = hyperparameters.applied(self.settings.sft)
        except ValidationError as error:
            raise invalid(f"hyperparameters: {error.errors()[0]['msg']}", "hyperparameters") from None
        taken = hyperparameters.model_dump()
        told = {
            "id": name,
            "object": "fine_tuning.job",
            "created_at": int(time.time()),
            "model": request.model,
            "training_file": request.training_file,
            "validation_file": None,
            "method": {"type": "supervised", "supervised": {"hyperparameters": taken}},
            "hyperparameters": taken,
            "seed": self._seed(request, taken) if request.seed is None else request.seed,
            "metadata": request.metadata,
            "status": "queued",
            "error": None,
            "fine_tuned_model": None,
            "finished_at": None,
            "estimated_finish": None,
            "trained_tokens": None,
            "result_files": [],
            "organization_id": "org-rmft",
            "integrations": [],
        }
        suffix = re.sub(r"[^A-Za-z0-9._-]+", "-", request.suffix or SUFFIX)
        made = f"ft:{self.settings.name}:{suffix}::{short(name)}"
        start = start.weights.as_posix() if start.weights else None
        self.shelf.put(name, {"job": told, "makes": made, "start": start, "sft": sft.canonical()})
        self._tell(name, f"Created fine-tuning job: {name}")
        self.news.set()
        return told

    def _seed(self, request: JobRequest, taken: Json) -> int:
        """Return a seed that is the same for the same training."""
        with self.files.data(request.training_file).open("rb") as file:
            content = digest_of(file.read())
        words = json.dumps([self.settings.seed, request.model, taken], sort_keys=True).encode()
        return int.from_bytes(digest_of(content + words)[:8], "little") % SEEDS

    def told(self, name: str) -> Json:
        """Return what the protocol says of a job. Raise ApiError where there is none of this name."""
        if name not in self.shelf.documents:
            raise missing("fine-tuning job", name, "fine_tuning_job_id")
        return self.shelf.documents[name]["job"]

    def all_told(self) -> list[Json]:
        """Return what the protocol says of all jobs, the latest first."""
        return [document["job"] for document in reversed(self.shelf.documents.values())]

    def events(self, name: str) -> list[Json]:
        """Return a job's events, the latest first."""
        self.told(name)
        path = self._events(name)
        return [json.loads(line) for line in path.read_bytes().splitlines()][::-1] if path.exists() else []

    def checkpoints(self, name: str) -> list[Json]:
        """Return the models that a job has made: one, at its end."""
        job = self.told(name)
        if job["status"] != "succeeded":
            return []
        last = self.shelf.documents[name]["last"]
        return [
            {
                "id": f"ftckpt-{name.removeprefix('ftjob-')}",
                "object": "fine_tuning.job.checkpoint",
                "created_at": job["finished_at"],
                "fine_tuned_model_checkpoint": job["fine_tuned_model"],
                "fine_tuning_job_id": name,
                "metrics": {"step": last["step"], "train_loss": last["loss"]},
                "step_number": last["step"],
            }
        ]

    def cancel(self, name: str) -> Json:
        """Cancel a job. Raise ApiError where it is over."""
        if self.told(name)["status"] in ENDED:
            raise invalid(f"Job {name} is {self.told(name)['status']}; it cannot be cancelled.", "fine_tuning_job_id")
        self._update(name, status="cancelled", finished_at=int(time.time()), estimated_finish=None)
        self._tell(name, "The job has been cancelled", "warn")
        if self.running == name and self.process:
            with suppress(ProcessLookupError):
                self.process.kill()
        return self.told(name)

    def needing(self, what: str) -> str | None:
        """Return a job that is not over and needs a file or a model, or None."""
        jobs = ((name, document["job"]) for name, document in self.shelf.documents.items())
        asked = ((name, job) for name, job in jobs if job["status"] not in ENDED)
        return next((name for name, job in asked if what in (job["training_file"], job["model"])), None)

    # --- Done meanwhile ---

    async def work(self) -> None:
        """Do the jobs that are not over, in the order in which they came, and wait for more."""
        while True:
            self.news.clear()
            open_jobs = [name for name, one in self.shelf.documents.items() if one["job"]["status"] not in ENDED]
            if not open_jobs:
                await self.news.wait()
            for name in open_jobs[:1]:
                try:
                    await self._do(name)
                except Exception as error:  # the other jobs are still to be done
                    log.exception("job %s", name)
                    self._fail(name, f"the server cannot do it: {error}")

    async def _do(self, name: str) -> None:
        """Do a job, from the start; or see that it was done, when an earlier server was killed."""
        folder = self.models.folder / short(name)
        if not (folder / MODEL).exists():
            if self.told(name)["status"] != "queued":
                self._tell(name, "The server was stopped while the job ran; it is begun again", "warn")
            self._update(name, status="validating_files")
            self._tell(name, f"Validating training file: {self.told(name)['training_file']}")
            code = await self._run(name, folder)
            if self.told(name)["status"] in ENDED:
                (folder / MODEL).unlink(missing_ok=True)  # of a job that was cancelled as it ended
                return
            if not (folder / MODEL).exists():
                self._fail(name, f"the worker ended with exit code {code}; see {name}.log beside the job")
                return
        self._succeed(name, folder)

    async def _run(self, name: str, folder: Path) -> int:
        """Run a worker to its end, and note what it tells. Return its exit code."""
        document, job = self.shelf.documents[name], self.told(name)
        task = Task(
            file=self.files.data(job["training_file"]).as_posix(),
            base=self.settings.model.canonical(),
            sft=document["sft"],
            start=document["start"],
            folder=folder.as_posix(),
            id=document["makes"],
            name=self.settings.name,
            seed=job["seed"],
        )
        environment = {key: value for key, value in os.environ.items() if key != JOB_OF}
        with (self.shelf.folder / f"{name}.log").open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rmft.endpoint_server.worker",
                stdin=PIPE, stdout=PIPE, stderr=errors, env=environment,
            )  # fmt: skip
        self.running = name
        try:
            self.process.stdin.write(task.line())
            async for line in self.process.stdout:
                if self.told(name)["status"] not in ENDED:
                    self._note(name, json.loads(line))
            return await self.process.wait()
        finally:
            await self._end_worker()

    async def _end_worker(self) -> None:
        process, self.process, self.running = self.process, None, None
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _note(self, name: str, news: Json) -> None:
        """Note what a worker tells."""
        if "validated" in news:
            told, self.began = news["validated"], time.time()
            self._update(name, status="running")
            self._tell(name, f"Files validated: {told['examples']} examples, {told['tokens']} tokens an epoch")
            self._tell(name, "Fine-tuning job started")
        elif "step" in news:
            data = news["step"]
            left = (time.time() - self.began) * (data["total_steps"] / data["step"] - 1)
            self._update(name, estimated_finish=int(time.time() + left))
            self._tell(
                name, f"Step {data['step']}/{data['total_steps']}: training loss={data['train_loss']:.4f}", data=data
            )
        elif "failed" in news:
            self._fail(name, news["failed"])

    def _fail(self, name: str, reason: str) -> None:
        error = {"code": "invalid_training_file", "message": reason, "param": "training_file"}
        if reason.startswith(("the worker", "the server")):
            error |= {"code": "server_error", "param": None}
        self._update(name, status="failed", error=error, finished_at=int(time.time()), estimated_finish=None)
        self._tell(name, f"The job failed: {reason}", "error")

    def _succeed(self, name: str, folder: Path) -> None:
        """Serve what a job has made."""
        model, made = self.models.add(folder), read_json(folder / MODEL)
        changed = {
            "status": "succeeded",
            "fine_tuned_model": model.id,
            "trained_tokens": made["trained_tokens"],
            "finished_at": int(time.time()),
            "estimated_finish": None,
            "result_files": [self._results(name, made["log"])],
        }
        document = self.shelf.documents[name]
        self.shelf.put(name, {**document, "job": {**document["job"], **changed}, "last": made["log"][-1]})
        self._tell(name, f"New fine-tuned model created: {model.id}")
        self._tell(name, "The job has successfully completed")

    def _results(self, name: str, rows: list[Json]) -> str:
        """Return the id of a file that tells of every step of a job."""
        columns = {"step": "step", "epoch": "epoch", "train_loss": "loss", "learning_rate": "learning_rate"}
        lines = [",".join(columns), *(",".join(str(row[of]) for of in columns.values()) for row in rows)]
        content = ("\n".join(lines) + "\n").encode()
        results = f"file-{name.removeprefix('ftjob-')}-results"
        self.files.write(results, lambda file: file.write(content))
        return self.files.register(results, "step_metrics.csv", "fine-tune-results")["id"]

    # --- State ---

    def _update(self, name: str, **changed: Any) -> None:  # noqa: ANN401 (fields of a job)
        document = self.shelf.documents[name]
        self.shelf.put(name, {**document, "job": {**document["job"], **changed}})

    def _events(self, name: str) -> Path:
        return self.shelf.folder / f"{name}.events.jsonl"

    def _tell(self, name: str, message: str, level: str = "info", data: Json | None = None) -> None:
        """Add an event."""
        lines = Lines(self._events(name))
        event = {
            "id": f"ftevent-{name.removeprefix('ftjob-')}-{lines.size}",
            "object": "fine_tuning.job.event",
            "created_at": int(time.time()),
            "level": level,
            "message": message,
            "type": "metrics" if data else "message",
            "data": data or {},
        }
        lines.add(json.dumps(event).encode() + b"\n")
        lines.close()


def short(name: str) -> str:
    """Return the part of a model's id that is its own, from the job that makes it."""
    return digest_of(name.encode()).hex()[:SHORT]
