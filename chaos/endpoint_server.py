"""Our own endpoint under random requests, slow, large and many clients, and a full disk: it refuses, and goes on.

Schemathesis makes requests from the OpenAPI schema of the server, most of them wrong in some way; a response of status
500 or higher went wrong. Every route is called without the key and with wrong ones. Clients that send a header a byte
at a time hold 500 connections while others are served. Bodies are too large, by their stated and by their true length.
A thousand clients ask at once: each is answered, or told to come back (429). On a disk without room an upload is
refused with status 507, and the server serves on. Size: requests that schemathesis makes, about.
"""

import asyncio
import json
import math
import random
import resource
import shutil
import socket
import subprocess
import sys
from collections import Counter
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import httpx2
from endpoint_servers import BODY_BYTES, TOKEN, UPLOAD_BYTES, Server

from chaos.counts import Counts
from rmft.endpoint_server.app import create
from rmft.endpoint_server.chat import ChatRequest, CompletionRequest
from rmft.endpoint_server.fine_tuning_request import FineTuningJobRequest
from rmft.errors import InputError

KEY = {"Authorization": f"Bearer {TOKEN}"}
BODIES = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
    "/v1/fine_tuning/jobs": FineTuningJobRequest,
}
WRONG_KEYS = ("", "Bearer", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"bearer {TOKEN}", f"Basic {TOKEN}", TOKEN, "☂")
SLOW, MANY = 500, 1000  # clients
FILE_BYTES = 60_000  # that a file may have where the disk is full
SECONDS = 120
CHAT = {"model": "embedded", "messages": [{"role": "user", "content": "Which action?"}], "max_tokens": 1}


def run(size: int, seed: int) -> Counts:
    """Send requests of all kinds; return what came of them."""
    counts = Counts()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with TemporaryDirectory(prefix="rmft-") as folder:
        with Server(Path(folder) / "state", max_tokens=4) as server:
            _without_key(server, counts)
            _oversize(server, counts)
            asyncio.run(_slow(server, counts))
            asyncio.run(_many(server, counts))
            _fuzz(server, size, seed, Path(folder), counts)
            if httpx2.get(f"{server.url}/v1/models", headers=KEY).status_code != 200:
                counts.fail("afterwards", "the server does not serve")
        _full_disk(Path(folder) / "full", counts)
    return counts


def schema() -> dict[str, Any]:
    """Return the server's OpenAPI schema, with the bodies that its routes parse themselves."""
    nothing = SimpleNamespace(models=None, files=None, jobs=None)
    app = create(SimpleNamespace(token=TOKEN), nothing, None)
    made = app.openapi()
    for path, body in BODIES.items():
        parts = body.model_json_schema(ref_template="#/components/schemas/{model}")
        made.setdefault("components", {}).setdefault("schemas", {}).update(parts.pop("$defs", {}))
        content = {"application/json": {"schema": parts}}
        made["paths"][path]["post"]["requestBody"] = {"content": content, "required": True}
    return made


def _fuzz(server: Server, size: int, seed: int, folder: Path, counts: Counts) -> None:
    """Have schemathesis make requests, and count the statuses of responses."""
    if find_spec("schemathesis") is None:
        raise InputError("endpoint_server needs schemathesis: pip install -e '.[chaos]'")
    routes = schema()
    (folder / "openapi.json").write_text(json.dumps(routes), encoding="utf-8")
    operations = sum(len(of) for of in routes["paths"].values())
    options = {
        "url": server.url,
        "header": f"Authorization: Bearer {TOKEN}",
        "seed": seed,
        "checks": "not_a_server_error",
        "phases": "coverage,fuzzing",
        "max-examples": math.ceil(size / operations),
        "suppress-health-check": "all",
        "report": "har",
        "report-har-path": "requests.har",
        "workers": 2,
        "request-timeout": SECONDS,
    }
    given = [f"--{option}={value}" for option, value in options.items()]
    command = [sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--continue-on-failure", *given]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not (folder / "requests.har").exists():
        raise InputError(f"schemathesis: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    for entry in json.loads((folder / "requests.har").read_text(encoding="utf-8"))["log"]["entries"]:
        request = entry["request"]
        _count("schemathesis", entry["response"]["status"], f"{request['method']} {request['url']}", counts)


def _count(harm: str, status: int, what: str, counts: Counts) -> None:
    if status >= 500 or status < 200:
        counts.fail(harm, f"{what}: status {status}")
    else:
        counts.add(harm, f"status {status // 100}xx" if status != 429 else "status 429")


def _without_key(server: Server, counts: Counts) -> None:
    """Call every route, and some that there are not, without the key and with wrong ones."""
    paths = {path.replace("{name}", "file-1"): of for path, of in schema()["paths"].items()}
    for path, methods in {**paths, "/": {"get": {}}, "/docs": {"get": {}}, "/openapi.json": {"get": {}}}.items():
        for method in methods:
            for key in (None, *WRONG_KEYS):
                headers = {} if key is None else {"Authorization": key.encode()}
                status = httpx2.request(method, f"{server.url}{path}", headers=headers).status_code
                if status == 401:
                    counts.add("without the key", "status 401")
                else:
                    counts.fail("without the key", f"{method} {path} with {key!r}: status {status}")


def _oversize(server: Server, counts: Counts) -> None:
    """Send bodies that are larger than they may be, or than they say."""
    for path, limit in (("/v1/chat/completions", BODY_BYTES), ("/v1/files", UPLOAD_BYTES)):
        kind = "multipart/form-data; boundary=b" if path == "/v1/files" else "application/json"
        for content in (b"x" * (limit + 1), (b"x" * 1000 for _ in range(limit // 1000 + 2))):  # whole, and in pieces
            headers = {**KEY, "Content-Type": kind}
            try:
                status = httpx2.post(f"{server.url}{path}", content=content, headers=headers).status_code
            except httpx2.TransportError:
                status = 413  # the server has hung up while the rest was being sent
            if status in (400, 413):
                counts.add("larger than allowed", f"status {status}")
            else:
                counts.fail("larger than allowed", f"{path}: status {status}")
    for stated in (b"-1", b"1e9", b"9" * 30, b"0x10", b"10, 11"):
        lines = [b"POST /v1/chat/completions HTTP/1.1", b"Host: x", f"Authorization: Bearer {TOKEN}".encode()]
        with closing(socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)) as client:
            client.sendall(b"\r\n".join([*lines, b"Content-Length: " + stated, b"", b"{}"]))
            status = int(client.recv(100).split()[1])
        _count("odd length", status, repr(stated), counts)


async def _slow(server: Server, counts: Counts) -> None:
    """Hold connections whose headers come a byte at a time; others must be served meanwhile."""
    writers = [(await asyncio.open_connection("127.0.0.1", server.port))[1] for _ in range(SLOW)]
    async with httpx2.AsyncClient(timeout=SECONDS, headers=KEY) as client:
        for byte in b"GET /v1/models HTTP/1.1\r\nX-Slow: ":
            for writer in writers:
                writer.write(bytes([byte]))
            status = (await client.get(f"{server.url}/v1/models")).status_code
            _count(f"beside {SLOW} slow clients", status, "GET /v1/models", counts)
    for writer in writers:
        writer.close()


async def _many(server: Server, counts: Counts) -> None:
    """Ask from many clients at once; who is told to come back later does so, until all are answered."""
    limits = httpx2.Limits(max_connections=None)

    async def ask(client: httpx2.AsyncClient) -> None:
        for attempt in range(SECONDS):
            status = (await client.post(f"{server.url}/v1/chat/completions", json=CHAT)).status_code
            _count(f"{MANY} clients at once", status, "POST /v1/chat/completions", counts)
            if status == 200:
                return
            await asyncio.sleep(1 + random.random() * attempt)
        counts.fail(f"{MANY} clients at once", "was never answered")

    async with httpx2.AsyncClient(timeout=SECONDS, headers=KEY, limits=limits) as client:
        await asyncio.gather(*(ask(client) for _ in range(MANY)))


def _full_disk(state: Path, counts: Counts) -> None:
    """Let the server run out of room for an upload; then give it room."""
    with Server(state) as server:
        for length, room, expected in ((2, 1, 507), (0.1, 1, 200), (2, None, 200)):  # in FILE_BYTES
            limit = -1 if room is None else room * FILE_BYTES
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (limit, -1))
            files = {"file": (f"{length}.jsonl", b'{"messages": []}\n'.ljust(int(length * FILE_BYTES)))}
            response = httpx2.post(f"{server.url}/v1/files", headers=KEY, files=files, data={"purpose": "fine-tune"})
            if response.status_code == expected:
                counts.add("full disk", f"status {expected}")
            else:
                counts.fail("full disk", f"{length} of {room}: {response.status_code} {response.text[:200]}")
    left = Counter(path.suffix for path in (state / "files").iterdir())
    if left.total() != 2:
        counts.fail("full disk", f"left {left}")
    shutil.rmtree(state)
