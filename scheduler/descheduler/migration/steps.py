"""The steps of one PodMigrationJob (RSV-R53 to RSV-R66): what to write next, as a function of what is known.

A step is repeated until its effect is visible, so a controller that starts anew continues where the last one ended.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.durations import go_duration, go_text
from seatrial.scheduler.api.migration import (
    EVICT_DIRECTLY,
    EVICT_REASON,
    EVICT_TRIGGER,
    FAILED,
    KOORD_DESCHEDULER,
    PENDING,
    RESERVATION_CREATED_BY,
    RUNNING,
    SUCCEEDED,
    JobCondition,
    JobStatus,
    PodMigrationJob,
)
from seatrial.scheduler.api.reservation import FAILED as RESERVATION_FAILED
from seatrial.scheduler.api.reservation import (
    RESERVATION_ORDER,
    SCHEDULED,
    UNSCHEDULABLE,
    ObjectReference,
    Reservation,
    allocated_to,
)
from seatrial.scheduler.api.reservation import SUCCEEDED as RESERVATION_SUCCEEDED
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.state import ClusterState

CREATED, PLACED, EVICTED = "ReservationCreated", "ReservationScheduled", "Eviction"  # condition types
POD_BOUND, BOUND, BOUND_READY = "PodBoundReservation", "ReservationBound", "BoundPodReady"
COMPLETE = "Complete"
POLL = 3.0  # seconds
NORMAL, WARNING = "Normal", "Warning"
FORBIDDEN = "ForbiddenMigratePod"
WAITING = "WaitForLimit"  # the reason in the status of a job that a limit holds back


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the job, or on its pod."""

    type: str
    reason: str
    note: str
    action: str = "Migrating"
    pod: Pod | None = None


@dataclass(frozen=True, slots=True)
class CreateReservation:
    """Create the reservation of the job from the pod as the API server has it, and name it in the job."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class DeleteReservation:
    """Delete the Reservation of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evict the pod."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Step:
    """What to do, in this order: write the spec, write the status, record events, act. `again`: look again after it."""

    spec: dict[str, Any] | None = None
    status: JobStatus | None = None
    events: tuple[Event, ...] = ()
    action: CreateReservation | DeleteReservation | EvictPod | None = None
    again: float | None = None

    @property
    def writes(self) -> bool:
        return self.spec is not None or self.status is not None or self.action is not None


NOTHING = Step()


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of jobs. `arbitration`: pending jobs wait until their annotation allows them to run."""

    state: ClusterState
    default_mode: str
    arbitration: bool
    held: Callable[[PodMigrationJob], str] = lambda _: ""  # which limiter holds the job back

    def next(self, job: PodMigrationJob, now: float, stamp: str) -> Step:
        """The next step of a job; `now` and `stamp`: the time in seconds and as RFC 3339."""
        if job.spec.paused or not job.open:
            return NOTHING
        left = time_left(job, now)
        if left is not None and left <= 0:
            return self._fail(job, "Timeout", "Abort job caused by timeout")
        if job.pending:
            return self._prepare(job)
        if job.status.condition(EVICTED) is None and (why := self.held(job)):
            step = held_back(job, why, again=POLL)
        elif self._directly(job):
            step = self._evict_directly(job, stamp)
        else:
            step = self._reserve_first(job, stamp)
        if left is not None and not step.writes:  # nothing else may wake the job at its timeout
            again = min(left, step.again) if step.again is not None else left
            step = Step(events=step.events, again=again)
        return step

    def _directly(self, job: PodMigrationJob) -> bool:
        return (job.spec.mode or self.default_mode) == EVICT_DIRECTLY

    def _prepare(self, job: PodMigrationJob) -> Step:
        reference = job.spec.pod_ref
        if not reference.namespace or not reference.name:
            return self._fail(job, "InvalidPodRef", "Abort job caused by invalid PodRef")
        pod = self._pod(job)
        if pod is None:
            return self._fail(job, "MissingPod", f'Abort job caused by missing Pod "{job.pod_key}"')
        if self.arbitration and not job.passed:
            return NOTHING
        spec: dict[str, Any] = {}
        if reference.uid != pod.metadata.uid:
            spec["podRef"] = {**_plain(reference), "uid": pod.metadata.uid}
        if not job.spec.mode:
            spec["mode"] = self.default_mode
        if job.spec.ttl and as_go_prints(job.spec.ttl) != job.spec.ttl:
            spec["ttl"] = as_go_prints(job.spec.ttl)  # as Koordinator's client writes it back
        return Step(spec=spec or None, status=replace(job.status, phase=RUNNING, reason="", message=""))

    def _evict_directly(self, job: PodMigrationJob, stamp: str) -> Step:
        step = self._evict(job, stamp)
        if step is not None:
            return step
        message = f'Pod "{job.pod_key}" has been evicted'
        return Step(status=replace(job.status, phase=SUCCEEDED, status=COMPLETE, reason="", message=message))

    def _reserve_first(self, job: PodMigrationJob, stamp: str) -> Step:
        state = self.state
        if not job.reservation_name:
            pod = self._pod(job)
            if pod is None:
                return self._fail(job, "MissingPod", f'Abort job caused by missing Pod "{job.pod_key}"')
            return Step(action=CreateReservation(pod), again=POLL)
        name = job.reservation_name
        if job.status.condition(CREATED) is None:
            note = f'Successfully create Reservation "{name}"'
            return Step(
                status=with_condition(job.status, CREATED, "True", "", "", stamp),
                events=(Event(NORMAL, CREATED, note),),
            )
        reservation = state.reservations.get(name)
        if reservation is None:
            return self._fail(job, "MissingReservation", f'Abort job caused by missing Reservation "{name}"')
        failure = self._failed_reservation(job, reservation)
        if failure is not None:
            return failure
        placed = job.status.condition(PLACED)
        if placed is None or placed.status != "True":
            return self._place(job, reservation, stamp)
        taken = reservation.status.phase == RESERVATION_SUCCEEDED and self._not_evicted(job)
        if taken and not self._exchanged(job, reservation):
            return self._bound_by_another(job)
        step = self._evict(job, stamp)
        if step is not None:
            return step
        return self._bind(job, reservation, stamp)

    def _not_evicted(self, job: PodMigrationJob) -> bool:
        """Whether no eviction of the pod can have been accepted.

        With the reason `Evicting` one may have been, though the pod's deletion is not seen yet. `FailedEvict` stays
        until the pod is gone, so that a pod that is being deleted counts as evicted.
        """
        condition, pod = job.status.condition(EVICTED), self._pod(job)
        return (condition is None or condition.reason == "FailedEvict") and pod is not None and not pod.deleting

    def _exchanged(self, job: PodMigrationJob, reservation: Reservation) -> bool:
        """Whether the pod can have the place of another open job instead of its own `reservation`, which is taken.

        The new pod of one job may allocate from the reservation of another job of the same workload. That job's own
        reservation is free then: it has the same owners, its old pod is gone or going, and it is on another node.
        """
        pod = self._pod(job)
        for other in self.state.open_jobs():
            old = self._pod(other)
            place = self.state.reservations.get(other.reservation_name) if other.reservation_name else None
            if (
                other.name != job.name
                and other.status.condition(EVICTED) is not None
                and (old is None or old.deleting)
                and place is not None
                and place.available
                and place.spec.owners == reservation.spec.owners
                and (pod is None or place.status.node_name != pod.spec.node_name)
            ):
                return True
        return False

    def _failed_reservation(self, job: PodMigrationJob, reservation: Reservation) -> Step | None:
        if reservation.expired:
            return self._fail(job, "ReservationExpired", "Reservation expired")
        if reservation.status.phase == RESERVATION_FAILED:
            condition = reservation.status.condition(SCHEDULED)
            return self._fail(job, UNSCHEDULABLE, condition.message if condition else "Reservation failed")
        return None

    def _place(self, job: PodMigrationJob, reservation: Reservation, stamp: str) -> Step:
        """Wait until the reservation has a node, and check that it is another one."""
        node = reservation.status.node_name
        if not node:
            condition = reservation.status.condition(SCHEDULED)
            known = job.status.condition(PLACED)
            if condition is None or condition.reason != UNSCHEDULABLE or (known and known.message == condition.message):
                return Step(again=POLL)
            return Step(
                status=with_condition(job.status, PLACED, "False", UNSCHEDULABLE, condition.message, stamp),
                events=(Event(WARNING, UNSCHEDULABLE, condition.message),),
                again=POLL,
            )
        pod = self._pod(job)
        if _for_pending_pod(reservation):
            if pod is None:
                return self._fail(job, "MissingPod", f'Abort job caused by missing Pod "{job.pod_key}"')
            if not pod.spec.node_name:
                return Step(again=POLL)
            message = f'Assign Pod "{job.pod_key}" to node "{pod.spec.node_name}"'
            return self._succeed(replace(job.status, node_name=pod.spec.node_name), pod, message)
        if pod is not None and pod.spec.node_name == node:
            why = f'Scheduler assignes the Reservation "{reservation.name}" on the same node as the Pod'
            return self._fail(job, FORBIDDEN, why)
        if pod is None:
            return self._fail(job, "MissingPod", f'Abort job caused by missing Pod "{job.pod_key}"')
        status = with_condition(job.status, PLACED, "True", "", "", stamp)
        note = f'Assigned Reservation "{reservation.name}" to node "{node}"'
        return Step(status=replace(status, node_name=node), events=(Event(NORMAL, PLACED, note),))

    def _evict(self, job: PodMigrationJob, stamp: str) -> Step | None:
        """The next step of the eviction; None when it is complete.

        The condition is written before the eviction: after a crash between the two the pod is evicted again.
        """
        condition = job.status.condition(EVICTED)
        if condition is not None and condition.status == "True":
            return None
        pod = self._pod(job)
        if pod is None:
            if condition is None:
                return self._fail(job, "MissingPod", f'Abort job caused by missing Pod "{job.pod_key}"')
            note = f'Pod "{job.pod_key}" has been evicted'
            return Step(
                status=with_condition(job.status, EVICTED, "True", "EvictComplete", note, stamp),
                events=(Event(NORMAL, "EvictComplete", note),),
            )
        if condition is not None:
            return Step(again=POLL) if pod.deleting else Step(action=EvictPod(pod), again=POLL)
        reason = eviction_reason(job)
        note = f'Pod "{job.pod_key}" evicted from node "{pod.spec.node_name}" by the reason "{reason}"'
        on_pod = f'Pod evicted from node "{pod.spec.node_name}" by the reason "{reason}"'
        return Step(
            status=with_condition(job.status, EVICTED, "False", "Evicting", note, stamp),
            events=(Event(NORMAL, "Evicting", note), Event(NORMAL, "Descheduled", on_pod, pod=pod)),
            action=EvictPod(pod),
            again=POLL,
        )

    def _bind(self, job: PodMigrationJob, reservation: Reservation, stamp: str) -> Step:
        """Wait until a new pod is in the reservation, and then until it is Ready."""
        new = self._bound_pod(job, reservation)
        if new is None:
            if reservation.status.phase == RESERVATION_SUCCEEDED:
                return self._bound_by_another(job)
            if job.status.condition(BOUND) is not None:
                return Step(again=POLL)
            why = "Waiting for Pod bind Reservation"
            return Step(
                status=with_condition(job.status, BOUND, "False", "WaitForPodBindReservation", why, stamp), again=POLL
            )
        name, status = new.key, job.status
        bound = status.condition(BOUND)
        if bound is None or bound.status != "True":
            note = f'Reservation bound by pod "{name}"'
            status = with_condition(status, BOUND, "True", "", note, stamp)
            if not new.ready:
                why = f"Waiting for Bound Pod {name} Ready"
                status = with_condition(status, BOUND_READY, "False", "WaitForBoundPodReady", why, stamp)
            return Step(
                status=replace(status, pod_ref=_reference(new)), events=(Event(NORMAL, POD_BOUND, note),), again=POLL
            )
        if not new.ready:
            return Step(again=POLL)
        status = with_condition(status, BOUND_READY, "True", "", "", stamp)
        status = with_condition(status, POD_BOUND, "True", "", "", stamp)
        message = f'Bind Pod "{name}" in Reservation "{reservation.name}"'
        step = self._succeed(status, new, message)
        return Step(
            status=step.status, events=(Event(NORMAL, BOUND_READY, f'Bind pod "{name}" is ready'), *step.events)
        )

    def _bound_pod(self, job: PodMigrationJob, reservation: Reservation) -> Pod | None:
        for node_pod in self.state.pods_on(reservation.status.node_name):
            if allocated_to(node_pod) == reservation.metadata.uid and not node_pod.terminated:
                return node_pod if node_pod.metadata.uid != job.spec.pod_ref.uid else None
        for owner in reservation.status.current_owners:
            pod = self.state.pods.get(owner.uid)
            if pod is not None and pod.metadata.uid != job.spec.pod_ref.uid:
                return pod
        return None

    def _pod(self, job: PodMigrationJob) -> Pod | None:
        """The pod of the job, if it is still the same one."""
        pod = self.state.pod_named(job.pod_key)
        uid = job.spec.pod_ref.uid
        return pod if pod is not None and (not uid or pod.metadata.uid == uid) else None

    def _succeed(self, status: JobStatus, new: Pod, message: str) -> Step:
        return Step(
            status=replace(
                status, phase=SUCCEEDED, status=COMPLETE, reason="", message=message, pod_ref=_reference(new)
            ),
            events=(Event(NORMAL, COMPLETE, message),),
        )

    def _bound_by_another(self, job: PodMigrationJob) -> Step:
        return self._fail(job, FORBIDDEN, "Reservation is already bound by another Pod")

    def _fail(self, job: PodMigrationJob, reason: str, message: str) -> Step:
        return failed(self.state, job, reason, message)


def failed(state: ClusterState, job: PodMigrationJob, reason: str, message: str) -> Step:
    """End the job, and give back the reservation that was made for it."""
    name = job.reservation_name
    reservation = state.reservations.get(name) if name else None
    return Step(
        status=replace(job.status, phase=FAILED, reason=reason, message=message),
        events=(Event(WARNING, reason, message),),
        action=DeleteReservation(name) if reservation is not None and made_for(reservation, job) else None,
    )


def held_back(job: PodMigrationJob, why: str, *, again: float | None = None) -> Step:
    """Say in the job's status, and in an event, what it waits for."""
    if job.status.message == why:
        return Step(again=again)
    status = replace(job.status, phase=job.status.phase or PENDING, reason=WAITING, message=why)
    return Step(status=status, events=(Event(NORMAL, WAITING, why),), again=again)


def made_for(reservation: Reservation, job: PodMigrationJob) -> bool:
    """Whether the controller made the reservation for this job, and it has no use without the job."""
    labels = reservation.metadata.labels
    return labels.get(RESERVATION_CREATED_BY) == KOORD_DESCHEDULER and reservation.name == job.metadata.uid


def time_left(job: PodMigrationJob, now: float) -> float | None:
    """Seconds until the job times out; None if it has no ttl."""
    ttl = go_duration(job.spec.ttl) if job.spec.ttl else None
    created = read_time(job.metadata.creation_timestamp)
    return ttl - (now - created) if ttl and created is not None else None


def as_go_prints(duration: str) -> str:
    """A duration in the spelling of Go: `5m0s` for `5m`; unchanged if it is none."""
    value = go_duration(duration)
    return duration if value is None else go_text(value)


def eviction_reason(job: PodMigrationJob) -> str:
    """The reason that the job's annotations give; `NotSet` without one."""
    annotations = job.metadata.annotations
    return annotations.get(EVICT_REASON) or annotations.get(EVICT_TRIGGER) or "NotSet"


def with_condition(  # noqa: PLR0917 the fields of a condition
    status: JobStatus, type_: str, value: str, reason: str, message: str, stamp: str
) -> JobStatus:
    """The status with the condition set, and `status.status` naming it if it is True (RSV-R66)."""
    known = status.condition(type_)
    since = known.last_transition_time if known is not None and known.status == value else stamp
    condition = JobCondition(type_, value, reason, message, stamp, since)
    others = tuple(condition for condition in status.conditions if condition.type != type_)
    if status.reason == WAITING:
        status = replace(status, reason="", message="")
    return replace(status, conditions=(*others, condition), status=type_, phase=status.phase or PENDING)


def reservation_for(job: PodMigrationJob, pod: dict[str, Any], order: int, ttl: str) -> dict[str, Any]:
    """The manifest of the reservation for a job; `pod`: the whole pod as the API server has it (RSV-R58).

    `order`: of two reservations for one workload the new pod takes the one with the smaller order.
    """
    template = _without_node(pod["spec"])
    metadata = pod["metadata"]
    node = pod["spec"].get("nodeName", "")
    if node:
        _avoid(template, node)
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {
            "name": job.metadata.uid,
            "labels": {RESERVATION_CREATED_BY: KOORD_DESCHEDULER, RESERVATION_ORDER: str(order)},
        },
        "spec": {
            "template": {
                "metadata": {
                    "namespace": metadata["namespace"],
                    "labels": metadata.get("labels") or {},
                    "annotations": _inherited(metadata.get("annotations") or {}),
                },
                "spec": template,
            },
            "owners": [_owner(pod)],
            "allocateOnce": True,
            "ttl": job.spec.ttl or ttl,
        },
    }


_OF_PLACEMENT = (  # annotations with the place of the old pod
    "scheduling.koordinator.sh/device-allocated",
    "scheduling.koordinator.sh/reservation-allocated",
    "scheduling.koordinator.sh/resource-status",
)


def _inherited(annotations: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key not in _OF_PLACEMENT}


def _without_node(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key != "nodeName"}


def _avoid(template: dict[str, Any], node: str) -> None:
    """Let the reservation go to any node but the pod's."""
    field = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    affinity = dict(template.get("affinity") or {})
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (of_nodes.get(required) or {}).get("nodeSelectorTerms") or [{}]
    of_nodes[required] = {
        "nodeSelectorTerms": [{**term, "matchFields": [*(term.get("matchFields") or ()), field]} for term in terms]
    }
    affinity["nodeAffinity"] = of_nodes
    template["affinity"] = affinity


def _owner(pod: dict[str, Any]) -> dict[str, Any]:
    metadata = pod["metadata"]
    controller = next(
        (reference for reference in metadata.get("ownerReferences") or () if reference.get("controller")), None
    )
    named = {"namespace": metadata["namespace"], "name": metadata["name"]}
    if not pod["spec"].get("nodeName"):
        return {"object": {**named, "uid": metadata["uid"]}}
    if controller is None:  # a controller that makes the pod again gives it the same name and another uid
        return {"object": named}
    known = ("apiVersion", "kind", "name", "uid", "controller")
    return {
        "controller": {
            **{key: controller[key] for key in known if key in controller},
            "namespace": metadata["namespace"],
        }
    }


def _for_pending_pod(reservation: Reservation) -> bool:
    return any(owner.object is not None and owner.object.uid for owner in reservation.spec.owners)


def _reference(pod: Pod) -> ObjectReference:
    return ObjectReference("v1", "Pod", pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def _plain(reference: ObjectReference) -> dict[str, str]:
    return {"namespace": reference.namespace, "name": reference.name}
