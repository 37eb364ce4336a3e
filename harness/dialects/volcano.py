"""Volcano 1.14: PodGroup and Queue of scheduling.volcano.sh; whole cards by NVIDIA's plain resource."""

from collections.abc import Iterable
from typing import Any, ClassVar

from seatrial.harness.dialects.dialect import Amounts, Dialect, Intent, Object
from seatrial.scheduler.api.builders import PodBuilder

_GROUP = "/apis/scheduling.volcano.sh/v1beta1"
_MEMBER = "scheduling.k8s.io/group-name"
_QUEUE = "scheduling.volcano.sh/queue-name"


class Volcano(Dialect):
    """vc-scheduler with vc-controller-manager, which makes PodGroups for pods without one."""

    name = "volcano"
    unsaid: ClassVar = {
        Intent.SHARES: "shares (volcano.sh/vgpu-*) need Volcano's device plugin on the nodes",
        Intent.RESERVATIONS: "Volcano has no object that keeps room for pods that are not there",
    }

    def gang(self, name: str, minimum: int) -> Iterable[Object]:
        return [self._group(name, {"minMember": minimum})]

    def topology(self, label: str, domains: Iterable[str]) -> Iterable[Object]:
        for value in domains:
            member = {"type": "Node", "selector": {"labelMatch": {"matchLabels": {label: value}}}}
            spec = {"tier": 1, "members": [member]}
            yield self._object("/apis/topology.volcano.sh/v1alpha1/hypernodes", "HyperNode", self.own(value), spec)

    def gang_within(self, name: str, minimum: int, label: str) -> Iterable[Object]:  # noqa: ARG002
        return [self._group(name, {"minMember": minimum, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}})]

    def join(self, pod: PodBuilder, gang: str) -> None:
        pod.annotation(_MEMBER, gang)

    def queue(self, name: str, *, share: Amounts, limit: Amounts) -> Iterable[Object]:
        spec: dict[str, Any] = {"weight": 1, "reclaimable": True}
        amounts = {"deserved": share, "capability": limit}
        spec |= {field: _texts(amount) for field, amount in amounts.items() if amount}
        return [self._object(f"{_GROUP}/queues", "Queue", self.own(name), spec)]

    def enqueue(self, pod: PodBuilder, queue: str) -> None:
        if queue:
            pod.annotation(_QUEUE, self.own(queue))

    def cards(self, pod: PodBuilder, count: int) -> Iterable[Object]:
        pod.nvidia(count)
        return ()

    def _group(self, name: str, spec: dict[str, Any]) -> Object:
        return self._object(f"{_GROUP}/namespaces/{self.scope}/podgroups", "PodGroup", name, spec)

    def _object(self, path: str, kind: str, name: str, spec: dict[str, Any]) -> Object:
        version = "/".join(path.split("/")[2:4])
        return Object(path, {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})


def _texts(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


DIALECT = Volcano
