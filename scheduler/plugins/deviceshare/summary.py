"""REST views of a node's devices: the routes `nodeDeviceSummaries` and `nodeDeviceSummaries/:name`.

Keys are Koordinator's. Amounts are quantities as text, minors are strings, as JSON keys must be. An unhealthy device
is listed without amounts; a device that is used and no longer listed has its used amounts and an empty total.
`deviceUsedDetail` has only devices with allocations.
"""

from collections.abc import Callable, Iterable, Mapping

from seatrial.scheduler.api.quantity import Amounts, text
from seatrial.scheduler.api.wire import Wire
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache, NodeDevices

Quantities = dict[str, str]
Detail = dict[str, dict[str, Quantities]]  # by device type and minor
_Sums = dict[tuple[str, int], Amounts]


class Summary(Wire, frozen=True):
    """One node's devices: sums, each device, and the holders."""

    device_total: Quantities
    device_free: Quantities
    device_used: Quantities
    device_total_detail: Detail
    device_free_detail: Detail
    device_used_detail: Detail
    allocate_set: dict[str, dict[str, dict[str, Quantities]]]  # by device type, namespace/name of the pod and minor


def summaries(devices: DeviceCache, cache: Cache) -> dict[str, Summary]:
    """All nodes with devices, or with pods that hold devices, by name."""
    return {node.name: summary(node, _names(cache)) for node in sorted(devices, key=lambda node: node.name)}


def summary_of(devices: DeviceCache, cache: Cache, name: str) -> Summary | None:
    """One node; None where Koordinator answers 404 `cannot find node <name>`."""
    node = devices.find(name)
    return summary(node, _names(cache)) if node is not None else None


def summary(node: NodeDevices, pod_name: Callable[[str], str]) -> Summary:
    """One node's devices; `pod_name` gives namespace/name for a pod's uid."""
    template = node.state.template
    total: _Sums = {}
    free: _Sums = {}
    used: _Sums = {}
    for number, slot in enumerate(template.slots):
        total[slot.type, slot.minor] = template.totals[number]
        free[slot.type, slot.minor] = node.state.frees[number]
    owners: dict[str, dict[str, dict[str, Quantities]]] = {}
    for uid, holding in node.held.items():
        own: _Sums = {}
        for share in holding.shares:
            where = share.type, share.minor
            _add(own.setdefault(where, {}), share.amounts)
            _add(used.setdefault(where, {}), share.amounts)
            total.setdefault(where, {})
            free.setdefault(where, {})
        for (kind, minor), amounts in sorted(own.items()):
            owners.setdefault(kind, {}).setdefault(pod_name(uid), {})[str(minor)] = _quantities(amounts)
    return Summary(_sum(total), _sum(free), _sum(used), _detail(total), _detail(free), _detail(used), owners)


def _names(cache: Cache) -> Callable[[str], str]:
    def name(uid: str) -> str:
        placed = cache.placed(uid)
        return placed.key if placed is not None else uid

    return name


def _add(sums: Amounts, amounts: Iterable[tuple[str, int]]) -> None:
    for name, value in amounts:
        sums[name] = sums.get(name, 0) + value


def _sum(by_device: _Sums) -> Quantities:
    sums: Amounts = {}
    for amounts in by_device.values():
        _add(sums, amounts.items())
    return _quantities(sums)


def _detail(by_device: _Sums) -> Detail:
    detail: Detail = {}
    for (kind, minor), amounts in sorted(by_device.items()):
        detail.setdefault(kind, {})[str(minor)] = _quantities(amounts)
    return detail


def _quantities(amounts: Mapping[str, int]) -> Quantities:
    return {name: text(name, value) for name, value in sorted(amounts.items())}
