"""Fine-tuning jobs: they run one at a time, each in a worker process, and start again if the server was killed."""

import asyncio
import json
import logging
import os
import re
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rmft.artifacts.job import JOB_OF
from rmft.endpoint_server.errors import invalid, missing
from rmft.endpoint_server.files import Files
from rmft.endpoint_server.fine_tuning_request import FineTuningJobRequest
from rmft.endpoint_server.idempotency import digest_of
from rmft.endpoint_server.models import MODEL, ServedModels
from rmft.endpoint_server.settings import ServerSettings
from rmft.endpoint_server.store import DocumentStore, Json, LineFile, read_json
from rmft.endpoint_server.worker import WorkerTask

ENDED = ("succeeded", "failed", "cancelled")
SUFFIX = "rmft"  # of models whose job gives no suffix
SEEDS = 1 << 31
ID_DIGITS = 8  # of the unique part of a fine-tuned model's id

log = logging.getLogger(__name__)


class FineTuningJobs:
    """The jobs by their ids: <id>.json, with events in <id>.events.jsonl and the worker's output in <id>.log."""

    def __init__(self, settings: ServerSettings, files: Files, models: ServedModels) -> None:
        self.settings, self.files, self.models = settings, files, models
        self.store = DocumentStore(settings.state / "jobs")
        self.created = asyncio.Event()
        self.process: Process | None = None
        self.running: str | None = None
        self.training_began = 0.0  # of the running job

    # --- Called by routes ---

    def create(self, request: FineTuningJobRequest, name: str) -> Json:
        """Return a new job, or the job that the same request created before the server was killed."""
        name = f"ftjob-{name[:24]}"
        if name in self.store.documents:
            return self.get(name)
        start = self.models.get(request.model).weights
        self.files.training_file(request.training_file)
        hyperparameters = request.hyperparameters.resolved(self.settings.sft)
        try:
            sft = hyperparameters.applied(self.settings.sft)
        except ValidationError as error:
            raise invalid(f"hyperparameters: {error.errors()[0]['msg']}", "hyperparameters") from None
        values = hyperparameters.model_dump()
        job = {
            "id": name,
            "object": "fine_tuning.job",
            "created_at": int(time.time()),
            "model": request.model,
            "training_file": request.training_file,
            "validation_file": None,
            "method": {"type": "supervised", "supervised": {"hyperparameters": values}},
            "hyperparameters": values,
            "seed": self._default_seed(request, values) if request.seed is None else request.seed,
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
        model = f"ft:{self.settings.name}:{suffix}::{short_id(name)}"
        start = start.as_posix() if start else None
        self.store.put(name, {"job": job, "makes": model, "start": start, "sft": sft.canonical()})
        self._add_event(name, f"Created fine-tuning job: {name}")
        self.created.set()
        return job

    def _default_seed(self, request: FineTuningJobRequest, hyperparameters: Json) -> int:
        """Return a seed that depends on the training only."""
        content = digest_of(self.files.path(request.training_file).read_bytes())
        words = json.dumps([self.settings.seed, request.model, hyperparameters], sort_keys=True).encode()
        return int.from_bytes(digest_of(content + words)[:8], "little") % SEEDS

    def get(self, name: str) -> Json:
        """Return a job as the protocol describes it. Raise ApiError if there is none of this name."""
        if name not in self.store.documents:
            raise missing("fine-tuning job", name, "fine_tuning_job_id")
        return self.store.documents[name]["job"]

    def all(self) -> list[Json]:
        """Return all jobs, the latest first."""
        return [document["job"] for document in reversed(self.store.documents.values())]

    def events(self, name: str) -> list[Json]:
        """Return a job's events, the latest first."""
        self.get(name)
        path = self._event_file(name)
        return [json.loads(line) for line in path.read_bytes().splitlines()][::-1] if path.exists() else []

    def checkpoints(self, name: str) -> list[Json]:
        """Return the checkpoints of a job: its result."""
        job = self.get(name)
        if job["status"] != "succeeded":
            return []
        last = self.store.documents[name]["last"]
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
        """Cancel a job. Raise ApiError if it has ended."""
        if self._has_ended(name):
            raise invalid(f"Job {name} is {self.get(name)['status']}; it cannot be cancelled.", "fine_tuning_job_id")
        self._update(name, status="cancelled", finished_at=int(time.time()), estimated_finish=None)
        self._add_event(name, "The job has been cancelled", "warn")
        if self.running == name and self.process:
            with suppress(ProcessLookupError):
                self.process.kill()
        return self.get(name)

    def using(self, name: str) -> str | None:
        """Return a job that has not ended and needs a file or a model, or None."""
        return next((job["id"] for job in self._open() if name in (job["training_file"], job["model"])), None)

    # --- In the background ---

    async def work(self) -> None:
        """Run the jobs in the order of their creation, and wait for more."""
        while True:
            self.created.clear()
            jobs = self._open()
            if not jobs:
                await self.created.wait()
            for name in [job["id"] for job in jobs[:1]]:
                try:
                    await self._do(name)
                except Exception as error:  # whatever went wrong, the next job is to run
                    log.exception("job %s", name)
                    self._fail(name, f"the server cannot do it: {error}")

    async def _do(self, name: str) -> None:
        """Run a job from its start, unless its model was completed before the server was killed."""
        folder = self.models.folder / short_id(name)
        if not (folder / MODEL).exists():
            if self.get(name)["status"] != "queued":
                self._add_event(name, "The server was stopped while the job ran; the job starts again", "warn")
            self._update(name, status="validating_files")
            self._add_event(name, f"Validating training file: {self.get(name)['training_file']}")
            code = await self._run_worker(name, folder)
            if self._has_ended(name):
                (folder / MODEL).unlink(missing_ok=True)  # of a job that was cancelled at its very end
                return
            if not (folder / MODEL).exists():
                self._fail(name, f"the worker ended with exit code {code}; see {name}.log beside the job")
                return
        self._succeed(name, folder)

    async def _run_worker(self, name: str, folder: Path) -> int:
        """Run a worker to its end, and record what it reports. Return its exit code."""
        document, job = self.store.documents[name], self.get(name)
        task = WorkerTask(
            file=self.files.path(job["training_file"]).as_posix(),
            base=self.settings.model.canonical(),
            sft=document["sft"],
            start=document["start"],
            folder=folder.as_posix(),
            id=document["makes"],
            name=self.settings.name,
            seed=job["seed"],
        )
        environment = {key: value for key, value in os.environ.items() if key != JOB_OF}
        with (self.store.folder / f"{name}.log").open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rmft.endpoint_server.worker",
                stdin=PIPE, stdout=PIPE, stderr=errors, env=environment,
            )  # fmt: skip
        self.running = name
        try:
            self.process.stdin.write(task.line())
            async for line in self.process.stdout:
                if not self._has_ended(name):
                    self._record(name, json.loads(line))
            return await self.process.wait()
        finally:
            await self._end_worker()

    async def _end_worker(self) -> None:
        process, self.process, self.running = self.process, None, None
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _record(self, name: str, report: Json) -> None:
        """Record a report of a worker."""
        if "validated" in report:
            counts, self.training_began = report["validated"], time.time()
            self._update(name, status="running")
            self._add_event(name, f"Files validated: {counts['examples']} examples, {counts['tokens']} tokens an epoch")
            self._add_event(name, "Fine-tuning job started")
        elif "step" in report:
            data = report["step"]
            step, steps = data["step"], data["total_steps"]
            left = (time.time() - self.training_began) * (steps / step - 1)
            self._update(name, estimated_finish=int(time.time() + left))
            self._add_event(name, f"Step {step}/{steps}: training loss={data['train_loss']:.4f}", data=data)
        elif "failed" in report:
            self._fail(name, report["failed"])

    def _fail(self, name: str, reason: str) -> None:
        error = {"code": "invalid_training_file", "message": reason, "param": "training_file"}
        if reason.startswith(("the worker", "the server")):
            error |= {"code": "server_error", "param": None}
        self._update(name, status="failed", error=error, finished_at=int(time.time()), estimated_finish=None)
        self._add_event(name, f"The job failed: {reason}", "error")

    def _succeed(self, name: str, folder: Path) -> None:
        """Serve the model of a job."""
        model, result = self.models.add(folder), read_json(folder / MODEL)
        changed = {
            "status": "succeeded",
            "fine_tuned_model": model.id,
            "trained_tokens": result["trained_tokens"],
            "finished_at": int(time.time()),
            "estimated_finish": None,
            "result_files": [self._write_losses(name, result["log"])],
        }
        document = self.store.documents[name]
        self.store.put(name, {**document, "job": {**document["job"], **changed}, "last": result["log"][-1]})
        self._add_event(name, f"New fine-tuned model created: {model.id}")
        self._add_event(name, "The job has successfully completed")

    def _write_losses(self, name: str, rows: list[Json]) -> str:
        """Write the result file of a job, with the loss of each step, and return its id."""
        columns = {"step": "step", "epoch": "epoch", "train_loss": "loss", "learning_rate": "learning_rate"}
        lines = [",".join(columns), *(",".join(str(row[of]) for of in columns.values()) for row in rows)]
        content = ("\n".join(lines) + "\n").encode()
        file = f"file-{name.removeprefix('ftjob-')}-results"
        self.files.write(file, lambda target: target.write(content))
        return self.files.register(file, "step_metrics.csv", "fine-tune-results")["id"]

    # --- State ---

    def _open(self) -> list[Json]:
        """Return the jobs that have not ended, the oldest first."""
        return [document["job"] for name, document in self.store.documents.items() if not self._has_ended(name)]

    def _has_ended(self, name: str) -> bool:
        return self.get(name)["status"] in ENDED

    def _update(self, name: str, **changed: Any) -> None:  # noqa: ANN401 (fields of a job)
        document = self.store.documents[name]
        self.store.put(name, {**document, "job": {**document["job"], **changed}})

    def _event_file(self, name: str) -> Path:
        return self.store.folder / f"{name}.events.jsonl"

    def _add_event(self, name: str, message: str, level: str = "info", data: Json | None = None) -> None:
        lines = LineFile(self._event_file(name))
        event = {
            "id": f"ftevent-{name.removeprefix('ftjob-')}-{lines.size}",
            "object": "fine_tuning.job.event",
            "created_at": int(time.time()),
            "level": level,
            "message": message,
            "type": "metrics" if data else "message",
            "data": data or {},
        }
        lines.append(json.dumps(event).encode() + b"\n")
        lines.close()


def short_id(job: str) -> str:
    """Return the unique part of the id of the model that a job makes."""
    return digest_of(job.encode()).hex()[:ID_DIGITS]
