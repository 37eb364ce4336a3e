"""MigrationController: carries out the steps of PodMigrationJobs and arbitrates between them.

One write of a job is under way at a time; the job is reconciled again when it has ended. Requests are sent with
callbacks, so the controller runs on an event loop and in simulated time alike.
"""

import logging
import math
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from seatrial.scheduler.api.clock import Clock, Timer, read_time
from seatrial.scheduler.api.device import GROUP_VERSION
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.migration import (
    CREATED_BY,
    EVICT_POLICY,
    EVICT_REASON,
    EVICT_TRIGGER,
    JOBS_PATH,
    PASSED_ARBITRATION,
    JobStatus,
    PodMigrationJob,
)
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH, Reservation
from seatrial.scheduler.api.transport import Done, Request, Response
from seatrial.scheduler.api.wire import decoder, to_plain
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.rest import Rest, pod_path, refusal
from seatrial.scheduler.descheduler.args import POLICIES, MigrationControllerArgs, check_duration
from seatrial.scheduler.descheduler.limits import TokenBucket
from seatrial.scheduler.descheduler.migration.arbitration import FORBID, WAIT, Filters, is_forced, sort_jobs
from seatrial.scheduler.descheduler.migration.evictions import ObjectLimits, policy_of, send_eviction
from seatrial.scheduler.descheduler.migration.steps import (
    EVICTED,
    FORBIDDEN,
    NORMAL,
    POLL,
    WARNING,
    CreateReservation,
    DeleteReservation,
    Event,
    EvictPod,
    Step,
    Steps,
    as_go_prints,
    failed,
    held_back,
    made_for,
    reservation_for,
    with_condition,
)
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.state import ClusterState

log = logging.getLogger(__name__)

RETRY = 1.0  # seconds before a write that was refused is tried again
SCAVENGE = 60.0  # seconds between two looks for old jobs
KEPT_AFTER_TTL, KEPT_WITHOUT_TTL = 300.0, 1800.0  # seconds

_decode_job = decoder(PodMigrationJob)
_decode_reservation = decoder(Reservation)
Then = Callable[[], None]


class MigrationController:
    """Runs the migration jobs of one cluster."""

    def __init__(
        self,
        state: ClusterState,
        args: MigrationControllerArgs,
        rest: Rest,
        clock: Clock,
        events: EventRecorder,
        *,
        name: str,
        adopts: bool = True,
    ) -> None:
        """`name`: the mark of its jobs; jobs with another mark are left alone. `adopts`: takes jobs without a mark."""
        self._name, self._adopts = name, adopts
        self._state, self.args, self._rest, self._clock, self._events = state, args, rest, clock, events
        self.filters = Filters(state, args)
        self._limits = ObjectLimits(state, args, clock)
        self._bucket = TokenBucket(args.qps, args.evict_burst, clock.monotonic())
        self._steps = Steps(state, args.default_job_mode, args.arbitration_args.enabled, self._limits.holds)
        self._interval = check_duration("interval", args.arbitration_args.interval)
        self._busy: set[str] = set()
        self._dirty: dict[str, None] = {}
        self._timers: dict[str, Timer] = {}
        self._retry_at: dict[str, float] = {}  # job → time before which its eviction is not sent again
        self._creating: dict[str, Pod] = {}  # uid of pods whose job is being created
        self._arbitrating: Timer | None = None
        self._scavenger: Timer | None = None
        self._planned = self._running = False
        self._number = self._order = 0
        self.evictions = 0

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, once everything is known: unfinished jobs continue."""
        self._running = True
        for job in sorted(self._state.jobs.values(), key=self._place_of):
            self.look_at(job.name)
        self._scavenger = self._clock.call_later(SCAVENGE, self._scavenge)

    def _place_of(self, job: PodMigrationJob) -> float:
        """The order of the job's reservation: a new pod takes the first one, so its job is first to use a limiter."""
        reservation = self._state.reservations.get(job.reservation_name) if job.reservation_name else None
        return (reservation.order if reservation is not None else 0) or math.inf

    def stop(self) -> None:
        self._running = False
        for timer in (*self._timers.values(), self._arbitrating, self._scavenger):
            if timer is not None:
                timer.cancel()
        self._timers.clear()

    # -- events -------------------------------------------------------------------------------------------------------

    def job_changed(self, job: PodMigrationJob) -> None:
        self._creating.pop(job.spec.pod_ref.uid, None)
        self.look_at(job.name)

    def job_gone(self, job: PodMigrationJob) -> None:
        """A job was deleted: its reservation is of no use."""
        self._dirty.pop(job.name, None)
        self._retry_at.pop(job.name, None)
        self._limits.forget(job.name)
        timer = self._timers.pop(job.name, None)
        if timer is not None:
            timer.cancel()
        name = job.reservation_name or job.metadata.uid
        reservation = self._state.reservations.get(name)
        ours = self._running and self.owns(job)
        if ours and reservation is not None and made_for(reservation, job) and not reservation.ended:
            self._delete_reservation(name, _nothing)

    def pod_changed(self, pod: Pod) -> None:
        for name in self._state.jobs_for(pod.key):
            self.look_at(name)

    def reservation_changed(self, reservation: Reservation) -> None:
        for job in self._state.open_jobs():
            if job.reservation_name == reservation.name:
                self.look_at(job.name)

    def owns(self, job: PodMigrationJob) -> bool:
        """Whether this controller carries out the job."""
        mark = job.metadata.annotations.get(CREATED_BY)
        return mark == self._name or (mark is None and self._adopts)

    def look_at(self, name: str) -> None:
        """Take the next step of a job soon."""
        self._dirty[name] = None
        if self._running and not self._planned:
            self._planned = True
            self._clock.call_soon(self._work)

    # -- creating jobs ------------------------------------------------------------------------------------------------

    def may_evict(self, pod: Pod) -> bool:
        """Whether a job for the pod could be accepted, now or later."""
        return pod.metadata.uid not in self._creating and not self.filters.forbidden(pod, self.args.default_job_mode)

    def migrate(self, pod: Pod, trigger: str, reason: str) -> bool:
        """Create a migration job for the pod; False if it may not be evicted."""
        if not self.may_evict(pod):
            return False
        if self.args.dry_run:
            log.info("migration dry-run pod=%s trigger=%s reason=%s", pod.key, trigger, reason)
            return True
        self._creating[pod.metadata.uid] = pod
        self._number += 1
        metadata = pod.metadata
        name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{metadata.uid}/{self._clock.now()}/{self._number}"))
        spec: dict[str, Any] = {
            "podRef": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
            "mode": self.args.default_job_mode,
            "ttl": as_go_prints(self.args.default_job_ttl),
        }
        if self.args.default_delete_options:
            spec["deleteOptions"] = self.args.default_delete_options
        policy = metadata.labels.get(EVICT_POLICY, "")
        body = {
            "apiVersion": GROUP_VERSION,
            "kind": "PodMigrationJob",
            "metadata": {
                "name": name,
                "labels": {EVICT_POLICY: policy} if policy in POLICIES else {},
                "annotations": {EVICT_TRIGGER: trigger, EVICT_REASON: reason, CREATED_BY: self._name},
            },
            "spec": spec,
        }

        def created(response: Response) -> None:
            unseen = self._creating.pop(metadata.uid, None) is not None
            if response.ok:
                if unseen:  # otherwise the watch has shown the job, and may have shown its end too
                    self._state.set_job(_decode_job(response.body))
                self.look_at(name)
            else:
                log.warning("migration job-refused pod=%s why=%s", pod.key, refusal(response))

        self._rest.post(JOBS_PATH, body, created)
        return True

    # -- steps --------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        self._planned = False
        if not self._running:
            return
        dirty, self._dirty = self._dirty, {}
        for name in dirty:
            self._clock.attempt("MigrationController._take_step", name, partial(self._take_step, name))

    def _take_step(self, name: str) -> None:
        job = self._state.jobs.get(name)
        if job is None or not self.owns(job) or not self._running:
            return
        if not job.open:
            self._limits.give_back(name)
        if name in self._busy:
            self._dirty[name] = None  # reconciled again when its write has ended
            return
        if job.pending and not job.passed and self.args.arbitration_args.enabled:
            self._plan_arbitration()
        step = self._steps.next(job, self._clock.now(), self._clock.timestamp())
        self._carry_out(job, step)

    def _carry_out(self, job: PodMigrationJob, step: Step) -> None:
        if step.again is not None:
            self._look_later(job.name, step.again)
        if not step.writes:
            self._record(job, step.events)
            return
        self._busy.add(job.name)
        if isinstance(step.action, EvictPod) and job.status.condition(EVICTED) is None:
            self._limits.count(job, step.action.pod)
        path = f"{JOBS_PATH}/{job.name}"

        def write_spec() -> None:
            if step.spec is None:
                write_status()
            else:
                written = self._answer_for(job, partial(taken, then=write_status))
                self._rest.merge(path, {"spec": step.spec}, written, uid=job.metadata.uid)

        def write_status() -> None:
            if step.status is None:
                act()
                return
            self._write_status(job, step, lambda response: taken(response, act))

        def act() -> None:
            self._record(job, step.events)
            self._act(job, step, lambda: self._finished(job.name))

        def taken(response: Response, then: Then) -> None:
            if response.ok:
                self._take_job(response)
                if self._is_there(job):
                    then()
                    return
            elif response.code != 404:
                log.warning("migration write-refused job=%s why=%s", job.name, refusal(response))
                self._look_later(job.name, RETRY)
            self._free(job.name)

        try:
            write_spec()
        except Exception:
            self._busy.discard(job.name)
            raise

    def _answer_for(self, job: PodMigrationJob, done: Done) -> Done:
        """`done`; after an exception the job is not busy any more and is looked at again."""

        def answered(response: Response) -> None:
            with self._clock.faults.guard("MigrationController.answered", job.name):
                done(response)
                return
            self._free(job.name)

        return answered

    def _write_status(self, job: PodMigrationJob, step: Step, done: Done) -> None:
        status = to_plain(step.status)
        for key in ("reason", "message"):
            status.setdefault(key, None)  # a merge patch removes what the new status does not have
        path, answered = f"{JOBS_PATH}/{job.name}/status", self._answer_for(job, done)
        self._rest.merge(path, {"status": status}, answered, uid=job.metadata.uid)

    def _act(self, job: PodMigrationJob, step: Step, then: Then) -> None:
        action = step.action
        if isinstance(action, CreateReservation):
            self._create_reservation(job, action.pod, then)
        elif isinstance(action, DeleteReservation):
            self._delete_reservation(action.name, then)
        elif isinstance(action, EvictPod):
            self._evict(job, action.pod, then)
        else:
            then()

    def _free(self, name: str) -> None:
        """A write was refused or needs nothing else: look at the job again, though no event may come."""
        self._busy.discard(name)
        if name not in self._timers:  # it may have ended while the job was busy
            self._look_later(name, POLL)

    def _finished(self, name: str) -> None:
        self._busy.discard(name)
        self.look_at(name)

    def _look_later(self, name: str, delay: float) -> None:
        known = self._timers.pop(name, None)
        if known is not None:
            known.cancel()

        def due() -> None:
            self._timers.pop(name, None)
            self.look_at(name)

        self._timers[name] = self._clock.call_later(delay, due)

    def _take_job(self, response: Response) -> None:
        """Use the answer to a write, unless the watch has shown the job's end before it."""
        job = _decode_job(response.body)
        if self._is_there(job):
            self._state.set_job(job)

    def _is_there(self, job: PodMigrationJob) -> bool:
        """Whether the job is known, and no other one has its name."""
        known = self._state.jobs.get(job.name)
        return known is not None and known.metadata.uid == job.metadata.uid

    def _record(self, job: PodMigrationJob, events: tuple[Event, ...]) -> None:
        for event in events:
            if event.pod is not None:
                record = self._events.normal if event.type == NORMAL else self._events.warning
                record(event.pod, event.reason, event.action, event.note)
            else:
                self._events.about(reference(job), event.type, event.reason, event.action, event.note)

    # -- reservations -------------------------------------------------------------------------------------------------

    def _create_reservation(self, job: PodMigrationJob, pod: Pod, then: Then) -> None:
        def read(response: Response) -> None:
            document = msgspec.json.decode(response.body) if response.ok else None
            if document is None or document["metadata"]["uid"] != pod.metadata.uid:
                self._free(job.name)  # if the pod is gone, the informer reports it too
                return
            self._order = max(int(self._clock.now() * 1000), self._order + 1)  # milliseconds, and never the same twice
            body = reservation_for(job, document, self._order, self.args.default_job_ttl)
            self._rest.post(RESERVATIONS_PATH, body, self._answer_for(job, made))

        def made(response: Response) -> None:
            if response.code == 409:  # made before a restart
                request = Request("GET", f"{RESERVATIONS_PATH}/{job.metadata.uid}")
                self._rest.send(request, self._answer_for(job, known))
                return
            known(response)

        def known(response: Response) -> None:
            if not response.ok:
                why = f'Failed to create Reservation "{job.metadata.uid}": {refusal(response)}'
                self._record(job, (Event(WARNING, "FailedCreateReservation", why),))
                status = with_condition(
                    job.status, "ReservationCreated", "False", "FailedCreateReservation", why, self._clock.timestamp()
                )
                self._free(job.name)
                if job.status.message != why:
                    self._note(job, replace(status, reason="FailedCreateReservation", message=why))
                return
            self._state.set_reservation(_decode_reservation(response.body))
            options = {"reservationRef": {"apiVersion": GROUP_VERSION, "kind": "Reservation", "name": job.metadata.uid}}
            patch = {"spec": {"reservationOptions": options}}
            self._rest.merge(f"{JOBS_PATH}/{job.name}", patch, self._answer_for(job, named), uid=job.metadata.uid)

        def named(response: Response) -> None:
            if response.ok:
                self._take_job(response)
            then()

        self._rest.send(Request("GET", pod_path(pod)), self._answer_for(job, read))

    def _delete_reservation(self, name: str, then: Then) -> None:
        """Delete a reservation that nothing needs any more; again until it is gone, because it holds room."""

        def deleted(response: Response) -> None:
            then()
            if not response.ok and response.code != 404:
                log.warning("migration reservation-kept name=%s why=%s", name, refusal(response))
                self._clock.call_later(POLL, again)

        def again() -> None:
            if self._running and name in self._state.reservations:
                self._delete_reservation(name, _nothing)

        known = self._state.reservations.get(name)
        uid = known.metadata.uid if known is not None else ""
        self._rest.delete(f"{RESERVATIONS_PATH}/{name}", uid=uid, done=deleted)

    # -- evictions ----------------------------------------------------------------------------------------------------

    def _evict(self, job: PodMigrationJob, pod: Pod, then: Then) -> None:
        now = self._clock.monotonic()
        # Events about our own writes arrive before the deletion of the pod does: without the pause the pod would be
        # evicted twice, and the second eviction would meet an empty token bucket or a budget that is used up.
        if now < self._retry_at.get(job.name, 0.0):
            self._busy.discard(job.name)
            self._look_later(job.name, self._retry_at[job.name] - now)
            return
        if not self._bucket.take(now):
            self._evict_failed(job, "TooManyEvictions", then)
            return

        def answered(response: Response) -> None:
            if not response.ok and response.code not in {404, 409}:
                self._evict_failed(job, refusal(response), then)
                return
            self.evictions += 1
            log.info("migration evicted pod=%s node=%s job=%s", pod.key, pod.spec.node_name, job.name)
            self._busy.discard(job.name)  # the pod's deletion or the timer brings the next step
            self._retry_at[job.name] = self._clock.monotonic() + POLL
            self._look_later(job.name, POLL)

        policy = policy_of(pod, job, self.args.eviction_policy)
        send_eviction(self._rest, pod, job, policy, self._answer_for(job, answered))

    def _evict_failed(self, job: PodMigrationJob, why: str, then: Then) -> None:
        current = self._state.jobs.get(job.name, job)
        known = current.status.condition(EVICTED)
        self._busy.discard(job.name)
        pause = RETRY if why == "TooManyEvictions" else POLL
        self._retry_at[job.name] = self._clock.monotonic() + pause
        self._look_later(job.name, pause)
        if known is not None and (known.reason, known.message) == ("FailedEvict", why):
            return
        del then
        self._record(job, (Event(WARNING, "FailedEvict", f'Failed to evict Pod "{job.pod_key}": {why}'),))
        status = with_condition(current.status, EVICTED, "False", "FailedEvict", why, self._clock.timestamp())
        self._note(job, status)

    def _note(self, job: PodMigrationJob, status: JobStatus) -> None:
        """Write a status that says what failed. The job is busy meanwhile: it must not replace a later status."""
        self._busy.add(job.name)

        def noted(response: Response) -> None:
            if response.ok:
                self._take_job(response)
            self._free(job.name)

        self._write_status(job, Step(status=status), noted)

    # -- arbitration --------------------------------------------------------------------------------------------------

    def _plan_arbitration(self) -> None:
        if self._arbitrating is None:
            self._arbitrating = self._clock.call_later(self._interval, self._arbitrate)

    def _arbitrate(self) -> None:
        self._arbitrating = None
        if not self._running:
            return
        state = self._state
        waiting = [
            job
            for job in state.jobs.values()
            if job.pending and not job.passed and not job.spec.paused and job.name not in self._busy and self.owns(job)
        ]
        if waiting:
            self._plan_arbitration()
        for job in sort_jobs(state, waiting):
            with self._clock.faults.guard("MigrationController._judge", job.name):
                self._judge(job)

    def _judge(self, job: PodMigrationJob) -> None:
        """Let a job through, forbid it, or leave it to the next arbitration."""
        pod = self._state.pod_named(job.pod_key)
        if pod is None:
            return  # its step records that
        result, why = self.filters.check(job, pod) if not is_forced(job, pod) else ("", "")
        if result == WAIT:
            self._carry_out(job, held_back(job, f"Waiting for arbitration: {why}"))
        elif result == FORBID:
            log.info("arbitration forbidden job=%s why=%s", job.name, why)
            refused = f'Pod "{job.pod_key}" is forbidden to migrate because it does not meet the requirements'
            self._carry_out(job, failed(self._state, job, FORBIDDEN, f"{refused}: {why}"))
        else:
            self._let_through(job)

    def _let_through(self, job: PodMigrationJob) -> None:
        """Count the job at once, and write its annotation."""
        annotations = {**job.metadata.annotations, PASSED_ARBITRATION: "true"}
        passed = replace(job, metadata=replace(job.metadata, annotations=annotations))
        self._state.jobs[job.name] = passed
        self._busy.add(job.name)

        def written(response: Response) -> None:
            if response.ok:
                self._take_job(response)
            elif self._state.jobs.get(job.name) is passed:  # and not what the watch has delivered since
                self._state.jobs[job.name] = job
            self._finished(job.name)

        patch = {"metadata": {"annotations": {PASSED_ARBITRATION: "true"}}}
        self._rest.merge(f"{JOBS_PATH}/{job.name}", patch, self._answer_for(job, written), uid=job.metadata.uid)

    # -- old jobs -----------------------------------------------------------------------------------------------------

    def _scavenge(self) -> None:
        """Delete jobs that are older than their ttl and five minutes; the reservation goes with the job."""
        self._scavenger = self._clock.call_later(SCAVENGE, self._scavenge)
        now = self._clock.now()
        for job in [job for job in self._state.jobs.values() if self.owns(job)]:
            with self._clock.faults.guard("MigrationController._scavenge", job.name):
                created = read_time(job.metadata.creation_timestamp)
                ttl = go_duration(job.spec.ttl) if job.spec.ttl else 0.0
                kept = ttl + KEPT_AFTER_TTL if ttl else KEPT_WITHOUT_TTL
                if created is not None and now - created > kept:
                    self._rest.delete(f"{JOBS_PATH}/{job.name}", uid=job.metadata.uid, done=lambda _: None)


def _nothing() -> None:
    """No step waits for the answer."""


def reference(job: PodMigrationJob) -> dict[str, str]:
    """The job as an owner or object reference."""
    metadata = job.metadata
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "PodMigrationJob",
        "name": metadata.name,
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
    }
