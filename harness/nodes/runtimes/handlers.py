"""Execution of probes and hooks: a command in the container, a request, a connection, a pause. Kubelet's rules.

A request succeeds with any status code from 200 to 399; certificates are not verified, and redirects are not followed.
What takes longer than its timeout has failed.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.pod_parts import Handler, HttpAction
from seatrial.harness.nodes.pods import ContainerPlan

Execute = Callable[[Sequence[str]], Awaitable[tuple[int, bytes]]]
_MAX_OUTPUT = 200  # characters of a command's output that a message repeats


class Unwell(Exception):
    """It answered, and not well; or it did not answer. The message is for the pod's events and the log."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a container is reached: its pod's address, its ports by name, and how a command is run in it."""

    ip: str
    plan: ContainerPlan
    execute: Execute

    def port(self, target: int | str) -> int:
        """
        Raises:
            Unwell: the container has no port of that name.
        """
        if isinstance(target, int) or target.isdecimal():
            return int(target)
        for port in self.plan.ports:
            if port.name == target:
                return port.container_port
        names = ", ".join(port.name for port in self.plan.ports if port.name) or "none"
        raise Unwell(f"port {target!r}: expected a port of container {self.plan.name!r} ({names})")


async def perform(handler: Handler, place: Place, *, within: float) -> None:
    """Run the handler, for at most `within` seconds.

    Raises:
        Unwell: it failed.
    """
    try:
        async with asyncio.timeout(within):
            await _perform(handler, place)
    except TimeoutError as error:
        raise Unwell(f"no answer within {within:g} s") from error
    except OSError as error:
        raise Unwell(f"{error.strerror or error}") from error
    except ClusterError as error:
        raise Unwell(str(error)) from error


async def _perform(handler: Handler, place: Place) -> None:
    if handler.exec is not None:
        code, output = await place.execute(handler.exec.command)
        if code:
            message = output.decode(errors="replace").strip()[:_MAX_OUTPUT]
            raise Unwell(f"command ended with {code}{f': {message}' if message else ''}")
    elif handler.http_get is not None:
        code = await _http(handler.http_get, place)
        if not 200 <= code < 400:
            raise Unwell(f"HTTP probe failed with statuscode: {code}")
    elif handler.tcp_socket is not None:
        port = place.port(handler.tcp_socket.port)
        _, writer = await asyncio.open_connection(handler.tcp_socket.host or place.ip, port)
        writer.close()
    elif handler.sleep is not None:
        await asyncio.sleep(handler.sleep.seconds)
    else:
        raise Unwell("expected exec, httpGet, tcpSocket or sleep; found another kind of handler")


async def _http(action: HttpAction, place: Place) -> int:
    host, port = action.host or place.ip, place.port(action.port)
    context = None
    if action.scheme == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        values = {header.name.lower(): header.value for header in action.http_headers}
        headers = {"host": f"{host}:{port}", "user-agent": "kube-probe/1.35", "accept": "*/*", "connection": "close"}
        lines = [f"{name}: {value}" for name, value in {**headers, **values}.items()]
        path = action.path if action.path.startswith("/") else f"/{action.path}"
        writer.write("\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode())
        await writer.drain()
        words = (await reader.readline()).split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/") or not (len(words[1]) == 3 and words[1].isdigit()):
            raise Unwell("expected an HTTP response, found something else")
        return int(words[1])
    finally:
        writer.close()
