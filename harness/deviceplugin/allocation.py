"""Which container kubelet allocates devices for, and what that container gets: the pod's annotation.

kubelet's request names no pod. It admits pods one after the other and lists a pod in its pod-resources interface from
the moment its admission begins; containers that have devices are listed with them. So the container is the one that is
listed without devices and whose limit is the number of IDs. HAMi's plugin relies on a lock of the node instead, which
lets only one pod at a time be bound to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.harness.apiserver.quantities import amount
from seatrial.harness.deviceplugin.messages import ContainerAllocateResponse, DeviceSpec, PluginMount, PodResources
from seatrial.harness.devices.hami_release import HamiHost
from seatrial.harness.devices.provider import ContainerGrant, Device, Share
from seatrial.harness.errors import DeviceError
from seatrial.harness.nodes.admission import NodeLedger, container_grant
from seatrial.harness.nodes.pods import BoundPod, ContainerPlan
from seatrial.scheduler.api.device import DEVICE_ALLOCATED

_SIDECAR = "Always"


class NoPromise(DeviceError):
    """No container, or more than one with different promises, matches kubelet's request."""


@dataclass(frozen=True, slots=True)
class Target:
    """The container that kubelet asks for, and the devices of its pod."""

    pod: BoundPod
    container: ContainerPlan
    shares: tuple[Share, ...]
    hami: HamiHost

    def devices(self, kind: str) -> tuple[Device, ...]:
        return tuple(share.device for share in self.shares if share.device.kind == kind)

    def grant(self, kind: str, inventory: Sequence[Share] | None = None) -> ContainerGrant:
        """What the devices of a type add to the container; `inventory`: the shares with their slices.

        Raises:
            AdmissionError: the vendor's container runtime would not start it.
        """
        shares = tuple(
            share for share in (self.shares if inventory is None else inventory) if share.device.kind == kind
        )
        return container_grant(self.pod, self.container.name, shares, self.hami)


def find_target(
    pods: Sequence[BoundPod],
    listed: Sequence[PodResources],
    devices: Sequence[Device],
    resource: str,
    count: int,
    *,
    hami: HamiHost = HamiHost(),  # noqa: B008 frozen
) -> Target:
    """The container that waits for `count` units of a resource.

    `pods` are those of the node by the API, `listed` those that kubelet lists. The allocation is checked: its devices
    are on this node and healthy, and with those of the other pods it fits.

    Raises:
        NoPromise: no container waits for that, its pod has no allocation, or several pods with different ones wait.
        AdmissionError: the allocation cannot be given.
    """
    served = {(entry.namespace, entry.name): _served(entry) for entry in listed}
    waiting: list[tuple[BoundPod, ContainerPlan]] = []
    for pod in pods:
        mine = served.get((pod.metadata.namespace, pod.metadata.name))
        if mine is None or pod.terminated:
            continue
        container = _waiting_container(pod, mine, resource, count)
        if container is not None:
            waiting.append((pod, container))
    if not waiting:
        raise NoPromise(f"no pod that kubelet is starting has a container with {count} {resource} and no devices yet")
    promises = {pod.metadata.annotations.get(DEVICE_ALLOCATED, "") for pod, _ in waiting}
    names = ", ".join(sorted(pod.key for pod, _ in waiting))
    if len(promises) > 1:
        raise NoPromise(f"pods {names} all wait for {count} {resource}, with different allocations")
    if promises == {""}:
        raise NoPromise(
            f"pod {names}: expected the annotation {DEVICE_ALLOCATED}, found none; it was not placed by a scheduler"
            " that allocates devices"
        )
    pod, container = waiting[0]
    ledger = NodeLedger()
    ledger.set_hardware({}, devices)
    for other in pods:
        if other.metadata.uid != pod.metadata.uid and not other.terminated and served.get(_key(other)):
            ledger.admit(other, {}, before={})  # it has its devices, healthy or not
    return Target(pod, container, ledger.admit(pod, {}).shares, hami)


def response_of(grant: ContainerGrant, root: Path = Path("/"), *, simulated: bool = False) -> ContainerAllocateResponse:
    """A grant in the form that kubelet expects. `root` has the host's /dev, which may be mounted elsewhere here.

    Device nodes that do not exist are left out: a vendor's container runtime makes them, by the environment. The nodes
    of `simulated` devices are files, made here where the stand-in has none, and mounted.
    """
    mounts = [PluginMount(mount.container, mount.host, mount.read_only) for mount in grant.mounts]
    specs: list[DeviceSpec] = []
    for node in grant.nodes:
        host = root / node.removeprefix("/")
        if simulated:
            if not host.exists():
                host.parent.mkdir(parents=True, exist_ok=True)
                host.touch()
            mounts.append(PluginMount(node, str(host)))
        elif host.is_char_device():
            specs.append(DeviceSpec(node, node, "rw"))
    return ContainerAllocateResponse(dict(grant.env), tuple(mounts), tuple(specs), dict(grant.annotations))


def _key(pod: BoundPod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def _served(entry: PodResources) -> Mapping[str, frozenset[str]]:
    """For each container that has devices the resources that they are of."""
    return {
        container.name: frozenset(group.resource_name for group in container.devices)
        for container in entry.containers
        if container.devices
    }


def _waiting_container(
    pod: BoundPod, served: Mapping[str, frozenset[str]], resource: str, count: int
) -> ContainerPlan | None:
    """The first container, in kubelet's order, with that limit and no devices for it.

    kubelet does not list ordinary init containers. They come first, and their devices go to the containers after them;
    so they wait only while no container of the pod has devices of the resource.
    """
    begun = any(resource in names for names in served.values())
    for container in pod.spec.init_containers:
        if _limit(container, resource) != count:
            continue
        if container.restart_policy == _SIDECAR:
            if resource not in served.get(container.name, ()):
                return container
        elif not begun and pod.status.start_time is None:  # kubelet sets the time when the pod is admitted
            return container
    for container in pod.spec.containers:
        if _limit(container, resource) == count and resource not in served.get(container.name, ()):
            return container
    return None


def _limit(container: ContainerPlan, resource: str) -> int:
    limit = container.resources.limits.get(resource)
    return amount(resource, limit) if limit is not None else 0
