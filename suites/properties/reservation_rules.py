"""The oracle of reservations: who may use one, what is left of it, and what it withholds from other pods.

Rules RSV-R1 to RSV-R33 of Koordinator's reservations, by their sentences, without preemption,
pre-allocation and devices.
"""

from collections.abc import Iterator
from dataclasses import replace

from seatrial.harness.apiserver.quantities import Amounts, amounts
from seatrial.harness.audit.annotations import holds_resources, ignores_reservations, reservation_uid
from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.reservation import (
    EXACT_MATCH,
    RESERVATION_AFFINITY,
    RESTRICTED,
    RESTRICTED_OPTIONS,
    Reservation,
)
from seatrial.scheduler.api.wire import from_plain
from seatrial.suites.properties.node_fit import CORDON, constraints, lacking, matches, tolerates
from seatrial.suites.properties.state import (
    Change,
    Json,
    State,
    added,
    allocatable,
    is_over,
    labels,
    name_of,
    node_of,
    noted,
    requests,
    total,
)

LATEST_LOOK = 20.0  # seconds after its end in which an expired reservation is seen


def _owners(state: State, reservation: Json) -> list[Json]:
    """The pods that are in it."""
    uid = reservation["metadata"]["uid"]
    return [
        pod
        for pod in state.pods.values()
        if not is_over(pod) and node_of(pod) and reservation_uid(from_plain(pod, Pod)) == uid
    ]


def _is_held(reservation: Json) -> bool:
    return holds_resources(from_plain(reservation, Reservation))


def _capacity(reservation: Json) -> Amounts:
    return amounts((reservation.get("status") or {}).get("allocatable") or {})


def _allocated(state: State, reservation: Json) -> Amounts:
    used = total(_owners(state, reservation))
    return {key: used.get(key, 0) for key in _capacity(reservation)}


def _left(state: State, reservation: Json) -> Amounts:
    used = _allocated(state, reservation)
    return {key: max(0, value - used[key]) for key, value in _capacity(reservation).items()}


def _on(state: State, node: str) -> list[Json]:
    return [one for one in state.reservations.values() if _is_held(one) and one["status"]["nodeName"] == node]


def _free(state: State, node: Json, *, withheld: bool = True) -> Amounts:
    """What pods, and reservations with what is left of them, leave of a node."""
    name = name_of(node)
    used = added(total(state.on(name)), *(_left(state, one) for one in _on(state, name) if withheld))
    return {key: value - used.get(key, 0) for key, value in allocatable(node).items()}


def _is_owner(owner: Json, pod: Json) -> bool:
    reference, selector = owner.get("object") or {}, owner.get("labelSelector") or {}
    values = labels(pod)
    return (
        all(pod["metadata"].get(key) == reference[key] for key in ("name", "namespace", "uid") if reference.get(key))
        and all(values.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
        and all(matches(each, values) for each in selector.get("matchExpressions") or ())
    )


def _may_use(state: State, reservation: Json, pod: Json, *, inside: bool) -> bool:
    """Whether the pod matches the reservation (RSV-R17 to RSV-R20). `inside`: it is in it already."""
    spec, affinity = reservation["spec"], noted(pod, RESERVATION_AFFINITY)
    request = affinity or {}
    if ignores_reservations(from_plain(pod, Pod)) or not any(_is_owner(owner, pod) for owner in spec["owners"]):
        return False
    others = [owner for owner in _owners(state, reservation) if name_of(owner) != name_of(pod)]
    if spec.get("allocateOnce", True) and (others or not (inside or _is_held(reservation))):
        return False
    if not _is_exact(pod, reservation):
        return False
    if request.get("name"):
        return bool(request["name"] == name_of(reservation))
    tolerations = request.get("tolerations") or []
    if spec.get("unschedulable") and not tolerates(tolerations, CORDON):
        return False
    taints = [taint for taint in spec.get("taints") or () if taint["effect"] != "PreferNoSchedule"]
    if affinity is not None and any(not tolerates(tolerations, taint) for taint in taints):
        return False
    node = state.nodes.get(reservation["status"].get("nodeName", ""), {"metadata": {}})
    values = labels(node) | labels(reservation)
    terms = (request.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("reservationSelectorTerms")
    return all(values.get(key) == value for key, value in (request.get("reservationSelector") or {}).items()) and (
        terms is None or any(all(matches(each, values) for each in term["matchExpressions"]) for term in terms)
    )


def _is_exact(pod: Json, reservation: Json) -> bool:
    names = (noted(pod, EXACT_MATCH) or {}).get("resourceNames") or []
    amounts, capacity = requests(pod), _capacity(reservation)
    for name in names:
        if name not in amounts and name not in capacity:
            return True
        if amounts.get(name) != capacity.get(name):
            return False
    return True


def _room_inside(state: State, reservation: Json, pod: Json, node: Json) -> bool:
    """RSV-R29 to RSV-R31."""
    amounts = requests(pod)
    if list(lacking(amounts, added(_free(state, node), _left(state, reservation)))):
        return False
    bounded = {key: value for key, value in _left(state, reservation).items() if key in _strict_keys(reservation)}
    return not list(lacking({key: amounts.get(key, 0) for key in bounded}, bounded))


def _strict_keys(reservation: Json) -> set[str]:
    """The resources that a Restricted reservation limits: those of its options, or all that it has."""
    if reservation["spec"].get("allocatePolicy") != RESTRICTED:
        return set()
    capacity = set(_capacity(reservation))
    return capacity & {*(noted(reservation, RESTRICTED_OPTIONS) or {}).get("resources", ())} or capacity


def _ways(state: State, pod: Json) -> Iterator[str]:
    """Where a waiting pod may go."""
    for name, node in state.nodes.items():
        if list(constraints(pod, node)):
            continue
        if ignores_reservations(from_plain(pod, Pod)):
            if not list(lacking(requests(pod), _free(state, node, withheld=False))):
                yield f"node {name}, reservations aside"
            continue
        yield from _reserved_ways(state, pod, node)
        if noted(pod, RESERVATION_AFFINITY) is None and not list(lacking(requests(pod), _free(state, node))):
            yield f"node {name}"


def _reserved_ways(state: State, pod: Json, node: Json) -> Iterator[str]:
    for one in _on(state, name_of(node)):
        if _may_use(state, one, pod, inside=False) and _room_inside(state, one, pod, node):
            yield f"reservation {name_of(one)} on node {name_of(node)}"


def reservation_rules(before: State, after: State, change: Change) -> Iterator[str]:
    """Who waits has nowhere to go; who is bound may be there; a reservation shows its owners and what they have."""
    for pod in after.waiting():
        for way in _ways(after, pod):
            yield f"pod {name_of(pod)} waits although there is room: {way}"
    ignorant = any(ignores_reservations(from_plain(pod, Pod)) for pod in after.pods.values())
    for name, node in after.nodes.items():
        for key, value in _free(after, node).items():
            if value < 0 and not ignorant:
                yield f"node {name}: pods and reservations together have {-value} of {key} more than there is"
    for one in after.reservations.values():
        yield from _of_reservation(before, after, one)
    for pod in after.bound_since(before) if change is Change.ONE else ():
        node = after.nodes[node_of(pod)]
        if not reservation_uid(from_plain(pod, Pod)) and not list(constraints(pod, node)):
            if noted(pod, RESERVATION_AFFINITY) is not None and not ignores_reservations(from_plain(pod, Pod)):
                yield f"pod {name_of(pod)} has to be in a reservation, and was bound without one"
            held = {
                name: one for name, one in after.reservations.items() if _is_held(before.reservations.get(name, one))
            }
            for way in _reserved_ways(replace(after, reservations=held), pod, node):
                yield f"pod {name_of(pod)} was bound beside its {way}"


def _of_reservation(before: State, after: State, one: Json) -> Iterator[str]:
    name, spec, status = name_of(one), one["spec"], one.get("status") or {}
    owners = _owners(after, one)
    known = {name_of(pod) for pod in _owners(before, one)}
    for pod in owners:
        # The step may have brought or labelled the node; the owners are those that it had before the step.
        if name_of(pod) not in known and not _may_use(replace(before, nodes=after.nodes), one, pod, inside=True):
            yield f"pod {name_of(pod)} was placed in reservation {name}, which it may not use"
    if strict := _strict_keys(one):
        bounds = {key: value for key, value in _capacity(one).items() if key in strict}
        for why in lacking(total(owners), total(owners) | bounds):
            yield f"owners of the restricted reservation {name} have more than it has: {why}"
    age = after.now - (read_time(one["metadata"]["creationTimestamp"]) or after.now)
    limit = go_duration(spec.get("ttl", "24h"))
    if limit and "expires" in spec:
        limit = min(limit, (read_time(spec["expires"]) or after.now) - after.now + age)
    home, before_it = spec["template"]["spec"].get("nodeName", ""), before.reservations.get(name, one)
    if _is_held(one) and home not in {"", status["nodeName"]}:
        yield f"reservation {name} is on node {status['nodeName']}, its template names {home}"
    if _is_held(one) and before_it["metadata"]["uid"] == one["metadata"]["uid"] and not _is_held(before_it):
        policies = {
            name_of(other): bool(other["spec"].get("allocatePolicy")) for other in _on(after, status["nodeName"])
        }
        for other_name, policy in policies.items():
            was_there = other_name in before.reservations and _is_held(before.reservations[other_name])
            if was_there and policy != bool(spec.get("allocatePolicy")):
                yield f"reservation {name} is on node {status['nodeName']} beside {other_name} of another policy"
    phase = status.get("phase", "Pending")
    if _is_held(one):
        if limit and age > max(limit, 0) + LATEST_LOOK:
            yield f"reservation {name} is {age:.0f} s old and Available, its ttl is {limit:.0f} s"
        if spec.get("allocateOnce", True) and owners:
            yield f"reservation {name} is for one pod, has {name_of(owners[0])}, and is still Available"
        stated = {key: value for key, value in amounts(status.get("allocated") or {}).items() if value}
        expected = {key: value for key, value in _allocated(after, one).items() if value}
        if stated != expected:
            yield f"reservation {name}: expected allocated {expected}, found {stated}"
        listed = sorted(owner["name"] for owner in status.get("currentOwners") or ())
        if listed != sorted(map(name_of, owners)):
            yield f"reservation {name}: expected owners {sorted(map(name_of, owners))}, found {listed}"
    elif phase == "Failed" and not (limit is not None and limit != 0 and age >= limit):
        yield f"reservation {name} is {age:.0f} s old and Failed, its ttl is {limit:.0f} s"
    elif phase == "Pending" and "deletionTimestamp" not in one["metadata"]:
        pod = {"metadata": {"name": ""}, "spec": spec["template"]["spec"], "status": {}}
        policy = bool(spec.get("allocatePolicy"))
        for node_name, node in after.nodes.items():
            mixed = any(bool(other["spec"].get("allocatePolicy")) != policy for other in _on(after, node_name))
            closed = mixed or home not in {"", node_name}
            if not closed and not list(constraints(pod, node)) and not list(lacking(requests(pod), _free(after, node))):
                yield f"reservation {name} waits although node {node_name} has room"
