"""Many connections to one address, so that many requests can be in progress at once.

httpx2's own pool looks at each of its connections, with a system call, whenever a request begins or ends. With 64
games at once this costs more than everything else that the client does for a request.
"""

from collections import deque

from httpx2 import AsyncBaseTransport, AsyncHTTPTransport, Limits, Request, Response, create_ssl_context


class ConnectionPool(AsyncBaseTransport):
    """A pool of connections; an idle connection is kept open for some seconds.

    The connection that was used last is taken last, since the body of its response may still be on the way.
    """

    def __init__(self, count: int, idle_seconds: float) -> None:
        limits = Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=idle_seconds)
        context = create_ssl_context()
        self._connections = [AsyncHTTPTransport(verify=context, limits=limits) for _ in range(count)]
        self._free = deque(self._connections)

    async def handle_async_request(self, request: Request) -> Response:
        """Send a request on a free connection. Callers must not send more than `count` requests at once."""
        connection = self._free.popleft()
        try:
            return await connection.handle_async_request(request)
        finally:
            self._free.append(connection)

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            await connection.aclose()
