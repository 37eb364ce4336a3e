"""The pod subresources exec, attach and portforward: parses options and selects the protocol.

Supports WebSocket and SPDY/3.1 with the subprotocols of kubelet, which are in `streams`.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.conversation import Containers, Conversation, Pipe, StreamSelection
from seatrial.harness.apiserver.storage.store import Item
from seatrial.harness.apiserver.streams.conversing import Begin, ConversingByChannels, ConversingByStreams
from seatrial.harness.apiserver.streams.forwarding import (
    MAX_PORTS,
    Dial,
    ForwardingByChannels,
    ForwardingByStreams,
    is_port,
)
from seatrial.harness.apiserver.streams.line import Line, Session
from seatrial.harness.apiserver.streams.responses import Upgraded
from seatrial.harness.apiserver.streams.websocket import handshake
from seatrial.harness.apiserver.verbs.logs import container_of
from seatrial.scheduler.api.transport import Request

CHANNELS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STREAMS: Final = "v4.channel.k8s.io"
TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
FORWARDING: Final = "portforward.k8s.io"
OPTIONS: Final = {"exec": "PodExecOptions", "attach": "PodAttachOptions", "portforward": "PodPortForwardOptions"}
_TRUE = frozenset({"true", "1"})
_ENDS = ("stdin", "stdout", "stderr", "tty")


def begin(verb: str, pod: Item, request: Request, containers: Containers | None) -> Upgraded:
    """The response to exec, attach or portforward.

    Raises:
        ApiStatusError: 400, the pod or the options do not allow it; 403, no common protocol.
    """
    namespace, name = pod.key
    if containers is None:
        raise errors.bad_request(
            f"pod {name}: expected a running process for {verb}, found none: its node simulates its containers"
        )
    query = _query(request)
    spec = pod.obj["spec"]
    container = "" if verb == "portforward" else container_of(pod.obj, query.get("container", [""])[-1])
    if not spec.get("nodeName"):
        raise errors.bad_request(f"pod {name} does not have a host assigned")
    if verb == "portforward":

        async def dial(port: int) -> Pipe:
            return await containers.dial(namespace, name, port)

        return _forwarding(request, query, dial)

    streams = _streams(query)
    command = query.get("command", [])
    if verb == "exec" and not command:
        raise errors.bad_request("you must specify at least one command for the container")
    if verb == "attach":
        match = next(row for part in _PARTS for row in spec.get(part) or () if row["name"] == container)
        if streams.tty and not match.get("tty"):
            raise errors.bad_request(f"pod {name}: container {container} was not started with a terminal")

    async def open_() -> Conversation:
        if verb == "attach":
            return await containers.attach(namespace, name, container, streams)
        return await containers.exec(namespace, name, container, command, streams)

    return _conversing(request, open_, streams)


def options_of(verb: str, request: Request) -> dict[str, Any]:
    """The options of the request as an object, as admission webhooks see it."""
    query = _query(request)
    if verb == "portforward":
        return {"ports": [int(port) for port in _ports(query) if is_port(port)]}
    flags: dict[str, Any] = {name: query[name][-1] in _TRUE for name in _ENDS if name in query}
    command = {"command": query.get("command", [])} if verb == "exec" else {}
    return {**command, "container": query.get("container", [""])[-1], **flags}


_PARTS = ("initContainers", "containers")


def _query(request: Request) -> dict[str, list[str]]:
    return parse_qs(request.path.partition("?")[2], keep_blank_values=True)  # arguments of a command may be empty


def _streams(query: Mapping[str, list[str]]) -> StreamSelection:
    """The streams that the client requests.

    Raises:
        ApiStatusError: 400, it requests none.
    """
    flags = {name: query.get(name, [""])[-1] in _TRUE for name in _ENDS}
    if not (flags["stdin"] or flags["stdout"] or flags["stderr"]):
        raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    if flags["tty"]:
        flags["stderr"] = False  # a terminal has a single output
    return StreamSelection(**flags)


def _conversing(request: Request, open_: Begin, selection: StreamSelection) -> Upgraded:
    if _is_spdy(request):
        headers = _spdy_headers(request, STREAMS)

        def by_streams(line: Line) -> Session:
            return ConversingByStreams(line, open_, selection)

        return Upgraded(101, b"", headers, by_streams)

    def by_channels(line: Line) -> Session:
        return ConversingByChannels(line, open_, selection)

    return Upgraded(101, b"", handshake(request.headers, CHANNELS), by_channels)


def _forwarding(request: Request, query: Mapping[str, list[str]], dial: Dial) -> Upgraded:
    spdy = _is_spdy(request)
    headers = _spdy_headers(request, FORWARDING) if spdy else handshake(request.headers, (TUNNEL, STREAMS))
    if spdy or headers["sec-websocket-protocol"] == TUNNEL:

        def by_streams(line: Line) -> Session:
            return ForwardingByStreams(line, dial, tunnelled=not spdy)

        return Upgraded(101, b"", headers, by_streams)
    ports = _ports(query)
    if not ports or len(ports) > MAX_PORTS or not all(is_port(port) for port in ports):
        raise errors.bad_request(
            f"ports: expected between 1 and {MAX_PORTS} numbers from 1 to 65535, found {','.join(ports)[:200]!r}"
        )

    def by_channels(line: Line) -> Session:
        return ForwardingByChannels(line, dial, [int(port) for port in ports])

    return Upgraded(101, b"", headers, by_channels)


def _ports(query: Mapping[str, list[str]]) -> list[str]:
    return [port for value in query.get("ports", []) for port in value.split(",")]


def _is_spdy(request: Request) -> bool:
    return request.headers.get("upgrade", "").lower() == "spdy/3.1"


def _spdy_headers(request: Request, protocol: str) -> dict[str, str]:
    """The headers of the 101 response.

    Raises:
        ApiStatusError: 403, the client does not offer the protocol.
    """
    offered = [
        version.strip()
        for version in request.headers.get("x-stream-protocol-version", "").split(",")
        if version.strip()
    ]
    if protocol not in offered and (offered or protocol != FORWARDING):  # old portforward clients offer none
        why = f"unable to upgrade: expected protocol {protocol}, found {offered}"
        raise errors.ApiStatusError(403, "Forbidden", why)
    return {"upgrade": "SPDY/3.1", "connection": "Upgrade", "x-stream-protocol-version": protocol}
