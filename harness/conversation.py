"""Programs that somebody speaks with: the words between who runs containers and who carries their bytes to a client.

Everything is pulled: a program's output is read when there is room for it and its input is written when it takes it, so
that neither a slow client nor a program that does not read makes anybody keep more than a few buffers.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, Protocol

STDOUT: Final = 1
STDERR: Final = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of a program's ends are to be connected; with a terminal both outputs are one, `stdout`."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended. `code` is None where it was only listened to; `error` says why it could not be run."""

    code: int | None = None
    error: str = ""


class Conversation(ABC):
    """One command that was begun, or one client of a program that runs anyway. Use it on one event loop."""

    @abstractmethod
    async def read(self, output: int) -> bytes:
        """The next bytes of `STDOUT` or `STDERR`, some 64 KiB at most; empty once it has ended or was not wanted."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Hand it input, and wait until it is taken. A program that listens no more loses it."""

    @abstractmethod
    def end_input(self) -> None:
        """No more input comes."""

    @abstractmethod
    def resize(self, columns: int, rows: int) -> None:
        """The terminal has another size; nothing where there is no terminal."""

    @abstractmethod
    async def outcome(self) -> Outcome:
        """How it has ended, once it has."""

    @abstractmethod
    def close(self) -> None:
        """The client is gone: a command is killed, a container's own program goes on. Fine at any time, twice too."""


OUTPUTS: Final = Wanted(stdout=True, stderr=True)


async def everything(conversation: Conversation, output: int = STDOUT) -> bytes:
    """One output to its end."""
    said = b""
    while data := await conversation.read(output):
        said += data
    return said


class Pipe(ABC):
    """A connection to a port."""

    @abstractmethod
    async def read(self) -> bytes:
        """The next bytes, some 64 KiB at most; empty at the end."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Send, and wait until most of it is on its way.

        Raises:
            OSError: nobody listens any more.
        """

    @abstractmethod
    def end_input(self) -> None:
        """No more comes from here."""

    @abstractmethod
    def close(self) -> None:
        """At once, both ways; fine twice."""


class Containers(Protocol):
    """Where containers really run.

    All three raise a ClusterError where there is no such thing or it does not run.
    """

    async def exec(
        self, namespace: str, pod: str, container: str, command: list[str], wanted: Wanted
    ) -> Conversation: ...

    async def attach(self, namespace: str, pod: str, container: str, wanted: Wanted) -> Conversation: ...

    async def dial(self, namespace: str, pod: str, port: int) -> Pipe: ...
