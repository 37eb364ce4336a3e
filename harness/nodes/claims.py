"""What a node's kubelet and drivers do for the claims of a pod: check them, and give their devices to its containers.

Follows `pkg/kubelet/cm/dra/manager.go` (DRA-R153 to DRA-R160). A claim is prepared for the first pod on the node that
uses it, and released after the last one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from seatrial.harness.devices.provider import Device
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.nodes.pods import BoundPod, ContainerPlan
from seatrial.harness.nodes.writer import Writer
from seatrial.scheduler.api.resourceclaims import GROUP_PATH, ResourceClaim
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.api.wire import decoder

EXTENDED = "<extended-resources>"  # stands for an entry of the pod: no entry can have this name

DeviceName = tuple[str, str]  # driver, device
Granted = dict[str, dict[str, tuple[Device, ...]]]  # container → resource → devices

_decode = decoder(ResourceClaim)


class PrepareError(Exception):
    """The claims of a pod cannot be prepared now; kubelet tries again."""


@dataclass(slots=True)
class _Prepared:
    claim: str  # namespace/name
    devices: frozenset[DeviceName]
    pods: set[str] = field(default_factory=set)


class NodeClaims:
    """The claims that are prepared on one node."""

    def __init__(self, node: str, writer: Writer) -> None:
        self._node, self._writer = node, writer
        self._prepared: dict[str, _Prepared] = {}  # by uid of the claim

    def read(self, pod: BoundPod, done: Callable[[Mapping[str, ResourceClaim | None]], object]) -> None:
        """Read the pod's claims and pass them to `done` by the names of its entries; None: there is none."""
        names = claim_names(pod)
        if not names:
            done({})
        claims: dict[str, ResourceClaim | None] = {}

        def answered(entry: str, response: Response) -> None:
            claims[entry] = _decode(response.body) if response.ok else None
            if len(claims) == len(names):
                done(claims)

        for entry, name in names.items():
            if name:
                path = f"{GROUP_PATH}/namespaces/{pod.metadata.namespace}/resourceclaims/{name}"
                self._writer.read(path, lambda response, entry=entry: answered(entry, response))  # type: ignore[misc]
            else:
                answered(entry, Response(404))

    def prepare(
        self, pod: BoundPod, claims: Mapping[str, ResourceClaim | None], by_name: Mapping[DeviceName, Device]
    ) -> Granted:
        """Prepare the pod's claims: the devices of each container that names them. `by_name`: see `offered`.

        Raises:
            PrepareError: a claim is missing, not for this pod, or has a device that another claim has here.
        """
        uid = pod.metadata.uid
        allocated: dict[str, list[tuple[str, Device]]] = {}
        begun: list[tuple[str, _Prepared]] = []
        for entry, claim in claims.items():
            if claim is None:
                what = "extended resources" if entry == EXTENDED else f"entry {entry}"
                raise PrepareError(f"ResourceClaim of the pod's {what} not found")
            name, key = claim.metadata.name, claim.metadata.key
            group = pod.spec.scheduling_group
            if not any(user.uid == uid or user.is_group(group) for user in claim.status.reserved_for):
                raise PrepareError(
                    f"pod {pod.metadata.name} ({uid}) is not allowed to use ResourceClaim {name} ({claim.metadata.uid})"
                )
            results = claim.status.allocation.devices.results if claim.status.allocation else ()
            for result in results:
                known = result.driver in _DRIVERS and result.pool == self._node
                if known and (result.driver, result.device) not in by_name:
                    raise PrepareError(
                        f"NodePrepareResources failed for ResourceClaim {name}: device {result.device} of driver"
                        f" {result.driver} is not on this node"
                    )
            here = [result for result in results if (result.driver, result.device) in by_name]
            taken = frozenset(
                (result.driver, result.device) for result in here if not (result.admin_access or result.share_id)
            )
            for other_uid, other in self._prepared.items():
                if other_uid != claim.metadata.uid and other.devices & taken:
                    driver, device = min(other.devices & taken)
                    raise PrepareError(
                        f"NodePrepareResources failed for ResourceClaim {name}: device {device} of driver {driver} is"
                        f" prepared for ResourceClaim {other.claim}"
                    )
            begun.append((claim.metadata.uid, _Prepared(key, taken)))
            allocated[entry] = [(result.request, by_name[result.driver, result.device]) for result in here]
        for claim_uid, prepared in begun:
            self._prepared.setdefault(claim_uid, prepared).pods.add(uid)
        return {
            container.name: granted
            for container in (*pod.spec.init_containers, *pod.spec.containers)
            if (granted := _of_container(container, allocated) | _extended(pod, container.name, allocated))
        }

    def release(self, pod: str) -> None:
        """The pod with this uid no longer uses its claims."""
        for claim, prepared in list(self._prepared.items()):
            prepared.pods.discard(pod)
            if not prepared.pods:
                del self._prepared[claim]


_DRIVERS = frozenset(vendor.claim_driver.name for vendor in VENDORS.values())
"""The drivers of simulated nodes; devices of others are prepared by the programs that publish them."""


def claim_names(pod: BoundPod) -> dict[str, str]:
    """The pod's claims by the names of its entries; "" where none was made yet. Entries without need are left out."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names: dict[str, str] = {}
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or made.get(entry.name, "")
        if name is not None:
            names[entry.name] = name
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        names[EXTENDED] = extended.resource_claim_name
    return names


def _extended(
    pod: BoundPod, container: str, allocated: Mapping[str, Sequence[tuple[str, Device]]]
) -> dict[str, tuple[Device, ...]]:
    """The devices of extended resources of the container that a claim serves, by resource."""
    status, cards = pod.status.extended_resource_claim_status, dict[str, tuple[Device, ...]]()
    for mapping in status.request_mappings if status is not None else ():
        if mapping.container_name == container:
            devices = tuple(device for request, device in allocated[EXTENDED] if request == mapping.request_name)
            cards[mapping.resource_name] = (*cards.get(mapping.resource_name, ()), *devices)
    return cards


def _of_container(
    container: ContainerPlan, allocated: Mapping[str, Sequence[tuple[str, Device]]]
) -> dict[str, tuple[Device, ...]]:
    """The devices of the claims, or of single requests of them, that the container names (DRA-R156)."""
    cards: dict[str, tuple[Device, ...]] = {}
    for claim in container.resources.claims:
        name = f"claim:{claim.name}/{claim.request}" if claim.request else f"claim:{claim.name}"
        devices = tuple(
            device
            for request, device in allocated.get(claim.name, ())
            if not claim.request or claim.request in {request, request.partition("/")[0]}
        )
        if devices:
            cards[name] = devices
    return cards
