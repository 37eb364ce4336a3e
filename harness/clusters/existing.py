"""A cluster that runs already: only what a run makes for itself is changed, and all of it is removed.

See run_scope.py for names and labels, leftovers.py for runs that were killed.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seatrial.harness.clusters.agents import node_agents
from seatrial.harness.clusters.backends import REAL, SIMULATED
from seatrial.harness.clusters.embedded import CAPABILITIES
from seatrial.harness.clusters.kubeconfig import Access, load_access, with_context
from seatrial.harness.clusters.leftovers import RunRecord, remove_dead_runs, run_namespace
from seatrial.harness.clusters.lent_nodes import LENT_ANNOTATION, LentNodes
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.clusters.reachability import Right, why_unusable
from seatrial.harness.clusters.remote import RemoteCluster, RemoteTransport
from seatrial.harness.clusters.requirements import TRIALS_LABEL
from seatrial.harness.clusters.run_scope import RunScope
from seatrial.harness.clusters.simulated import DEVICES, SimulatedNodes
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.harness.nodes.fleet import checked_entry
from seatrial.harness.nodes.writer import TOPOLOGIES
from seatrial.scheduler.api.builders import NodeBuilder
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream

# What a run cannot begin without; docs/cluster-role.yaml has all.
LENT_RIGHTS = (
    ("", "namespaces", "create"),
    ("", "namespaces", "delete"),
    ("", "nodes", "patch"),
    ("coordination.k8s.io", "leases", "create"),
)
RIGHTS = (*LENT_RIGHTS, ("", "nodes", "create"), ("", "nodes", "delete"))
SHARED = CAPABILITIES - {Capability.OWN_CLUSTER}
# Where nodes of the cluster are lent instead of simulated.
LENT = frozenset({Capability.REAL_TIME, Capability.HARDWARE})


class ScopedTransport(RemoteTransport):
    """A transport that rewrites requests and responses for one run."""

    def __init__(self, access: Access, cluster: "ExistingCluster") -> None:
        super().__init__(access, cluster.clock)
        self._scope = cluster.scope

    def call(self, request: Request) -> Response:
        response = super().call(self._scope.outgoing(request))
        if response.ok and self._scope.shows_others(request):
            response = Response(response.code, self._scope.own_items(response.body), response.headers)
        return self._scope.response(response)

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        filtered = self._scope.shows_others(request)

        def own(line: bytes) -> None:
            if not filtered or self._scope.is_own_event(line):
                on_line(self._scope.incoming(line))

        return super().stream(self._scope.outgoing(request), own, on_end)


class WholeCluster(RemoteCluster, SimulatedNodes):
    """All of a cluster, for what a run does around its cases."""

    capabilities = frozenset()


class ExistingCluster(RemoteCluster, SimulatedNodes):
    """A part of a cluster that others use too."""

    capabilities = SHARED

    def __init__(
        self, name: str, access: Access, kubeconfig: Path, scope: RunScope, lent: LentNodes | None = None
    ) -> None:
        super().__init__(name, access, kubeconfig)
        self.scope, self._lent = scope, lent
        if lent is not None:
            self.capabilities = LENT
        self._transport = ScopedTransport(access, self)

    def add_nodes(self, nodes: Iterable[NodeBuilder | Mapping[str, Any]]) -> None:
        if self._lent is not None:
            statuses = [node.manifest if isinstance(node, NodeBuilder) else node for node in nodes]
            if statuses:
                self._lent.lend(statuses)
            return
        entries = [checked_entry(node.manifest if isinstance(node, NodeBuilder) else node) for node in nodes]
        super().add_nodes([self.scope.entry(entry) for entry in entries])

    def remove_node(self, name: str) -> None:
        """Remove the node and its Device: the garbage collector may not have found the kind yet (it checks every 30 s).

        A node that was lent is given back instead.
        """
        if self._lent is not None:
            if self._lent.is_lent(name):
                self._lent.give_back(name)
            return
        self.call(Request("DELETE", f"{DEVICES}/{name}"))
        super().remove_node(name)
        self.call(Request("DELETE", f"{TOPOLOGIES}/{name}"))

    def scheduler_name(self, name: str) -> str:
        return self.scope.scheduler_name(name)


class ExistingBackend(ClusterBackend):
    """A run on the cluster of a kubeconfig."""

    name = "existing"
    capabilities = SHARED

    def __init__(
        self,
        *,
        seed: int = 0,
        kubeconfig: Path | None = None,
        context: str = "",
        own_schedulers: bool = True,
        deployed: str = "",
        agents_host: str = "",
        nodes: str = SIMULATED,
    ) -> None:
        """`agents_host`: the address of this machine that the API server reaches; by default the one of the route.
        `nodes`: simulated, or real for nodes of the cluster that are marked for trials."""
        self._real = nodes == REAL
        if self._real:
            self.capabilities = LENT
        self._agents_host = agents_host
        self._seed, self._kubeconfig, self._context = seed, kubeconfig, context
        self._own_schedulers, self._deployed = own_schedulers, deployed

    def probe(self) -> str | None:
        if self._kubeconfig is None:
            return "give the cluster with --kubeconfig FILE, and --context NAME if the file has several"
        return unusable(self._kubeconfig, self._context, LENT_RIGHTS if self._real else RIGHTS)

    @contextmanager
    def start(self, *, fleet: Path | str | None = None) -> Iterator[ExistingCluster]:
        from seatrial.harness.nodes.fleet import load_fleet

        assert self._kubeconfig is not None
        entries = load_fleet(fleet) if fleet is not None else []
        with private_folder() as folder:
            path = with_context(self._kubeconfig, self._context, folder / "kubeconfig")
            access = load_access(path)
            plain = WholeCluster(self.name, access, path)
            try:
                remove_dead_runs(plain)
                run = secrets.token_hex(3)
                scope = RunScope(run, own_schedulers=self._own_schedulers, deployed=self._deployed)
                agents = node_agents(
                    path, seed=self._seed, log_file=folder / "agents.log", run=run, host=self._agents_host
                )
                with RunRecord(plain, run), agents:
                    lent = LentNodes(plain, scope, run_namespace(run)) if self._real else None
                    cluster = ExistingCluster(self.name, access, path, scope, lent)
                    try:
                        cluster.add_nodes(entries)
                        yield cluster
                    finally:
                        if lent is not None:
                            lent.give_all_back()
                        cluster.close()
            finally:
                plain.close()


def unusable(kubeconfig: Path, context: str, rights: Iterable[Right]) -> str | None:
    """Why the cluster of a kubeconfig cannot be used by who needs these rights, in words; None if it can."""
    with private_folder() as folder:
        copy = folder / "kubeconfig"
        try:
            access = load_access(with_context(kubeconfig, context, copy))
            cluster = WholeCluster("existing", access, kubeconfig)
            try:
                return why_unusable(cluster, access.url, copy, cluster.clock.now(), rights)
            finally:
                cluster.close()
        except (UsageError, ClusterError) as error:
            return str(error).replace(str(copy), str(kubeconfig))


def plan(kubeconfig: Path, context: str, nodes: str = SIMULATED) -> list[str]:
    """What a run makes on the cluster and removes again, for --dry-run; nothing is written.

    Raises:
        UsageError: the kubeconfig cannot be used.
    """
    with private_folder() as folder:
        access = load_access(with_context(kubeconfig, context, folder / "kubeconfig"))
    return [
        f"on {access.url}; RUN is six random characters",
        "Namespace st-RUN, with the Lease `run` that the run renews until it ends",
        "Namespaces st-RUN-trial-…, one for each case, and what cases create in them",
        "Nodes st-RUN-…, simulated, with label and taint seatrial.dev/run=RUN; Leases in kube-node-lease"
        if nodes == SIMULATED
        else f"on nodes with label {TRIALS_LABEL}=true, for the time of a case: label and taint seatrial.dev/run=RUN,"
        f" labels and taints of the case, annotation {LENT_ANNOTATION}, a pod that occupies what the case does not use",
        "Devices, NodeResourceTopologies, NodeMetrics, Reservations, PriorityClasses st-RUN-…",
        "CustomResourceDefinitions of Koordinator that are missing, with label seatrial.dev/definitions",
        "removed at the end, and after a crash by the next run or `seatrial clean`",
        "nodes, namespaces and other objects that do not carry this run's mark are only read",
    ]
