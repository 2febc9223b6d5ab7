"""Start our own server from a job.

The first job that needs the server starts it, all jobs of a run share it, and it ends with the run.
The server's state (files, jobs, fine-tuned models) is kept from run to run in .rmft/server. What belongs to a single
run, such as the API key, is in .rmft/run.
"""

import fcntl
import json
import os
import secrets
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from rmft.artifacts.files import atomic
from rmft.artifacts.job import JOB_OF, running, this_run
from rmft.endpoint_server.settings import API_KEY, MODEL, MODELS
from rmft.errors import InputError
from rmft.workflow.records import OwnServer

STATE, RUN = Path(".rmft/server"), Path(".rmft/run")
KEY_FILE = "key"
START_SECONDS = 180.0  # libraries load slowly while other jobs keep the machine busy
POLL_SECONDS = 0.05
COMMAND = "from rmft.cli import main; main()"


class RunningServer(TypedDict):
    """A server that is ready. process, run: as `this_run` names them."""

    process: str
    run: str
    port: int


def own_server(served: OwnServer, model: str, name: str) -> tuple[str, str]:
    """Return the base URL and the API key of our own server; start the server if it is not running.

    model: the id under which the server offers its model. name: of the endpoint, which names the state folder. Raise
    InputError if the server does not start, or a run that is not over has it: the server would end with that run.
    """
    from rmft.agents.checkpoint import note_model

    note_model(served.model)
    folder = RUN / _folder_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    run = os.environ.get(JOB_OF) or this_run()
    with (folder / "starting").open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other jobs wait while this one may start the server
        server = _running_server(folder)
        if server is None or server["run"] != run:
            _wait_for_end(server)
            server = _start(folder, served, model, run)
    return f"http://127.0.0.1:{server['port']}/v1", (folder / KEY_FILE).read_text(encoding="utf-8")


def has_lost(name: str, model: str) -> bool:
    """Return whether the server of an endpoint has state without a model that it fine-tuned.

    Without any state, nothing has been asked of the server yet, and replaying a journal needs neither.
    """
    state = STATE / _folder_name(name)
    return state.exists() and not (state / MODELS / model.rpartition(":")[2] / MODEL).exists()


def _folder_name(name: str) -> str:
    return name.replace(" ", "-")


def _running_server(folder: Path) -> RunningServer | None:
    """Return process, run and port of the running server, or None."""
    with suppress(OSError, ValueError, KeyError):
        server = json.loads((folder / "running.json").read_text(encoding="utf-8"))
        return server if running(server["process"]) else None
    return None


def _wait_for_end(server: RunningServer | None) -> None:
    """Wait until the server of a run that is over has ended. Raise InputError if the run is not over."""
    begun = time.monotonic()
    while server and running(server["process"]):
        if time.monotonic() - begun > START_SECONDS:
            raise InputError(f"the server of an earlier run has not ended: kill {_number(server['process'])}")
        if running(server["run"]):
            other = _number(server["run"])
            raise InputError(f"our own server is in use by process {other}: run again when that has ended, or end it")
        time.sleep(POLL_SECONDS)


def _number(process: str) -> str:
    """Return the number of a process that `this_run` named."""
    return process.split(":")[0]


def _start(folder: Path, served: OwnServer, model: str, run: str) -> RunningServer:
    """Start a server that ends with the run, and wait until it is ready."""
    key, announced, log = secrets.token_urlsafe(24), folder / "announced.json", folder / "server.log"
    with atomic(folder / KEY_FILE) as file:
        file.touch(mode=0o600)
        file.write_text(key, encoding="utf-8")
    announced.unlink(missing_ok=True)
    command = [sys.executable, "-c", COMMAND, "serve", "--settings", served.canonical(), "--model", model]
    command += ["--port", "0", "--state", str(STATE / folder.name), "--announce", str(announced)]
    with log.open("w", encoding="utf-8") as output:
        # In a session of its own, so that Ctrl-C reaches jobs first. Output goes to a file: the reader of a
        # pipe would wait for as long as the server runs.
        process = subprocess.Popen(
            command,
            env={**os.environ, API_KEY: key, JOB_OF: run},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    begun = time.monotonic()
    while not announced.exists():
        if process.poll() is not None or time.monotonic() - begun > START_SECONDS:
            process.kill()
            last = (log.read_text(encoding="utf-8").strip() or "no output").splitlines()[-1]
            raise InputError(f"our own server did not start: {last} (see {log})")
        time.sleep(POLL_SECONDS)
    port = json.loads(announced.read_text(encoding="utf-8"))["port"]
    server = {"process": this_run(process.pid), "run": run, "port": port}
    with atomic(folder / "running.json") as file:
        file.write_text(json.dumps(server), encoding="utf-8")
    return server
