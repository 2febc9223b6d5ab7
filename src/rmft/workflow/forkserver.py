"""Jobs that start at once: forked off a process that has imported what takes seconds to import.

A run of Snakemake starts one such process, which loads the libraries that its jobs need. `rmft` hands a job over to it
where there is one, by a socket, and passes on how it ended; else it does the job itself. The job has the streams,
folder, environment and arguments of the `rmft` that handed it over, and ends where that one ends.
"""

import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from rmft.artifacts.job import JOB_OF, done_for, running, this_run
from rmft.workflow.runs import INTERRUPTED

SOCKET = "RMFT_FORK_SERVER"  # in the environment of jobs: where the server of their run listens
FEW = 3  # of so few jobs each may as well import for itself
IMPORTS = {  # by stage, what takes its jobs long to import
    "rollouts": ("rmft.stages.rollouts", "rmft.agents.local"),
    "distillation": ("rmft.stages.distillation", "rmft.agents.local"),
    "sft": ("rmft.stages.sft", "rmft.training.sft"),
    "grpo": ("rmft.stages.grpo",),
    "training": ("rmft.stages.training",),
    "evaluation": ("rmft.stages.evaluation",),
    "figures": ("rmft.stages.figures",),
    "tables": ("rmft.stages.tables",),
}
ALWAYS = ("rmft.cli", "rmft.workflow.records", "pandas", "pyarrow.parquet")
STREAMS = (0, 1, 2)
SERVE = "import sys; from rmft.workflow.forkserver import serve; serve(*sys.argv[1:])"


def start(commands: Iterable[str], environment: Mapping[str, str]) -> None:
    """Start this run's server, if it has more than a few jobs; it ends with the run.

    commands: the sub-command of each job. environment: what jobs have beside this process's, to which SOCKET is added.
    """
    asked = list(commands)
    if len(asked) <= FEW:
        return
    modules = dict.fromkeys([*ALWAYS, *(name for command in asked for name in IMPORTS.get(command, ()))])
    if find_spec("bitsandbytes"):  # peft imports it, it asks the GPU what it can do, and no fork may use one after that
        modules = {name: None for name in modules if name not in (*IMPORTS["sft"], *IMPORTS["grpo"])}
    folder = tempfile.mkdtemp(prefix="rmft-")  # for nobody else, and short, as the path must be
    path = Path(folder) / "fork.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            listening.bind(str(path))
        except OSError:  # of too long a TMPDIR: then each job imports for itself
            shutil.rmtree(folder, ignore_errors=True)
            return
        listening.listen(256)  # from here on jobs wait for it
        subprocess.Popen(
            [sys.executable, "-c", SERVE, folder, str(listening.fileno()), *modules],
            env={**os.environ, **environment},
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,  # none of the run's streams: whoever reads those would wait for this process
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    os.environ[SOCKET] = str(path)


# --- The side of the process that was called ---


def hand_over() -> int | None:
    """Have the run's server do the job that this process was called for.

    Return the job's exit code, or None where there is no server, or it ends before the job begins.
    """
    if SOCKET not in os.environ:
        return None
    with socket.socket(socket.AF_UNIX) as server, server.makefile("r", encoding="ascii") as told:
        try:
            server.connect(os.environ[SOCKET])
            called = json.dumps([sys.argv, str(Path.cwd()), dict(os.environ), this_run()])
            socket.send_fds(server, [b"."], STREAMS)
            server.sendall(f"{called}\n".encode())
            number = told.readline()
        except OSError:
            return None
        except KeyboardInterrupt:
            return INTERRUPTED
        return _outcome(int(number), told) if number else None


def _outcome(number: int, told: TextIO) -> int:
    """Wait for the end of a job's process, which gets the signals that this one gets; return its exit code.

    Where nothing is told of it any more, that is 1: it has begun, so nobody else may do it.
    """

    def pass_on(signum: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(number, signum)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both: they are of one terminal
    try:
        return int(told.readline() or 1)
    except OSError:
        return 1


# --- The server's side ---


def serve(folder: str, listening_on: str, *modules: str) -> None:
    """Import modules; then fork a process for each job that is handed over, until the run ends; delete `folder`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the jobs
    for name in modules:
        if running(os.environ[JOB_OF]):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that the collections of jobs do not copy what they share with this process
    with socket.socket(fileno=int(listening_on)) as listening:
        job = _fork_jobs(listening)
    if job is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        _do(job)


def _fork_jobs(listening: socket.socket) -> socket.socket | None:
    """Fork and reap jobs until the run ends; in a fork, return the connection to whoever handed the job over.

    There is no thread here: a fork has none but its own, and would wait for ever for what another one holds.
    """
    ended, wake = socket.socketpair()
    ended.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    at_work: dict[int, socket.socket] = {}
    with ended, wake, selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while running(os.environ[JOB_OF]):
            for key, _ in selector.select(timeout=0.5):
                if key.fileobj is ended:
                    ended.recv(4096)
                    _report_ended(at_work)
                    continue
                client, _ = listening.accept()
                number = os.fork()
                if not number:
                    signal.set_wakeup_fd(-1)
                    for other in at_work.values():
                        other.close()
                    return client
                at_work[number] = client
                _tell(client, number)
    return None


def _report_ended(at_work: dict[int, socket.socket]) -> None:
    """Say how jobs ended to whoever handed them over; a signal is an exit code as in a shell."""
    while at_work:
        number, status = os.waitpid(-1, os.WNOHANG)
        if not number:
            return
        code = os.waitstatus_to_exitcode(status)
        with at_work.pop(number) as client:
            _tell(client, code if code >= 0 else 128 - code)


def _tell(client: socket.socket, number: int) -> None:
    with suppress(OSError):  # it is gone
        client.sendall(f"{number}\n".encode())


def _do(client: socket.socket) -> None:
    """Become the process that was called: in a fork, do its job to the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _, streams, _, _ = socket.recv_fds(client, 1, len(STREAMS))
    with client.makefile("rb") as reader:
        called = reader.readline()
    if not called:
        return
    sys.argv, folder, environment, caller = json.loads(called)
    for stream, own in zip(streams, STREAMS, strict=True):
        os.dup2(stream, own)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    done_for(caller)
    threading.Thread(target=_end_with, args=[client], daemon=True).start()
    from rmft.cli import main

    main()


def _end_with(client: socket.socket) -> None:
    """End when whoever handed over this job has ended, by whatever end."""
    with suppress(OSError):
        client.recv(1)
    os._exit(1)
