"""HTTPS servers that stand for the kubelets of simulated nodes: health, the node's pods, and their logs.

kube-apiserver reads logs from the address and port in the status of a pod's node. Each node has an address and port of
its own. On loopback the address is one of 127.0.0.0/8; elsewhere all nodes share an address of this machine.
Paths follow `pkg/kubelet/server/server.go`. Containers are simulated, so exec, attach and portForward are refused.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import parse_qs, urlsplit

from seatrial.harness.nodes.node_agents import KubeletAddress

log = logging.getLogger(__name__)

Logs = Callable[[str, str, str], bytes | None]  # namespace, pod, container → output
Pods = Callable[[str], Awaitable[bytes]]  # node → a PodList

HEAD_LIMIT = 16_384  # bytes of a request's head
READ_WITHIN = 10.0  # seconds
FOLLOW_INTERVAL = 0.25  # seconds between two looks for further output
LOOPBACK = "127."
_BACKLOG = 16
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 501: "Not Implemented"}
_REFUSED = frozenset({"exec", "attach", "portForward", "run", "cri"})


class KubeletEndpoints:
    """Opens and closes one server for each node; in the running event loop."""

    def __init__(self, logs: Logs, pods: Pods, tls: ssl.SSLContext, host: str = "") -> None:
        """`host`: the address that all nodes share; empty: each has an address in 127.0.0.0/8."""
        self._logs, self._pods, self._tls, self._host = logs, pods, tls, host
        self._servers: dict[str, asyncio.Task[asyncio.Server]] = {}

    def open(self, node: str, number: int) -> KubeletAddress:
        """Start to listen for a node; `number` distinguishes the nodes."""
        host = self._host or f"{LOOPBACK}{64 + (number >> 16) % 64}.{number >> 8 & 255}.{number & 255}"
        listening = socket.create_server((host, 0), backlog=_BACKLOG)
        listening.setblocking(False)
        self._servers[node] = asyncio.get_running_loop().create_task(
            asyncio.start_server(partial(self._answer, node), sock=listening, ssl=self._tls, limit=HEAD_LIMIT)
        )
        return KubeletAddress(host, listening.getsockname()[1])

    def close(self, node: str) -> None:
        """Stop to listen for a node."""
        task = self._servers.pop(node, None)
        if task is not None:
            task.add_done_callback(_close)

    async def _answer(self, node: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), READ_WITHIN)
            method, target, *_ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
            await self._respond(node, writer, method, target)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError) as error:
            log.debug("kubelet-endpoint request-failed why=%s", error)
        finally:
            writer.close()

    async def _respond(self, node: str, writer: asyncio.StreamWriter, method: str, target: str) -> None:
        url = urlsplit(target)
        parts = url.path.strip("/").split("/")
        if parts[0] in _REFUSED:
            return _send(writer, 501, b"the node simulates its containers: there is no process for this request\n")
        if method != "GET":
            return _send(writer, 405, b"only GET is supported\n")
        if parts == ["healthz"]:
            return _send(writer, 200, b"ok")
        if parts == ["pods"]:
            return _send(writer, 200, await self._pods(node))
        if parts[0] != "containerLogs" or len(parts) != 4:
            return _send(writer, 404, b"404 page not found\n")
        namespace, pod, container = parts[1:]
        output = self._logs(namespace, pod, container)
        if output is None:
            words = f'container "{container}" in pod "{pod}" is not running on this node\n'
            return _send(writer, 404, words.encode())
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        try:
            first = cut(output, query)
        except ValueError as error:
            return _send(writer, 400, f"{error}\n".encode())
        if query.get("follow") in {"true", "1"}:
            return await self._follow(writer, (namespace, pod, container), first, len(output))
        return _send(writer, 200, first)

    async def _follow(self, writer: asyncio.StreamWriter, of: tuple[str, str, str], first: bytes, seen: int) -> None:
        """Send further output until the container's output is no longer there or the client goes."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" + first)
        while not writer.is_closing():
            await writer.drain()
            await asyncio.sleep(FOLLOW_INTERVAL)
            output = self._logs(*of)
            if output is None:
                return
            writer.write(output[seen:])
            seen = len(output)


def cut(output: bytes, query: dict[str, str]) -> bytes:
    """The part of the output that `tailLines` and `limitBytes` select.

    Raises:
        ValueError: an option is no number.
    """
    if "tailLines" in query:
        number = _number(query, "tailLines")
        lines = output.splitlines(keepends=True)
        output = b"".join(lines[-number:]) if number else b""
    if "limitBytes" in query:
        output = output[: _number(query, "limitBytes")]
    return output


def _number(query: dict[str, str], name: str) -> int:
    value = query[name]
    if not value.isascii() or not value.isdigit():
        raise ValueError(f"{name}: expected a whole number, 0 or greater, found {value!r}")
    return int(value)


def _send(writer: asyncio.StreamWriter, code: int, body: bytes) -> None:
    head = (
        f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)


def _close(task: "asyncio.Task[asyncio.Server]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()
