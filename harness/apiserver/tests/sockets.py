"""A WebSocket client that can violate the protocol, and a server whose containers are local processes."""

import asyncio
import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from seatrial.harness.apiserver.conversation import Conversation, Pipe, StreamSelection
from seatrial.harness.apiserver.tests.asking import PODS, pod
from seatrial.harness.apiserver.tests.serving import Served, Wire, served
from seatrial.harness.nodes.runtimes.cgroups import Cgroups
from seatrial.harness.nodes.runtimes.process import ProcessRuntime
from seatrial.harness.nodes.runtimes.protocol import Work
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN, Reports, work
from seatrial.scheduler.api.clock import WallClock

UPGRADE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec_websocket_version": "13",
    "sec_websocket_key": base64.b64encode(b"0123456789abcdef").decode(),
    "sec_websocket_protocol": "v5.channel.k8s.io, v4.channel.k8s.io",
}
SPDY = {"connection": "Upgrade", "upgrade": "SPDY/3.1", "x_stream_protocol_version": "v4.channel.k8s.io"}
MASK = b"\x01\x02\x03\x04"


class OnePod:
    """`Containers` of which one pod is all: the runtime's own, whatever name is asked for."""

    def __init__(self, runtime: ProcessRuntime, it: Work) -> None:
        self.runtime, self.work = runtime, it

    async def exec(
        self, namespace: str, pod: str, container: str, command: list[str], selection: StreamSelection
    ) -> Conversation:
        return await self.runtime.exec(self.work, container, command, selection)

    async def attach(self, namespace: str, pod: str, container: str, selection: StreamSelection) -> Conversation:
        return await self.runtime.attach(self.work, container, selection)

    async def dial(self, namespace: str, pod: str, port: int) -> Pipe:
        return await self.runtime.dial(self.work, port)


@contextmanager
def with_processes(folder: Path, script: str = "exec sleep 600") -> Iterator[Served]:
    """A served API with the pod `p`, whose container `main` runs `script` with an input."""

    async def start() -> ProcessRuntime:
        runtime = ProcessRuntime(WallClock(), folder, groups=Cgroups(0, {}, "not asked for in these tests"))
        one, reports = replace(work(script, name="p", stdin=True), ip="127.0.0.1"), Reports()
        runtime.start(one, reports)
        await reports.state("running")
        api.api.containers = OnePod(runtime, one)
        return runtime

    async def stop(runtime: ProcessRuntime) -> None:
        runtime.close()

    with served() as api:
        runtime = asyncio.run_coroutine_threadsafe(start(), api.loop).result(WITHIN)
        try:
            with api.connect() as wire:
                assert wire.ask("POST", PODS, pod("p", nodeName="here"))[0] == 201
            yield api
        finally:
            asyncio.run_coroutine_threadsafe(stop(runtime), api.loop).result(WITHIN)


def masked(data: bytes, opcode: int = 2, *, last: bool = True) -> bytes:
    """A frame as clients send it."""
    size = len(data)
    head = bytes(((0x80 if last else 0) | opcode,))
    if size < 126:
        head += bytes((0x80 | size,))
    elif size < 1 << 16:
        head += b"\xfe" + size.to_bytes(2, "big")
    else:
        head += b"\xff" + size.to_bytes(8, "big")
    return head + MASK + bytes(byte ^ MASK[at % 4] for at, byte in enumerate(data))


def upgraded(wire: Wire, verb: str, query: str, after: bytes = b"", **headers: str) -> bytes:
    """Ask for another protocol, with `after` right behind the request; the head of the answer."""
    wire.send(wire.request("GET", f"{PODS}/p/{verb}?{query}", b"", **{**UPGRADE, **headers}) + after)
    head = wire._until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101"), head + wire._left
    return head


def frames(wire: Wire) -> Iterator[tuple[int, bytes]]:
    """Opcode and content of one frame after the other, until the server closes."""

    def has(size: int) -> bool:
        while len(wire._left) < size:
            more = wire._receive()
            if not more:
                return False
            wire._left += more
        return True

    while has(2):
        size, at = wire._left[1], 2
        if size >= 126:
            at += 2 if size == 126 else 8
            assert has(at)
            size = int.from_bytes(wire._left[2:at], "big")
        if not has(at + size):
            return
        results = wire._left[0] & 0x0F, wire._left[at : at + size]
        wire._left = wire._left[at + size :]
        yield results


def pieces(wire: Wire) -> Iterator[bytes]:
    """What comes, as it comes, until the server closes."""
    data, wire._left = wire._left, b""
    while data or (data := wire._receive()):
        yield data
        data = b""


def channel(wire: Wire, number: int, size: int) -> bytes:
    """At most that many bytes of a channel."""
    contents: list[bytes] = []
    for opcode, content in frames(wire) if size else ():
        if opcode == 2 and content[0] == number:
            contents.append(content[1:])
            size -= len(content) - 1
            if size <= 0:
                break
    return b"".join(contents)


class Ending:
    """All that comes until the server closes."""

    def __init__(self, wire: Wire) -> None:
        self.channels: dict[int, bytes] = {}
        self.pongs: list[bytes] = []
        self.close: int | None = None
        for opcode, content in frames(wire):
            if opcode == 2:
                self.channels[content[0]] = self.channels.get(content[0], b"") + content[1:]
            elif opcode == 10:
                self.pongs.append(content)
            elif opcode == 8:
                self.close = int.from_bytes(content[:2], "big")
