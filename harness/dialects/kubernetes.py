"""Kubernetes 1.37: PodGroup of scheduling.k8s.io (beta, feature gate GenericWorkload), and cards by ResourceClaims."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import orjson

from seatrial.harness.dialects.dialect import Caller, Dialect, Intent, Manifest, Object
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder, claim_template, native_gang
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.resourceclaims import GROUP_PATH
from seatrial.scheduler.api.transport import Request

CLASS = "gpu.nvidia.com"  # of NVIDIA's driver, whose names simulated nodes use
_NO_QUEUES = "kube-scheduler has no queues; a ResourceQuota refuses pods at their creation"


class Kubernetes(Dialect):
    """kube-scheduler, and seatrial's scheduler."""

    name = "kubernetes"
    unsaid: ClassVar = {
        Intent.SHARES: "NVIDIA's driver offers whole cards; what a share would be is each driver's own",
        Intent.LIMITS: _NO_QUEUES,
        Intent.FAIR_SHARES: _NO_QUEUES,
        Intent.RESERVATIONS: "Kubernetes has no object that keeps room for pods",
    }

    def node(self, node: NodeBuilder) -> None:
        if node.manifest.get("devices"):
            node.dra()

    def gang(self, name: str, minimum: int) -> Iterable[Object]:
        return [self._group(native_gang(name, minimum))]

    def gang_within(self, name: str, minimum: int, label: str) -> Iterable[Object]:
        constraints = {"topology": [{"key": label}]}  # alpha, feature gate TopologyAwareWorkloadScheduling
        return [self._group(native_gang(name, minimum, schedulingConstraints=constraints))]

    def _group(self, manifest: Manifest) -> Object:
        return Object(f"/apis/scheduling.k8s.io/v1beta1/namespaces/{self.scope}/podgroups", manifest)

    def join(self, pod: PodBuilder, gang: str) -> None:
        pod.in_native_gang(gang)

    def cards(self, pod: PodBuilder, count: int) -> Iterable[Object]:
        name = f"{pod.name}-cards"
        pod.claim("cards", template=name)
        made = claim_template(name).asks("cards", CLASS, allocationMode="ExactCount", count=count)
        return [Object(f"{GROUP_PATH}/namespaces/{self.scope}/resourceclaimtemplates", made.manifest)]

    def held(self, pod: Pod, call: Caller) -> Mapping[str, int]:
        path = f"{GROUP_PATH}/namespaces/{self.scope}/resourceclaims"
        claims = orjson.loads(call(Request("GET", path)).body)["items"]
        amounts: dict[str, int] = {}
        for claim in claims:
            status = claim.get("status") or {}
            if any(user["uid"] == pod.metadata.uid for user in status.get("reservedFor") or ()):
                results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
                amounts |= {f"{each['pool']}/{each['device']}": 100 for each in results}
        return amounts


DIALECT = Kubernetes
