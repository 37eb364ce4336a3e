"""exec and attach: carries stdin, stdout and stderr of a program over WebSocket channels or SPDY streams."""

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson

from seatrial.harness.apiserver.conversation import Conversation, ConversationError, Outcome, StreamSelection
from seatrial.harness.apiserver.streams.line import Inlet, Line
from seatrial.harness.apiserver.streams.multiplexing import Streams
from seatrial.harness.apiserver.streams.sockets import Channels

log = logging.getLogger(__name__)

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
OPEN_WITHIN: Final = 30.0  # seconds within which a client must open its streams
_MAX_RESIZE = 4096  # bytes of an incomplete resize message
_DECODER = json.JSONDecoder()

Begin = Callable[[], Awaitable[Conversation]]


class Conversing(ABC):
    """One exec or attach. Subclasses implement the transport."""

    def __init__(self, line: Line, begin: Begin, selection: StreamSelection) -> None:
        self._line, self._begin, self._selection = line, begin, selection
        self._inlet = Inlet(line)
        self._conversation: Conversation | None = None
        self._size: tuple[int, int] | None = None
        self._sizes = b""
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    def _send(self, channel: int, data: bytes) -> None: ...

    @abstractmethod
    def _end(self, channel: int) -> None: ...

    @abstractmethod
    def _finish(self) -> None:
        """Close the connection after the last message."""

    # -- from the client -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _heard(self, channel: int, data: bytes) -> None:
        if channel == STDIN and self._selection.stdin:
            self._inlet.put(data)
        elif channel == RESIZE:
            self._resize(data)
        # Other channels are ignored, as upstream.

    def _ended(self, channel: int) -> None:
        if channel == STDIN:
            self._inlet.end()

    def _gone(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _resize(self, data: bytes) -> None:
        """Parse terminal sizes: a sequence of JSON objects, independent of message boundaries."""
        self._sizes += data
        while text := self._sizes.decode("utf-8", "replace").lstrip():
            try:
                size, at = _DECODER.raw_decode(text)
            except ValueError:
                if len(self._sizes) > _MAX_RESIZE:
                    self._sizes = b""
                return
            self._sizes = text[at:].encode()
            if isinstance(size, dict) and all(_is_length(size.get(name)) for name in ("Width", "Height")):
                self._size = (size["Width"], size["Height"])
                if self._conversation is not None:
                    self._conversation.resize(*self._size)
        self._sizes = b""

    # -- to the client -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            status = await self._converse()
        except ConversationError as error:
            status = {"status": "Failure", "reason": "InternalError", "message": str(error), "code": 500}
        except (ConnectionError, asyncio.CancelledError):
            return  # the client is gone
        except Exception as error:  # a fault in the server must not leave the client waiting
            log.exception("conversation failed")
            why = f"{type(error).__name__}: {error}"
            status = {"status": "Failure", "reason": "InternalError", "message": why, "code": 500}
        finally:
            self._inlet.shut()
        self._send(ERROR, orjson.dumps({"metadata": {}, **status}))
        self._end(ERROR)
        self._finish()

    async def _converse(self) -> dict[str, Any]:
        conversation = self._conversation = await self._begin()
        try:
            if self._size is not None:
                conversation.resize(*self._size)
            feeding = asyncio.create_task(self._feed(conversation))
            try:
                pumps = [asyncio.create_task(self._pump(conversation, output)) for output in (STDOUT, STDERR)]
                try:
                    await asyncio.gather(*pumps)
                finally:
                    for pump in pumps:
                        pump.cancel()
                return status_of(await conversation.outcome())
            finally:
                feeding.cancel()
        finally:
            conversation.close()

    async def _feed(self, conversation: Conversation) -> None:
        if self._selection.stdin:
            while data := await self._inlet.take():
                await conversation.write(data)
        conversation.end_input()

    async def _pump(self, conversation: Conversation, output: int) -> None:
        while data := await conversation.read(output):
            self._send(output, data)
            await self._line.room()
        self._end(output)


class ConversingByChannels(Conversing):
    """exec and attach over WebSocket channels."""

    def __init__(self, line: Line, begin: Begin, selection: StreamSelection) -> None:
        super().__init__(line, begin, selection)
        self._channels = Channels(line, self._heard, self._ended, self._gone)
        self.received, self.lost = self._channels.received, self._channels.lost
        self._send(STDOUT if selection.stdout else STDERR if selection.stderr else ERROR, b"")
        self._start()

    def _send(self, channel: int, data: bytes) -> None:
        self._channels.send(channel, data)

    def _end(self, channel: int) -> None:
        pass  # servers do not end channels; the status message ends the conversation

    def _finish(self) -> None:
        self._channels.close()


class ConversingByStreams(Conversing):
    """exec and attach over SPDY: the client opens one stream for each of stdin, stdout, stderr, error and resize."""

    def __init__(self, line: Line, begin: Begin, selection: StreamSelection) -> None:
        super().__init__(line, begin, selection)
        self._streams = Streams(self, line.write, line.close)
        self._by_name: dict[int, int] = {}  # channel → stream
        self._missing = {ERROR} | {
            channel
            for channel, is_wanted in (
                (STDIN, selection.stdin),
                (STDOUT, selection.stdout),
                (STDERR, selection.stderr),
                (RESIZE, selection.tty),
            )
            if is_wanted
        }
        self._timer = asyncio.get_running_loop().call_later(OPEN_WITHIN, line.close)
        self.received = self._streams.received

    def lost(self) -> None:
        """See `Session`."""
        self._timer.cancel()
        self._gone()

    def opened(self, stream: int, headers: Mapping[str, str]) -> bool:
        """See `Listener`."""
        channel = _NAMES.get(headers.get("streamtype", ""))
        if channel is None or channel not in self._missing:
            return False
        self._missing.discard(channel)
        self._by_name[channel] = stream
        if not self._missing:
            self._timer.cancel()
            self._start()
        return True

    def heard(self, stream: int, data: bytes) -> None:
        """See `Listener`."""
        self._heard(self._channel(stream), data)

    def ended(self, stream: int) -> None:
        """See `Listener`."""
        self._ended(self._channel(stream))

    def dropped(self, stream: int) -> None:
        """See `Listener`."""
        self._ended(self._channel(stream))

    def _channel(self, stream: int) -> int:
        return next(channel for channel, each in self._by_name.items() if each == stream)

    def _send(self, channel: int, data: bytes) -> None:
        if channel in self._by_name:
            self._streams.send(self._by_name[channel], data)

    def _end(self, channel: int) -> None:
        if channel in self._by_name:
            self._streams.end(self._by_name[channel])

    def _finish(self) -> None:
        self._line.close()


_NAMES = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}


def status_of(outcome: Outcome) -> dict[str, Any]:
    """The Status for the error channel."""
    if outcome.error:
        return {"status": "Failure", "reason": "InternalError", "message": outcome.error, "code": 500}
    if not outcome.code:
        return {"status": "Success"}
    return {
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {outcome.code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(outcome.code)}]},
    }


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 16
