"""Nodes of a cluster that are lent to a case of a run: marked, made to fit, and given back as they were.

An administrator marks nodes with the label `seatrial.dev/trials=true`. For the time of a case such a node has the label
and taint of the run, and the labels and taints that the case states. A pod of the run occupies the cards, NICs, CPU and
memory that the case does not state. What has to be taken back is in the annotation `seatrial.dev/lent`, so that the
next run can do it after a crash. Nothing else of the node is changed, and it is never deleted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from seatrial.harness.apiserver.quantities import quantities
from seatrial.harness.clusters.answers import accepted, listed
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.clusters.requirements import (
    CARD,
    NIC,
    TRIALS_LABEL,
    FreeDevice,
    OfferedNode,
    Requirement,
    assign,
    offered_node,
    requirement_of,
)
from seatrial.harness.clusters.run_scope import RUN_LABEL, RunScope
from seatrial.harness.clusters.simulated import DEVICES, NODES, is_ready
from seatrial.harness.errors import ClusterError
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.transport import MERGE_PATCH, Request
from seatrial.scheduler.api.wire import from_plain, to_json

LENT_ANNOTATION = "seatrial.dev/lent"
FREE_WITHIN = 600.0  # seconds that a case waits for nodes that other cases have
OCCUPIED_WITHIN = 120.0  # seconds for the start of the pod that occupies the rest, and for its end
TRIES = 5  # to change a node that another client changes at the same moment
CRITICAL = "system-node-critical"  # every cluster has this PriorityClass
_HOSTNAME = "kubernetes.io/hostname"
_COUNTED = ("koordinator.sh/", "nvidia.com/")  # resources of a card that nodes have too, as amounts


class LentNodes:
    """The nodes that are lent to the cases of one run."""

    def __init__(self, cluster: Cluster, scope: RunScope, namespace: str) -> None:
        """`cluster` sees everything under its own name; `namespace` is the run's, for pods that occupy."""
        self._cluster, self._scope, self._namespace = cluster, scope, namespace
        self._names: dict[str, str] = {}  # as the case writes them → as the cluster has them

    def lend(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Take nodes for the entries, and make them fit.

        Raises:
            HardwareMissingError: the nodes that are marked for trials do not have what the entries state.
            ClusterError: other cases did not give their nodes back in time, or a node could not be made to fit.
        """
        by_name = {str(entry["name"]): entry for entry in entries}
        requirements = {name: requirement_of(entry) for name, entry in by_name.items()}
        offered_nodes: dict[str, OfferedNode] = {}

        def taken() -> bool:
            offered_nodes.clear()
            offered_nodes.update(assign(list(requirements.values()), self._offered()) or {})
            return bool(offered_nodes) and self._mark_all(
                {name: (node.name, by_name[name]) for name, node in offered_nodes.items()}
            )

        if not self._cluster.wait(taken, within=FREE_WITHIN):
            raise ClusterError(f"the nodes with label {TRIALS_LABEL} were not free within {FREE_WITHIN:.0f} s")
        for name, node in offered_nodes.items():
            self._names[name] = node.name
            self._scope.lend(name, node.name, node.taints)
        for name, node in offered_nodes.items():
            self._occupy(requirements[name], node)

    def is_lent(self, name: str) -> bool:
        return name in self._names

    def give_back(self, name: str) -> None:
        """End the pods of the run on the node, and take back what was changed."""
        node = self._names.pop(name)
        self._scope.unlend(name)
        end_pods(self._cluster, self._scope.run, node)
        restore(self._cluster, node)

    def give_all_back(self) -> None:
        for name in list(self._names):
            self.give_back(name)

    def _offered(self) -> list[OfferedNode]:
        nodes = []
        for node in listed(self._cluster.call, f"{NODES}?labelSelector={TRIALS_LABEL}%3Dtrue"):
            name = node["metadata"]["name"]
            lent = RUN_LABEL in node["metadata"]["labels"]
            if not is_ready(node) or (node["spec"].get("unschedulable") and not lent):
                continue
            answer = self._cluster.call(Request("GET", f"{DEVICES}/{name}"))
            device = orjson.loads(answer.body) if answer.ok else None
            rows = listed(self._cluster.call, f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")
            # What a case has on a lent node ends with it.
            pods = [from_plain(row, Pod) for row in rows if not lent or not _is_of_a_run(row)]
            nodes.append(offered_node(node, device, pods, lent=lent))
        return nodes

    def _mark_all(self, nodes: Mapping[str, tuple[str, Mapping[str, Any]]]) -> bool:
        """Mark each node; if another run was faster with one, none."""
        marked: list[str] = []
        for node, entry in nodes.values():
            if not self._mark(node, entry):
                for other in marked:
                    restore(self._cluster, other)
                return False
            marked.append(node)
        return True

    def _mark(self, node: str, entry: Mapping[str, Any]) -> bool:
        """Give the node the run's label and taint and what the entry has; False if it was changed meanwhile."""
        body = orjson.loads(accepted(self._cluster.call(Request("GET", f"{NODES}/{node}")), f"read node {node!r}").body)
        before = body["metadata"]["labels"]
        if RUN_LABEL in before:
            return False
        content = self._scope.value(
            {key: value for key, value in (entry.get("labels") or {}).items() if key != _HOSTNAME}
        )
        labels = {**content, RUN_LABEL: self._scope.run}
        there = body["spec"].get("taints") or []
        own = {"key": RUN_LABEL, "value": self._scope.run, "effect": "NoSchedule"}
        known = {(taint["key"], taint["effect"]) for taint in there}
        more = [dict(taint) for taint in (entry.get("taints") or ())]
        taints = [taint for taint in (*more, own) if (taint["key"], taint["effect"]) not in known]
        back = {
            "labels": {key: before.get(key) for key in labels},
            "taints": [[taint["key"], taint["effect"]] for taint in taints],
        }
        patch = {
            "metadata": {
                "resourceVersion": body["metadata"]["resourceVersion"],
                "labels": labels,
                "annotations": {LENT_ANNOTATION: to_json(back).decode()},
            },
            "spec": {"taints": [*there, *taints]},
        }
        return self._cluster.call(Request("PATCH", f"{NODES}/{node}", orjson.dumps(patch), MERGE_PATCH)).ok

    def _occupy(self, requirement: Requirement, node: OfferedNode) -> None:
        """A pod that has what the case does not state.

        Raises:
            ClusterError: it does not run in time.
        """
        devices = {CARD: node.cards[requirement.cards :], NIC: node.nics[requirement.nics :]}
        requests: dict[str, int] = {}
        if requirement.cpu is not None and node.cpu > requirement.cpu:
            requests["cpu"] = node.cpu - requirement.cpu
        if requirement.memory is not None and node.memory > requirement.memory:
            requests["memory"] = node.memory - requirement.memory
        amounts = quantities(requests)
        for group in devices.values():
            for name in sorted(
                {name for candidate in group for name in candidate.resources if name.startswith(_COUNTED)}
            ):
                if name.endswith("-memory"):
                    continue  # follows from the ratio
                amounts[name] = str(sum(int(item.resources.get(name, "0")) for item in group))
        if not amounts:
            return
        name = f"occupied-{node.name}"[:63].rstrip("-.")
        built = pod(name).resources(dict(amounts)).label(RUN_LABEL, self._scope.run).node_name(node.name)
        built.manifest["spec"]["tolerations"] = [{"operator": "Exists"}]
        built.priority_class(CRITICAL)  # a case that preempts does not preempt it
        shares = {kind: [_whole(item) for item in group] for kind, group in devices.items() if group}
        if shares:
            built.annotation(DEVICE_ALLOCATED, to_json(shares).decode())
        pods = f"/api/v1/namespaces/{self._namespace}/pods"
        account = Request("GET", f"/api/v1/namespaces/{self._namespace}/serviceaccounts/default")
        self._cluster.wait(lambda: self._cluster.call(account).ok, within=OCCUPIED_WITHIN)
        accepted(self._cluster.call(Request("POST", pods, orjson.dumps(built.manifest))), f"occupy {node.name!r}")
        state = ""

        def runs() -> bool:
            nonlocal state
            status = orjson.loads(self._cluster.call(Request("GET", f"{pods}/{name}")).body).get("status") or {}
            state = f"{status.get('phase', '')} {status.get('message', '')}".strip()
            return state.startswith(("Running", "Failed"))

        self._cluster.wait(runs, within=OCCUPIED_WITHIN)
        if not state.startswith("Running"):
            raise ClusterError(f"node {node.name!r}: the pod that occupies what the case does not use: {state}")


def end_pods(cluster: Cluster, run: str, node: str) -> None:
    """End the pods of a run on a node.

    Raises:
        ClusterError: one is still there after a while.
    """

    def left() -> list[dict[str, Any]]:
        rows = listed(cluster.call, f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")
        return [row for row in rows if _run_of(row) == run]

    for row in left():
        meta = row["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}?gracePeriodSeconds=0"
        cluster.call(Request("DELETE", path))
    if not cluster.wait(lambda: not left(), within=OCCUPIED_WITHIN):
        names = ", ".join(row["metadata"]["name"] for row in left())
        raise ClusterError(f"node {node!r}: pods of run {run} did not end: {names}")


def restore(cluster: Cluster, node: str) -> None:
    """Take back what lending changed; without effect on a node that is not lent.

    Raises:
        ClusterError: the node was changed by another client at each try.
    """
    for _ in range(TRIES):
        answer = cluster.call(Request("GET", f"{NODES}/{node}"))
        if answer.code == 404:
            return
        body = orjson.loads(accepted(answer, f"read node {node!r}").body)
        lent_annotation = (body["metadata"].get("annotations") or {}).get(LENT_ANNOTATION)
        if lent_annotation is None:
            return
        back = orjson.loads(lent_annotation)
        gone = {(key, effect) for key, effect in back["taints"]}
        taints = [taint for taint in body["spec"].get("taints") or () if (taint["key"], taint["effect"]) not in gone]
        patch = {
            "metadata": {
                "resourceVersion": body["metadata"]["resourceVersion"],
                "labels": back["labels"],
                "annotations": {LENT_ANNOTATION: None},
            },
            "spec": {"taints": taints or None},
        }
        if cluster.call(Request("PATCH", f"{NODES}/{node}", orjson.dumps(patch), MERGE_PATCH)).ok:
            return
    raise ClusterError(f"node {node!r}: labels and taints of a run could not be taken back in {TRIES} tries")


def is_lent(node: Mapping[str, Any]) -> bool:
    """Whether a Node object is a node of the cluster that is lent to a run."""
    return LENT_ANNOTATION in (node["metadata"].get("annotations") or {})


def _whole(free_device: FreeDevice) -> dict[str, Any]:
    return {
        "minor": free_device.minor,
        "resources": dict(free_device.resources),
        **({"id": free_device.id} if free_device.id else {}),
    }


def _run_of(row: Mapping[str, Any]) -> str:
    """The run of a pod, from its namespace: `st-RUN` or `st-RUN-…`."""
    first, _, rest = str(row["metadata"]["namespace"]).partition("-")
    return rest.partition("-")[0] if first == "st" else ""


def _is_of_a_run(row: Mapping[str, Any]) -> bool:
    return bool(_run_of(row))
