"""Publishes the IPAddress of each allocated cluster IP.

Upstream's allocator (`pkg/registry/core/service/ipallocator`) keeps its state in these objects. Here it is in
`admission/cluster_ips.py`, and the objects are written after the Service, without admission: clients only read them. An
IPAddress that a user creates is respected by the allocator. ServiceCIDRs are followed in `service_ranges.py`.
"""

from ipaddress import ip_address
from typing import Final

from seatrial.harness.apiserver.admission.cluster_ips import ADDRESSES, HEADLESS, SERVICES
from seatrial.harness.apiserver.bootstrap.objects import put_object
from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.storage.store import Change, Item, Key, Object
from seatrial.scheduler.api.clock import rfc3339

_API: Final = "networking.k8s.io/v1"
_MANAGED_BY: Final = "ipaddress.kubernetes.io/managed-by"
_MANAGER: Final = "ipallocator.k8s.io"


class ServiceAddresses:
    """Keeps one IPAddress for each cluster IP."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._store = control.objects.store
        self._addresses: dict[Key, str] = {}  # Service → the address whose object was written
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        self._store.collection(SERVICES).listen(self._changed)

    def _changed(self, change: Change) -> None:
        if self._addresses.get(change.key, "") != _address_of(change.new.obj if change.new is not None else None):
            self._queue.add(change.key)

    def _sync(self, service: Key) -> None:
        item = self._store.collection(SERVICES).get(service)
        address = _address_of(item.obj if item is not None else None)
        written = self._addresses.pop(service, "")
        collection = self._store.collection(ADDRESSES)
        if written != address and _is_managed(collection.get(("", written))):
            collection.remove(("", written))
        if not address:
            return
        self._addresses[service] = address
        if collection.get(("", address)) is None:
            put_object(self._store, ADDRESSES, _object(address, service), rfc3339(self._control.clock.now()))


def _address_of(service: Object | None) -> str:
    address = (service or {}).get("spec", {}).get("clusterIP") or ""
    return "" if address == HEADLESS else str(address)


def _is_managed(item: Item | None) -> bool:
    """Whether this is an IPAddress of the allocator, not a user's."""
    return item is not None and (item.obj["metadata"].get("labels") or {}).get(_MANAGED_BY) == _MANAGER


def _object(address: str, service: Key) -> Object:
    family = f"IPv{ip_address(address).version}"
    labels = {"ipaddress.kubernetes.io/ip-family": family, _MANAGED_BY: _MANAGER}
    parent = {"group": "", "resource": "services", "namespace": service[0], "name": service[1]}
    return {
        "apiVersion": _API,
        "kind": "IPAddress",
        "metadata": {"name": address, "labels": labels},
        "spec": {"parentRef": parent},
    }
