"""Real etcd, kube-apiserver, kube-controller-manager and kubelet: this machine is the node, pods are containers.

Devices are the machine's own or a stand-in's; our device plugin gives them to containers.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from seatrial.harness.apiserver import KOORDINATOR, shipped
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.control_plane import control_plane
from seatrial.harness.clusters.local import LocalBackend, LocalCluster
from seatrial.harness.clusters.local_node import node_name
from seatrial.harness.clusters.machine_kubelet import MachineKubelet, machine_kubelet, missing_parts
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.clusters.simulated import DEVICES, NODES, NOT_READY_TAINT, READY_WITHIN, is_ready
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.harness.nodes.slices import SLICES
from seatrial.scheduler.api.builders import NodeBuilder
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Request

WITH_DEVICES = frozenset({Capability.DEVICE_FAULTS, Capability.REAL_DEVICES})
_ONE_NODE = "a cluster of this machine's kubelet has one node"


class KubeletCluster(LocalCluster):
    """A control plane of child processes, and this machine's kubelet."""

    def __init__(
        self,
        name: str,
        kubeconfig: Path,
        capabilities: frozenset[Capability],
        fake: str,
        machine: MachineKubelet,
        *,
        dra: bool,
    ) -> None:
        super().__init__(name, kubeconfig, capabilities, fake)
        self.machine, self._dra = machine, dra

    @property
    def node(self) -> str:
        return self.machine.name

    def wait_for_node(self) -> None:
        """Wait until the node is Ready, without taints, and its devices are counted.

        Raises:
            ClusterError: it was not in time, or a program has ended.
        """

        def ready() -> bool:
            self.machine.check()
            response = self.call(Request("GET", f"{NODES}/{self.node}"))
            if not response.ok:
                return False
            node = orjson.loads(response.body)
            taints = [taint["key"] for taint in node["spec"].get("taints") or ()]
            if not is_ready(node) or NOT_READY_TAINT in taints:
                return False
            if not self.capabilities & WITH_DEVICES:
                return True
            if self._dra:
                slices = self.call(Request("GET", f"{SLICES}?fieldSelector=spec.nodeName={self.node}"))
                return slices.ok and bool(orjson.loads(slices.body)["items"])
            device = self.call(Request("GET", f"{DEVICES}/{self.node}"))
            return device.ok and _counted(node, orjson.loads(device.body))

        if not self.wait(ready, within=READY_WITHIN):
            raise ClusterError(
                f"node {self.node!r} (this machine's kubelet) was not Ready with its devices within"
                f" {READY_WITHIN:.0f} s"
            )

    def add_nodes(self, nodes: Iterable[NodeBuilder | Mapping[str, Any]]) -> None:
        raise ClusterError(f"{_ONE_NODE}, and adds none (asked for {len(list(nodes))}); use --backend envtest")

    def remove_node(self, name: str) -> None:
        raise ClusterError(f"{_ONE_NODE}, and does not remove {name!r}")


def _counted(node: Mapping[str, Any], device: Mapping[str, Any]) -> bool:
    """Whether kubelet offers resources of each healthy device's type."""
    allocatable = node["status"].get("allocatable") or {}
    names = {name for entry in device["spec"]["devices"] if entry["health"] for name in entry["resources"]}
    return all(allocatable.get(name, "0") != "0" for name in names)


class KubeletBackend(LocalBackend):
    """Starts and stops the processes."""

    name = "kubelet"
    dra = False
    more_faults: frozenset[Capability] = frozenset()  # nothing here makes a real kubelet fail

    def probe(self) -> str | None:
        return missing_parts()

    @contextmanager
    def start(self, *, fleet: Path | str | None = None) -> Iterator[KubeletCluster]:
        if fleet is not None:
            raise UsageError(f"fleet {fleet}: {_ONE_NODE}, and takes no fleet")
        with private_folder() as folder:
            plane_folder, node_folder = folder / "plane", folder / "node"
            plane_folder.mkdir()
            node_folder.mkdir()
            with (
                control_plane(plane_folder, list(shipped())) as plane,
                machine_kubelet(
                    node_folder,
                    plane.kubeconfig,
                    plane_folder / "ca.crt",
                    node_name(),
                    self._fake,
                    devices=bool(self.capabilities & WITH_DEVICES),
                    dra=self.dra,
                ) as machine,
            ):
                cluster = KubeletCluster(
                    self.name, plane.kubeconfig, self.capabilities, self._fake, machine, dra=self.dra
                )
                try:
                    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KOORDINATOR}}
                    created = cluster.call(Request("POST", "/api/v1/namespaces", orjson.dumps(body)))
                    accepted(created, f"namespace {KOORDINATOR!r}")
                    cluster.wait_for_node()
                    yield cluster
                finally:
                    cluster.close()


class KubeletClaimsBackend(KubeletBackend):
    """The same with our driver of claims: the devices are in ResourceSlices, and none is offered as a resource."""

    name = "kubelet-claims"
    dra = True

    @cached_property
    def capabilities(self) -> frozenset[Capability]:  # type: ignore[override]
        return super().capabilities | {Capability.CLAIM_DRIVER}
