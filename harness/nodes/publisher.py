"""Writes a node's objects to the API: labels and status, its Device, its NodeResourceTopology.

On a real cluster kubelet, koordlet and koord-device-daemon each write a part of them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import orjson

from seatrial.harness.devices.provider import Device, Driver, Link
from seatrial.harness.nodes import devices as device_object
from seatrial.harness.nodes import slices, xpu_files
from seatrial.harness.nodes.capacity import Sized, capacity_and_allocatable, quantities
from seatrial.harness.nodes.writer import DEVICES, NODES, TOPOLOGIES, Writer, then
from seatrial.harness.nodes.xpu_files import Xpu, read_xpus
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import HOSTNAME_LABEL
from seatrial.scheduler.api.numa import NODE_RESERVATION
from seatrial.scheduler.api.transport import Done, Response

Manifest = dict[str, Any]

KUBELET_PORT = 10250
KUBELET_VERSION = "v1.35.0"
_CONFLICT = 409


class Hardware(Protocol):
    """A node's hardware, simulated or real."""

    @property
    def machine(self) -> Sized: ...
    def devices(self) -> tuple[Device, ...]: ...
    def driver(self, vendor: str) -> Driver: ...
    def links(self) -> tuple[Link, ...]: ...


class Publisher:
    """Writes one node's objects; labels and annotations of other writers remain."""

    def __init__(
        self,
        name: str,
        uid: str,
        hardware: Hardware,
        *,
        writer: Writer,
        clock: Clock,
        host_ip: str,
        runtime: str,
        facts: Mapping[str, str],
        xpu_folder: Path | None,
        topology: Manifest | None,
        port: int,
        dra: slices.Way | None = None,
    ) -> None:
        """`runtime` has the format of `containerRuntimeVersion`; the other arguments are those of `NodeAgent`."""
        self._dra, self._generation = dra, 0
        self._vendors: tuple[str, ...] = ()  # with slices
        self._slice_names: frozenset[str] = frozenset()
        self._name, self._uid, self._hardware = name, uid, hardware
        self._writer, self._clock = writer, clock
        self._host_ip, self._runtime, self._facts = host_ip, runtime, facts
        self._xpu_folder, self._topology, self._port = xpu_folder, topology, port
        self._reservation: str | None = None
        self.devices: tuple[Device, ...] = ()  # as last read
        self._published: list[Manifest] = []
        self._names: set[str] = set()  # resources last written to the node

    def look(self) -> None:
        """Read the hardware without writing."""
        self.devices = self._hardware.devices()

    def mark(self, labels: Mapping[str, str], taints: Sequence[Manifest] = (), done: Done | None = None) -> None:
        """Set labels of the node, and its taints if there are any."""
        patch: Manifest = {"metadata": {"labels": labels, "uid": self._uid}}
        if taints:
            patch["spec"] = {"taints": list(taints)}
        self._writer.strategic(f"{NODES}/{self._name}", patch, done)

    def labels(self, extra: Mapping[str, str]) -> dict[str, str]:
        """All labels of the node; `extra` overrides those of the machine."""
        own = {
            HOSTNAME_LABEL: self._name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": self._facts.get("architecture", "amd64"),
        }
        if self._hardware.machine.server:
            own["node.kubernetes.io/instance-type"] = self._hardware.machine.server
        return {**own, **self.device_labels(), **extra}

    def device_labels(self) -> dict[str, str]:
        """The labels that follow from its devices."""
        if xpus := self._xpus():
            return xpu_files.labels(xpus)
        shown = self.shown()
        cards = [device for device in shown if device.kind == "gpu"]
        return device_object.labels(shown, self._hardware.driver(cards[0].vendor) if cards else None)

    def shown(self) -> tuple[Device, ...]:
        """The devices that reach the Device object and device plugins: none where ResourceSlices offer them."""
        return () if self._dra else device_object.reported(self.devices)

    def _xpus(self) -> tuple[Xpu, ...]:
        return read_xpus(self._xpu_folder) if self._xpu_folder is not None else ()

    def publish_topology(self, done: Callable[[], object]) -> None:
        """Create the NodeResourceTopology, or update our part of it."""
        manifest, self._topology = self._topology, None  # written once; released because it is large
        if manifest is None:
            done()
            return

        def created(response: Response) -> None:
            if response.code == _CONFLICT:
                patch = {name: value for name, value in manifest.items() if name not in {"apiVersion", "kind"}}
                self._writer.merge(f"{TOPOLOGIES}/{self._name}", patch, then(done))
            else:
                done()

        self._writer.create(TOPOLOGIES, manifest, created)

    def keep(self, reservation: str | None) -> None:
        """Write the reservation for processes outside containers to the NodeResourceTopology; None removes it."""
        if reservation != self._reservation:
            self._reservation = reservation
            patch = {"metadata": {"annotations": {NODE_RESERVATION: reservation}}}
            self._writer.merge(f"{TOPOLOGIES}/{self._name}", patch)

    def publish(self, done: Done | None = None) -> None:
        """Create the Device object, or update our part of it; labels and annotations of other writers remain."""
        if self._dra:
            self._publish_slices(done)
            return
        shown = self.shown()
        if not shown and not self._published:
            if done is not None:
                self._clock.call_soon(lambda: done(Response(200)))
            return
        now, xpus = self._clock.timestamp(), self._xpus()
        if xpus:
            others = device_object.spec([device for device in shown if device.kind != "gpu"], now=now)["devices"]
            content: Manifest = {"devices": [*xpu_files.entries(xpus, self._published, now=now), *others]}
            table = xpu_files.partitions(xpus)
        else:
            content = device_object.spec(shown, self._published, now=now)
            table = device_object.partitions(shown, self._hardware.links())
        self._published = content["devices"]
        manifest = device_object.manifest(self._name, self._uid, content, self.device_labels(), table)

        def finish(response: Response) -> None:
            if done is not None:
                done(response)

        def created(response: Response) -> None:
            if response.code == _CONFLICT:
                patch = {"metadata": manifest["metadata"], "spec": content}
                self._writer.merge(f"{DEVICES}/{self._name}", patch, finish)
            else:
                finish(response)

        self._writer.create(DEVICES, manifest, created)

    def has_slice(self, name: str) -> bool:
        """Whether a ResourceSlice of that name was written here."""
        return name in self._slice_names

    def _publish_slices(self, done: Done | None) -> None:
        """Create the slices of each driver and their classes, or write the slices anew under the next generation."""
        left, shown = 1, device_object.reported(self.devices, daemon=False)
        # A vendor whose devices are gone keeps a slice, without any.
        self._vendors = tuple(dict.fromkeys((*self._vendors, *(device.vendor for device in shown))))
        devices = {vendor: [device for device in shown if device.vendor == vendor] for vendor in self._vendors}
        self._generation += 1
        manifests = slices.slices(
            self._name, self._uid, devices, self._hardware.driver, self._generation, way=self._dra or "whole"
        )
        self._slice_names = frozenset(manifest["metadata"]["name"] for manifest in manifests)

        generation = self._generation

        def written(response: Response) -> None:
            nonlocal left
            left -= 1
            if not left and self._generation != generation:
                # Some were there with a later generation, and those that are new came with an earlier one.
                self._publish_slices(done)
            elif not left and done is not None:
                done(response)

        def created(manifest: Manifest, response: Response) -> None:
            if response.code == _CONFLICT:
                self._writer.read(f"{slices.SLICES}/{manifest['metadata']['name']}", partial(again, manifest))
            else:
                written(response)

        def again(manifest: Manifest, response: Response) -> None:
            before = orjson.loads(response.body)["spec"]["pool"]["generation"] if response.ok else 0
            self._generation = max(self._generation, before + 1)
            # null: the slice of that name may have been of the other kind
            kinds = {"sharedCounters": None, "devices": None}
            pool = {**manifest["spec"]["pool"], "generation": self._generation}
            spec = {**kinds, **manifest["spec"], "pool": pool}
            self._writer.merge(f"{slices.SLICES}/{manifest['metadata']['name']}", {"spec": spec}, written)

        for each in slices.classes(devices):
            left += 1
            self._writer.create(slices.CLASSES, each, written)
        for manifest in manifests:
            left += 1
            self._writer.create(slices.SLICES, manifest, partial(created, manifest))
        self._clock.call_soon(lambda: written(Response(200)))

    def write_status(self, *, ready: bool) -> None:
        """Write capacity, allocatable and conditions."""
        shown = self.shown()
        capacity, allocatable = capacity_and_allocatable(self._hardware.machine, shown)
        gone = dict.fromkeys(self._names - capacity.keys())
        self._names = set(capacity)
        now = self._clock.timestamp()
        status = {
            "capacity": {**quantities(capacity), **gone},
            "allocatable": {**quantities(allocatable), **gone},
            "conditions": [*_no_pressure(now), _ready(now) if ready else _not_ready(now)],
            "addresses": [
                {"type": "InternalIP", "address": self._host_ip},
                {"type": "Hostname", "address": self._name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {
                "machineID": self._uid,
                "systemUUID": self._uid,
                "bootID": self._uid,
                "kernelVersion": "6.8.0",
                "osImage": "simulated machine",
                "containerRuntimeVersion": self._runtime,
                "kubeletVersion": KUBELET_VERSION,
                "kubeProxyVersion": KUBELET_VERSION,
                "operatingSystem": "linux",
                "architecture": "amd64",
                **self._facts,
            },
        }
        # With its UID the write is refused where the node was deleted and another one has its name: a late status
        # would give that node this machine's capacity.
        self._writer.strategic(f"{NODES}/{self._name}/status", {"metadata": {"uid": self._uid}, "status": status})


def _ready(now: str) -> Manifest:
    return _condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", now)


def _not_ready(now: str) -> Manifest:
    return _condition("Ready", "False", "KubeletNotReady", "container runtime is down", now)


def _condition(kind: str, status: str, reason: str, message: str, now: str) -> Manifest:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


_NO_PRESSURE = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def _no_pressure(now: str) -> list[Manifest]:
    return [_condition(kind, "False", reason, message, now) for kind, reason, message in _NO_PRESSURE]
