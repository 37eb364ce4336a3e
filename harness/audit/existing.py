"""An auditor of a running cluster that a kubeconfig names. It only reads."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seatrial.harness.audit.running import RunningAudit, audited
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.clusters.remote import RemoteCluster
from seatrial.harness.errors import ClusterError
from seatrial.scheduler.api.builders import NodeBuilder


class AuditedCluster(RemoteCluster):
    """A cluster that is read and never written to."""

    capabilities: frozenset[Capability] = frozenset()

    def add_nodes(self, nodes: Iterable[NodeBuilder | Mapping[str, Any]]) -> None:  # noqa: ARG002
        raise ClusterError("an audit adds no nodes")

    def remove_node(self, name: str) -> None:
        raise ClusterError(f"an audit does not remove node {name!r}")

    def inject(self, fault: Mapping[str, Any]) -> None:
        raise ClusterError(f"an audit makes nothing fail: {dict(fault)}")


@contextmanager
def auditing(kubeconfig: Path) -> Iterator[tuple[RunningAudit, AuditedCluster]]:
    """Follow the cluster while entered.

    Raises:
        ClusterError: its pods or nodes may not be read.
    """
    cluster = AuditedCluster("audited", load_access(kubeconfig), kubeconfig)
    try:
        with audited(cluster, allocates=False, holds_nominated=False) as audit:
            absent = audit.follower.absent
            if "Pod" in absent or "Node" in absent:
                raise ClusterError(f"{kubeconfig}: pods and nodes must be readable for an audit, and were refused")
            yield audit, cluster
    finally:
        cluster.close()
