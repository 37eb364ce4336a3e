"""Real etcd, kube-apiserver and kube-controller-manager on loopback, with simulated nodes of our own agents."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from seatrial.harness.apiserver.schemas.shipped import shipped
from seatrial.harness.clusters.agents import node_agents
from seatrial.harness.clusters.control_plane import ControlPlane, control_plane, missing_programs
from seatrial.harness.clusters.embedded import CAPABILITIES
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.clusters.remote import RemoteCluster
from seatrial.harness.clusters.simulated import SimulatedNodes, expect
from seatrial.harness.private_files import private_folder
from seatrial.scheduler.api.transport import Request

NAMESPACES = ("koordinator-system",)  # Koordinator's components keep their objects here


class EnvtestCluster(RemoteCluster, SimulatedNodes):
    """A control plane of child processes, and a child process that runs the nodes."""

    capabilities = CAPABILITIES | {Capability.SERVER_RESTART}
    plane: ControlPlane

    def end_api_server(self) -> None:
        self.plane.api_server.end()

    def start_api_server(self) -> None:
        self.plane.api_server.start_again()


class EnvtestBackend(ClusterBackend):
    """Starts and stops the processes."""

    name = "envtest"
    capabilities = EnvtestCluster.capabilities

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed

    def probe(self) -> str | None:
        return missing_programs()

    @contextmanager
    def start(self, *, fleet: Path | str | None = None) -> Iterator[EnvtestCluster]:
        from seatrial.harness.nodes.fleet import load_fleet

        entries = load_fleet(fleet) if fleet is not None else []
        with (
            private_folder() as folder,
            control_plane(folder, list(shipped())) as plane,
            node_agents(plane.kubeconfig, seed=self._seed, log_file=folder / "agents.log"),
        ):
            cluster = EnvtestCluster(self.name, load_access(plane.kubeconfig), plane.kubeconfig)
            cluster.plane = plane
            try:
                for name in NAMESPACES:
                    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                    expect(
                        cluster.call(Request("POST", "/api/v1/namespaces", orjson.dumps(body))), f"namespace {name!r}"
                    )
                cluster.add_nodes(entries)
                yield cluster
            finally:
                cluster.close()
