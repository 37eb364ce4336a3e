"""Follows ServiceCIDRs, as upstream's controller (`pkg/controller/servicecidrs`) does.

The addresses of Services are allocated from all IPv4 ranges that are ready (`admission/cluster_ips.py`).
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from seatrial.harness.apiserver.admission.cluster_ips import ADDRESSES, CIDRS, RANGE, networks_of
from seatrial.harness.apiserver.bootstrap.objects import put_object
from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.storage.store import Change, Item, Key
from seatrial.harness.apiserver.times import seconds_of

FINALIZER: Final = "networking.k8s.io/service-cidr-finalizer"
GRACE: Final = 10.0  # seconds from the deletion until the finalizer goes, for Services that are just being created
_READY: Final = "Kubernetes Service CIDR is ready"
_IN_USE: Final = (
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
)


class ServiceRanges:
    """Gives ServiceCIDRs their finalizer and condition, and lets those go that no IPAddress needs."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._kind = control.resource(CIDRS)
        self._ranges = control.objects.store.collection(CIDRS)
        self._addresses = control.objects.store.collection(ADDRESSES)
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        put_object(
            control.objects.store,
            CIDRS,
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "ServiceCIDR",
                "metadata": {"name": "kubernetes", "finalizers": [FINALIZER]},
                "spec": {"cidrs": [str(RANGE)]},
                "status": {"conditions": [self._ready()]},
            },
            control.clock.timestamp(),
        )
        self._ranges.listen(self._range_changed)
        self._addresses.listen(self._address_changed)

    def _ready(self) -> dict[str, str]:
        return self._control.condition("Ready", "True", "", _READY)

    def _range_changed(self, change: Change) -> None:
        if change.new is None:
            return
        self._queue.add(change.key)
        if change.old is None:  # it may take over the addresses of others
            self._queue_terminating()

    def _address_changed(self, change: Change) -> None:
        if change.new is None:
            self._queue_terminating()

    def _queue_terminating(self) -> None:
        for item in self._ranges.each():
            if "deletionTimestamp" in item.obj["metadata"]:
                self._queue.add(item.key)

    def _sync(self, key: Key) -> None:
        item = self._ranges.get(key)
        if item is None:
            return
        metadata = item.obj["metadata"]
        held = FINALIZER in (metadata.get("finalizers") or ())
        if "deletionTimestamp" not in metadata:
            if not held:
                finalizers = [*(metadata.get("finalizers") or ()), FINALIZER]
                body = {**item.obj, "metadata": {**metadata, "finalizers": finalizers}}
                item = self._control.objects.store_change(CIDRS, item, body)
            if _reason(item) is None:
                self._control.put_status(self._kind, item, {"conditions": [self._ready()]})
        elif held and self._is_needed(item):
            if _reason(item) != "Terminating":
                condition = self._control.condition("Ready", "False", "Terminating", _IN_USE)
                self._control.put_status(self._kind, item, {"conditions": [condition]})
        elif held:
            left = seconds_of(metadata["deletionTimestamp"]) + GRACE - self._control.clock.now()
            if left > 0:
                self._queue.add_after(left, key)
            else:
                self._control.drop_finalizer(self._kind, item, FINALIZER)

    def _is_needed(self, item: Item) -> bool:
        """Whether an IPAddress is in this range and in no other one that stays."""
        mine = networks_of(item.obj)
        others = [
            network
            for other in self._ranges.each()
            if other.key != item.key and "deletionTimestamp" not in other.obj["metadata"]
            for network in networks_of(other.obj)
        ]
        return any(
            any(address in network for network in mine) and not any(address in network for network in others)
            for address in map(_parsed, self._addresses.each())
        )


def _parsed(address: Item) -> IPv4Address | IPv6Address:
    return ip_address(address.key[1])


def _reason(item: Item) -> str | None:
    """The reason of the condition Ready; None without the condition."""
    for condition in (item.obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            return str(condition.get("reason") or "")
    return None
