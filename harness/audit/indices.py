"""What invariants look up for each binding, kept up to date with each event: a look-up walks over no other pods."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seatrial.harness.apiserver.quantities import Amounts, QuantityError
from seatrial.harness.audit.annotations import gang_of, reservation_uid
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.numa import RESOURCE_STATUS

if TYPE_CHECKING:
    from seatrial.harness.audit.state import PodRecord

QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"

Records = dict[str, "PodRecord"]  # by uid
NOBODY: Mapping[str, "PodRecord"] = {}


@dataclass(slots=True)
class NodeUse:
    """The pods that occupy resources of a node, and the sum of their requests."""

    amounts: Amounts = field(default_factory=dict)
    pods: Records = field(default_factory=dict)
    with_devices: Records = field(default_factory=dict)
    with_numa: Records = field(default_factory=dict)  # annotation resource-status
    with_ports: Records = field(default_factory=dict)  # host ports

    def add(self, requests: Amounts, sign: int) -> None:
        for name, value in requests.items():
            self.amounts[name] = self.amounts.get(name, 0) + sign * value


@dataclass(frozen=True, slots=True)
class Counted:
    """What a pod was counted with, to take it back: the pod may have changed since."""

    node: str
    requests: Amounts
    groups: tuple[Records, ...]
    priority: int | None = None  # of a pending pod


class Indices:
    """All look-ups. A pod is counted once."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeUse] = {}
        self.with_anti_affinity: Records = {}  # placed pods with required anti-affinity
        self.by_reservation: dict[str, Records] = {}  # placed pods by the uid of their reservation
        self.by_quota: dict[str, Records] = {}  # placed pods by the name of their quota
        self.by_gang: dict[str, Records] = {}  # placed pods by the key of their gang
        self.nominated: dict[str, Records] = {}  # pending pods by nominated node
        self.pending_priorities: Counter[int] = Counter()
        self._counted: dict[str, Counted] = {}

    def update(self, record: "PodRecord") -> None:
        """Count a pod that is new or has changed."""
        self.remove(record.uid)
        pod = record.pod
        if pod.terminated:
            return
        self._counted[record.uid] = self._place(record) if record.node else self._wait(record)

    def remove(self, uid: str) -> None:
        counted = self._counted.pop(uid, None)
        if counted is None:
            return
        for group in counted.groups:
            group.pop(uid, None)
        if counted.priority is not None:
            self.pending_priorities[counted.priority] -= 1
            if not self.pending_priorities[counted.priority]:
                del self.pending_priorities[counted.priority]
        use = self.nodes.get(counted.node)
        if use is not None:
            use.add(counted.requests, -1)
            if not use.pods:
                del self.nodes[counted.node]

    def _place(self, record: "PodRecord") -> Counted:
        pod, use = record.pod, self.nodes.setdefault(record.node, NodeUse())
        annotations = pod.metadata.annotations
        groups = [use.pods]
        if DEVICE_ALLOCATED in annotations:
            groups.append(use.with_devices)
        if RESOURCE_STATUS in annotations:
            groups.append(use.with_numa)
        if any(port.host_port for container in pod.spec.containers for port in container.ports):
            groups.append(use.with_ports)
        if _has_anti_affinity(pod):
            groups.append(self.with_anti_affinity)
        if uid := reservation_uid(pod):
            groups.append(self.by_reservation.setdefault(uid, {}))
        if quota := pod.metadata.labels.get(QUOTA_LABEL):
            groups.append(self.by_quota.setdefault(quota, {}))
        if gang := gang_of(pod):
            groups.append(self.by_gang.setdefault(gang, {}))
        for group in groups:
            group[record.uid] = record
        try:
            requests = record.requests
        except QuantityError:
            requests = {}  # the API server or the node agent refuses such a pod
        use.add(requests, 1)
        return Counted(record.node, requests, tuple(groups))

    def _wait(self, record: "PodRecord") -> Counted:
        priority, node = record.pod.spec.priority, record.pod.status.nominated_node_name
        self.pending_priorities[priority] += 1
        groups: tuple[Records, ...] = ()
        if node:
            groups = (self.nominated.setdefault(node, {}),)
            groups[0][record.uid] = record
        return Counted("", {}, groups, priority)


def _has_anti_affinity(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and affinity.pod_anti_affinity is not None and bool(affinity.pod_anti_affinity.required)
