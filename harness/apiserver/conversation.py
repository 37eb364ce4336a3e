"""Interactive programs in containers: the interface between container runtimes and the transport to a client.

All data is pulled: a program's output is read when there is room for it, and its input is written when the program
takes it. So slow clients and programs that do not read need only a few buffers.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, Protocol

STDOUT: Final = 1
STDERR: Final = 2


class ConversationError(Exception):
    """There is no conversation: the container does not exist or run, or nothing listens on the port."""


@dataclass(frozen=True, slots=True)
class StreamSelection:
    """The streams of a program to connect; with a terminal both outputs are in `stdout`."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a conversation: exit code (None for an attached client), and the error if it could not be run."""

    code: int | None = None
    error: str = ""


class Conversation(ABC):
    """One command in a container, or one client attached to the container's program. Use it on one event loop."""

    @abstractmethod
    async def read(self, output: int) -> bytes:
        """The next bytes of `STDOUT` or `STDERR`, about 64 KiB at most; empty at the end or if not connected."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Write input and wait until the program has taken it; lost if the program no longer reads."""

    @abstractmethod
    def end_input(self) -> None:
        """Close the program's input."""

    @abstractmethod
    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal; no effect without a terminal."""

    @abstractmethod
    async def outcome(self) -> Outcome:
        """Wait for the end and return it."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect the client: a command is killed, a container's own program continues. May be called twice."""


OUTPUTS: Final = StreamSelection(stdout=True, stderr=True)


async def everything(conversation: Conversation, output: int = STDOUT) -> bytes:
    """Read one output to its end."""
    message = b""
    while data := await conversation.read(output):
        message += data
    return message


class Pipe(ABC):
    """A connection to a port of a container."""

    @abstractmethod
    async def read(self) -> bytes:
        """The next bytes, about 64 KiB at most; empty at the end."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Send, and wait until the write buffer is below its limit.

        Raises:
            OSError: the other side has closed the connection.
        """

    @abstractmethod
    def end_input(self) -> None:
        """Close the sending direction."""

    @abstractmethod
    def close(self) -> None:
        """Close both directions immediately. May be called twice."""


class Containers(Protocol):
    """A runtime with real containers.

    All methods raise ConversationError if the container does not exist or does not run.
    """

    async def exec(
        self, namespace: str, pod: str, container: str, command: list[str], selection: StreamSelection
    ) -> Conversation: ...

    async def attach(self, namespace: str, pod: str, container: str, selection: StreamSelection) -> Conversation: ...

    async def dial(self, namespace: str, pod: str, port: int) -> Pipe: ...
