"""Koordinator: PodGroup and ElasticQuota of scheduling.sigs.k8s.io, Reservation, koordinator.sh/gpu-core."""

from collections.abc import Iterable, Mapping

import orjson

from seatrial.harness.allocations import device_allocations
from seatrial.harness.dialects.dialect import Amounts, Caller, Dialect, Object
from seatrial.scheduler.api.builders import PodBuilder, gang, network_topology, quota, reservation
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU_CORE
from seatrial.scheduler.api.networktopology import DEFAULT_TOPOLOGY, MUST_GATHER, TOPOLOGIES_PATH
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH
from seatrial.scheduler.api.transport import Request

_GROUP = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces"
_LAYER = "RackLayer"


class Koordinator(Dialect):
    """Koordinator 1.7 and 1.8, and seatrial's scheduler."""

    name = "koordinator"

    def gang(self, name: str, minimum: int) -> Iterable[Object]:
        return [Object(f"{_GROUP}/{self.scope}/podgroups", gang(name, minimum).manifest)]

    def topology(self, label: str, domains: Iterable[str]) -> Iterable[Object]:  # noqa: ARG002
        return [Object(TOPOLOGIES_PATH, network_topology((_LAYER, label)))]

    def topology_is_read(self, nodes: int, call: Caller) -> bool:
        status = orjson.loads(call(Request("GET", f"{TOPOLOGIES_PATH}/{DEFAULT_TOPOLOGY}")).body).get("status") or {}
        return any(each["nodeNum"] == nodes for each in (status.get("detailStatus") or ())[:1])

    def gang_within(self, name: str, minimum: int, label: str) -> Iterable[Object]:  # noqa: ARG002
        made = gang(name, minimum).gather(_LAYER, MUST_GATHER)
        return [Object(f"{_GROUP}/{self.scope}/podgroups", made.manifest)]

    def join(self, pod: PodBuilder, gang: str) -> None:
        pod.in_gang(gang)

    def queue(self, name: str, *, share: Amounts, limit: Amounts) -> Iterable[Object]:
        made = quota(self.own(name)).min(**share).max(**limit)
        return [Object(f"{_GROUP}/{self.scope}/elasticquotas", made.manifest)]

    def enqueue(self, pod: PodBuilder, queue: str) -> None:
        if queue:
            pod.quota(self.own(queue))

    def cards(self, pod: PodBuilder, count: int) -> Iterable[Object]:
        pod.gpus(count)
        return ()

    def share(self, pod: PodBuilder, percent: int) -> Iterable[Object]:
        pod.gpu_share(percent)
        return ()

    def reserve(self, name: str, like: PodBuilder, labels: Mapping[str, str]) -> Iterable[Object]:
        made = reservation(self.own(name)).like(like).for_labels(**labels).within(self.scope)
        return [Object(RESERVATIONS_PATH, made.manifest)]

    def held(self, pod: Pod, call: Caller) -> Mapping[str, int]:  # noqa: ARG002
        gpu = device_allocations(pod).get("gpu", ())
        return {f"{pod.spec.node_name}/{each.minor}": int(each.resources.get(GPU_CORE, 100)) for each in gpu}


DIALECT = Koordinator
