"""Feeds an auditor from an API server: lists and watches each kind that it takes.

Kinds that are not served, or may not be read, are left out. Events of different watches are put in order first.
"""

from collections.abc import Callable
from urllib.parse import urlencode

import msgspec

from seatrial.harness.audit.auditor import Auditor
from seatrial.harness.audit.ordering import WINDOW, EventOrder
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
    "ResourceClaim": "/apis/resource.k8s.io/v1/resourceclaims",
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
        self,
        auditor: Auditor,
        transport: Transport,
        call: Callable[[Request], Response],
        clock: Clock,
        *,
        window: float = WINDOW,
    ) -> None:
        """`call` carries out one request and waits for its answer.

        `window` is the time in seconds for which events are held back to be ordered. 0 where all watches deliver in the
        order of the changes, as in virtual time.
        """
        self._auditor, self._transport, self._call, self._clock = auditor, transport, call, clock
        self._order = EventOrder(clock, window)
        self._streams: dict[str, Stream] = {}
        self._versions: dict[str, str] = {}
        self._uids: dict[str, dict[str, bytes]] = {}  # of each kind: the last body by uid, to find what a gap hid
        self._seen: dict[str, dict[str, str]] = {}  # of each kind: the resourceVersion of that body
        self.absent = auditor.state.absent
        self._closed = False

    def start(self) -> None:
        """List all kinds and watch them from there. The auditor has all listed objects when this returns."""
        for kind in PATHS:
            self._list(kind)
        self._order.flush()

    def judged_until(self) -> float:
        """The time of the clock up to which the auditor has processed all events that have arrived."""
        return self._order.oldest()

    def catch_up(self) -> bool:
        """Deliver all events that are held back, if the watches have delivered all that a list shows now.

        Returns whether they have. Costs a list of each kind: for clusters that are small.
        """
        for kind, seen in self._seen.items():
            response = self._call(Request("GET", PATHS[kind]))
            if not response.ok:
                return False
            listed = {head.uid: head.resource_version for head in map(_head, _decode_list(response.body).items or ())}
            if seen.keys() - listed.keys() or any(
                _older(seen.get(uid, ""), version) for uid, version in listed.items()
            ):
                return False
        self._order.flush()
        return True

    def flush(self) -> None:
        """Hand over all events that have arrived, also those that were not held back long enough to be in order."""
        self._order.flush()

    def close(self) -> None:
        self._closed = True
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        self._order.flush()

    def _list(self, kind: str) -> None:
        response = self._call(Request("GET", PATHS[kind]))
        if not response.ok:
            if kind not in self.absent:
                self.absent.append(kind)
            return
        page = _decode_list(response.body)
        before, now, seen = self._uids.get(kind, {}), dict[str, bytes](), dict[str, str]()
        for raw in page.items or ():
            body, head = bytes(raw), _head(raw)
            now[head.uid], seen[head.uid] = body, head.resource_version
        version = page.metadata.resource_version
        for uid, body in before.items():
            if uid not in now:
                self._observe(kind, "DELETED", body, version)
        for body in now.values():
            self._observe(kind, "ADDED", body, version)
        self._uids[kind], self._seen[kind] = now, seen
        self._versions[kind] = version
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
        head = _head(body)
        self._versions[kind] = head.resource_version
        if event.type == "DELETED":
            self._uids[kind].pop(head.uid, None)
            self._seen[kind].pop(head.uid, None)
        elif event.type in {"ADDED", "MODIFIED"}:
            self._uids[kind][head.uid] = body
            self._seen[kind][head.uid] = head.resource_version
        self._observe(kind, event.type, body, head.resource_version)

    def _observe(self, kind: str, event: str, body: bytes, version: str) -> None:
        self._order.add(kind, version, lambda at: self._auditor.observe(kind, event, msgspec.Raw(body), at))

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


_decode_head = msgspec.json.Decoder(_Head).decode


def _head(body: bytes | msgspec.Raw) -> _Meta:
    return _decode_head(body).metadata


def _older(seen: str, listed: str) -> bool:
    """Whether the object was seen before the listed version of it only."""
    return int(seen) < int(listed) if seen.isdecimal() and listed.isdecimal() else seen != listed
