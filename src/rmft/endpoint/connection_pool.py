"""Many requests at once to one address, each on a connection of its own.

A pool of connections looks at each of them, with a system call, whenever a request begins or ends: with 64 games at
once that costs more than all else that is done for a request.
"""

from collections import deque

from httpx2 import AsyncBaseTransport, AsyncHTTPTransport, Limits, Request, Response, create_ssl_context


class ConnectionPool(AsyncBaseTransport):
    """So many pools of one connection each, which is kept for a while when it is idle.

    A lane that has just answered comes last, since its answer's body may still be on the way.
    """

    def __init__(self, count: int, idle_seconds: float) -> None:
        limits = Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=idle_seconds)
        context = create_ssl_context()
        self.lanes = [AsyncHTTPTransport(verify=context, limits=limits) for _ in range(count)]
        self._free = deque(self.lanes)

    async def handle_async_request(self, request: Request) -> Response:
        """Send a request on a free lane. Callers have at most as many under way as there are lanes."""
        lane = self._free.popleft()
        try:
            return await lane.handle_async_request(request)
        finally:
            self._free.append(lane)

    async def aclose(self) -> None:
        """Close all connections."""
        for lane in self.lanes:
            await lane.aclose()
