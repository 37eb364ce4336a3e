"""RemovePodsViolatingTopologySpreadConstraint: evens out domains whose skew is too large (RSV-R97).

Follows descheduler: pkg/framework/plugins/removepodsviolatingtopologyspreadconstraint.
"""

from collections.abc import Sequence
from math import ceil

from seatrial.scheduler.api.core import Node, TopologySpreadConstraint
from seatrial.scheduler.api.wire import LabelSelector, Requirement, to_json
from seatrial.scheduler.descheduler.args import ArgsError
from seatrial.scheduler.descheduler.framework import Balance, Handle
from seatrial.scheduler.descheduler.node_fit import matches_node, misfits, untolerated
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.pod_strategies import CommonArgs
from seatrial.scheduler.pods.selectors import selector_matches

DO_NOT_SCHEDULE, SCHEDULE_ANYWAY = "DoNotSchedule", "ScheduleAnyway"
Domain = list[Pod]


class TopologySpreadArgs(CommonArgs, frozen=True):
    """Arguments of RemovePodsViolatingTopologySpreadConstraint."""

    constraints: tuple[str, ...] = (DO_NOT_SCHEDULE,)
    topology_balance_node_fit: bool = True

    def check(self) -> None:
        super().check()
        for constraint in self.constraints:
            if constraint not in {DO_NOT_SCHEDULE, SCHEDULE_ANYWAY}:
                raise ArgsError(f"constraints: expected {DO_NOT_SCHEDULE} or {SCHEDULE_ANYWAY}, found {constraint!r}")


class RemovePodsViolatingTopologySpreadConstraint(Balance):
    """The plugin of this name."""

    name = "RemovePodsViolatingTopologySpreadConstraint"
    args = TopologySpreadArgs

    def __init__(self, args: TopologySpreadArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        of_namespace: dict[str, list[Pod]] = {}
        for node in nodes:
            for pod in handle.pods_on(node.name):
                if not pod.deleting and self._args.selects(pod):
                    of_namespace.setdefault(pod.metadata.namespace, []).append(pod)
        going: dict[str, Pod] = {}
        for _, pods in sorted(of_namespace.items()):
            distinct: dict[bytes, tuple[TopologySpreadConstraint, Pod]] = {}
            for pod in sorted(pods, key=lambda pod: pod.key):
                for constraint in pod.spec.topology_spread_constraints:
                    if constraint.when_unsatisfiable in self._args.constraints:
                        whole = completed(constraint, pod)
                        distinct.setdefault(to_json(whole), (whole, pod))
            for constraint, example in distinct.values():
                going |= self._too_many(handle, nodes, pods, constraint, example)
        for _, pod in sorted(going.items()):
            handle.evict(pod, self.name, "pod violates a topology spread constraint")

    def _too_many(
        self,
        handle: Handle,
        nodes: Sequence[Node],
        pods: Sequence[Pod],
        constraint: TopologySpreadConstraint,
        example: Pod,
    ) -> dict[str, Pod]:
        """The pods by whose leaving the skew shrinks to what the constraint allows."""
        domains: dict[str, Domain] = {}
        of_node: dict[str, str] = {}
        for node in nodes:
            value = node.metadata.labels.get(constraint.topology_key)
            if value is not None and counts(constraint, example, node):
                domains.setdefault(value, [])
                of_node[node.name] = value
        for pod in pods:
            value = of_node.get(pod.spec.node_name)
            if (
                value is not None
                and constraint.label_selector
                and selector_matches(constraint.label_selector, pod.metadata.labels)
            ):
                domains[value].append(pod)
        sizes = [len(members) for members in domains.values()]
        if len(sizes) < 2 or max(sizes) - min(sizes) <= constraint.max_skew:
            return {}
        for members in domains.values():
            # those at the end leave: pods that may go, of low priority, without a selector that binds them
            members.sort(
                key=lambda pod: (handle.may_evict(pod), not pod.spec.node_selector, -pod.spec.priority, pod.key)
            )
        smallest = {value for value, members in domains.items() if len(members) < sum(sizes) / len(sizes)}
        below = [node for node in nodes if of_node.get(node.name) in smallest]
        return {
            pod.key: pod
            for pod in _moved(sorted(domains.items(), key=lambda entry: (len(entry[1]), entry[0])), constraint.max_skew)
            if handle.may_evict(pod)
            and (
                not self._args.topology_balance_node_fit
                or any(node.name != pod.spec.node_name and not misfits(handle.state, pod, node) for node in below)
            )
        }


def _moved(domains: Sequence[tuple[str, Domain]], max_skew: int) -> Domain:
    """The pods that leave large domains for small ones; `domains` by size, small ones first."""
    parts = [list(members) for _, members in domains]
    mean = sum(map(len, parts)) / len(parts)
    low, high, going = 0, len(parts) - 1, []
    while low < high:
        if len(parts[high]) <= mean:
            high -= 1
            continue
        skew = len(parts[high]) - len(parts[low])
        count = min(ceil(len(parts[high]) - mean), ceil(mean - len(parts[low])), ceil((skew - max_skew) / 2))
        if skew <= max_skew or count <= 0:
            low += 1
            continue
        leaving = parts[high][-count:]
        del parts[high][-count:]
        parts[low] += leaving
        going += leaving
    return going


def completed(constraint: TopologySpreadConstraint, pod: Pod) -> TopologySpreadConstraint:
    """The constraint with `matchLabelKeys` as requirements of its selector."""
    if not constraint.match_label_keys or constraint.label_selector is None:
        return constraint
    labels = pod.metadata.labels
    more = tuple(
        Requirement(key=key, operator="In", values=(labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    )
    selector = constraint.label_selector
    return TopologySpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        label_selector=LabelSelector(
            match_labels=selector.match_labels, match_expressions=(*selector.match_expressions, *more)
        ),
        min_domains=constraint.min_domains,
        node_affinity_policy=constraint.node_affinity_policy,
        node_taints_policy=constraint.node_taints_policy,
    )


def counts(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    """Whether the node's domain counts for the pod."""
    return (constraint.node_affinity_policy == "Ignore" or matches_node(pod, node)) and (
        constraint.node_taints_policy != "Honor" or untolerated(pod, node) is None
    )
