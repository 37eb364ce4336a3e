"""Whether a run on an existing cluster still runs, and removal of what an ended run left there.

A run has a namespace `st-RUN` with the label `seatrial.dev/run`, and in it the Lease `run`, which the process of its
node agents renews. A Lease that stays unchanged for longer than its duration, measured here by a monotonic clock,
belongs to an ended run; clocks of machines are compared only to choose the Leases to check.
"""

from types import TracebackType
from typing import Any, Self

import orjson

from seatrial.harness.apiserver import KOORDINATOR, shipped
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.definitions import DEFINITIONS_PATH, create_definition, wait_served
from seatrial.harness.clusters.lent_nodes import is_lent, restore
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.clusters.run_scope import CLUSTER_SCOPED, RUN_LABEL
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.slices import DEFINITIONS_LABEL
from seatrial.scheduler.api.clock import from_rfc3339
from seatrial.scheduler.api.resourceclaims import CLASSES_PATH, GROUP_PATH
from seatrial.scheduler.api.transport import Request

LEASE = "run"
DURATION = 30.0  # seconds; the renewal period is a third
RENEW_PERIOD = DURATION / 3
GONE_WITHIN = 120.0  # seconds that the removal of a run's objects may take
_NAMESPACES = "/api/v1/namespaces"
_GROUPS = {
    "nodes": "/api/v1",
    "namespaces": "/api/v1",
    "priorityclasses": "/apis/scheduling.k8s.io/v1",
    "devices": "/apis/scheduling.koordinator.sh/v1alpha1",
    "reservations": "/apis/scheduling.koordinator.sh/v1alpha1",
    "podmigrationjobs": "/apis/scheduling.koordinator.sh/v1alpha1",
    "nodemetrics": "/apis/slo.koordinator.sh/v1alpha1",
    "noderesourcetopologies": "/apis/topology.node.k8s.io/v1alpha1",
    "storageclasses": "/apis/storage.k8s.io/v1",
    "persistentvolumes": "/api/v1",
    "csinodes": "/apis/storage.k8s.io/v1",
    "deviceclasses": GROUP_PATH,
    "resourceslices": GROUP_PATH,
    "devicetaintrules": GROUP_PATH,
}


def run_namespace(run: str) -> str:
    """The namespace with the record of a run."""
    return f"st-{run}"


def lease_path(run: str) -> str:
    """The path of the Leases in the namespace of a run."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{run_namespace(run)}/leases"


def lease_body(run: str, now: str) -> dict[str, Any]:
    """The Lease that a run renews; `now` is in RFC 3339."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "labels": {RUN_LABEL: run}},
        "spec": {
            "holderIdentity": run,
            "leaseDurationSeconds": int(DURATION),
            "renewTime": now.replace("Z", ".000000Z") if "." not in now else now,
        },
    }


class RunRecord:
    """The namespace and Lease of a run, and missing definitions; removes all that the run made on exit."""

    def __init__(self, cluster: Cluster, run: str) -> None:
        self._cluster, self._run = cluster, run

    def __enter__(self) -> Self:
        name = run_namespace(self._run)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {RUN_LABEL: self._run}}}
        _send(self._cluster, "POST", _NAMESPACES, body, f"create namespace {name!r}")
        try:
            lease = lease_body(self._run, self._cluster.clock.timestamp())
            _send(self._cluster, "POST", lease_path(self._run), lease, "create the run's Lease")
            define_missing(self._cluster)
        except BaseException:
            remove_run(self._cluster, self._run)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        remove_run(self._cluster, self._run)


def define_missing(cluster: Cluster) -> None:
    """Create the definitions that the cluster does not have, and the namespace of Koordinator's objects.

    A scheduler makes that namespace too, and would leave it.

    Raises:
        ClusterError: one is not served in time.
    """
    if not cluster.call(Request("GET", f"{_NAMESPACES}/{KOORDINATOR}")).ok:
        metadata = {"name": KOORDINATOR, "labels": {DEFINITIONS_LABEL: "true"}}
        namespace = orjson.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        made = cluster.call(Request("POST", _NAMESPACES, namespace))
        if made.code != 409:  # another run was faster
            accepted(made, f"create namespace {KOORDINATOR!r}")
    for body in shipped():
        path = f"{DEFINITIONS_PATH}/{body['metadata']['name']}"

        def there(path: str = path) -> bool:
            response = cluster.call(Request("GET", path))
            return response.ok and not orjson.loads(response.body)["metadata"].get("deletionTimestamp")

        def settled(path: str = path) -> bool:
            response = cluster.call(Request("GET", path))
            return response.code == 404 or there()

        cluster.wait(settled, within=GONE_WITHIN)
        if not there():
            marked = {**body, "metadata": {**body["metadata"], "labels": {DEFINITIONS_LABEL: "true"}}}
            create_definition(cluster, marked)
        wait_served(cluster, body, within=GONE_WITHIN)


def runs_on(cluster: Cluster) -> list[str]:
    """The runs that have objects on the cluster, whether they have ended or not."""
    result = set()
    for item in _list(cluster, f"{_NAMESPACES}?labelSelector={RUN_LABEL}"):
        result.add(str(item["metadata"]["labels"][RUN_LABEL]))
    for item in _list(cluster, f"/api/v1/nodes?labelSelector={RUN_LABEL}"):
        result.add(str(item["metadata"]["labels"][RUN_LABEL]))
    return sorted(result)


def remove_dead_runs(cluster: Cluster) -> list[str]:
    """Remove what runs left whose Lease is no longer renewed. Returns these runs. Live runs are not touched."""
    before = {run: _renewed(cluster, run) for run in runs_on(cluster)}
    now = cluster.clock.now()
    suspects = {run: renewed for run, renewed in before.items() if not renewed or now - _seconds(renewed) > DURATION}
    if any(suspects.values()):
        cluster.pass_time(DURATION)
    dead = [run for run, renewed in suspects.items() if _renewed(cluster, run) == renewed]
    for run in dead:
        remove_run(cluster, run)
    return dead


def remove_run(cluster: Cluster, run: str) -> None:
    """Remove all objects of a run; if no other run is left, also definitions and what else runs share.

    Raises:
        ClusterError: something is still there after GONE_WITHIN seconds.
    """
    chosen = f"labelSelector={RUN_LABEL}%3D{run}"
    own = run_namespace(run)
    for namespace in _named(cluster, "namespaces", run):
        cluster.call(Request("DELETE", f"{_NAMESPACES}/{namespace}/pods?gracePeriodSeconds=0"))
    for node in _list(cluster, f"/api/v1/nodes?{chosen}"):
        if is_lent(node):
            restore(cluster, node["metadata"]["name"])
    for resource, group in _GROUPS.items():
        for name in _named(cluster, resource, run):
            if name != own:
                cluster.call(Request("DELETE", f"{group}/{resource}/{name}"))

    def left() -> list[str]:
        return [f"{resource}/{name}" for resource in _GROUPS for name in _named(cluster, resource, run) if name != own]

    if not cluster.wait(lambda: not left(), within=GONE_WITHIN):
        raise ClusterError(f"run {run}: still there after {GONE_WITHIN:.0f} s: {', '.join(left())} ({chosen})")
    cluster.call(Request("DELETE", f"{_NAMESPACES}/{own}"))
    cluster.wait(lambda: cluster.call(Request("GET", f"{_NAMESPACES}/{own}")).code == 404, within=GONE_WITHIN)
    for path in (DEFINITIONS_PATH, CLASSES_PATH, _NAMESPACES) if not runs_on(cluster) else ():
        for item in _list(cluster, f"{path}?labelSelector={DEFINITIONS_LABEL}"):
            made = f"{path}/{item['metadata']['name']}"
            if path != _NAMESPACES or not _list(cluster, f"{made}/pods?limit=1"):  # with pods it is somebody's by now
                cluster.call(Request("DELETE", made))


def _named(cluster: Cluster, resource: str, run: str) -> list[str]:
    """The objects of a run, found by the label; objects that node agents write for their nodes, by name."""
    assert resource in CLUSTER_SCOPED
    results = []
    for item in _list(cluster, f"{_GROUPS[resource]}/{resource}"):
        metadata = item["metadata"]
        if resource == "nodes" and not metadata["name"].startswith(f"st-{run}-"):
            continue  # a node of the cluster that was lent; it is given back, never deleted
        if (metadata.get("labels") or {}).get(RUN_LABEL) == run or metadata["name"].startswith(f"st-{run}-"):
            results.append(str(metadata["name"]))
    return results


def _renewed(cluster: Cluster, run: str) -> str:
    response = cluster.call(Request("GET", f"{lease_path(run)}/{LEASE}"))
    return str(orjson.loads(response.body)["spec"].get("renewTime") or "") if response.ok else ""


def _seconds(moment: str) -> float:
    return from_rfc3339(moment)


def _list(cluster: Cluster, path: str) -> list[dict[str, Any]]:
    response = cluster.call(Request("GET", path))
    if response.code == 404:
        return []  # the kind is not defined
    items: list[dict[str, Any]] = orjson.loads(accepted(response, f"list {path}").body)["items"]
    return items


def _send(cluster: Cluster, method: str, path: str, body: dict[str, Any], what: str) -> None:
    accepted(cluster.call(Request(method, path, orjson.dumps(body))), what)
