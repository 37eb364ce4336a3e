"""Whether the name of a new cluster is free."""

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.cluster_state import RUNNING, state_of
from seatrial.harness.errors import UsageError


def free_name(name: str) -> None:
    """Remove what a cluster of that name left whose API server (or node agents) ended without `seatrial down`.

    Raises:
        UsageError: a cluster of that name is up.
    """
    cluster = detached.recorded(name)
    if cluster is None:
        return
    state = state_of(cluster)
    if not cluster.server_alive:
        detached.end(cluster)
        print(f"cluster {name!r}: {state}; what was left of it has been removed", flush=True)
        return
    facts = [f"kubeconfig {cluster.kubeconfig}"] if cluster.kubeconfig else []
    facts += [state] if state != RUNNING else []
    details = f" ({', '.join(facts)})" if facts else ""
    raise UsageError(
        f"cluster {name!r} is up already at {cluster.url}{details};"
        f" end it with {detached.down_command(name)}, or give another --name"
    )
