"""Conversations with processes: commands run inside a container (exec), and the container's program (attach)."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from seatrial.harness.apiserver.conversation import STDERR, STDOUT, Conversation, Outcome, StreamSelection
from seatrial.harness.nodes.runtimes.descriptors import PIECE, Descriptor, pause
from seatrial.harness.nodes.runtimes.simulated import KILLED
from seatrial.harness.nodes.runtimes.supervised_process import Status, SupervisedProcess
from seatrial.harness.nodes.runtimes.supervisor import END_OF_FILE
from seatrial.scheduler.api.clock import Clock

_SOON, _LATER = 0.01, 0.1  # seconds between reads of a log: while it grows, and when it has not grown for a while


class Ends:
    """Both sides of a command's input and outputs. The program gets `program`; then `handed_over` closes them here."""

    def __init__(self, selection: StreamSelection) -> None:
        self.input: Descriptor | None = None
        self.outputs: dict[int, Descriptor] = {}
        self._theirs: list[int] = []
        try:
            self.program = self._terminal() if selection.tty else self._pipes(selection)
        except BaseException:
            self.handed_over()
            self.close()
            raise

    def _terminal(self) -> list[int]:
        own, theirs = os.openpty()
        self._theirs.append(theirs)
        self.outputs[STDOUT] = self.input = Descriptor(own)
        return [theirs, theirs, theirs]

    def _pipes(self, selection: StreamSelection) -> list[int]:
        program = []
        if selection.stdin:
            theirs, own = os.pipe()
            self.input = Descriptor(own)
        else:
            theirs = os.open(os.devnull, os.O_RDONLY)
        self._theirs.append(theirs)
        program.append(theirs)
        for output, is_wanted in ((STDOUT, selection.stdout), (STDERR, selection.stderr)):
            if is_wanted:
                own, theirs = os.pipe()
                self.outputs[output] = Descriptor(own)
            else:
                theirs = os.open(os.devnull, os.O_WRONLY)
            self._theirs.append(theirs)
            program.append(theirs)
        return program

    def handed_over(self) -> None:
        """Close the program's side here, so that its end is reported as end of file."""
        for descriptor in self._theirs:
            os.close(descriptor)
        self._theirs.clear()

    def close(self) -> None:
        """Close what is still open."""
        for stream in (self.input, *self.outputs.values()):
            if stream is not None:
                stream.close()


class Command(Conversation):
    """A command with its own supervisor."""

    def __init__(
        self, ends: Ends, selection: StreamSelection, launch: Callable[[Callable[[], None]], SupervisedProcess]
    ) -> None:
        """
        Raises:
            OSError: no process can be made.
        """
        self._ends, self._selection = ends, selection
        self._over = asyncio.Event()
        self._status = Status()
        try:
            self.process = launch(self._changed)
        except BaseException:
            ends.close()
            raise
        finally:
            ends.handed_over()

    def _changed(self) -> None:
        if self.process.gone:
            self._status = self.process.status
            self._over.set()

    async def read(self, output: int) -> bytes:
        descriptor = self._ends.outputs.get(output)
        return await descriptor.read() if descriptor is not None else b""

    async def write(self, data: bytes) -> None:
        if self._ends.input is not None:
            await self._ends.input.write(data)

    def end_input(self) -> None:
        if not self._selection.tty and self._ends.input is not None:
            self._ends.input.close()
        elif self._ends.input is not None:
            self._ends.input.type(END_OF_FILE)

    def resize(self, columns: int, rows: int) -> None:
        if self._selection.tty and self._ends.input is not None:
            self._ends.input.resize(columns, rows)

    async def outcome(self) -> Outcome:
        await self._over.wait()
        status = self._status
        if status.error:
            return Outcome(status.code, f"error executing command in container: {status.error}")
        return Outcome(KILLED if status.code is None else status.code)

    def close(self) -> None:
        self.process.stop(0.0)
        self._ends.close()


class Attached(Conversation):
    """A client that is attached to a container's program: its log from now on, and its input if it has one.

    The log does not separate the two outputs, so both are sent as the standard output.
    """

    def __init__(
        self,
        process: SupervisedProcess,
        log: Path,
        selection: StreamSelection,
        clock: Clock,
        *,
        stdin: bool,
        once: bool,
    ) -> None:
        """`stdin`: whether the program has an input; `once`: the input closes after the first client (`stdinOnce`)."""
        self._process, self._selection, self._clock, self._once = (
            process,
            selection,
            clock,
            once and stdin and selection.stdin,
        )
        self._output = STDOUT if selection.stdout else STDERR
        self._log = log.open("rb")
        self._log.seek(0, os.SEEK_END)
        self._pause = _SOON
        self._open = True
        self._input: Descriptor | None = None
        if stdin and selection.stdin:
            try:
                self._input = Descriptor(os.open(process.folder / "input", os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                self._input = None  # the program has closed its input

    async def read(self, output: int) -> bytes:
        if output != self._output:
            return b""
        while self._open:
            ended = self._process.gone  # checked before the read, so that the last output is not missed
            data = self._log.read(PIECE)
            if data:
                self._pause = _SOON
                return data
            if ended:
                break
            await pause(self._clock, self._pause)
            self._pause = min(_LATER, self._pause * 1.5)
        return b""

    async def write(self, data: bytes) -> None:
        self._pause = _SOON  # an answer may follow
        if self._input is not None:
            await self._input.write(data)

    def end_input(self) -> None:
        if self._input is not None:
            self._input.close()
            self._input = None
            if self._once:
                self._process.end_input()

    def resize(self, columns: int, rows: int) -> None:
        if self._selection.tty:
            self._process.resize(columns, rows)

    async def outcome(self) -> Outcome:
        return Outcome()  # attach reports the end, not the exit code

    def close(self) -> None:
        self.end_input()
        if self._open:
            self._open = False
            self._log.close()
