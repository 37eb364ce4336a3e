"""Real etcd, kube-apiserver and kube-controller-manager on loopback, with simulated nodes of our own agents."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import orjson

from seatrial.harness.apiserver import KOORDINATOR, shipped
from seatrial.harness.clusters.agents import node_agents
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.control_plane import ControlPlane, control_plane, missing_programs
from seatrial.harness.clusters.embedded import CAPABILITIES
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.clusters.remote import RemoteCluster
from seatrial.harness.clusters.restricted_account import (
    LOG_FLAG,
    RefusedRequests,
    cluster_roles,
    make_account,
    write_kubeconfig,
)
from seatrial.harness.clusters.simulated import SimulatedNodes
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Request


class EnvtestCluster(RemoteCluster, SimulatedNodes):
    """A control plane of child processes, and a child process that runs the nodes."""

    capabilities = CAPABILITIES | {Capability.SERVER_RESTART}
    plane: ControlPlane
    refused: RefusedRequests | None = None  # where the run has an account with few rights

    def refused_requests(self) -> list[str]:
        return self.refused.new() if self.refused is not None else []

    def end_api_server(self) -> None:
        self.plane.api_server.end()

    def start_api_server(self) -> None:
        self.plane.api_server.start_again()


class EnvtestBackend(ClusterBackend):
    """Starts and stops the processes."""

    name = "envtest"
    capabilities = EnvtestCluster.capabilities

    def __init__(self, *, seed: int = 0, roles: Sequence[Path] = (), workload_with_job: bool = False) -> None:
        """`roles`: files of ClusterRoles; cases, nodes and what is judged have these rights alone.

        Raises:
            UsageError: a file has something else.
        """
        self._seed, self._roles = seed, cluster_roles(roles)
        self._workload_with_job = workload_with_job

    def probe(self) -> str | None:
        return missing_programs()

    @contextmanager
    def start(self, *, fleet: Path | str | None = None) -> Iterator[EnvtestCluster]:
        from seatrial.harness.nodes.fleet import load_fleet

        entries = load_fleet(fleet) if fleet is not None else []
        with (
            private_folder() as folder,
            control_plane(
                folder,
                list(shipped()),
                api_server_flags=[LOG_FLAG] if self._roles else (),
                workload_with_job=self._workload_with_job,
            ) as plane,
        ):
            kubeconfig = self._prepared(plane, folder)
            with (
                node_agents(kubeconfig, seed=self._seed, log_file=folder / "agents.log"),
                closing(EnvtestCluster(self.name, load_access(kubeconfig), kubeconfig)) as cluster,
            ):
                cluster.plane = plane
                if self._roles:
                    cluster.refused = RefusedRequests(plane.api_server_log)
                cluster.add_nodes(entries)
                yield cluster

    def _prepared(self, plane: ControlPlane, folder: Path) -> Path:
        """Make what every cluster has; return the kubeconfig of the run."""
        with closing(EnvtestCluster(self.name, load_access(plane.kubeconfig), plane.kubeconfig)) as admin:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KOORDINATOR}}
            made = admin.call(Request("POST", "/api/v1/namespaces", orjson.dumps(body)))
            accepted(made, f"namespace {KOORDINATOR!r}")
            if not self._roles:
                return plane.kubeconfig
            kubeconfig = folder / "account.kubeconfig"
            write_kubeconfig(kubeconfig, plane.kubeconfig, make_account(admin.call, self._roles))
            return kubeconfig
