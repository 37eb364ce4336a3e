"""The listening socket: creates a `Connection` for each client."""

import asyncio
import ssl

from seatrial.harness.apiserver.server import ApiServer
from seatrial.harness.apiserver.transport.connection import CLOSE_WITHIN, Connection, Identify
from seatrial.harness.apiserver.transport.large_requests import LargeRequests

HANDSHAKE = 20.0  # seconds for the TLS handshake


class HttpServer:
    """The HTTP server; needs a running event loop."""

    def __init__(self, server: ApiServer, identify: Identify) -> None:
        self._server, self._identify = server, identify
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Start to listen. Returns the port; if `port` is 0 the system chooses one.

        Raises:
            OSError: the address is in use or not available.
        """
        loop = asyncio.get_running_loop()
        large_requests = LargeRequests(loop)
        self._listener = await loop.create_server(
            lambda: Connection(self._server, self._identify, self._connections, large_requests),
            host,
            port,
            ssl=tls,
            backlog=1024,
            ssl_handshake_timeout=HANDSHAKE if tls is not None else None,
            ssl_shutdown_timeout=CLOSE_WITHIN if tls is not None else None,
        )
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)
