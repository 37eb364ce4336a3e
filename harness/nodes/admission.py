"""Admission of pods to a node: kubelet's checks, the device plugins' choice, and a ledger of what pods hold.

The scheduler's allocation is in the annotation `device-allocated`. A pod that requests a device plugin's resource
without an allocation gets devices that the plugin chooses. This module does not use the API.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from seatrial.harness.allocations import Allocations, parse_allocations
from seatrial.harness.apiserver.quantities import PODS, Amounts, QuantityError, amount
from seatrial.harness.devices.hami_release import HamiHost
from seatrial.harness.devices.provider import (
    Assignment,
    ContainerGrant,
    Device,
    Function,
    ProviderError,
    Share,
    Slice,
    by_vendor,
)
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.nodes.capacity import PLUGIN_NAMES
from seatrial.harness.nodes.claims import Granted
from seatrial.harness.nodes.devices import card_resources, device_id
from seatrial.harness.nodes.pods import BoundPod, ContainerPlan
from seatrial.scheduler.api.device import GPU_ISOLATION_PROVIDER, GPU_MEMORY, GPU_MEMORY_RATIO, DeviceAllocation

UNEXPECTED = "UnexpectedAdmissionError"
FIRST_VNPU, VNPUS_PER_CARD = 100, 16

Key = tuple[str, int]  # device type and minor


class AdmissionError(Exception):
    """The node rejects the pod. Reason and message are kubelet's; they are written to the pod's status."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason, self.message = reason, message
        super().__init__(f"{reason}: {message}")


INFEASIBLE, DEFERRED = "Infeasible", "Deferred"  # reasons of the condition PodResizePending


@dataclass(slots=True)
class Holding:
    """What one pod holds of the node."""

    requests: Amounts
    shares: tuple[Share, ...] = ()
    picks: Mapping[str, Mapping[str, tuple[Device, ...]]] = field(
        default_factory=dict
    )  # container → resource → devices
    slices: tuple[tuple[Key, int], ...] = ()

    def granted_ids(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The device IDs that device plugins chose, by container and resource."""
        return {
            container: {name: tuple(map(device_id, devices)) for name, devices in chosen.items()}
            for container, chosen in self.picks.items()
        }


class NodeLedger:
    """The node's resources and devices, and what each pod holds of them."""

    def __init__(self) -> None:
        self.hami = HamiHost()
        self.allocatable: Amounts = {}
        self.used: Amounts = {}
        self._devices: dict[Key, Device] = {}
        self._taken: dict[Key, Amounts] = {}
        self._functions: set[str] = set()
        self._slices: dict[Key, set[int]] = {}
        self.holdings: dict[str, Holding] = {}  # by pod uid

    def set_hardware(self, allocatable: Amounts, devices: Sequence[Device]) -> None:
        """Set the present hardware. What pods hold does not change."""
        self.allocatable = allocatable
        self._devices = {(device.kind, device.minor): device for device in devices}

    def admit(
        self,
        pod: BoundPod,
        requests: Amounts,
        before: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None,
        prepared: Granted | None = None,
    ) -> Holding:
        """Take what the pod requests from the node. `before`: the plugins' choice when an earlier agent started it;
        `prepared`: the devices of its claims.

        Raises:
            AdmissionError: it does not fit, or its allocation names devices that are missing, unhealthy or taken.
        """
        known = self.holdings.get(pod.metadata.uid)
        if known is not None:
            return known
        if before is None:
            self._check_resources(requests)
        try:
            allocations = parse_allocations(pod.metadata.annotations)
            shares = self._shares(allocations, fresh=before is None)
        except (msgspec.DecodeError, QuantityError) as error:
            raise AdmissionError(UNEXPECTED, f"annotation device-allocated cannot be read: {error}") from error
        picks = self._recall(before) if before is not None else {}
        if before is None and not any(share.device.kind == "gpu" for share in shares):
            picks = self._pick(pod, prepared or {})
        for container, devices in (prepared or {}).items():
            picks[container] = {**picks.get(container, {}), **devices}
        holding = Holding(requests, shares, picks)
        self._take(pod.metadata.uid, holding)
        return holding

    def resize(self, uid: str, requests: Amounts) -> str:
        """Change what a pod requests in place. Returns "", or why it keeps what it has: `INFEASIBLE` or `DEFERRED`."""
        before = self.holdings[uid].requests
        more = {
            name: value for name, value in requests.items() if name in self.allocatable and value > before.get(name, 0)
        }
        if any(value > self.allocatable[name] for name, value in more.items()):
            return INFEASIBLE
        if any(self.used[name] - before.get(name, 0) + value > self.allocatable[name] for name, value in more.items()):
            return DEFERRED
        for name in before.keys() | requests.keys():
            self.used[name] = self.used.get(name, 0) - before.get(name, 0) + requests.get(name, 0)
        self.holdings[uid].requests = requests
        return ""

    def release(self, uid: str) -> None:
        """Return what a pod held; no effect if it held nothing."""
        holding = self.holdings.pop(uid, None)
        if holding is None:
            return
        for name, value in (*holding.requests.items(), (PODS, 1)):
            self.used[name] -= value
        for key, amounts in _device_amounts(holding):
            taken = self._taken[key]
            for name, value in amounts.items():
                taken[name] -= value
            if not any(taken.values()):
                del self._taken[key]
        for share in holding.shares:
            self._functions.difference_update(function.bus_id for function in share.functions)
            for number in share.slices:
                self._slices.get((share.device.kind, share.device.minor), set()).discard(int(number.id))

    def grants(self, pod: BoundPod, holding: Holding) -> dict[str, ContainerGrant]:
        """The grant of each container with devices.

        Raises:
            AdmissionError: the vendor's container runtime would not start it.
        """
        grants: dict[str, ContainerGrant] = {}
        for container in pod.spec.containers:
            shares = (*holding.shares, *_picked(holding, container))
            if shares:
                grants[container.name] = container_grant(pod, container.name, shares, self.hami)
        return grants

    def shares(self, uid: str) -> tuple[Share, ...]:
        """The device shares of a pod, allocated or chosen by plugins; empty for an unknown pod."""
        holding = self.holdings.get(uid)
        if holding is None:
            return ()
        chosen = (device for each in holding.picks.values() for devices in each.values() for device in devices)
        return (*holding.shares, *(Share(device, card_resources(device)) for device in chosen))

    def holders(self, key: Key) -> list[str]:
        """Uids of the pods on a device."""
        return [
            uid for uid, holding in self.holdings.items() if any(taken == key for taken, _ in _device_amounts(holding))
        ]

    # -- requests ------------------------------------------------------------------------------------------------

    def _check_resources(self, requests: Amounts) -> None:
        allocatable, used = self.allocatable, self.used
        for name, value in (*requests.items(), (PODS, 1)):
            have = allocatable.get(name)
            if have is None:
                continue  # kubelet ignores resources that the node does not have
            if used.get(name, 0) + value > have:
                raise AdmissionError(
                    f"OutOf{name}",
                    f"Node didn't have enough resource: {name}, requested: {value}, used: {used.get(name, 0)},"
                    f" capacity: {have}",
                )

    def _shares(self, allocations: Allocations, *, fresh: bool) -> tuple[Share, ...]:
        shares: list[Share] = []
        for kind, entries in allocations.items():
            for entry in entries:
                device = self._devices.get((kind, entry.minor))
                if device is None and not fresh and not self._devices:
                    continue  # a node in KWOK's format, from a snapshot: what runs there has devices of a real node
                if device is None:
                    raise AdmissionError(
                        UNEXPECTED,
                        f"Allocate failed due to {kind} {entry.minor} is not on this node, which is unexpected",
                    )
                if fresh and not device.health.ok:
                    raise AdmissionError(
                        UNEXPECTED,
                        f"Allocate failed due to {kind} {entry.minor} is unhealthy ({device.health.code}),"
                        " which is unexpected",
                    )
                resources = {name: amount(name, value) for name, value in entry.resources.items()}
                if fresh:
                    self._check_share((kind, entry.minor), device, resources, shares)
                shares.append(
                    Share(
                        device,
                        resources,
                        self._own_functions(device, entry),
                        self._cut(device, entry, resources, shares),
                    )
                )
        return tuple(shares)

    def _check_share(self, key: Key, device: Device, amounts: Amounts, so_far: Sequence[Share]) -> None:
        taken = dict(self._taken.get(key, {}))
        for share in so_far:
            if share.device is device:
                for name, value in share.resources.items():
                    taken[name] = taken.get(name, 0) + value
        for name, have in card_resources(device).items():
            if taken.get(name, 0) + amounts.get(name, 0) > have:
                raise AdmissionError(
                    UNEXPECTED,
                    f"Allocate failed due to {key[0]} {key[1]} has {have - taken.get(name, 0)} of {have} {name} left,"
                    f" {amounts[name]} promised, which is unexpected",
                )

    def _own_functions(self, device: Device, entry: DeviceAllocation) -> tuple[Function, ...]:
        if entry.extension is None or not entry.extension.vfs:
            return ()
        known = {function.bus_id: function for function in device.functions}
        bus_ids = [vf.bus_id for vf in entry.extension.vfs]
        for bus in bus_ids:
            if bus not in known or bus in self._functions:
                why = "taken" if bus in known else "not on this node"
                raise AdmissionError(
                    UNEXPECTED, f"Allocate failed due to virtual function {bus} is {why}, which is unexpected"
                )
        return tuple(known[bus] for bus in bus_ids)

    def _cut(
        self, device: Device, entry: DeviceAllocation, amounts: Amounts, so_far: Sequence[Share]
    ) -> tuple[Slice, ...]:
        """The vNPU or sMLU instance that the vendor's runtime creates for a share."""
        key: Key = (device.kind, device.minor)
        template = entry.extension.gpu_shared_resource_template if entry.extension else ""
        shared = amounts.get(GPU_MEMORY_RATIO, 100) < 100
        slicing = VENDORS[device.vendor].hardware.slicing
        if not (slicing == "vnpu" and template) and not (slicing == "smlu" and shared):
            return ()
        first = FIRST_VNPU + device.minor * VNPUS_PER_CARD if slicing == "vnpu" else 1
        used = self._slices.get(key, set()) | {int(piece.id) for share in so_far for piece in share.slices}
        number = next(number for number in range(first, first + 4096) if number not in used)
        return (Slice(str(number), slicing, template, amounts.get(GPU_MEMORY, 0)),)

    def _pick(self, pod: BoundPod, prepared: Granted) -> dict[str, dict[str, tuple[Device, ...]]]:
        """The device plugins' choice: free healthy cards, lowest number first; not of what a claim serves."""
        chosen: dict[str, dict[str, tuple[Device, ...]]] = {}
        gone: set[Key] = set()
        for container in pod.spec.containers:
            for vendor, resource in PLUGIN_NAMES.items():
                count = _requested(container, resource)
                if not count or resource in prepared.get(container.name, {}):
                    continue
                free = [
                    device
                    for key, device in sorted(self._devices.items())
                    if device.vendor == vendor and device.health.ok and key not in self._taken and key not in gone
                ]
                if len(free) < count:
                    raise AdmissionError(
                        UNEXPECTED,
                        f"Allocate failed due to requested number of devices unavailable for {resource}."
                        f" Requested: {count}, Available: {len(free)}, which is unexpected",
                    )
                picked = tuple(free[:count])
                gone.update((device.kind, device.minor) for device in picked)
                chosen.setdefault(container.name, {})[resource] = picked
        return chosen

    def _recall(self, before: Mapping[str, Mapping[str, tuple[str, ...]]]) -> dict[str, dict[str, tuple[Device, ...]]]:
        by_id = {device_id(device): device for device in self._devices.values()}
        return {
            container: {
                name: tuple(by_id[identifier] for identifier in ids if identifier in by_id)
                for name, ids in granted.items()
            }
            for container, granted in before.items()
        }

    def _take(self, uid: str, holding: Holding) -> None:
        self.holdings[uid] = holding
        used = self.used
        for name, value in (*holding.requests.items(), (PODS, 1)):
            used[name] = used.get(name, 0) + value
        for key, amounts in _device_amounts(holding):
            taken = self._taken.setdefault(key, {})
            for name, value in amounts.items():
                taken[name] = taken.get(name, 0) + value
        for share in holding.shares:
            self._functions.update(function.bus_id for function in share.functions)
            for piece in share.slices:
                self._slices.setdefault((share.device.kind, share.device.minor), set()).add(int(piece.id))


def container_grant(pod: BoundPod, container: str, shares: Sequence[Share], hami: HamiHost) -> ContainerGrant:
    """What devices of any vendors add to a container.

    Raises:
        AdmissionError: the vendor's container runtime would not start it.
    """
    grant = ContainerGrant()
    for vendor, own in by_vendor(shares).items():
        assignment = Assignment(
            own,
            pod_uid=pod.metadata.uid,
            container=container,
            isolation=pod.metadata.labels.get(GPU_ISOLATION_PROVIDER, ""),
            annotations=pod.metadata.annotations,
            hami=hami,
        )
        try:
            grant = grant.with_grant(VENDORS[vendor].grant(assignment))
        except ProviderError as error:
            raise AdmissionError("CreateContainerError", str(error)) from error
    return grant


def _device_amounts(holding: Holding) -> list[tuple[Key, Mapping[str, int]]]:
    kinds: list[tuple[Key, Mapping[str, int]]] = [
        ((share.device.kind, share.device.minor), share.resources) for share in holding.shares
    ]
    for chosen in holding.picks.values():
        for devices in chosen.values():
            kinds += [((device.kind, device.minor), card_resources(device)) for device in devices]
    return kinds


def _picked(holding: Holding, container: ContainerPlan) -> list[Share]:
    chosen = holding.picks.get(container.name, {})
    return [Share(device, card_resources(device)) for devices in chosen.values() for device in devices]


def _requested(container: ContainerPlan, resource: str) -> int:
    limit = container.resources.limits.get(resource, container.resources.requests.get(resource))
    return amount(resource, limit) if limit is not None else 0
