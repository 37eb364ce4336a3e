"""Invariants of binding: the node's existence, cordon and taints, selection, amounts, ports, affinity and spread."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from seatrial.harness.apiserver.label_selectors import holds, term_matches, tolerates
from seatrial.harness.apiserver.quantities import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Amounts, amounts
from seatrial.harness.audit.invariants import Binding, BindingInvariant, Breach, Change, ChangeInvariant
from seatrial.harness.audit.state import GRACE, ClusterState, PodRecord
from seatrial.scheduler.api.core import (
    NO_EXECUTE,
    NO_SCHEDULE,
    UNSCHEDULABLE_TAINT,
    Node,
    Pod,
    PodAffinityTerm,
    Taint,
    TopologySpreadConstraint,
)
from seatrial.scheduler.api.wire import LabelSelector

_CORDON = Taint(key=UNSCHEDULABLE_TAINT, effect=NO_SCHEDULE)
_NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 an address in a pod's spec


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """metav1.LabelSelector; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        holds(expression, labels) for expression in selector.match_expressions
    )


# -- one pod over its life --------------------------------------------------------------------------------------------


def _bound_once(change: Change) -> Breach | None:
    before, after = change.before.spec.node_name, change.after.spec.node_name
    return Breach(f"was bound to {before}, then to {after!r}") if before and before != after else None


def _bound_while_gated(change: Change) -> Breach | None:
    if change.before.spec.node_name or not change.after.spec.node_name or not change.before.spec.scheduling_gates:
        return None
    gates = ", ".join(gate.name for gate in change.before.spec.scheduling_gates)
    return Breach(f"was bound to {change.after.spec.node_name} with scheduling gates {gates}")


def _bound_while_deleting(change: Change) -> Breach | None:
    since = change.record.deleting_since
    if change.before.spec.node_name or not change.after.spec.node_name or since is None or change.at - since < 2.0:
        return None
    return Breach(
        f"was bound to {change.after.spec.node_name} {change.at - since:.1f} s after its deletion was asked for"
    )


def _bound_after_end(change: Change) -> Breach | None:
    if change.before.spec.node_name or not change.after.spec.node_name or not change.before.terminated:
        return None
    return Breach(f"was bound to {change.after.spec.node_name} although its phase was {change.before.status.phase}")


# -- the node ---------------------------------------------------------------------------------------------------------


def _node_exists(binding: Binding) -> Breach | None:
    return Breach(f"was bound to node {binding.record.node}, which does not exist") if binding.node is None else None


def _node_schedulable(binding: Binding) -> Breach | None:
    node = binding.node
    if node is None or not node.spec.unschedulable or _tolerated(binding.pod, _CORDON):
        return None
    return Breach(f"was bound to node {node.name}, which is cordoned")


def _taints_tolerated(binding: Binding) -> Breach | None:
    for taint in binding.node.spec.taints if binding.node is not None else ():
        if taint.effect in {NO_SCHEDULE, NO_EXECUTE} and not _tolerated(binding.pod, taint):
            return Breach(f"was bound to node {binding.record.node} and does not tolerate its taint {_taint(taint)}")
    return None


def _tolerated(pod: Pod, taint: Taint) -> bool:
    return any(tolerates(toleration, taint) for toleration in pod.spec.tolerations)


def _taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}"


def _node_selector(binding: Binding) -> Breach | None:
    if binding.node is None:
        return None
    labels = binding.node.metadata.labels
    for key, value in binding.pod.spec.node_selector.items():
        if labels.get(key) != value:
            return Breach(f"asks for nodes with {key}={value}; its node {binding.node.name} has {labels.get(key)!r}")
    return None


def _node_affinity(binding: Binding) -> Breach | None:
    if binding.node is None or _affinity_admits(binding.pod, binding.node):
        return None
    return Breach(f"was bound to node {binding.node.name}, which its required node affinity excludes")


def _affinity_admits(pod: Pod, node: Node) -> bool:
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None
    return required is None or any(
        term_matches(term, node.name, node.metadata.labels) for term in required.node_selector_terms
    )


# -- amounts ----------------------------------------------------------------------------------------------------------


def used_on(records: Iterable[PodRecord]) -> Amounts:
    """The sum of the pods' requests, by resource, in the units of `Amounts`."""
    total: Amounts = {}
    for record in records:
        for name, value in record.requests.items():
            total[name] = total.get(name, 0) + value
    return total


def _native_amounts(binding: Binding) -> Breach | None:
    return _overcommitted(binding, lambda name: name in _NATIVE)


def _extended_amounts(binding: Binding) -> Breach | None:
    return _overcommitted(binding, lambda name: "/" in name)


def _overcommitted(binding: Binding, target: Callable[[str], bool]) -> Breach | None:
    if binding.node is None:
        return None
    have = amounts(binding.node.status.allocatable)
    used = binding.use.amounts
    for name in binding.record.requests:
        if target(name) and name in have and used.get(name, 0) > have[name]:
            pods = tuple(other for other in binding.others() if name in other.requests)
            text = f"node {binding.node.name} has {have[name]} of {name} allocatable, its pods request {used[name]}"
            return Breach(text, pods)
    return None


def _places(binding: Binding) -> Breach | None:
    if binding.node is None:
        return None
    have = amounts(binding.node.status.allocatable).get(PODS)
    count = len(binding.use.pods)
    if have is None or count <= have:
        return None
    return Breach(f"node {binding.node.name} has places for {have} pods and got {count}")


def _host_ports(binding: Binding) -> Breach | None:
    own = set(_ports(binding.pod))
    for other in binding.use.with_ports.values() if own else ():
        if other.uid == binding.record.uid:
            continue
        for protocol, address, number in _ports(other.pod):
            for mine in own:
                if (mine[0], mine[2]) == (protocol, number) and (
                    mine[1] == address or _ALL_ADDRESSES in {mine[1], address}
                ):
                    return Breach(
                        f"uses host port {number}/{protocol} on {binding.record.node}, as {other.key} does", (other,)
                    )
    return None


def _ports(pod: Pod) -> Iterator[tuple[str, str, int]]:
    for container in pod.spec.containers:
        for port in container.ports:
            if port.host_port:
                yield port.protocol or "TCP", port.host_ip or _ALL_ADDRESSES, port.host_port


# -- affinity between pods --------------------------------------------------------------------------------------------


def _matches(term: PodAffinityTerm, owner: Pod, pod: Pod, state: ClusterState) -> bool:
    """Whether the term of `owner` selects `pod`."""
    namespaces = set(term.namespaces)
    own = owner.metadata.labels
    if not namespaces and term.namespace_selector is None:
        namespaces = {owner.metadata.namespace}
    inside = pod.metadata.namespace in namespaces or (
        term.namespace_selector is not None
        and selects(term.namespace_selector, state.namespaces.get(pod.metadata.namespace, {}))
    )
    labels = pod.metadata.labels
    if not inside or not selects(term.label_selector, labels):
        return False
    return all(labels.get(key) == own[key] for key in term.match_label_keys if key in own) and not any(
        labels.get(key) == own[key] for key in term.mismatch_label_keys if key in own
    )


def _in_domain(state: ClusterState, node: Node, key: str) -> Iterator[PodRecord]:
    """The pods on nodes with the same value of the label."""
    value = node.metadata.labels.get(key)
    if value is None:
        return
    for other in state.nodes:
        if other.metadata.labels.get(key) == value:
            yield from state.on_node(other.name)


def _required(pod: Pod, *, anti: bool) -> tuple[PodAffinityTerm, ...]:
    affinity = pod.spec.affinity
    part = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return part.required if part is not None else ()


def _anti_affinity(binding: Binding) -> Breach | None:
    for term in _required(binding.pod, anti=True) if binding.node is not None else ():
        assert binding.node is not None
        for other in _in_domain(binding.state, binding.node, term.topology_key):
            if other.uid != binding.record.uid and _matches(term, binding.pod, other.pod, binding.state):
                return Breach(
                    f"has anti-affinity over {term.topology_key} to {other.key}, which is in its domain", (other,)
                )
    return None


def _anti_affinity_of_others(binding: Binding) -> Breach | None:
    if binding.node is None:
        return None
    for other in binding.state.indices.with_anti_affinity.values():
        if other.uid == binding.record.uid:
            continue
        for term in _required(other.pod, anti=True):
            there = binding.state.nodes.get(other.node)
            value = binding.node.metadata.labels.get(term.topology_key)
            if there is None or value is None or there.metadata.labels.get(term.topology_key) != value:
                continue
            if _matches(term, other.pod, binding.pod, binding.state):
                return Breach(
                    f"{other.key} has anti-affinity over {term.topology_key} to it and is in its domain", (other,)
                )
    return None


def _affinity(binding: Binding) -> Breach | None:
    terms = _required(binding.pod, anti=False)
    if not terms or binding.node is None:
        return None
    for term in terms:
        if term.topology_key not in binding.node.metadata.labels:
            return Breach(f"requires affinity over {term.topology_key}; its node {binding.node.name} has no such label")
    breach = _alone(binding, binding.node, terms, late=False)
    return breach and _alone(binding, binding.node, terms, late=True)


def _alone(binding: Binding, node: Node, terms: tuple[PodAffinityTerm, ...], *, late: bool) -> Breach | None:
    """`late`: as for a scheduler that has not seen the deletions of the last seconds."""
    state, pod = binding.state, binding.pod
    gone = list(state.recently_gone(binding.at)) if late else []
    alike = [
        other
        for other in (*state.pods.values(), *gone)
        if other.node
        and other.uid != binding.record.uid
        and all(_matches(term, pod, other.pod, state) for term in terms)
    ]
    if not alike and all(_matches(term, pod, pod, state) for term in terms):
        return None  # the first of its kind
    for term in terms:
        near = {other.uid for other in _in_domain(state, node, term.topology_key)}
        near |= {other.uid for other in gone if _shares(state, node, other, term)}
        if not any(other.uid in near for other in alike):
            return Breach(f"requires affinity over {term.topology_key}; no pod that it asks for is in its domain")
    return None


def _shares(state: ClusterState, node: Node, other: PodRecord, term: PodAffinityTerm) -> bool:
    """Whether a pod that is gone was in the node's domain."""
    place = state.nodes.get(other.node)
    key = term.topology_key
    return place is not None and place.metadata.labels.get(key) == node.metadata.labels.get(key)


# -- spread -----------------------------------------------------------------------------------------------------------


def _spread(binding: Binding) -> Breach | None:
    pod, node = binding.pod, binding.node
    hard = [
        constraint
        for constraint in pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == "DoNotSchedule"
    ]
    if not hard or node is None:
        return None
    breach = _skewed(binding, node, hard, late=False)
    return breach and _skewed(binding, node, hard, late=True) and breach


def _skewed(binding: Binding, node: Node, hard: list[TopologySpreadConstraint], *, late: bool) -> Breach | None:
    """`late`: as a scheduler counts that has not seen the deletions of the last seconds."""
    pod = binding.pod
    keys = [constraint.topology_key for constraint in hard]
    for constraint in hard:
        key = constraint.topology_key
        if key not in node.metadata.labels:
            return Breach(f"spreads over {key}; its node {node.name} has no such label")
        counts: dict[str, int] = {}
        for other in binding.state.nodes:
            if all(name in other.metadata.labels for name in keys) and _counts(constraint, pod, other):
                domain = other.metadata.labels[key]
                counts[domain] = counts.get(domain, 0) + _alike(constraint, binding, other.name, late=late)
        here = counts.get(node.metadata.labels[key], 0)
        few = len(counts) < (constraint.min_domains or 1)
        least = 0 if few or not counts else min(counts.values())
        if (
            node.metadata.labels[key] in counts
            and here - least > constraint.max_skew
            and _selected(constraint, pod, pod)
        ):
            return Breach(f"makes a skew of {here - least} over {key}, allowed are {constraint.max_skew}: {counts}")
    return None


def _counts(constraint: TopologySpreadConstraint, pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels
    if constraint.node_affinity_policy == "Honor" and not (
        all(labels.get(key) == value for key, value in pod.spec.node_selector.items()) and _affinity_admits(pod, node)
    ):
        return False
    return constraint.node_taints_policy != "Honor" or all(
        taint.effect not in {NO_SCHEDULE, NO_EXECUTE} or _tolerated(pod, taint) for taint in node.spec.taints
    )


def _alike(constraint: TopologySpreadConstraint, binding: Binding, node: str, *, late: bool) -> int:
    def counts(other: PodRecord) -> bool:
        ended = other.deleting_since is not None and other.uid != binding.record.uid
        if ended and not (late and (other.deleting_since or 0.0) >= binding.at - GRACE):
            return False
        same = other.pod.metadata.namespace == binding.pod.metadata.namespace
        return same and _selected(constraint, binding.pod, other.pod)

    gone = [each for each in binding.state.recently_gone(binding.at) if each.node == node] if late else []
    return sum(map(counts, (*binding.state.on_node(node), *gone)))


def _selected(constraint: TopologySpreadConstraint, owner: Pod, pod: Pod) -> bool:
    own, labels = owner.metadata.labels, pod.metadata.labels
    return selects(constraint.label_selector, labels) and all(
        labels.get(key) == own[key] for key in constraint.match_label_keys if key in own
    )


CHANGES = (
    ChangeInvariant("AUD-101", "A pod is bound once and never moved", _bound_once),
    ChangeInvariant("AUD-102", "A pod with scheduling gates is not bound", _bound_while_gated),
    ChangeInvariant("AUD-103", "A pod that is being deleted is not bound", _bound_while_deleting),
    ChangeInvariant("AUD-104", "A pod that has ended is not bound", _bound_after_end),
)


def _claims_of(pod: Pod) -> Iterator[tuple[str, str]]:
    """The entries of the pod's claims, with the keys of the claims; entries that need none are left out.

    The claim for its extended resources has an entry, too.
    """
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    for claim in pod.spec.resource_claims:
        name = claim.resource_claim_name or made.get(claim.name, "")
        if name is not None:
            yield claim.name, f"{pod.metadata.namespace}/{name}"
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        yield "extended resources", f"{pod.metadata.namespace}/{extended.resource_claim_name}"


def _resource_claims_reserved(binding: Binding) -> Breach | None:
    pod, state = binding.pod, binding.state
    if "ResourceClaim" in state.absent:
        return None
    for entry, key in _claims_of(pod):
        claim = state.resource_claims.get(key)
        users = claim.users if claim is not None else ()
        if not any(user.uid == pod.metadata.uid or user.is_group(pod.spec.scheduling_group) for user in users):
            return Breach(
                f"was bound to {binding.record.node} although no resource claim is allocated and reserved for it"
                f" as {entry}"
            )
    return None


def _devices_of_one_claim(binding: Binding) -> Breach | None:
    """kube-apiserver does not compare claims: a scheduler that forgets can give a device twice (DRA-D10)."""
    state = binding.state
    for _, key in _claims_of(binding.pod):
        claim = state.resource_claims.get(key)
        for other_key, other in state.resource_claims.items() if claim is not None and claim.devices else ():
            twice = claim.devices & other.devices if claim is not None and other_key != key else ()
            if twice:
                return Breach(f"uses claim {key}, whose device {'/'.join(min(twice))} claim {other_key} has too")
    return None


BINDINGS = (
    BindingInvariant("AUD-110", "A pod is bound to a node that exists", _node_exists),
    BindingInvariant("AUD-111", "A cordoned node gets no pods", _node_schedulable),
    BindingInvariant("AUD-112", "A pod tolerates the NoSchedule and NoExecute taints of its node", _taints_tolerated),
    BindingInvariant("AUD-113", "The node has the labels of the pod's node selector", _node_selector),
    BindingInvariant("AUD-114", "The pod's required node affinity admits its node", _node_affinity),
    BindingInvariant(
        "AUD-115", "CPU, memory and storage of a node are not overcommitted", _native_amounts, lasting=True
    ),
    BindingInvariant("AUD-116", "Extended resources of a node are not overcommitted", _extended_amounts, lasting=True),
    BindingInvariant("AUD-117", "A node has no more pods than places", _places, lasting=True),
    BindingInvariant("AUD-118", "A host port of a node has one user", _host_ports, lasting=True),
    BindingInvariant("AUD-119", "The pod's required anti-affinity holds", _anti_affinity),
    BindingInvariant("AUD-120", "The required anti-affinity of placed pods holds", _anti_affinity_of_others),
    BindingInvariant("AUD-121", "The pod's required affinity holds", _affinity, needs_others=True),
    BindingInvariant("AUD-122", "maxSkew of DoNotSchedule constraints holds", _spread, needs_others=True),
    BindingInvariant("AUD-123", "Resource claims are allocated, and reserved for the pod", _resource_claims_reserved),
    BindingInvariant("AUD-124", "No device is in two resource claims", _devices_of_one_claim, lasting=True),
)
