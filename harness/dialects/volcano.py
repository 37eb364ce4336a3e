"""Volcano 1.14: PodGroup and Queue of scheduling.volcano.sh; cards and shares by volcano.sh/vgpu-number."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from seatrial.harness.dialects.dialect import Amounts, Caller, Dialect, Intent, Object
from seatrial.harness.dialects.vgpu import MEMORY, SLOTS, TYPE, card_names, percent_held
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder
from seatrial.scheduler.api.core import Pod

_GROUP = "/apis/scheduling.volcano.sh/v1beta1"
_MEMBER = "scheduling.k8s.io/group-name"
_COUNT, _CORES, _MEMORY = (f"volcano.sh/vgpu-{kind}" for kind in ("number", "cores", "memory"))
_QUEUE = "scheduling.volcano.sh/queue-name"


class Volcano(Dialect):
    """vc-scheduler with vc-controller-manager, which makes PodGroups for pods without one."""

    name = "volcano"
    unsaid: ClassVar = {Intent.RESERVATIONS: "Volcano has no object that keeps room for pods that are not there"}

    def node(self, node: NodeBuilder) -> None:
        """Offer what Volcano's device plugin would, which writes the annotation."""
        cards = card_names(node)
        for name, each in ((_COUNT, SLOTS), (_CORES, 100), (_MEMORY, MEMORY)) if cards else ():
            node.extended(name, each * len(cards))
        if cards:
            register = "".join(f"{card},{SLOTS},{MEMORY},{TYPE},true,hami-core:" for card in cards)
            node.annotation("volcano.sh/node-vgpu-register", register)

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
        pod.resources({_COUNT: count, _CORES: 100})
        return ()

    def share(self, pod: PodBuilder, percent: int) -> Iterable[Object]:
        pod.resources({_COUNT: 1, _CORES: percent, _MEMORY: MEMORY * percent // 100})
        return ()

    def held(self, pod: Pod, call: Caller) -> Mapping[str, int]:  # noqa: ARG002
        return percent_held(pod, "volcano.sh/vgpu-ids-new")

    def _group(self, name: str, spec: dict[str, Any]) -> Object:
        return self._object(f"{_GROUP}/namespaces/{self.scope}/podgroups", "PodGroup", name, spec)

    def _object(self, path: str, kind: str, name: str, spec: dict[str, Any]) -> Object:
        version = "/".join(path.split("/")[2:4])
        return Object(path, {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})


def _texts(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


DIALECT = Volcano
