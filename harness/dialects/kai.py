"""KAI 0.12: PodGroup and Queue of scheduling.run.ai; whole cards by NVIDIA's plain resource, shares by gpu-fraction."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from seatrial.harness.apiserver.quantities import exact
from seatrial.harness.dialects.dialect import Amounts, Caller, Dialect, Intent, Object
from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import NVIDIA_GPU

_QUEUE = "kai.scheduler/queue"
_MEMBER = "pod-group-name"
_UNLIMITED = -1
_FRACTION = "gpu-fraction"
_CARDS = "NVIDIA_VISIBLE_DEVICES"
_GROUP = "runai-gpu-group"  # of the pods on one card, written by the binder


class Kai(Dialect):
    """KAI's scheduler with its binder."""

    name = "kai"
    unsaid: ClassVar = {Intent.RESERVATIONS: "KAI has no object that keeps room for pods that are not there"}

    def gang(self, name: str, minimum: int) -> Iterable[Object]:
        return [self._group(name, minimum)]

    def topology(self, label: str, domains: Iterable[str]) -> Iterable[Object]:  # noqa: ARG002
        version, spec = "kai.scheduler/v1alpha1", {"levels": [{"nodeLabel": label}]}
        manifest = {"apiVersion": version, "kind": "Topology", "metadata": {"name": self.own("racks")}, "spec": spec}
        return [Object(f"/apis/{version}/topologies", manifest)]

    def gang_within(self, name: str, minimum: int, label: str) -> Iterable[Object]:
        constraint = {"topology": self.own("racks"), "requiredTopologyLevel": label}
        return [self._group(name, minimum, topologyConstraint=constraint)]

    def _group(self, name: str, minimum: int, **more: object) -> Object:
        """KAI finds the pods of a group by its name alone, in all namespaces, and its podgrouper makes unique names."""
        spec = {"minMember": minimum, "queue": self._queue(""), **more}
        version = "scheduling.run.ai/v2alpha2"
        manifest = {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": self.own(name)}, "spec": spec}
        return Object(f"/apis/{version}/namespaces/{self.scope}/podgroups", manifest)

    def join(self, pod: PodBuilder, gang: str) -> None:
        pod.annotation(_MEMBER, self.own(gang))

    def queue(self, name: str, *, share: Amounts, limit: Amounts) -> Iterable[Object]:
        bounds = {kind: _bounds(kind, share, limit) for kind in ("cpu", "memory", "gpu")}
        spec: dict[str, Any] = {"parentQueue": "default-parent-queue", "resources": bounds}
        version = "scheduling.run.ai/v2"
        manifest = {"apiVersion": version, "kind": "Queue", "metadata": {"name": self._queue(name)}, "spec": spec}
        return [Object(f"/apis/{version}/queues", manifest)]

    def enqueue(self, pod: PodBuilder, queue: str) -> None:
        pod.label(_QUEUE, self._queue(queue))

    def cards(self, pod: PodBuilder, count: int) -> Iterable[Object]:
        pod.nvidia(count)
        return ()

    def share(self, pod: PodBuilder, percent: int) -> Iterable[Object]:
        """The second annotation and the variable are from KAI's webhook: the binder writes the card there."""
        pod.annotation(_FRACTION, f"{percent / 100}").annotation("runai/shared-gpu-configmap", f"{pod.name}-card")
        key = {"name": f"{pod.name}-card-0", "key": _CARDS}
        pod.manifest["spec"]["containers"][0]["env"] = [{"name": _CARDS, "valueFrom": {"configMapKeyRef": key}}]
        return ()

    def held(self, pod: Pod, call: Caller) -> Mapping[str, int]:  # noqa: ARG002
        """The card of a share; the node chooses whole ones."""
        group = pod.metadata.labels.get(_GROUP)
        return {group: round(100 * float(pod.metadata.annotations[_FRACTION]))} if group else {}

    def _queue(self, name: str) -> str:
        """Queues are cluster-wide, and each pod is in one."""
        return self.own(name) if name else "default-queue"


def _bounds(kind: str, share: Amounts, limit: Amounts) -> dict[str, float]:
    """Quota, limit and weight of a resource: CPUs in thousandths, memory in megabytes, cards."""
    name = NVIDIA_GPU if kind == "gpu" else kind

    def amount(amounts: Amounts) -> float:
        if name not in amounts:
            return _UNLIMITED
        value = float(exact(amounts[name]))
        return {"cpu": value * 1000, "memory": value / 1e6}.get(kind, value)

    return {"quota": amount(share), "limit": amount(limit), "overQuotaWeight": 1}


DIALECT = Kai
