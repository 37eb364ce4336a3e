"""The identity of a cluster: the UID of its namespace kube-system, which no client can give another value."""

from pathlib import Path

import orjson

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.remote import PumpedClock, RemoteTransport
from seatrial.scheduler.api.transport import Request


def cluster_uid(kubeconfig: Path) -> str:
    """Read the UID of the cluster that a kubeconfig names.

    Raises:
        UsageError: the kubeconfig cannot be used.
        ClusterError: the server does not answer.
        ApiRefused: it refuses.
    """
    api = RemoteTransport(load_access(kubeconfig), PumpedClock())
    response = accepted(api.call(Request("GET", "/api/v1/namespaces/kube-system")), "read namespace kube-system")
    return str(orjson.loads(response.body)["metadata"]["uid"])
