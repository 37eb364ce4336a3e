"""Whether a pod would fit on another node, by requests, taints and affinity (RSV-R81)."""

from seatrial.scheduler.api.core import NO_EXECUTE, NO_SCHEDULE, Node, NodeSelectorTerm, Taint
from seatrial.scheduler.api.quantity import Amounts, amounts
from seatrial.scheduler.api.wire import Condition
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.pods.selectors import requirement_holds, tolerates

NO_SELECTOR_MATCH = "pod node selector does not match the node label"
NOT_TOLERATED = "pod does not tolerate taints on the node"
NOT_SCHEDULABLE = "node is not schedulable"


def misfits(state: ClusterState, pod: Pod, node: Node, planned: Amounts | None = None) -> list[str]:
    """Reasons why the node cannot take the pod; empty if it can. `planned`: requests that will come to the node."""
    messages = []
    if not matches_node(pod, node):
        messages.append(NO_SELECTOR_MATCH)
    if untolerated(pod, node) is not None:
        messages.append(NOT_TOLERATED)
    messages += [f"insufficient {name}" for name in _lacking(state, pod, node, planned or {})]
    if node.spec.unschedulable:
        messages.append(NOT_SCHEDULABLE)
    return messages


def room_for(state: ClusterState, pod: Pod, node: Node, planned: Amounts | None = None) -> bool:
    """Whether the requests of the pod fit, whatever else keeps it from the node."""
    return not _lacking(state, pod, node, planned or {})


def _lacking(state: ClusterState, pod: Pod, node: Node, planned: Amounts) -> list[str]:
    allocatable = amounts(node.status.allocatable)
    requested = state.requested_on(node.name)
    targets = {**state.requests(pod), "pods": 1}
    return [
        name
        for name, value in targets.items()
        if value and requested.get(name, 0) + planned.get(name, 0) + value > allocatable.get(name, 0)
    ]


def fits_elsewhere(state: ClusterState, pod: Pod, nodes: "list[Node]") -> bool:
    """Whether some node other than its own can take the pod."""
    return any(node.name != pod.spec.node_name and not misfits(state, pod, node) for node in nodes)


def matches_node(pod: Pod, node: Node) -> bool:
    """Whether the node satisfies nodeSelector and required node affinity."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(term_matches(term, node) for term in affinity.required.node_selector_terms)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """A term without expressions matches nothing."""
    fields = {"metadata.name": node.name}
    return (
        bool(term.match_expressions or term.match_fields)
        and all(requirement_holds(expression, node.metadata.labels) for expression in term.match_expressions)
        and all(requirement_holds(field, fields) for field in term.match_fields)
    )


def untolerated(pod: Pod, node: Node) -> Taint | None:
    """A NoSchedule or NoExecute taint that the pod does not tolerate."""
    for taint in node.spec.taints:
        if taint.effect in {NO_SCHEDULE, NO_EXECUTE} and not any(
            tolerates(toleration, taint) for toleration in pod.spec.tolerations
        ):
            return taint
    return None


def is_ready(node: Node) -> bool:
    """Whether the node has the condition Ready with status True."""
    return any(_ready(condition) for condition in node.status.conditions)


def _ready(condition: Condition) -> bool:
    return condition.type == "Ready" and condition.status == "True"
