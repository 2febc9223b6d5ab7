"""Start servers of language models for a job, wait until they are ready, and end them with the job."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from httpx2 import HTTPError, get

from rmft.artifacts.files import note_ran_with
from rmft.errors import InputError

POLL_SECONDS = 0.2
START_SECONDS = 1800.0  # after which a server that does not start hangs; one that ends is noticed at once
END_SECONDS = 30.0
# Run a command that the kernel (Linux) ends with its parent, however the job ends.
END_WITH_PARENT = (
    "import ctypes, os, signal, sys; prctl = getattr(ctypes.CDLL(None), 'prctl', None);"
    " prctl and prctl(1, signal.SIGTERM); os.execvp(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class ServerCommand:
    """The command line of a server, without its address; what is added to the environment of the process."""

    command: Sequence[str]
    environment: Mapping[str, str]


@contextmanager
def running_servers(engine: str, commands: Sequence[ServerCommand], log: Path) -> Iterator[list[str]]:
    """Start servers, yield their addresses when all are ready, and end them afterwards.

    engine: the name of their section in `models`. log: file of their output.
    Raise InputError if a server does not start.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        output = stack.enter_context(log.open("w", encoding="utf-8"))
        started = []
        for server in commands:
            port = stack.enter_context(_reserved_port())
            process = subprocess.Popen(
                [sys.executable, "-c", END_WITH_PARENT, *server.command, "--host", "127.0.0.1", "--port", str(port)],
                env={**os.environ, **server.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_end, process)
            started.append((process, f"http://127.0.0.1:{port}"))
        for process, url in started:
            _wait(engine, process, url, log)
        yield [url for _, url in started]


@contextmanager
def _reserved_port() -> Iterator[int]:
    """Yield a port that nothing listens on, and that the system gives to nobody else who asks for any port.

    A server can listen on it, as it lets others bind a port on which nobody listens: SO_REUSEADDR, or SO_REUSEPORT.
    """
    with socket.socket() as bound:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def _wait(engine: str, process: subprocess.Popen, url: str, log: Path) -> None:
    """Wait until a server is ready. Raise InputError if it ends, or takes too long."""
    begun = time.monotonic()
    while time.monotonic() - begun < START_SECONDS:
        if process.poll() is not None:
            raise InputError(f"{engine}: a server ended with exit code {process.returncode}; {log} says why")
        with suppress(HTTPError):
            if get(f"{url}/health", trust_env=False).status_code == 200:
                return
        time.sleep(POLL_SECONDS)
    raise InputError(f"{engine}: a server was not ready after {START_SECONDS:g} s; see {log}")


def note_version(engine: str, address: str, field: str, key: str) -> None:
    """Note, for the receipts of a job, which version of a server plays, as far as the server says so at an address."""
    with suppress(HTTPError, ValueError, KeyError, TypeError):
        found = get(address, headers={"Authorization": f"Bearer {key}"}, trust_env=False).json()
        note_ran_with(engine, str(found[field]))


def _end(process: subprocess.Popen) -> None:
    """End a server and the processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
