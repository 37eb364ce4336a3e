"""Pre-allocation: a reservation takes over what running pods hold on its node (RSV-R46 to RSV-R48).

The pods stay where they are; they become the first owners of the reservation. Follows Koordinator
pkg/scheduler/plugins/reservation; a deviation: without `enableMultiple` the check that the node holds the reservation
once the pod leaves is about amounts only, other plugins see the node without the pod.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.api.reservation import CLUSTER_MODE, Reservation
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.plugins.reservation.args import PreAllocationConfig
from seatrial.scheduler.plugins.reservation.owners import matches

UNSUPPORTED = "node(s) reservation pre allocation is unsupported with current attributes"
DISABLED = "reservation requires cluster mode pre-allocation which is disabled"
NO_POD_MATCHES = "node(s) no pod match reservation with pre allocation required"
NO_POD_FITS = "node(s) no pod(s) to meet the pre-allocation requirements"


def candidates(
    reservation: Reservation, nodes: Iterable[NodeInfo], config: PreAllocationConfig, reserved: Callable[[str], bool]
) -> dict[str, list[PodInfo]]:
    """The pods that the reservation may take over, by node, in the order in which they are tried (RSV-R47).

    `reserved`: whether the pod of a uid is in a reservation, which may not be written to it yet.
    """
    victims: dict[str, list[PodInfo]] = {}
    clusterwide = reservation.spec.pre_allocation_policy.mode == CLUSTER_MODE
    owners = [owner for owner in reservation.spec.owners if owner.label_selector is not None]
    for node in nodes:
        for info in node.pods.values():
            pod = info.pod
            if pod.deleting or reserved(info.uid):
                continue
            owner_matches = (
                pod.metadata.labels.get(config.cluster_label_key) == "true" if clusterwide else matches(owners, pod)
            )
            if owner_matches:
                victims.setdefault(node.name, []).append(info)
    for pods in victims.values():
        pods.sort(key=lambda info: (-priority_of(info, config) if clusterwide else 0, info.uid))
    return victims


def priority_of(info: PodInfo, config: PreAllocationConfig) -> int:
    """The pod's rank among those that may be taken over; 0 if its annotation is no number."""
    return integer(info.pod.metadata.annotations.get(config.cluster_priority_annotation_key, "")) or 0


def select(
    amounts: Mapping[str, int], free: Mapping[str, int], pods: Sequence[tuple[PodInfo, Amounts]], *, multiple: bool
) -> list[PodInfo]:
    """The pods to take over on one node (RSV-R48); none if that does not help.

    `amounts`: what the reservation requests; `free`: what the node has left; `pods`: candidates with their requests.
    """
    taken: list[PodInfo] = []
    held: Amounts = {}
    for info, requests in pods:
        after = {name: held.get(name, 0) + requests.get(name, 0) for name in {*held, *requests}}
        if any(value > amounts.get(name, 0) for name, value in after.items() if name in amounts):
            continue
        if multiple:
            taken.append(info)
            held = after
        elif all(value <= free.get(name, 0) + requests.get(name, 0) for name, value in amounts.items()):
            return [info]
    return taken
