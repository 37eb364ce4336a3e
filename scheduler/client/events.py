"""EventRecorder: writes Events about pods and reservations with low priority; drops and counts them under load.

Bindings come first: at most a few events are in flight at once, and the queue of waiting ones is short. An event that
was sent already for the same pod only increments the count of the first one (a series, as upstream's).
"""

import logging
from collections import OrderedDict, deque
from typing import Any

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GROUP_VERSION
from seatrial.scheduler.api.reservation import RESERVATION_NAME, is_reserve_pod
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.client.rest import Rest

log = logging.getLogger(__name__)

NOTE_LIMIT = 1024  # maximum length of an event's note, bytes
QUEUE_LIMIT = 10_000
AT_ONCE = 2
NO_NAMESPACE = "default"  # namespace of events about cluster-scoped objects
_REMEMBERED = 4096

_Key = tuple[str, str, str]


class EventRecorder:
    """Writes events in the name of one controller."""

    def __init__(self, rest: Rest, clock: Clock, controller: str, instance: str) -> None:
        self._rest, self._clock = rest, clock
        self._controller, self._instance = controller, instance
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._under_way = 0
        self._number = 0
        self._series: OrderedDict[_Key, tuple[str, str, int]] = OrderedDict()  # → namespace, event name, count
        self.dropped = 0

    def normal(self, pod: Pod, reason: str, action: str, note: str, *, related: Pod | None = None) -> None:
        self._record("Normal", pod, reason, action, note, related)

    def warning(self, pod: Pod, reason: str, action: str, note: str, *, related: Pod | None = None) -> None:
        self._record("Warning", pod, reason, action, note, related)

    def _record(self, kind: str, pod: Pod, reason: str, action: str, note: str, related: Pod | None) -> None:  # noqa: PLR0917
        self._record_about(kind, _reference(pod), reason, action, note, _reference(related) if related else None)

    def about(self, regarding: dict[str, str], kind: str, reason: str, action: str, note: str) -> None:
        """An event of type `kind` about the object that an object reference with uid names."""
        self._record_about(kind, regarding, reason, action, note, None)

    def _record_about(  # noqa: PLR0917
        self, kind: str, regarding: dict[str, str], reason: str, action: str, note: str, related: dict[str, str] | None
    ) -> None:
        if len(self._waiting) >= QUEUE_LIMIT:
            self.dropped += 1
            return
        now = self._clock.micro_timestamp()
        note = cut(note)
        key = (regarding["uid"], reason, note)
        namespace = regarding.get("namespace") or NO_NAMESPACE
        known = self._series.get(key)
        if known is not None:
            _, name, count = known
            self._series[key] = (namespace, name, count + 1)
            self._series.move_to_end(key)
            self._waiting.append(
                (f"{_path(namespace)}/{name}", {"series": {"count": count + 1, "lastObservedTime": now}})
            )
        else:
            self._number += 1
            name = f"{regarding['name']}.{int(self._clock.now() * 1e6):x}{self._number:04x}"
            self._series[key] = (namespace, name, 1)
            if len(self._series) > _REMEMBERED:
                self._series.popitem(last=False)
            body: dict[str, Any] = {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "eventTime": now,
                "type": kind,
                "reason": reason,
                "action": action,
                "note": note,
                "regarding": regarding,
                "reportingController": self._controller,
                "reportingInstance": self._instance,
            }
            if related is not None:
                body["related"] = related
            self._waiting.append((_path(namespace), body))
        self._send_next()

    def _send_next(self) -> None:
        while self._waiting and self._under_way < AT_ONCE:
            path, body = self._waiting.popleft()
            self._under_way += 1
            if "series" in body:
                self._rest.merge(path, body, self._sent)
            else:
                self._rest.post(path, body, self._sent)

    def _sent(self, response: Response) -> None:
        self._under_way -= 1
        if not response.ok:
            self.dropped += 1
            log.debug("event refused code=%d", response.code)
        self._send_next()


def cut(note: str) -> str:
    """Truncate to 1024 bytes; a truncated text ends in ` ...` (FWK-R46)."""
    encoded = note.encode()
    if len(encoded) <= NOTE_LIMIT:
        return note
    return encoded[: NOTE_LIMIT - 4].decode(errors="ignore") + " ..."


def _path(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def _reference(pod: Pod) -> dict[str, str]:
    metadata = pod.metadata
    if is_reserve_pod(pod):  # the API server does not have this pod
        return {
            "apiVersion": GROUP_VERSION,
            "kind": "Reservation",
            "name": metadata.annotations[RESERVATION_NAME],
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata.name,
        "namespace": metadata.namespace,
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
    }
