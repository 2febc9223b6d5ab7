"""The server process: it locks its folder, binds its port, serves until a signal, and leaves no process behind."""

import asyncio
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import uvicorn

from rmft.artifacts.files import atomic
from rmft.endpoint_server.app import Services, create
from rmft.endpoint_server.files import Files
from rmft.endpoint_server.fine_tuning_jobs import FineTuningJobs
from rmft.endpoint_server.generation import ResponseGenerator
from rmft.endpoint_server.idempotency import IdempotentRequests
from rmft.endpoint_server.models import ServedModels, digest_of_base
from rmft.endpoint_server.settings import MODELS, ServerSettings
from rmft.endpoint_server.store import Store
from rmft.errors import InputError
from rmft.instructions import use_avx2_only

KEEP_ALIVE_SECONDS = 600  # longer than clients keep connections, or they would be closed as a client reuses them
GRACE_SECONDS = 2.0  # for requests in progress when the server stops
SWITCH_SECONDS = 0.001  # Python's switch interval, so that the engine's thread does not hold up the routes


def serve(settings: ServerSettings) -> None:
    """Serve until SIGTERM or SIGINT. Raise InputError if the server cannot start."""
    if not settings.token:
        raise InputError("server: needs a key that clients must send; an empty one would let in everybody")
    use_avx2_only()
    with closing(Store(settings.state)) as store, _bound(settings.host, settings.port) as listener:
        services = _services(settings, store)
        port = listener.getsockname()[1]
        app = create(settings, services, lambda _: _background(services, settings, port))
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
        listener.listen()  # before the server is announced
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.collect()
        gc.freeze()  # everything loaded so far stays, so that the collector need not look at it again
        _EndpointServer(config, services.generator.engine.stop).run(sockets=[listener])


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket bound to a port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise InputError(f"server: cannot listen at {host}:{port}: {error.strerror or error}") from None
        yield listener


def _services(settings: ServerSettings, store: Store) -> Services:
    """Load the state and the base model."""
    models = ServedModels(settings.state / MODELS, settings.name, settings.model)
    files = Files(store, settings.state / "files")
    jobs = FineTuningJobs(settings, store, files, models)
    idempotent = IdempotentRequests(store, f"{digest_of_base(settings.model)} {settings.seed}")
    return Services(store, models, ResponseGenerator(settings, models), files, jobs, idempotent)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@asynccontextmanager
async def _background(services: Services, settings: ServerSettings, port: int) -> AsyncIterator[None]:
    """Run the engine and the fine-tuning jobs while the server runs, and announce it."""
    announce = settings.announce
    services.generator.engine.start()
    jobs = asyncio.create_task(services.jobs.work())
    if announce:
        with atomic(announce) as temporary:
            temporary.write_text(json.dumps({"pid": os.getpid(), "port": port}) + "\n", encoding="utf-8")
    else:  # nobody waits for the file, so somebody may be watching
        print(f"ready: {settings.name} at http://{_authority(settings.host, port)}/v1; Ctrl-C ends it", flush=True)
    try:
        yield
    finally:
        if announce:
            announce.unlink(missing_ok=True)
        services.generator.engine.stop()
        jobs.cancel()
        await asyncio.gather(jobs, return_exceptions=True)
        await asyncio.to_thread(services.generator.engine.thread.join, GRACE_SECONDS)


class _EndpointServer(uvicorn.Server):
    """A server that stops within seconds without an exception."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], object]) -> None:
        super().__init__(config)
        self.stop = stop

    def handle_exit(self, sig: int, frame: object) -> None:
        """Stop; at the second Ctrl-C at once. Without this, uvicorn would raise the signal again at the end."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and give requests in progress GRACE_SECONDS."""
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self.stop)
        await super().shutdown(sockets)
