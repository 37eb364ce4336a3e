"""Kueue 0.19 beside kube-scheduler: ClusterQueue and LocalQueue of kueue.x-k8s.io; all else as in Kubernetes.

Kueue admits pods by the quota of their queue, and kube-scheduler places them. The pods have from the start what Kueue's
webhook would add: its gate, label and finalizer.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from seatrial.harness.apiserver.quantities import Quantity, exact
from seatrial.harness.dialects.dialect import Amounts, Intent, Manifest, Object
from seatrial.harness.dialects.kubernetes import Kubernetes
from seatrial.scheduler.api.builders import PodBuilder

_FLAVOR = "default"  # the recipe makes it
_VERSION = "kueue.x-k8s.io/v1beta2"
_MANAGED = "kueue.x-k8s.io/managed"


class Kueue(Kubernetes):
    """kueue-manager with kube-scheduler."""

    name = "kueue"
    unsaid: ClassVar = {intent: Kubernetes.unsaid[intent] for intent in (Intent.SHARES, Intent.RESERVATIONS)}

    def queue(self, name: str, *, share: Amounts, limit: Amounts) -> Iterable[Object]:
        names = sorted({*share, *limit})
        resources = [
            {
                "name": resource,
                "nominalQuota": str(share.get(resource, limit.get(resource, 0))),
                **({"borrowingLimit": _rest(limit[resource], share[resource])} if resource in share else {}),
            }
            for resource in names
        ]
        spec = {
            "cohortName": self.scope,  # queues of one case lend to each other
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": names, "flavors": [{"name": _FLAVOR, "resources": resources}]}],
        }
        whole = self.own(name)
        return [
            Object(f"/apis/{_VERSION}/clusterqueues", _object("ClusterQueue", whole, spec)),
            Object(
                f"/apis/{_VERSION}/namespaces/{self.scope}/localqueues",
                _object("LocalQueue", name, {"clusterQueue": whole}),
            ),
        ]

    def enqueue(self, pod: PodBuilder, queue: str) -> None:
        if queue:
            pod.label("kueue.x-k8s.io/queue-name", queue).label(_MANAGED, "true")
            pod.manifest["metadata"]["finalizers"] = [_MANAGED]
            pod.manifest["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]


def _rest(limit: Quantity, share: Quantity) -> str:
    return str(float(exact(limit) - exact(share))).removesuffix(".0")


def _object(kind: str, name: str, spec: Mapping[str, object]) -> Manifest:
    return {"apiVersion": _VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


DIALECT = Kueue
