"""Fine-tuning jobs: they run one at a time, each in a worker process, and start again if the server was killed."""

import asyncio
import json
import logging
import os
import re
import secrets
import shutil
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

from rmft.artifacts.job import JOB_OF
from rmft.artifacts.json_files import read_json
from rmft.endpoint_server.errors import invalid, missing
from rmft.endpoint_server.files import Files
from rmft.endpoint_server.fine_tuning_request import FineTuningJobRequest
from rmft.endpoint_server.idempotency import digest_of
from rmft.endpoint_server.models import ServedModels
from rmft.endpoint_server.settings import MODEL, ServerSettings
from rmft.endpoint_server.store import Json, Store
from rmft.endpoint_server.worker import WorkerTask
from rmft.errors import InputError

ENDED = ("succeeded", "failed", "cancelled")
SET_LATER = ("error", "fine_tuned_model", "finished_at", "estimated_finish", "trained_tokens")  # fields of a job
SUFFIX = "rmft"  # of models whose job gives no suffix
SEEDS = 1 << 31
RETRY_SECONDS = 30.0  # after which a job begins again whose failure could not be written
ID_DIGITS = 8  # of the unique part of a fine-tuned model's id

log = logging.getLogger(__name__)


class FineTuningJobs:
    """The jobs: of each a document with the protocol's description, the worker's task and, at the end, checkpoints."""

    def __init__(self, settings: ServerSettings, store: Store, files: Files, models: ServedModels) -> None:
        self.settings, self.store, self.files, self.models = settings, store, files, models
        self.logs = settings.state / "jobs"  # of what workers print
        self.logs.mkdir(parents=True, exist_ok=True)
        self.created = asyncio.Event()
        self.workers: dict[str, Process] = {}  # by job; there is one at most
        self.training_began = 0.0  # of the running job

    # --- Called by routes ---

    async def create(self, request: FineTuningJobRequest, name: str) -> Json:
        """Return a new job, or the job that the same request created before the server was killed."""
        name = f"ftjob-{name[:24]}"
        if document := self.store.get(name):
            return document["job"]
        start = self.models.get(request.model).weights
        file = self.files.training_file(request.training_file)
        hyperparameters = request.given.resolved(self.settings.sft)
        try:
            sft = hyperparameters.applied(self.settings.sft)
        except InputError as error:
            raise invalid(str(error), "hyperparameters") from None
        values = hyperparameters.model_dump()
        seed = self._default_seed(request, values) if request.seed is None else request.seed
        suffix = re.sub(r"[^A-Za-z0-9._-]+", "-", request.suffix or SUFFIX)
        part = digest_of(name.encode()).hex()[:ID_DIGITS]
        task = WorkerTask(
            file=file.as_posix(),
            base=self.settings.model.canonical(),
            sft=sft.canonical(),
            start=start and start.as_posix(),
            folder=(self.models.folder / part).as_posix(),
            id=f"ft:{self.settings.name}:{suffix}::{part}",
            name=self.settings.name,
            seed=seed,
        )
        job = {
            "id": name,
            "object": "fine_tuning.job",
            "created_at": int(time.time()),
            "model": request.model,
            "training_file": request.training_file,
            "validation_file": None,
            "method": {"type": "supervised", "supervised": {"hyperparameters": values}},
            "hyperparameters": values,
            "seed": seed,
            "metadata": request.metadata,
            "status": "queued",
            **dict.fromkeys(SET_LATER),
            "result_files": [],
            "organization_id": "org-rmft",
            "integrations": [],
        }
        self.store.put(name, {"job": job, "task": asdict(task), "checkpoints": []})
        self._add_event(name, f"Created fine-tuning job: {name}")
        self.created.set()
        return job

    def _default_seed(self, request: FineTuningJobRequest, hyperparameters: Json) -> int:
        """Return a seed that depends on the training only."""
        content = digest_of(self.files.path(request.training_file).read_bytes())
        words = json.dumps([self.settings.seed, request.model, hyperparameters], sort_keys=True).encode()
        return int.from_bytes(digest_of(content + words)[:8], "little") % SEEDS

    def _document(self, name: str) -> Json:
        document = self.store.get(name) if name.startswith("ftjob-") else None
        if not document:
            raise missing("fine-tuning job", name, "fine_tuning_job_id")
        return document

    def get(self, name: str) -> Json:
        """Return a job as the protocol describes it. Raise ApiError if there is none of this name."""
        return self._document(name)["job"]

    def all(self) -> list[Json]:
        """Return all jobs, the oldest first."""
        return [document["job"] for document in self.store.all("ftjob-")]

    def events(self, name: str) -> list[Json]:
        """Return a job's events, the latest first."""
        return self.store.all(_event_ids(self.get(name)["id"]))[::-1]

    def checkpoints(self, name: str) -> list[Json]:
        """Return the checkpoints of a job: its result."""
        return self._document(name)["checkpoints"]

    async def cancel(self, name: str) -> Json:
        """Cancel a job. Raise ApiError if it has ended."""
        if self._has_ended(name):
            raise invalid(f"Job {name} is {self.get(name)['status']}; it cannot be cancelled.", "fine_tuning_job_id")
        job = self._end(name, "cancelled")
        self._add_event(name, "The job has been cancelled", "warn")
        if worker := self.workers.get(name):
            with suppress(ProcessLookupError):
                worker.kill()
        return job

    def using(self, name: str) -> str | None:
        """Return a job that has not ended and needs a file or a model, or None."""
        return next((job["id"] for job in self._open() if name in (job["training_file"], job["model"])), None)

    # --- In the background ---

    async def work(self) -> None:
        """Run the jobs in the order of their creation, and wait for more."""
        while True:
            self.created.clear()
            try:
                jobs = self._open()
            except Exception:  # an error of the disk
                log.exception("jobs cannot be read")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not jobs:
                await self.created.wait()
                continue
            name = jobs[0]["id"]
            try:
                await self._do(name)
            except Exception as error:  # whatever went wrong, the next job is to run
                log.exception("job %s", name)
                await self._fail_or_retry(name, f"the server cannot do it: {error}")

    async def _fail_or_retry(self, name: str, reason: str) -> None:
        """Have a job fail; where not even that can be written, wait a while before the job begins again."""
        try:
            self._fail(name, reason)
        except Exception:  # the disk is full
            log.exception("job %s cannot be recorded as failed", name)
            await asyncio.sleep(RETRY_SECONDS)

    async def _do(self, name: str) -> None:
        """Run a job from its start, unless its model was completed before the server was killed."""
        task = self._document(name)["task"]
        model = Path(task["folder"]) / MODEL
        if not model.exists():
            if self.get(name)["status"] != "queued":
                self._add_event(name, "The server was stopped while the job ran; the job starts again", "warn")
            job = self._update(name, status="validating_files")
            self._add_event(name, f"Validating training file: {job['training_file']}")
            code = await self._run_worker(name, task)
            if self._has_ended(name):
                shutil.rmtree(model.parent, ignore_errors=True)  # of a job that was cancelled at its very end
                return
            if not model.exists():
                self._fail(name, f"the worker ended with exit code {code}; see {self.logs / name}.log")
                return
        await self._succeed(name, model)

    async def _run_worker(self, name: str, task: Json) -> int:
        """Run a worker to its end, and record what it reports. Return its exit code."""
        environment = {key: value for key, value in os.environ.items() if key != JOB_OF}
        with (self.logs / f"{name}.log").open("ab") as errors:
            worker = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rmft.endpoint_server.worker",
                stdin=PIPE, stdout=PIPE, stderr=errors, env=environment,
            )  # fmt: skip
        self.workers[name] = worker
        if self._has_ended(name):  # cancelled while the worker started
            worker.kill()
        try:
            worker.stdin.write(json.dumps(task).encode() + b"\n")
            async for line in worker.stdout:
                if not self._has_ended(name):
                    self._record(name, json.loads(line))
            return await worker.wait()
        finally:
            del self.workers[name]
            with suppress(ProcessLookupError):
                worker.kill()
            await worker.wait()

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
            self._fail(name, report["failed"], of_file=report["of_file"])

    def _fail(self, name: str, reason: str, *, of_file: bool = False) -> None:
        """End a job that cannot be done. of_file: whether its training file is to blame."""
        code, param = ("invalid_training_file", "training_file") if of_file else ("server_error", None)
        error = {"code": code, "message": reason, "param": param}
        self._end(name, "failed", error=error)
        self._add_event(name, f"The job failed: {reason}", "error")

    async def _succeed(self, name: str, model_file: Path) -> None:
        """Serve the model of a job."""
        result = read_json(model_file)
        losses = await self._write_losses(name, result["log"])
        if self._has_ended(name):  # cancelled meanwhile; nothing below waits, so that none can cancel it any more
            shutil.rmtree(model_file.parent, ignore_errors=True)
            return
        model = self.models.add(model_file)
        last = result["log"][-1]
        checkpoint = {
            "id": f"ftckpt-{name.removeprefix('ftjob-')}",
            "object": "fine_tuning.job.checkpoint",
            "created_at": int(time.time()),
            "fine_tuned_model_checkpoint": model.id,
            "fine_tuning_job_id": name,
            "metrics": {"step": last["step"], "train_loss": last["loss"]},
            "step_number": last["step"],
        }
        self.store.put(name, {**self._document(name), "checkpoints": [checkpoint]})
        counts = {"trained_tokens": result["trained_tokens"], "result_files": [losses]}
        self._end(name, "succeeded", fine_tuned_model=model.id, **counts)
        self._add_event(name, f"New fine-tuned model created: {model.id}")
        self._add_event(name, "The job has successfully completed")

    async def _write_losses(self, name: str, rows: list[Json]) -> str:
        """Write the result file of a job, with the loss of each step, and return its id."""
        columns = {"step": "step", "epoch": "epoch", "train_loss": "loss", "learning_rate": "learning_rate"}
        lines = [",".join(columns), *(",".join(str(row[of]) for of in columns.values()) for row in rows)]
        file, content = f"file-{name.removeprefix('ftjob-')}-results", BytesIO(("\n".join(lines) + "\n").encode())
        return (await self.files.create(file, "step_metrics.csv", "fine-tune-results", content))["id"]

    # --- State ---

    def _open(self) -> list[Json]:
        """Return the jobs that have not ended, the oldest first."""
        return [job for job in self.all() if job["status"] not in ENDED]

    def _has_ended(self, name: str) -> bool:
        return self.get(name)["status"] in ENDED

    def _end(self, name: str, status: str, **changed: Any) -> Json:  # noqa: ANN401 (fields of a job)
        return self._update(name, status=status, finished_at=int(time.time()), estimated_finish=None, **changed)

    def _update(self, name: str, **changed: Any) -> Json:  # noqa: ANN401 (fields of a job)
        document = self._document(name)
        document["job"] |= changed
        self.store.put(name, document)
        return document["job"]

    def _add_event(self, name: str, message: str, level: str = "info", data: Json | None = None) -> None:
        event = {
            "id": _event_ids(name) + secrets.token_hex(8),
            "object": "fine_tuning.job.event",
            "created_at": int(time.time()),
            "level": level,
            "message": message,
            "type": "metrics" if data else "message",
            "data": data or {},
        }
        self.store.put(event["id"], event)


def _event_ids(job: str) -> str:
    """Return what the ids of a job's events begin with."""
    return f"ftevent-{job.removeprefix('ftjob-')}-"
