"""The process: it holds its folder and its port, answers until it is told to stop, and leaves nothing running."""

import asyncio
import fcntl
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import uvicorn

from rmft.artifacts.files import atomic
from rmft.endpoint_server.app import Parts, create
from rmft.endpoint_server.batches import Batches
from rmft.endpoint_server.files import Files
from rmft.endpoint_server.jobs import Jobs
from rmft.endpoint_server.models import Models
from rmft.endpoint_server.once import Once
from rmft.endpoint_server.replies import Replies
from rmft.endpoint_server.settings import ServerSettings
from rmft.endpoint_server.store import Answers
from rmft.errors import InputError

KEEP_ALIVE_SECONDS = 600  # longer than clients keep a connection, or some would be cut as they use it again
GRACE_SECONDS = 2.0  # for what is under way when the server is told to stop
SWITCH_SECONDS = 0.001  # after which the engine lets the routes go on, and these the engine


def serve(settings: ServerSettings) -> None:
    """Answer until SIGTERM or SIGINT. Raise InputError where that cannot be."""
    if not settings.token:
        raise InputError("server: it needs a token that clients must show; an empty one would let in everybody")
    with _holding(settings.state), _bound(settings.host, settings.port) as listener:
        parts = _parts(settings)
        app = create(settings, parts, lambda _: _working(parts))
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="on",
            access_log=False,
            log_level="warning",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=2 * GRACE_SECONDS,
        )
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.collect()
        gc.freeze()  # what is loaded by now stays, and need not be looked through again
        _Server(config, settings.announce, parts).run(sockets=[listener])


@contextmanager
def _holding(state: Path) -> Iterator[None]:
    """Keep other servers off a folder."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (state / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError:
        raise InputError(f"{state}: another server keeps its state there; stop it, or take another folder") from None
    except OSError as error:
        raise InputError(f"{state}: cannot be used: {error.strerror or error}") from None


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """Hold a port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise InputError(f"server: {host}:{port} cannot be listened at: {error.strerror or error}") from None
        yield listener


def _parts(settings: ServerSettings) -> Parts:
    """Load everything."""
    models = Models(settings.state / "models", settings.name)
    files = Files(settings.state / "files")
    jobs = Jobs(settings, files, models)
    once = Once(Answers(settings.state))
    replies = Replies(settings, models)
    return Parts(models, replies, files, jobs, Batches(settings.state / "batches", files, replies, once), once)


@asynccontextmanager
async def _working(parts: Parts) -> AsyncIterator[None]:
    """Do, while the server runs, what no request waits for."""
    parts.replies.start()
    tasks = [asyncio.create_task(work) for work in (parts.jobs.work(), parts.batches.work())]
    try:
        yield
    finally:
        parts.replies.engine.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(parts.replies.engine.thread.join, GRACE_SECONDS)


class _Server(uvicorn.Server):
    """Tells when it is ready, ends without an exception when it is told to, and lets nobody wait too long for that."""

    def __init__(self, config: uvicorn.Config, announce: Path | None, parts: Parts) -> None:
        super().__init__(config)
        self.announce, self.parts = announce, parts

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.announce:
            ready = {"pid": os.getpid(), "port": sockets[0].getsockname()[1]}
            with atomic(self.announce) as temporary:
                temporary.write_text(json.dumps(ready) + "\n", encoding="utf-8")

    def handle_exit(self, sig: int, frame: object) -> None:
        """End, at the second Ctrl-C at once. The signal is not raised again in the end: it was obeyed."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen no more, and wait a little for what is under way."""
        if self.announce:
            with suppress(OSError):
                self.announce.unlink()
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self.parts.replies.engine.stop)
        await super().shutdown(sockets)
