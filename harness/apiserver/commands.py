"""`exec`: commands in containers that really run, over a WebSocket in Kubernetes' channels.

A command gets no input and its output comes when it is over, both outputs as one: that is what the runtimes of a local
node can do, and enough for looking around and for copying out of a container. What needs more is refused in words.
"""

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs

import orjson

from harness.apiserver import errors
from harness.apiserver.store import Item
from harness.errors import HarnessError
from scheduler.api.transport import Request, Response

# Where a command is run: namespace, pod, container ("" for the first) and its words → exit code and output, or None if
# the pod is not on a node with real containers.
Runner = Callable[[str, str, str, list[str]], Awaitable[tuple[int, bytes] | None]]

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455
_OUTPUT, _ERROR = b"\x01", b"\x03"  # channels
_BINARY, _CLOSE = 0x82, 0x88  # last fragment, opcode
_NORMAL = (1000).to_bytes(2, "big")
_FRAME = 1 << 16


class Executing(Response, frozen=True):
    """101 Switching Protocols; `frames` gives what is to be written after it."""

    frames: Callable[[], Awaitable[list[bytes]]] | None = None


def begin(verb: str, pod: Item, request: Request, runner: Runner | None) -> Executing:
    """The answer to exec, attach or portforward.

    Raises:
        Refused: 400, this cannot be done, or the client cannot speak of it.
    """
    namespace, name = pod.key
    if runner is None:
        raise errors.bad_request(
            f"pod {name}: expected a running process for {verb}, found none: its node simulates its containers"
        )
    if verb != "exec":
        raise errors.bad_request(f"pod {name}: {verb} is not supported by this cluster's nodes, only exec is")
    query = parse_qs(request.path.partition("?")[2])
    words = query.get("command", [])
    if not words:
        raise errors.bad_request("you must specify at least one command for the container")
    if query.get("stdin", ["false"])[-1] in {"true", "1"}:
        raise errors.bad_request(f"pod {name}: commands get no input on this node: run exec without stdin and tty")
    headers = _handshake(request.headers)
    container = query.get("container", [""])[-1]

    async def frames() -> list[bytes]:
        try:
            found = await runner(namespace, name, container, words)
        except HarnessError as error:
            return _told(b"", {"status": "Failure", "reason": "InternalError", "message": str(error), "code": 500})
        if found is None:
            why = f"pod {name} has no running process: its node simulates its containers, or it has not started"
            return _told(b"", {"status": "Failure", "reason": "BadRequest", "message": why, "code": 400})
        return _told(found[1], _status(found[0]))

    return Executing(101, b"", headers, frames)


def options_of(request: Request) -> dict[str, Any]:
    """The fields of PodExecOptions, as webhooks are shown them."""
    query = parse_qs(request.path.partition("?")[2])
    flags: dict[str, bool] = {
        name: query[name][-1] in {"true", "1"} for name in ("stdin", "stdout", "stderr", "tty") if name in query
    }
    return {"command": query.get("command", []), "container": query.get("container", [""])[-1], **flags}


def _handshake(headers: Mapping[str, str]) -> dict[str, str]:
    key = headers.get("sec-websocket-key", "")
    if headers.get("upgrade", "").lower() != "websocket" or not key:
        raise errors.bad_request("Upgrade request required: expected a WebSocket")
    offered = [one.strip() for one in headers.get("sec-websocket-protocol", "").split(",")]
    chosen = next((one for one in PROTOCOLS if one in offered), None)
    if chosen is None:
        raise errors.bad_request(f"sec-websocket-protocol: expected one of {', '.join(PROTOCOLS)}, found {offered}")
    digest = hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()
    return {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-accept": base64.b64encode(digest).decode(),
        "sec-websocket-protocol": chosen,
    }


def _status(code: int) -> dict[str, Any]:
    """What the error channel says of an exit code."""
    if code == 0:
        return {"status": "Success"}
    return {
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _told(output: bytes, status: dict[str, Any]) -> list[bytes]:
    pieces = [output[at : at + _FRAME] for at in range(0, len(output), _FRAME)]
    said = orjson.dumps({"metadata": {}, **status})
    return [
        *(_frame(_BINARY, _OUTPUT + one) for one in pieces),
        _frame(_BINARY, _ERROR + said),
        _frame(_CLOSE, _NORMAL),
    ]


def _frame(head: int, data: bytes) -> bytes:
    size = len(data)
    if size < 126:
        return bytes((head, size)) + data
    if size < 1 << 16:
        return bytes((head, 126)) + size.to_bytes(2, "big") + data
    return bytes((head, 127)) + size.to_bytes(8, "big") + data


def write_when_over(
    found: Executing, write: Callable[[bytes], None], close: Callable[[], None]
) -> "asyncio.Task[None]":
    """Run the command on the loop, write what it said, and close."""
    assert found.frames is not None  # noqa: S101
    command = found.frames()

    async def run() -> None:
        try:
            for frame in await command:
                write(frame)
        finally:
            close()

    return asyncio.get_running_loop().create_task(run())
