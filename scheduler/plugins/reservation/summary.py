"""REST view of the reservations of one node: the route `nodeReservations/:nodeName`.

Keys are Koordinator's; empty values are left out. `allocatable`, `reserved` and `allocated` are quantities;
`availableResource` (what is left for owners) and `allocatedResource` are numbers, cpu in thousandths, and ports are
listed, as in the route of nodes. A pod in operating mode Reservation is listed with `kind` Pod.
"""

from collections.abc import Iterable
from typing import Any

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quantity import quantities
from seatrial.scheduler.api.wire import to_plain
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.framework.reservation_info import ReservationInfo
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.plugins.reservation.reserve_pods import reserve_pod
from seatrial.scheduler.pods.host_ports import HostPort, host_ports


def summary_of(reservation_cache: ReservationCache, cache: Cache, node: str) -> dict[str, Any]:
    """The available reservations on a node, by name; {} if there are none or the node does not exist."""
    items = [
        _item(reservation, cache)
        for reservation in sorted(reservation_cache.on(node).values(), key=lambda reservation: reservation.name)
    ]
    return _filled({"items": items})


def _item(reserved: ReservationInfo, cache: Cache) -> dict[str, Any]:
    reservation, allocated, left = reserved.reservation, reserved.allocated, reserved.left()
    own = host_ports((reserved.pod or reserve_pod(reservation)).spec)
    owners = [placed.pod for uid in sorted(reserved.owners) if (placed := cache.placed(uid)) is not None]
    used = [port for pod in owners for port in host_ports(pod.spec)]
    return _filled(
        {
            "name": reserved.name,
            "namespace": reserved.pod.metadata.namespace if reserved.pod is not None else "",
            "uid": reserved.uid,
            "kind": "Pod" if reserved.pod is not None else "Reservation",
            "available": reservation.available,
            "allocateOnce": reservation.spec.allocate_once,
            "allocatable": dict(quantities(reserved.allocatable)),
            "reserved": dict(quantities(reserved.withheld)),
            "allocated": dict(quantities(allocated)),
            "allocatablePorts": _ports(own),
            "allocatedPorts": _ports(
                port for port in used if any(port.conflicts(reserved_port) for reserved_port in own)
            ),
            "availableResource": {
                name: max(0, value - reserved.withheld.get(name, 0)) for name, value in sorted(left.items())
            },
            "allocatedResource": dict(sorted(allocated.items())),
            "owners": [_filled(to_plain(owner)) for owner in reservation.spec.owners],
            "allocatePolicy": reservation.spec.allocate_policy,
            "assignedPods": [_assigned(pod, reserved) for pod in owners],
        }
    )


def _assigned(pod: Pod, reserved: ReservationInfo) -> dict[str, Any]:
    return {
        "Namespace": pod.metadata.namespace,
        "Name": pod.metadata.name,
        "UID": pod.metadata.uid,
        "Requests": dict(quantities(reserved.owners[pod.metadata.uid])),
        "Ports": _ports(host_ports(pod.spec)),
    }


def _ports(ports: Iterable[HostPort]) -> list[dict[str, Any]]:
    addresses = sorted((port.address, port.protocol, port.number) for port in ports)
    return [{"ip": address, "protocol": protocol, "port": number} for address, protocol, number in addresses]


def _filled(fields: dict[str, Any]) -> dict[str, Any]:
    """Without empty values, at any depth."""
    by_name = {name: _filled(value) if isinstance(value, dict) else value for name, value in fields.items()}
    return {name: value for name, value in by_name.items() if value not in (None, "", False, [], {}, ())}
