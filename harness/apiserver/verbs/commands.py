"""`exec`, `attach` and `portforward`: who is asked for what, and in which protocol the client wants to speak.

WebSocket and SPDY/3.1 are spoken, as by kubelet; which words go over them is in `streams`.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from harness.apiserver import errors
from harness.apiserver.storage.store import Item
from harness.apiserver.streams.conversing import Begin, ConversingByChannels, ConversingByStreams
from harness.apiserver.streams.forwarding import MAX_PORTS, Dial, ForwardingByChannels, ForwardingByStreams, is_port
from harness.apiserver.streams.line import Line, Session
from harness.apiserver.streams.responses import Upgraded
from harness.apiserver.streams.websocket import handshake
from harness.apiserver.verbs.logs import container_of
from harness.conversation import Containers, Conversation, Pipe, Wanted
from scheduler.api.transport import Request

CHANNELS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STREAMS: Final = "v4.channel.k8s.io"
TUNNEL: Final = "SPDY/3.1+portforward.k8s.io"
FORWARDING: Final = "portforward.k8s.io"
OPTIONS: Final = {"exec": "PodExecOptions", "attach": "PodAttachOptions", "portforward": "PodPortForwardOptions"}
_TRUE = frozenset({"true", "1"})
_ENDS = ("stdin", "stdout", "stderr", "tty")


def begin(verb: str, pod: Item, request: Request, containers: Containers | None) -> Upgraded:
    """The answer to exec, attach or portforward.

    Raises:
        ApiStatusError: 400, this cannot be done, or 403, the client cannot speak of it.
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

    wanted = _wanted(query)
    words = query.get("command", [])
    if verb == "exec" and not words:
        raise errors.bad_request("you must specify at least one command for the container")
    if verb == "attach":
        plan = next(one for part in _PARTS for one in spec.get(part) or () if one["name"] == container)
        if wanted.tty and not plan.get("tty"):
            raise errors.bad_request(f"pod {name}: container {container} was not started with a terminal")

    async def open_() -> Conversation:
        if verb == "attach":
            return await containers.attach(namespace, name, container, wanted)
        return await containers.exec(namespace, name, container, words, wanted)

    return _conversing(request, open_, wanted)


def options_of(verb: str, request: Request) -> dict[str, Any]:
    """The fields of the verb's options, as webhooks are shown them."""
    query = _query(request)
    if verb == "portforward":
        return {"ports": [int(one) for one in _ports(query) if is_port(one)]}
    flags: dict[str, Any] = {name: query[name][-1] in _TRUE for name in _ENDS if name in query}
    command = {"command": query.get("command", [])} if verb == "exec" else {}
    return {**command, "container": query.get("container", [""])[-1], **flags}


_PARTS = ("initContainers", "containers")


def _query(request: Request) -> dict[str, list[str]]:
    return parse_qs(request.path.partition("?")[2], keep_blank_values=True)  # a command's word may be empty


def _wanted(query: Mapping[str, list[str]]) -> Wanted:
    """
    Raises:
        ApiStatusError: nothing of the program is asked for.
    """
    flags = {name: query.get(name, [""])[-1] in _TRUE for name in _ENDS}
    if not (flags["stdin"] or flags["stdout"] or flags["stderr"]):
        raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    if flags["tty"]:
        flags["stderr"] = False  # a terminal has one output
    return Wanted(**flags)


def _conversing(request: Request, open_: Begin, wanted: Wanted) -> Upgraded:
    if _is_spdy(request):
        headers = _spdy_headers(request, STREAMS)

        def by_streams(line: Line) -> Session:
            return ConversingByStreams(line, open_, wanted)

        return Upgraded(101, b"", headers, by_streams)

    def by_channels(line: Line) -> Session:
        return ConversingByChannels(line, open_, wanted)

    return Upgraded(101, b"", handshake(request.headers, CHANNELS), by_channels)


def _forwarding(request: Request, query: Mapping[str, list[str]], dial: Dial) -> Upgraded:
    spdy = _is_spdy(request)
    headers = _spdy_headers(request, FORWARDING) if spdy else handshake(request.headers, (TUNNEL, STREAMS))
    if spdy or headers["sec-websocket-protocol"] == TUNNEL:

        def by_streams(line: Line) -> Session:
            return ForwardingByStreams(line, dial, tunnelled=not spdy)

        return Upgraded(101, b"", headers, by_streams)
    ports = _ports(query)
    if not ports or len(ports) > MAX_PORTS or not all(is_port(one) for one in ports):
        raise errors.bad_request(
            f"ports: expected between 1 and {MAX_PORTS} numbers from 1 to 65535, found {','.join(ports)[:200]!r}"
        )

    def by_channels(line: Line) -> Session:
        return ForwardingByChannels(line, dial, [int(one) for one in ports])

    return Upgraded(101, b"", headers, by_channels)


def _ports(query: Mapping[str, list[str]]) -> list[str]:
    return [one for given in query.get("ports", []) for one in given.split(",")]


def _is_spdy(request: Request) -> bool:
    return request.headers.get("upgrade", "").lower() == "spdy/3.1"


def _spdy_headers(request: Request, protocol: str) -> dict[str, str]:
    """
    Raises:
        ApiStatusError: 403, the client does not speak the protocol.
    """
    offered = [one.strip() for one in request.headers.get("x-stream-protocol-version", "").split(",") if one.strip()]
    if protocol not in offered and (offered or protocol != FORWARDING):  # forwarding clients of old offer nothing
        why = f"unable to upgrade: expected protocol {protocol}, found {offered}"
        raise errors.ApiStatusError(403, "Forbidden", why)
    return {"upgrade": "SPDY/3.1", "connection": "Upgrade", "x-stream-protocol-version": protocol}
