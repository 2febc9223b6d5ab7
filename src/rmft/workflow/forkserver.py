"""A fork server: one process of a Snakemake run imports the libraries, and each job is a fork of that process.

`rmft` hands its job over to the server by a socket, where there is one (see `handover`); otherwise it does the job
itself. The forked job has the streams, folder, environment and arguments of the `rmft` that handed it over, and
ends when that one ends.
"""

import atexit
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
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import psutil

from rmft.artifacts.job import JOB_OF, done_for, running, this_run
from rmft.workflow.handover import SOCKET, STREAMS

FEW = 3  # with so few jobs, importing in each of them is as fast
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
ALWAYS = ("rmft.cli", "rmft.workflow.stage", "rmft.workflow.records", "pandas", "pyarrow.parquet")
# With these variables glibc keeps freed memory for the next tensor. Otherwise it gives large blocks back to the system,
# and fine-tuning waits while the system zeroes them to hand them out again. Other C libraries ignore the variables.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": f"{32 << 20}", "MALLOC_TRIM_THRESHOLD_": f"{8 << 30}"}
SERVE = "import sys; from rmft.__main__ import serve_jobs; serve_jobs(*sys.argv[1:])"


def start(stages: Iterable[str], environment: Mapping[str, str], *, at_endpoint: bool = False) -> None:
    """Start this run's server, if the run has more than a few jobs; the server ends with the run.

    stages: the stage of each job. environment: variables of jobs beside this process's; SOCKET is set here.
    at_endpoint: whether many jobs play at an endpoint.
    """
    stages = list(stages)
    if len(stages) <= FEW or sys.platform == "darwin":  # macOS has libraries that do not work in a fork without exec
        return
    imports = [*ALWAYS, *(name for stage in stages for name in IMPORTS.get(stage, ()))]
    modules = dict.fromkeys([*imports, "openai"] if at_endpoint else imports)
    if find_spec("bitsandbytes"):  # peft imports it; it initialises the GPU, which then works in no fork
        modules = {name: None for name in modules if name not in (*IMPORTS["sft"], *IMPORTS["grpo"])}
    folder = tempfile.mkdtemp(prefix="rmft-")  # private to this user, and short, as a socket's path must be
    path = Path(folder) / "fork.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        try:
            listening.bind(str(path))
        except OSError:  # TMPDIR is too long a path: each job imports for itself
            shutil.rmtree(folder, ignore_errors=True)
            return
        listening.listen(256)  # from here on jobs wait for the server
        subprocess.Popen(
            [sys.executable, "-c", SERVE, folder, str(listening.fileno()), *modules],
            env={**KEEP_FREED_MEMORY, **os.environ, **environment},
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,  # not the run's streams: a reader of those would wait for this process
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    os.environ[SOCKET] = str(path)


# --- In the server ---


def serve(folder: str, listening_on: str, *modules: str) -> bool:
    """Import modules; then fork a process for each job that is handed over, until the run ends; delete `folder`.

    Return True in a fork, which has become the process that handed over its job and must do that job.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the jobs
    for name in modules:
        if running(os.environ[JOB_OF]):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that garbage collection in jobs copies no memory that they share with this process
    with socket.socket(fileno=int(listening_on)) as listening:
        job = _fork_jobs(listening)
    if job is not None:
        tempfile.tempdir = folder  # what a killed job leaves there is deleted with the run
        return _become(job)
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _fork_jobs(listening: socket.socket) -> socket.socket | None:
    """Fork and reap jobs until the run ends; in a fork, return the connection to the process that handed its job over.

    Python has a single thread in the server: a fork has none but its own, and would wait for ever for a lock of another
    one. (pandas brings a thread of jemalloc's, whose locks are made for forks.)
    """
    ended, wake = socket.socketpair()
    ended.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    jobs: dict[int, socket.socket] = {}
    with ended, wake, selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while running(os.environ[JOB_OF]):
            for key, _ in selector.select(timeout=0.5):
                if key.fileobj is ended:
                    ended.recv(4096)
                    _report_ended(jobs)
                    continue
                client, _ = listening.accept()
                process = os.fork()
                if not process:
                    signal.set_wakeup_fd(-1)
                    for other in jobs.values():
                        other.close()
                    return client
                jobs[process] = client
                _send(client, process)
    return None


def _report_ended(jobs: dict[int, socket.socket]) -> None:
    """Send the exit codes of ended jobs to their callers; a signal is an exit code as in a shell."""
    while jobs:
        process, status = os.waitpid(-1, os.WNOHANG)
        if not process:
            return
        code = os.waitstatus_to_exitcode(status)
        with jobs.pop(process) as client:
            _send(client, code if code >= 0 else 128 - code)


def _send(client: socket.socket, number: int) -> None:
    with suppress(OSError):  # the caller has ended
        client.sendall(f"{number}\n".encode())


def _become(client: socket.socket) -> bool:
    """Take over the streams, arguments, folder and environment of a caller; return False where it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _, streams, _, _ = socket.recv_fds(client, 1, len(STREAMS))
    with client.makefile("rb") as reader:
        call = reader.readline()
    if not call:
        return False
    sys.argv, folder, environment, caller = json.loads(call)
    try:
        done_for(this_run(caller))
    except psutil.NoSuchProcess:
        return False
    for stream, own in zip(streams, STREAMS, strict=True):
        os.dup2(stream, own)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_end_with, args=[client], daemon=True).start()
    return True


def do_and_end(run: Callable[[], None]) -> NoReturn:
    """Do the job of a fork, and end the process as Python does, but for one thing: it deletes no objects.

    To delete them, Python would write to the memory that is shared with the server, and so have it copied: that takes a
    quarter of a second.
    """
    code = 1
    try:
        run()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _end_with(client: socket.socket) -> None:
    """End this process when its caller has ended, in whatever way."""
    with suppress(OSError):
        client.recv(1)
    os._exit(1)
