"""Our own server for jobs: the first that needs it starts it, all of a run share it, and it ends with the run.

Its state (files, jobs and the models they made) is kept in .rmft/server, by what it plays, from run to run; what
concerns a single run, the key among it, is in .rmft/run.
"""

import fcntl
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmft.artifacts.files import atomic
from rmft.artifacts.job import JOB_OF, running, this_run
from rmft.errors import InputError
from rmft.workflow.records import Served

STATE, RUN = Path(".rmft/server"), Path(".rmft/run")
KEY = "RMFT_API_KEY"
START_SECONDS = 180.0  # libraries are slow to load while other jobs keep the machine busy
LOOK_SECONDS = 0.05
COMMAND = "from rmft.cli import main; main()"


def own_key(name: str) -> str:
    """Return the key to our own server, made up when it is first asked for. name: of what it plays."""
    folder = _folder(name)
    with _alone(folder):
        if not (folder / "key").exists():
            with atomic(folder / "key") as file:
                file.touch(mode=0o600)
                file.write_text(secrets.token_urlsafe(24), encoding="utf-8")
    return (folder / "key").read_text(encoding="utf-8")


def own_server(served: Served, model: str, name: str) -> str:
    """Return the address of our own server; start it if it does not run.

    model: what it calls the model that it plays. name: of what it plays, for the folder of its state. Raise InputError
    where it does not start.
    """
    folder, key = _folder(name), own_key(name)
    run = os.environ.get(JOB_OF) or this_run()
    with _alone(folder):
        found = _found(folder)
        if found is None or found["run"] != run:
            _wait_for_end(found)
            found = _start(folder, STATE / folder.name, served, model, run, key)
    return f"http://127.0.0.1:{found['port']}/v1"


def _folder(name: str) -> Path:
    return RUN / name.replace(" ", "-")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other jobs from looking while the server is being started."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "starting").open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _found(folder: Path) -> dict[str, str] | None:
    """Return what is known of a server that is alive."""
    with suppress(OSError, ValueError, KeyError):
        found = json.loads((folder / "running.json").read_text(encoding="utf-8"))
        return found if running(found["process"]) else None
    return None


def _wait_for_end(found: dict[str, str] | None) -> None:
    """Wait until the server of a run that is over has gone."""
    begun = time.monotonic()
    while found and running(found["process"]):
        if time.monotonic() - begun > START_SECONDS:
            raise InputError(
                f"a server of another run is still there, process {found['process'].split(':')[0]}; end it"
            )
        time.sleep(LOOK_SECONDS)


def _start(folder: Path, state: Path, served: Served, model: str, run: str, key: str) -> dict[str, str]:
    """Start a server that ends when the run does, and wait until it answers."""
    announced, log = folder / "announced.json", folder / "server.log"
    announced.unlink(missing_ok=True)
    command = [sys.executable, "-c", COMMAND, "serve", "--settings", served.canonical(), "--model", model]
    command += ["--port", "0", "--state", str(state), "--announce", str(announced)]
    with log.open("w", encoding="utf-8") as said:
        # In a session of its own, so that Ctrl-C reaches jobs first; with no pipe of ours, which would never end.
        server = subprocess.Popen(
            command,
            env={**os.environ, KEY: key, JOB_OF: run},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    begun = time.monotonic()
    while not announced.exists():
        if server.poll() is not None or time.monotonic() - begun > START_SECONDS:
            server.kill()
            last = (log.read_text(encoding="utf-8").strip() or "it said nothing").splitlines()[-1]
            raise InputError(f"our own server did not start: {last} (all of it is in {log})")
        time.sleep(LOOK_SECONDS)
    port = json.loads(announced.read_text(encoding="utf-8"))["port"]
    found = {"process": this_run(server.pid), "run": run, "port": port}
    with atomic(folder / "running.json") as file:
        file.write_text(json.dumps(found), encoding="utf-8")
    return found
