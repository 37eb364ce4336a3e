"""Feeds an auditor from an API server: lists and watches each kind that it takes.

Kinds that are not served, or may not be read, are left out.
"""

from collections.abc import Callable
from urllib.parse import urlencode

import msgspec

from seatrial.harness.audit.auditor import Auditor
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Request, Response, Stream, Transport
from seatrial.scheduler.api.wire import RawList

PATHS = {  # objects that pods refer to come first
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Device": "/apis/scheduling.koordinator.sh/v1alpha1/devices",
    "NodeResourceTopology": "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
    "Reservation": "/apis/scheduling.koordinator.sh/v1alpha1/reservations",
    "PodGroup": "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
    "ElasticQuota": "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas",
    "Pod": "/api/v1/pods",
}
_GONE = 410
RETRY_PAUSE = 0.5  # seconds


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_list = msgspec.json.Decoder(RawList).decode


class Follower:
    """Runs from `start` to `close`. It only reads."""

    def __init__(
        self, auditor: Auditor, transport: Transport, call: Callable[[Request], Response], clock: Clock
    ) -> None:
        """`call` carries out one request and waits for its answer."""
        self._auditor, self._transport, self._call, self._clock = auditor, transport, call, clock
        self._streams: dict[str, Stream] = {}
        self._versions: dict[str, str] = {}
        self._uids: dict[str, dict[str, bytes]] = {}  # of each kind: the last body by uid, to find what a gap hid
        self.absent: list[str] = []  # kinds that the server does not serve or that may not be read
        self._closed = False

    def start(self) -> None:
        for kind in PATHS:
            self._list(kind)

    def close(self) -> None:
        self._closed = True
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _list(self, kind: str) -> None:
        response = self._call(Request("GET", PATHS[kind]))
        if not response.ok:
            if kind not in self.absent:
                self.absent.append(kind)
            return
        found = _decode_list(response.body)
        before, now = self._uids.get(kind, {}), dict[str, bytes]()
        for raw in found.items or ():
            body = bytes(raw)
            now[_uid(body)] = body
        for uid, body in before.items():
            if uid not in now:
                self._auditor.observe(kind, "DELETED", msgspec.Raw(body), self._clock.monotonic())
        for body in now.values():
            self._auditor.observe(kind, "ADDED", msgspec.Raw(body), self._clock.monotonic())
        self._uids[kind] = now
        self._versions[kind] = found.metadata.resource_version
        self._watch(kind)

    def _watch(self, kind: str) -> None:
        if self._closed:
            return
        query = urlencode({"watch": "1", "resourceVersion": self._versions[kind], "allowWatchBookmarks": "1"})
        self._streams[kind] = self._transport.stream(
            Request("GET", f"{PATHS[kind]}?{query}"),
            lambda line: self._on_line(kind, line),
            lambda response: self._on_end(kind, response),
        )

    def _on_line(self, kind: str, line: bytes) -> None:
        event = _decode_event(line)
        if event.type == "ERROR":
            self._streams.pop(kind).close()
            self._clock.call_later(RETRY_PAUSE, lambda: self._again(kind))
            return
        body = bytes(event.object)
        head = msgspec.json.decode(body, type=_Head).metadata
        self._versions[kind] = head.resource_version
        if event.type == "DELETED":
            self._uids[kind].pop(head.uid, None)
        elif event.type in {"ADDED", "MODIFIED"}:
            self._uids[kind][head.uid] = body
        self._auditor.observe(kind, event.type, msgspec.Raw(body), self._clock.monotonic())

    def _on_end(self, kind: str, response: Response) -> None:
        self._streams.pop(kind, None)
        if self._closed:
            return
        if response.code == _GONE:
            self._clock.call_later(RETRY_PAUSE, lambda: self._again(kind))
        else:
            self._clock.call_later(0.0 if response.ok else RETRY_PAUSE, lambda: self._watch(kind))

    def _again(self, kind: str) -> None:
        if not self._closed:
            self._list(kind)


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct):
    metadata: _Meta


def _uid(body: bytes) -> str:
    return msgspec.json.decode(body, type=_Head).metadata.uid
