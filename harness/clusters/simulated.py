"""Add, remove and break simulated nodes through the API; node agents follow the Node objects."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from seatrial.harness.clusters.answers import accepted, listed
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.harness.nodes.faults import FAULTS_ANNOTATION, check_fault
from seatrial.harness.nodes.fleet import ENTRY_ANNOTATION, checked_entry, node_manifest
from seatrial.harness.nodes.hardware import machine_of
from seatrial.scheduler.api.builders import NodeBuilder
from seatrial.scheduler.api.device import GROUP_VERSION
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

READY_WITHIN = 180.0  # seconds; on a busy machine 60 were not enough
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
NODES = "/api/v1/nodes"
DEVICES = f"/apis/{GROUP_VERSION}/devices"


class SimulatedNodes(Cluster):
    """A cluster whose nodes are simulated."""

    def add_nodes(self, nodes: Iterable[NodeBuilder | Mapping[str, Any]]) -> None:
        entries = [checked_entry(node.manifest if isinstance(node, NodeBuilder) else node) for node in nodes]
        waiting = set()
        for entry in entries:
            accepted(
                self.call(Request("POST", NODES, orjson.dumps(node_manifest(entry)))), f"add node {entry['name']!r}"
            )
            waiting.add(entry["name"])
        with_devices = {entry["name"] for entry in entries if machine_of(entry).slots and not entry.get("dra")}

        def ready() -> bool:
            here = {
                node["metadata"]["name"] for node in listed(self.call, NODES) if is_ready(node) and not _is_new(node)
            }
            known = (
                {device["metadata"]["name"] for device in listed(self.call, DEVICES)}
                if with_devices - here == set()
                else set()
            )
            return waiting <= here and with_devices <= known

        if waiting and not self.wait(ready, within=READY_WITHIN):
            late = sorted(waiting - {node["metadata"]["name"] for node in listed(self.call, NODES) if is_ready(node)})
            raise ClusterError(
                f"not Ready with their devices within {READY_WITHIN:.0f} s: {', '.join(late) or 'devices'}"
            )

    def remove_node(self, name: str) -> None:
        accepted(self.call(Request("DELETE", f"{NODES}/{name}")), f"remove node {name!r}")
        for pod in listed(self.call, f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}"):
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}?gracePeriodSeconds=0"
            self.call(Request("DELETE", path))
        self.wait(lambda: self.call(Request("GET", f"{DEVICES}/{name}")).code == 404, within=READY_WITHIN)

    def inject(self, fault: Mapping[str, Any]) -> None:
        name = str(fault.get("node", ""))
        response = self.call(Request("GET", f"{NODES}/{name}"))
        if not name or response.code == 404:
            there = ", ".join(sorted(node["metadata"]["name"] for node in listed(self.call, NODES))) or "none"
            raise UsageError(f"fault: expected `node` to name a node of this cluster ({there}), found {name!r}")
        node = orjson.loads(accepted(response, f"read node {name!r}").body)
        annotations = node["metadata"].get("annotations") or {}
        if ENTRY_ANNOTATION not in annotations:
            raise ClusterError(f"node {name!r} is not simulated; nothing here can make it fail")
        entry = {key: value for key, value in fault.items() if key != "node"}
        check_fault(entry, orjson.loads(annotations[ENTRY_ANNOTATION]))
        script = [*orjson.loads(annotations.get(FAULTS_ANNOTATION) or "[]"), entry]
        self._annotate(name, orjson.dumps(script).decode())

    def heal(self, node: str) -> None:
        """Remove all faults of a node."""
        self._annotate(node, None)

    def _annotate(self, node: str, text: str | None) -> None:
        patch = {"metadata": {"annotations": {FAULTS_ANNOTATION: text}}}
        response = self.call(Request("PATCH", f"{NODES}/{node}", orjson.dumps(patch), MERGE_PATCH))
        accepted(response, f"annotate node {node!r}")


def _is_new(node: Mapping[str, Any]) -> bool:
    """Whether the node still has the taint that the API server gives to nodes without status."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(taint.get("key") == NOT_READY_TAINT for taint in taints)


def is_ready(node: Mapping[str, Any]) -> bool:
    """Return whether the Node object has condition Ready=True."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
