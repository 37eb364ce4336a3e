"""Conversations with Docker containers: commands that the engine runs in them, and their own programs.

The engine carries all ends over one connection. Without a terminal every piece of output has a head of eight bytes:
which output it is, and how long.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import docker
from docker.errors import DockerException

from seatrial.harness.apiserver.conversation import STDERR, STDOUT, Conversation, Outcome, StreamSelection
from seatrial.harness.nodes.runtimes.descriptors import PIECE, pause
from seatrial.harness.nodes.runtimes.simulated import KILLED
from seatrial.scheduler.api.clock import Clock

log = logging.getLogger(__name__)

_HEAD = 8
_PIECES = 4  # of one output that may wait while the other is read
_SOON, _LOOKS = 0.01, 100  # seconds between questions after a command's end, and how many at most


class Engine(NamedTuple):
    """What a conversation needs of its runtime; `run_blocking` runs what may block beside the loop."""

    client: docker.DockerClient
    run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]]
    clock: Clock


class Hijacked:
    """The connection with the engine's stream of one program; created outside of the event loop, used on it."""

    def __init__(self, answer: Any) -> None:
        """`answer`: what the library gives for `socket=True`."""
        self._answer = answer  # holds the connection open
        self.plug: socket.socket = getattr(answer, "_sock", answer)
        self.plug.setblocking(False)
        response = getattr(answer, "_response", None)
        self.first = _already_read(response)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.plug.shutdown(socket.SHUT_RDWR)
        response = getattr(self._answer, "_response", None)
        if response is not None:
            response.close()
        self._answer.close()
        self.plug.close()


class Hosted(Conversation):
    """What is the same for commands and for containers' own programs."""

    def __init__(self, hijacked: Hijacked, engine: Engine, id_: str, *, tty: bool) -> None:
        """`id_`: the command's or the container's."""
        self._hijacked, self._engine, self._id, self._tty = hijacked, engine, id_, tty
        self._loop = asyncio.get_running_loop()
        self._outputs = {channel: asyncio.Queue[bytes](_PIECES) for channel in (STDOUT, STDERR)}
        self._ended: set[int] = set()
        self._task = self._loop.create_task(self._sort())
        self._open = True
        self._futures: set[asyncio.Future[Any]] = set()

    async def read(self, output: int) -> bytes:
        if output in self._ended:
            return b""
        data = await self._outputs[output].get()
        if not data:
            self._ended.add(output)
        return data

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            await self._loop.sock_sendall(self._hijacked.plug, data)

    def end_input(self) -> None:
        if self._open:
            with contextlib.suppress(OSError):
                self._hijacked.plug.shutdown(socket.SHUT_WR)

    def resize(self, columns: int, rows: int) -> None:
        if self._tty and self._open:

            def ask() -> None:
                with contextlib.suppress(DockerException):  # it has just ended
                    self._resize(columns, rows)

            future = asyncio.ensure_future(self._engine.run_blocking(ask))
            self._futures.add(future)
            future.add_done_callback(self._futures.discard)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._task.cancel()
            self._hijacked.close()

    @abstractmethod
    def _resize(self, columns: int, rows: int) -> None: ...

    async def _sort(self) -> None:
        """Hand each piece to its output."""
        data, output, left = self._hijacked.first, STDOUT, 0
        try:
            while True:
                if self._tty:
                    if data:
                        await self._outputs[STDOUT].put(data)
                    data = b""
                elif left and data:
                    await self._outputs[output].put(data[:left])
                    left, data = left - min(left, len(data)), data[left:]
                    continue
                elif not left and len(data) >= _HEAD:
                    output, left = data[0], int.from_bytes(data[4:_HEAD], "big")
                    output = STDERR if output == STDERR else STDOUT
                    data = data[_HEAD:]
                    continue
                more = await self._loop.sock_recv(self._hijacked.plug, PIECE)
                if not more:
                    break
                data += more
        except OSError:
            pass  # the engine or the program is gone
        for each in self._outputs.values():
            await each.put(b"")


class HostedCommand(Hosted):
    """A command in a container."""

    @classmethod
    async def begin(
        cls, engine: Engine, container: str, command: Sequence[str], selection: StreamSelection
    ) -> "HostedCommand":
        """
        Raises:
            DockerException: the engine does not run it.
        """

        def ask() -> tuple[str, Hijacked]:
            made = engine.client.api.exec_create(
                container,
                list(command),
                stdin=selection.stdin,
                stdout=selection.stdout,
                stderr=selection.stderr,
                tty=selection.tty,
            )
            return str(made["Id"]), Hijacked(engine.client.api.exec_start(made["Id"], tty=selection.tty, socket=True))

        id_, hijacked = await engine.run_blocking(ask)
        return cls(hijacked, engine, id_, tty=selection.tty)

    def _resize(self, columns: int, rows: int) -> None:
        self._engine.client.api.exec_resize(self._id, height=rows, width=columns)

    async def outcome(self) -> Outcome:
        for _ in range(_LOOKS):
            try:
                exec_inspect = await self._engine.run_blocking(lambda: self._engine.client.api.exec_inspect(self._id))
            except DockerException as error:
                return Outcome(KILLED, str(error))
            if not exec_inspect["Running"] and exec_inspect["ExitCode"] is not None:
                return Outcome(int(exec_inspect["ExitCode"]))
            await pause(self._engine.clock, _SOON)  # outputs end shortly before the engine records the end
        return Outcome(KILLED, "the command closed its outputs and still runs")

    def close(self) -> None:
        if self._open:
            super().close()
            future = asyncio.ensure_future(self._kill())
            self._futures.add(future)
            future.add_done_callback(self._futures.discard)

    async def _kill(self) -> None:
        """Kill the command's process; the engine's API cannot end a command."""
        try:
            for _ in range(_LOOKS):
                exec_inspect = await self._engine.run_blocking(lambda: self._engine.client.api.exec_inspect(self._id))
                if exec_inspect["Running"] and exec_inspect["Pid"]:
                    os.kill(int(exec_inspect["Pid"]), signal.SIGKILL)
                    return
                if exec_inspect["ExitCode"] is not None:
                    return  # it has ended
                await pause(self._engine.clock, _SOON)  # the engine has not recorded the start yet
        except (DockerException, OSError) as error:
            log.warning("command left exec=%s why=%s", self._id, error)


class HostedProgram(Hosted):
    """A client that is attached to a container's program."""

    @classmethod
    async def begin(cls, engine: Engine, container: str, selection: StreamSelection, *, tty: bool) -> "HostedProgram":
        """`tty`: whether the container has a terminal.

        Raises:
            DockerException: the engine refuses.
        """
        params = {name: int(getattr(selection, name)) for name in ("stdin", "stdout", "stderr")}

        def ask() -> Hijacked:
            return Hijacked(engine.client.api.attach_socket(container, params={**params, "stream": 1}))

        return cls(await engine.run_blocking(ask), engine, container, tty=tty)

    def _resize(self, columns: int, rows: int) -> None:
        self._engine.client.api.resize(self._id, height=rows, width=columns)

    async def outcome(self) -> Outcome:
        return Outcome()


def _already_read(response: Any) -> bytes:
    """Data that the HTTP library has read beyond the response: the beginning of the output."""
    reader = getattr(getattr(getattr(response, "raw", None), "_fp", None), "fp", None)
    if reader is None:
        return b""
    try:
        waiting = reader.peek(1)  # does not block: the socket is non-blocking
        return bytes(reader.read(len(waiting)) or b"") if waiting else b""
    except (BlockingIOError, ValueError):
        return b""
