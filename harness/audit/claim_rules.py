"""Invariants of claims beyond single pods: reservations, nominations, gangs, quotas and the order of the queue."""

from collections.abc import Iterator, Mapping

from seatrial.harness.apiserver.quantities import Amounts, amounts
from seatrial.harness.audit.annotations import (
    gang_of,
    holds_resources,
    ignores_reservations,
    limited_resources,
    reservation_uid,
)
from seatrial.harness.audit.indices import NOBODY, QUOTA_LABEL
from seatrial.harness.audit.invariants import Binding, BindingInvariant, Breach, Change, ChangeInvariant, StateInvariant
from seatrial.harness.audit.placement_rules import selects, used_on
from seatrial.harness.audit.state import GRACE, ClusterState, PodRecord, Quota
from seatrial.scheduler.api.core import PREEMPT_NEVER, Pod
from seatrial.scheduler.api.extension import DISABLE_PREEMPTIBLE
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.podgroup import GANG_MIN, POD_GROUP_MIN_LABEL
from seatrial.scheduler.api.reservation import RESERVATION_AFFINITY, RESTRICTED, Reservation, ReservationOwner

LOST_AFTER = 60.0  # seconds without any word of the scheduler about a pending pod
GANG_WITHIN = 120.0  # seconds in which the members of a gang may be bound one after another
_PREEMPTED = "PreemptionByScheduler"

# -- reservations -----------------------------------------------------------------------------------------------------


def _reservation(binding: Binding) -> Reservation | None:
    uid = reservation_uid(binding.pod)
    return binding.state.reservations.get(uid) if uid else None


def _owners_of(state: ClusterState, uid: str) -> list[PodRecord]:
    return list(state.indices.by_reservation.get(uid, NOBODY).values())


def _same_node(binding: Binding) -> Breach | None:
    reservation = _reservation(binding)
    if reservation is None or not reservation.status.node_name or reservation.status.node_name == binding.record.node:
        return None
    return Breach(
        f"is in reservation {reservation.name} on {reservation.status.node_name} and was bound to {binding.record.node}"
    )


def _is_owner(binding: Binding) -> Breach | None:
    reservation = _reservation(binding)
    if reservation is None or any(_owns(owner, binding.pod) for owner in reservation.spec.owners):
        return None
    return Breach(f"is in reservation {reservation.name}, of which it is no owner")


def _owns(owner: ReservationOwner, pod: Pod) -> bool:
    meta, pod_ref, controller = pod.metadata, owner.object, owner.controller
    if pod_ref is not None and not (
        pod_ref.uid in {"", meta.uid} and pod_ref.name in {"", meta.name} and pod_ref.namespace in {"", meta.namespace}
    ):
        return False
    if controller is not None and not any(
        controller.uid in {"", reference.uid}
        and controller.name in {"", reference.name}
        and controller.kind in {"", reference.kind}
        for reference in meta.owner_references
    ):
        return False
    return owner.label_selector is None or selects(owner.label_selector, meta.labels)


def _once(binding: Binding) -> Breach | None:
    reservation = _reservation(binding)
    if reservation is None or not reservation.spec.allocate_once:
        return None
    others = [owner for owner in _owners_of(binding.state, reservation.metadata.uid) if owner.uid != binding.record.uid]
    if not others:
        return None
    return Breach(f"is in reservation {reservation.name}, which {others[0].key} has used up", (others[0],))


def _restricted_sum(binding: Binding) -> Breach | None:
    reservation = _reservation(binding)
    if reservation is None or reservation.spec.allocate_policy != RESTRICTED or not reservation.status.allocatable:
        return None
    have, used = amounts(reservation.status.allocatable), used_on(_owners_of(binding.state, reservation.metadata.uid))
    limited = limited_resources(reservation)
    for name, value in used.items():
        if name in limited and value > have[name]:
            return Breach(
                f"reservation {reservation.name} is Restricted to {have[name]} of {name}; its owners request {value}"
            )
    return None


def _required_reservation(binding: Binding) -> Breach | None:
    if RESERVATION_AFFINITY not in binding.pod.metadata.annotations or reservation_uid(binding.pod):
        return None
    if ignores_reservations(binding.pod):
        return None
    return Breach(f"requires a reservation and was bound to {binding.record.node} outside of any")


def _open_reservation(binding: Binding) -> Breach | None:
    reservation = _reservation(binding)
    if reservation is None or reservation.status.phase != "Failed":
        return None
    return Breach(f"is in reservation {reservation.name}, which has failed or expired")


def _reserved_amounts(binding: Binding) -> Breach | None:
    """Pods outside of reservations leave what reservations hold: requests and the unused rests fit on the node."""
    if binding.node is None or ignores_reservations(binding.pod) or reservation_uid(binding.pod):
        return None
    if not len(binding.state.reservations):
        return None
    have = amounts(binding.node.status.allocatable)
    total: Amounts = dict(binding.use.amounts)
    held: list[str] = []
    for reservation in binding.state.reservations:
        if not holds_resources(reservation) or reservation.status.node_name != binding.record.node:
            continue
        used = used_on(_owners_of(binding.state, reservation.metadata.uid))
        held.append(reservation.name)
        for name, value in amounts(reservation.status.allocatable).items():
            total[name] = total.get(name, 0) + max(value - used.get(name, 0), 0)
    for name in binding.record.requests if held else ():
        if name in have and total.get(name, 0) > have[name]:
            return Breach(f"takes {name} of {binding.record.node} that reservations {', '.join(sorted(held))} hold")
    return None


# -- preemption -------------------------------------------------------------------------------------------------------


def _victim(change: Change) -> bool:
    """Whether this change is a scheduler's eviction."""

    def marked(pod: Pod) -> bool:
        return any(
            condition.type == "DisruptionTarget" and condition.reason == _PREEMPTED
            for condition in pod.status.conditions
        )

    return marked(change.after) and not marked(change.before)


def _for_a_higher(change: Change) -> Breach | None:
    if not _victim(change):
        return None
    priority = change.after.spec.priority
    reserving = [reservation for reservation in change.state.reservations if not reservation.status.node_name]
    waiting = change.state.recently_pending(change.at)
    if reserving or any(record.pod.spec.priority > priority for record in waiting):
        return None
    return Breach(f"was preempted with priority {priority}; no pod that waits, or did a moment ago, has a higher one")


def _preemptible(change: Change) -> Breach | None:
    if not _victim(change) or change.after.metadata.labels.get(DISABLE_PREEMPTIBLE) != "true":
        return None
    return Breach(f"was preempted although its label {DISABLE_PREEMPTIBLE} is true")


def _for_one_that_preempts(change: Change) -> Breach | None:
    """A nomination alone says nothing: since Kubernetes 1.35 a scheduler nominates each pod whose binding waits
    (NominatedNodeNameForExpectation)."""
    if not _victim(change) or any(not reservation.status.node_name for reservation in change.state.reservations):
        return None
    priority = change.after.spec.priority
    higher = [each for each in change.state.recently_pending(change.at) if each.pod.spec.priority > priority]
    if not higher or any(each.pod.spec.preemption_policy != PREEMPT_NEVER for each in higher):
        return None
    return Breach(f"was preempted, and no pod of higher priority may preempt: {higher[0].key} never does", (higher[0],))


def _nominated_room(binding: Binding) -> Breach | None:
    """A less important pod does not take what a nominated pod waits for.

    A scheduler that binds in the background nominates for a preemption while the binding of another pod is under way,
    which it has counted, and before the victims are deleted.
    """
    if binding.node is None or reservation_uid(binding.pod) or not binding.state.holds_nominated:
        return None
    priority = binding.pod.spec.priority
    nominated = [
        entry
        for entry in binding.state.indices.nominated.get(binding.record.node, NOBODY).values()
        # One that was never refused waits for no room: its binding is on the way (NominatedNodeNameForExpectation).
        if entry.pod.spec.priority > priority
        and not entry.pod.deleting
        and entry.attempted
        and binding.at - entry.nominated_at >= binding.state.in_flight
    ]
    if not nominated:
        return None
    have = amounts(binding.node.status.allocatable)
    used = used_on([*(record for record in binding.all() if not record.pod.deleting), *nominated])
    for name in binding.record.requests:
        if name in have and used.get(name, 0) > have[name]:
            first = nominated[0]
            return Breach(
                f"takes {name} of {binding.node.name}, to which {first.key} of higher priority is nominated", (first,)
            )
    return None


# -- the queue --------------------------------------------------------------------------------------------------------


def _no_inversion(binding: Binding) -> Breach | None:
    """Of pods that differ in priority only, the more important one is bound first, unless it was refused before.

    A scheduler that was disconnected or not there hears of pods one after the other, and may take each at once: only
    what it does after `GRACE` without a pause is judged.
    """
    pod = binding.pod
    since, until = binding.state.busy.get(pod.spec.scheduler_name, (binding.at, binding.at))
    if binding.at - until > GRACE:
        return None  # the first one after a pause
    if max(binding.state.indices.pending_priorities, default=pod.spec.priority) <= pod.spec.priority:
        return None
    for other in binding.state.pending.values():
        if (
            other.pod.spec.priority > pod.spec.priority
            and not other.attempted
            and not other.pod.deleting
            and not other.pod.spec.scheduling_gates
            and binding.at - max(other.seen_at, since) > GRACE
            and binding.record.seen_at - other.seen_at >= 0
            and _alike(pod, other.pod)
        ):
            waited = binding.at - other.seen_at
            return Breach(
                f"was bound before {other.key}, which asks for the same, is more important and waited {waited:.1f} s",
                (other,),
            )
    return None


def _alike(pod: Pod, other: Pod) -> bool:
    a, b = pod.spec, other.spec
    return (
        pod.metadata.namespace == other.metadata.namespace
        and pod.metadata.labels == other.metadata.labels
        and pod.metadata.annotations == other.metadata.annotations
        and a.scheduler_name == b.scheduler_name
        and [(c.resources, c.ports) for c in a.containers] == [(c.resources, c.ports) for c in b.containers]
        and (a.node_selector, a.affinity, a.tolerations, a.topology_spread_constraints, a.volumes)
        == (b.node_selector, b.affinity, b.tolerations, b.topology_spread_constraints, b.volumes)
        and a.resource_claims == b.resource_claims
    )


def _members(state: ClusterState) -> dict[str, list[PodRecord]]:
    """The members of each gang."""
    members: dict[str, list[PodRecord]] = {}
    for record in state.pods.values():
        if key := gang_of(record.pod):
            members.setdefault(key, []).append(record)
    return members


def _short_gangs(state: ClusterState) -> set[str]:
    """Gangs with fewer members than their minimum: Koordinator's PreEnqueue holds these, silently."""
    return {
        key
        for key, there in _members(state).items()
        if (least := _min_member(state, key, there)) is None
        or sum(not (record.pod.deleting or record.pod.terminated) for record in there) < least
    }


def _min_member(state: ClusterState, key: str, there: list[PodRecord]) -> int | None:
    """By the PodGroup of the gang, else by the label or annotation of a member; None without any of them."""
    if (group := state.groups.get(key)) is not None:
        return group.min_member
    metas = [record.pod.metadata for record in there]
    texts = [meta.labels.get(POD_GROUP_MIN_LABEL) or meta.annotations.get(GANG_MIN, "") for meta in metas]
    return max((least for text in texts if (least := integer(text, 0)) is not None), default=None)


def _none_lost(state: ClusterState, at: float) -> Iterator[tuple[PodRecord | None, Breach]]:
    served = {
        record.pod.spec.scheduler_name
        for record in state.pods.values()
        if record.bound_by_scheduler or record.attempted
    }
    short = _short_gangs(state)
    for record in list(state.pending.values()):
        pod = record.pod
        waited = at - record.seen_at
        if record.attempted or pod.deleting or pod.spec.scheduling_gates or waited <= LOST_AFTER:
            continue
        if pod.spec.scheduler_name in served and gang_of(pod) not in short:
            yield record, Breach(f"waits for {waited:.0f} s, and the scheduler neither bound it nor wrote a reason")


# -- groups -----------------------------------------------------------------------------------------------------------


def _gangs_whole(state: ClusterState, at: float) -> Iterator[tuple[PodRecord | None, Breach]]:
    members = _members(state)
    for key, group in state.groups.items():
        there = members.get(key, [])
        placed = [member for member in there if member.node]
        latest = max((member.bound_at or member.seen_at for member in placed), default=at)
        whole_at = state.whole_gangs.get(key)
        if whole_at is not None and (group.once or latest <= whole_at):
            continue  # it has lost members since, or may be placed one by one since
        known = [member.bound_by_scheduler for member in placed]
        if placed and not (all(known) if group.once else any(known)):
            continue  # some were bound before the audit began, when it may have been whole
        if 0 < len(placed) < group.min_member <= len(there) and at - latest > GANG_WITHIN:
            text = f"gang {key} needs {group.min_member} members and has {len(placed)} bound for {at - latest:.0f} s"
            yield placed[0], Breach(text, tuple(placed[1:]))


def _quota_bounds(binding: Binding) -> Breach | None:
    """The sum of the quota's pods fits into one of the recent versions of its max."""
    name = binding.pod.metadata.labels.get(QUOTA_LABEL)
    if not name or binding.state.quotas.get(name) is None:
        return None
    # With gates of Koordinator neither overhead nor pods that are being deleted count; the rule fits all of them.
    members = [
        record for record in binding.state.indices.by_quota.get(name, NOBODY).values() if not record.pod.deleting
    ]
    used = dict(used_on(members))
    for record in members:
        for resource, amount in amounts(record.pod.spec.overhead).items():
            used[resource] = used.get(resource, 0) - amount
    first: Breach | None = None
    for quota in filter(None, binding.state.quotas.recent(name, binding.at)):
        over = next((resource for resource in binding.record.requests if _exceeds(quota, used, resource)), None)
        if over is None:
            return None
        text = f"quota {name} has a max of {quota.most[over]} of {over}; its pods use {used[over]}"
        first = first or Breach(text)
    return first


def _exceeds(quota: Quota, used: Mapping[str, int], resource: str) -> bool:
    return resource in quota.most and used.get(resource, 0) > quota.most[resource]


CHANGES = (
    ChangeInvariant("AUD-501", "A pod is preempted only for a pod of higher priority", _for_a_higher),
    ChangeInvariant("AUD-502", "A pod that may not be preempted is no victim", _preemptible),
    ChangeInvariant("AUD-503", "No pod is preempted for one with preemptionPolicy Never", _for_one_that_preempts),
)
BINDINGS = (
    BindingInvariant("AUD-401", "A pod is on the node of its reservation", _same_node, lasting=True),
    BindingInvariant("AUD-402", "A pod in a reservation is one of its owners", _is_owner, lasting=True),
    BindingInvariant("AUD-403", "An allocateOnce reservation has one owner", _once, lasting=True),
    BindingInvariant("AUD-404", "Owners of a Restricted reservation stay within it", _restricted_sum, lasting=True),
    BindingInvariant("AUD-405", "A pod that requires a reservation is in one", _required_reservation, lasting=True),
    BindingInvariant("AUD-406", "A failed reservation gets no pods", _open_reservation),
    BindingInvariant("AUD-407", "Reserved amounts are not taken by other pods", _reserved_amounts),
    BindingInvariant("AUD-504", "Room of a nominated pod is not taken by a less important pod", _nominated_room),
    BindingInvariant("AUD-505", "Among equal pods the more important one is bound first", _no_inversion),
    BindingInvariant("AUD-602", "The max of a quota holds", _quota_bounds),
)
STATES = (
    StateInvariant("AUD-506", "No pending pod is forgotten", _none_lost),
    StateInvariant("AUD-601", "A gang has no members or its minimum", _gangs_whole),
)
