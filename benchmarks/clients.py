"""What a request to an endpoint costs the client: ours, and httpx's, which the vendors' libraries use.

    python benchmarks/clients.py --at-once 16 256

A server in a process of its own answers each request with as many bytes as our endpoint does. A round sends so many
requests together and waits for all responses, as a round of games does. Times are CPU time of the client's process in
milliseconds a request, medians over rounds; the clients take turns.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from httpx2 import AsyncClient, Limits

from rmft.endpoint.http_client import HttpClient

ROUNDS = 20
BODY = {"messages": [{"role": "user", "content": "z" * 150}] * 26, "temperature": 1.0}
ANSWER = b'{"text": "' + b"y" * 900 + b'"}'
SERVE = f"""
import socket, uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI()

@app.post("/chat/completions")
async def respond(request: Request) -> Response:
    await request.body()
    return Response({ANSWER!r}, media_type="application/json")

with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning")).run(sockets=[listener])
"""
Post = Callable[[], Awaitable[bytes]]


async def milliseconds(post: Post, at_once: int) -> float:
    """Return the client's CPU time for a request of a round."""
    begun = time.process_time()
    for content in await asyncio.gather(*(post() for _ in range(at_once))):
        json.loads(content)
    return 1e3 * (time.process_time() - begun) / at_once


async def measure(url: str, at_once: int) -> list[float]:
    """Return the median milliseconds of httpx's client and of ours."""
    async with AsyncExitStack() as stack:
        limits = Limits(max_connections=at_once, max_keepalive_connections=at_once)
        httpx = await stack.enter_async_context(AsyncClient(base_url=url, limits=limits, trust_env=False))
        ours = HttpClient(url, at_once, headers={}, timeout=60.0, trust_env=False)
        stack.push_async_callback(ours.close)

        async def by_httpx() -> bytes:
            return (await httpx.post("/chat/completions", json=BODY)).content

        async def by_ours() -> bytes:
            return (await ours.post("/chat/completions", BODY)).content

        posts = by_httpx, by_ours
        rounds = [[await milliseconds(post, at_once) for post in posts] for _ in range(1 + ROUNDS)]
        return [statistics.median(each) for each in zip(*rounds[1:], strict=True)]  # the first one connects


def main() -> None:
    """Print the times and their ratio for each number of requests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 16, 64, 256], metavar="N")
    options = parser.parse_args()
    with subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True) as server:
        try:
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            print(f"{'requests at once':<20}{'httpx':>8}{'ours':>8}{'ratio':>8}")
            for at_once in options.at_once:
                httpx, ours = asyncio.run(measure(url, at_once))
                print(f"{at_once:<20}{httpx:>8.2f}{ours:>8.2f}{httpx / ours:>8.1f}", flush=True)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
