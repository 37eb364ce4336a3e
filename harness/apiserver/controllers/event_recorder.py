"""The event recorder of the controllers; a repeated event increments the count of the stored one."""

from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, Options
from seatrial.harness.apiserver.storage.store import Item, Object
from seatrial.harness.apiserver.verbs.objects import Objects

NORMAL, WARNING = "Normal", "Warning"
MAX_REMEMBERED = 4096  # events whose count can still be incremented


class Recorder:
    """Writes core/v1 Events."""

    def __init__(self, objects: Objects, events: Resource) -> None:
        self._objects, self._events = objects, events
        self._known: dict[tuple[str, str, str, str], tuple[str, str]] = {}
        self._number = 0

    def record(  # noqa: PLR0917
        self, component: str, resource: Resource, item: Item, kind: str, reason: str, message: str
    ) -> None:
        """Record an event of `component` about `item`; `kind` is Normal or Warning. Not to be called during a write."""
        metadata = item.obj["metadata"]
        what = (metadata["uid"], component, reason, message)
        now = self._objects.clock.timestamp()
        collection = self._objects.collection(self._events)
        known = self._known.get(what)
        earlier = collection.get(known) if known is not None else None
        if earlier is not None:
            body = {
                **earlier.obj,
                "metadata": dict(earlier.obj["metadata"]),
                "count": earlier.obj.get("count", 1) + 1,
                "lastTimestamp": now,
            }
            self._objects.store_change(self._events.key, earlier, body)
            return
        namespace = item.key[0] or "default"
        self._number += 1
        name = f"{item.key[1]}.{int(self._objects.clock.now()):x}{self._number:08x}"
        event: Object = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "kind": resource.kind,
                "namespace": item.key[0],
                "name": item.key[1],
                "uid": metadata["uid"],
                "apiVersion": resource.api_version,
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": kind,
            "eventTime": self._objects.clock.micro_timestamp(),  # typed clients require it
            "reportingComponent": component,
            "reportingInstance": component,  # and the action: required of events with a time
            "action": reason,
        }
        try:
            written = self._objects.create(self._events, namespace, event, Options(manager=CONTROLLER_MANAGER))
        except ApiStatusError:
            return  # the namespace is terminating
        if len(self._known) >= MAX_REMEMBERED:
            self._known.pop(next(iter(self._known)))
        self._known[what] = written.key
