"""A small cluster as a series of events for the auditor, and builders of its pods and devices."""

import json
from copy import deepcopy
from typing import Any

from seatrial.harness.audit.auditor import Auditor
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.numa import CPU_TOPOLOGY, NODE_RESERVATION, RESOURCE_STATUS

CORE, RATIO, MEMORY = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-memory"
GIB = 1 << 30
Json = dict[str, Any]


class Story:
    """A cluster with node n1 (8 CPUs, 2 cards, 1 NIC) whose events an auditor receives, a second apart."""

    def __init__(self) -> None:
        self.auditor, self.at = Auditor(), 100.0
        self._pods: dict[str, Json] = {}
        self.namespace("default")
        self.node("n1")
        self.device("n1")
        self.topology("n1")
        self.at += 10

    def tell(self, kind: str, event: str, body: Json) -> None:
        self.at += 1
        self.auditor.observe(kind, event, deepcopy(body), self.at)

    def namespace(self, name: str, **labels: str) -> None:
        self.tell("Namespace", "ADDED", {"metadata": {"name": name, "labels": labels}})

    def node(
        self, name: str, *, spec: Json | None = None, allocatable: Json | None = None, labels: Json | None = None
    ) -> None:
        marks = {"kubernetes.io/hostname": name, **(labels or {})}
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "10", CORE: "200", RATIO: "200", "nvidia.com/gpu": "2"}
        status = {"allocatable": {**amounts, **(allocatable or {})}}
        body = {"metadata": {"name": name, "uid": name, "labels": marks}, "spec": spec or {}, "status": status}
        self.tell("Node", "MODIFIED", body)

    def device(
        self, name: str, *, healthy: bool = True, annotations: Json | None = None, labels: Json | None = None
    ) -> None:
        gpu = {CORE: "100", RATIO: "100", MEMORY: f"{80 * GIB}"}
        cards = [
            {
                "type": "gpu",
                "minor": number,
                "id": f"GPU-{number}",
                "health": healthy,
                "resources": gpu,
                "labels": {"slot": str(number)},
                "topology": {"nodeID": number, "pcieID": f"p{number}"},
            }
            for number in (0, 1)
        ]
        nic = {
            "type": "rdma",
            "minor": 0,
            "id": "nic",
            "health": True,
            "resources": {"koordinator.sh/rdma": "100"},
            "topology": {"nodeID": 1, "pcieID": "p1"},
        }
        meta = {"name": name, "uid": f"d-{name}", "annotations": annotations or {}, "labels": labels or {}}
        self.tell("Device", "MODIFIED", {"metadata": meta, "spec": {"devices": [*cards, nic]}})

    def topology(self, name: str) -> None:
        cpus = [{"id": number, "core": number // 2, "socket": 0, "node": number // 4} for number in range(8)]
        annotations = {CPU_TOPOLOGY: json.dumps({"detail": cpus}), NODE_RESERVATION: json.dumps({"reservedCPUs": "7"})}
        zones = [
            {"name": f"node-{number}", "type": "Node", "resources": [{"name": "cpu", "allocatable": "4"}]}
            for number in (0, 1)
        ]
        self.tell(
            "NodeResourceTopology", "MODIFIED", {"metadata": {"name": name, "annotations": annotations}, "zones": zones}
        )

    def reservation(
        self, name: str = "r", *, node: str = "n1", cpu: str = "4", phase: str = "Available", **spec: Any
    ) -> None:
        body = {
            "metadata": {"name": name, "uid": name},
            "spec": {"allocateOnce": False, "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}], **spec},
            "status": {"phase": phase, "nodeName": node, "allocatable": {"cpu": cpu}},
        }
        self.tell("Reservation", "MODIFIED", body)

    def pod(
        self,
        name: str,
        *,
        cpu: str = "1",
        requests: Json | None = None,
        labels: Json | None = None,
        annotations: Json | None = None,
        status: Json | None = None,
        **spec: Any,
    ) -> "Story":
        amounts = {**({"cpu": cpu} if cpu else {}), **(requests or {})}
        body = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": labels or {"app": "a"},
                "annotations": annotations or {},
            },
            "spec": {"schedulerName": "s", "containers": [{"name": "c", "resources": {"requests": amounts}}], **spec},
            "status": {"phase": "Pending", **(status or {})},
        }
        self._pods[name] = body
        self.tell("Pod", "ADDED", body)
        return self

    def change(self, name: str, *, status: Json | None = None, metadata: Json | None = None, **spec: Any) -> None:
        body = self._pods[name]
        body["spec"].update(spec)
        body["status"].update(status or {})
        for key, value in (metadata or {}).items():
            body["metadata"][key] = {**body["metadata"].get(key, {}), **value} if isinstance(value, dict) else value
        self.tell("Pod", "MODIFIED", body)

    def delete(self, name: str) -> None:
        self.tell("Pod", "DELETED", self._pods.pop(name))

    def bind(self, name: str, node: str = "n1", **annotations: str) -> None:
        self.change(name, metadata={"annotations": annotations} if annotations else None, nodeName=node)

    def keep_deciding(self) -> None:
        """The scheduler binds another pod every two seconds, five times."""
        for _ in range(5):
            name = f"another-{self.at:.0f}"
            self.pod(name, cpu="1m")
            self.bind(name)

    def grant(self, name: str, devices: Json, node: str = "n1") -> None:
        self.bind(name, node, **{DEVICE_ALLOCATED: json.dumps(devices)})

    def cpus(self, name: str, cpuset: str, zones: list[Json] | None = None) -> None:
        self.bind(name, **{RESOURCE_STATUS: json.dumps({"cpuset": cpuset, "numaNodeResources": zones or []})})

    def ids(self) -> set[str]:
        self.auditor.check_state(self.at)
        return {violation.invariant for violation in self.auditor.violations}


def card(minor: int, percent: int = 100, *, memory: int | None = None, id_: str = "") -> Json:
    amount = percent * 80 * GIB // 100 if memory is None else memory
    return {"minor": minor, "resources": {CORE: str(percent), RATIO: str(percent), MEMORY: str(amount)}, "id": id_}


def gpu_pod(story: Story, name: str, percent: int = 100, **more: Any) -> None:
    story.pod(name, requests={CORE: str(percent), RATIO: str(percent)}, **more)


def preempted(story: Story, name: str) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    story.change(name, status={"conditions": [condition]})


def affinity(*, anti: bool, **labels: str) -> Json:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    kind = "podAntiAffinity" if anti else "podAffinity"
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
