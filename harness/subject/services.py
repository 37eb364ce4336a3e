"""Client of a scheduler's debug and services port: health, metrics, debug flags, node state."""

import http.client
import socket
from urllib.parse import urlsplit

from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.transport import Response

PORT = "{port}"  # in a command line or an address: a port that is free when the process starts
ANSWER_WITHIN = 10.0  # seconds
LOOPBACK = "127.0.0.1"
KNOWN = ("inprocess", "seatrial", "none")  # whom we start ourselves, on a port that we choose


def check_services(url: str, subject: str) -> None:
    """
    Raises:
        UsageError: this is no address that we could ask, or the subject's is known anyway.
    """
    if subject in KNOWN:
        raise UsageError(f"--services {url}: for a binary or a deployed scheduler; that of {subject!r} is known")
    try:
        parts = urlsplit(url.replace(PORT, "1"))
        usable = parts.scheme == "http" and bool(parts.hostname) and not parts.query and (parts.port or 0) >= 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"--services {url}: expected http://HOST:PORT of the scheduler's debug port, and no query")


def free_port() -> int:
    """Return a free TCP port of the loopback address."""
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        port: int = one.getsockname()[1]
        return port


def listening_socket() -> tuple[socket.socket, str]:
    """Return a socket that listens on a free port of the loopback address, for a child process, and its URL.

    The child inherits it, so no other process can take the port between the choice and the start.
    """
    listening = socket.create_server((LOOPBACK, 0))
    listening.set_inheritable(True)
    return listening, f"http://{LOOPBACK}:{listening.getsockname()[1]}"


def ask(url: str, method: str, path: str, body: bytes = b"") -> Response:
    """One request to the scheduler at `url`; `path` begins with a slash. Code 0 means that no answer came."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or LOOPBACK, parts.port, timeout=ANSWER_WITHIN)
    try:
        connection.request(method, parts.path.rstrip("/") + path, body or None)
        answer = connection.getresponse()
        return Response(answer.status, answer.read(), dict(answer.getheaders()))
    except (OSError, http.client.HTTPException) as error:
        return Response(0, f"{method} {url}{path}: {error}".encode())
    finally:
        connection.close()
