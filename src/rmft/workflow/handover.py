"""What the `rmft` of a job does where a fork server does the job: hand the job over, and wait for its end.

Each job starts this program, so this module imports little: with psutil, pathlib and the like, which the server has
anyway, the program would take more than twice as long to start.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from io import TextIOBase

SOCKET = "RMFT_FORK_SERVER"  # environment variable of jobs: the path of the socket that the server listens on
STREAMS = (0, 1, 2)


def hand_over() -> int | None:
    """Have the run's server do the job of this process.

    Return the job's exit code, or None where there is no server, or the server ends before the job begins.
    """
    if SOCKET not in os.environ:
        return None
    with socket.socket(socket.AF_UNIX) as server, server.makefile("r", encoding="ascii") as lines:
        try:
            server.connect(os.environ[SOCKET])
            socket.send_fds(server, [b"."], STREAMS)
            call = json.dumps([sys.argv, os.getcwd(), dict(os.environ), os.getpid()])  # noqa: PTH109 (pathlib is not imported)
            server.sendall(f"{call}\n".encode())
            process = lines.readline()
        except OSError:
            return None
        except KeyboardInterrupt:
            from rmft.errors import INTERRUPTED

            return INTERRUPTED
        return _exit_code(int(process), lines) if process else None


def _exit_code(process: int, lines: TextIOBase) -> int:
    """Wait for the end of a job's process and return its exit code; pass on the signals that this process gets.

    Return 1 where the server has ended without a code: the job has begun, so it must not be done again.
    """

    def pass_on(signum: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(process, signum)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both: they share a terminal
    try:
        return int(lines.readline() or 1)
    except OSError:
        return 1
