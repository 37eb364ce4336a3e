"""A Hypothesis state machine over one migration job: any order of events, restarts and late events included."""

from collections.abc import Callable

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from seatrial.scheduler.api.clock import SIM_EPOCH, rfc3339
from seatrial.scheduler.api.migration import PodMigrationJob
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.descheduler.migration.steps import (
    CreateReservation,
    DeleteReservation,
    EvictPod,
    Steps,
    reservation_for,
)
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import CONTROLLER, pod


class Migration(RuleBasedStateMachine):
    """The job's steps are carried out by this machine; it may lose an action, as a crash does.

    While a watch is broken, events about reservations and pods wait, and steps are taken on what was known before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.now = SIM_EPOCH
        self.state.set_pod(pod("old", "n1"))
        self.job = msgspec.convert(
            {
                "metadata": {"name": "job", "uid": "job-uid", "creationTimestamp": rfc3339(SIM_EPOCH)},
                "spec": {"ttl": "5m", "mode": "ReservationFirst", "podRef": {"namespace": "default", "name": "old"}},
            },
            PodMigrationJob,
        )
        self.state.set_job(self.job)
        self.evictions = 0
        self.phases: list[str] = []
        self.placed_at_eviction: list[bool] = []
        self.watching = True
        self.late: list[Callable[[], None]] = []

    @rule(crash=st.booleans())
    def step(self, crash: bool) -> None:
        """Carry out the next step; `crash`: its writes happen, its action does not."""
        step = Steps(self.state, "ReservationFirst", arbitration=False).next(self.job, self.now, rfc3339(self.now))
        if step.spec is not None:
            reference = replace(self.job.spec.pod_ref, uid=step.spec["podRef"]["uid"])
            self._set(replace(self.job, spec=replace(self.job.spec, pod_ref=reference)))
        if step.status is not None:
            self._set(replace(self.job, status=step.status))
        if crash:
            return
        if isinstance(step.action, CreateReservation):
            self._reserve()
        elif isinstance(step.action, DeleteReservation):
            self.state.reservations.pop(step.action.name, None)
        elif isinstance(step.action, EvictPod):
            job_uid = self.state.reservations["job-uid"]
            self.placed_at_eviction.append(job_uid.status.node_name not in {"", "n1"})
            self.evictions += 1
            self.state.remove_pod(step.action.pod)

    def _set(self, job: PodMigrationJob) -> None:
        self.job = job
        self.state.jobs[job.name] = job
        self.phases.append(job.status.phase)

    def _reserve(self) -> None:
        raw = {
            "metadata": {"namespace": "default", "name": "old", "uid": "old", "ownerReferences": [CONTROLLER]},
            "spec": {"nodeName": "n1", "containers": []},
        }
        body = reservation_for(self.job, raw, int(self.now * 1000), "5m")
        terms = body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        assert "n1" in str(terms)
        body["metadata"]["uid"] = "r-uid"
        self.state.set_reservation(msgspec.convert(body, Reservation))
        options = msgspec.convert(
            {
                "podRef": msgspec.to_builtins(self.job.spec.pod_ref),
                "mode": self.job.spec.mode,
                "ttl": "5m",
                "reservationOptions": {"reservationRef": {"name": "job-uid"}},
            },
            type(self.job.spec),
        )
        self._set(replace(self.job, spec=options))

    @rule()
    def lose_the_watch(self) -> None:
        self.watching = False

    @rule()
    def catch_up(self) -> None:
        """The watch is back: everything that happened meanwhile is seen, in order."""
        self.watching = True
        late, self.late = self.late, []
        for event in late:
            event()

    def _event(self, seen: Callable[[], None]) -> None:
        if self.watching:
            seen()
        else:
            self.late.append(seen)

    @rule(node=st.sampled_from(["n1", "n2"]))
    def place(self, node: str) -> None:
        self._event(lambda: self._reservation(phase="Available", node_name=node, only_from=""))

    @rule()
    def expire(self) -> None:
        self._event(self._expired)

    def _expired(self) -> None:
        reservation = self.state.reservations.get("job-uid")
        if reservation is not None:
            ready = {"type": "Ready", "status": "False", "reason": "Expired"}
            status = msgspec.convert({"phase": "Failed", "conditions": [ready]}, type(reservation.status))
            self.state.reservations["job-uid"] = replace(reservation, status=status)

    def _reservation(self, *, phase: str, node_name: str, only_from: str) -> None:
        reservation = self.state.reservations.get("job-uid")
        if reservation is not None and reservation.status.phase == only_from:
            status = replace(reservation.status, phase=phase, node_name=node_name)
            self.state.reservations["job-uid"] = replace(reservation, status=status)

    @rule()
    def bind(self) -> None:
        """The controller's new pod takes the reservation."""
        self._event(self._bound)

    def _bound(self) -> None:
        reservation = self.state.reservations.get("job-uid")
        if reservation is not None and reservation.available and "old" not in self.state.pods:
            message = '{"name": "job-uid", "uid": "r-uid"}'
            key = "scheduling.koordinator.sh/reservation-allocated"
            self.state.set_pod(pod("new", reservation.status.node_name, annotations={key: message}))

    @rule()
    def lose_the_pod(self) -> None:
        self._event(self._lost)

    def _lost(self) -> None:
        known = self.state.pods.get("old")
        if known is not None:
            self.state.remove_pod(known)

    @rule(seconds=st.sampled_from([1.0, 100.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def a_pod_goes_only_when_its_place_is_ready(self) -> None:
        assert all(self.placed_at_eviction)
        assert self.evictions <= 1

    @invariant()
    def an_ended_job_stays_ended(self) -> None:
        ended = [phase for phase in self.phases if phase in {"Succeeded", "Failed"}]
        assert len(ended) <= 1
        if ended:
            assert self.phases[-1] == ended[0]

    @invariant()
    def success_means_a_new_pod(self) -> None:
        if self.job.status.phase == "Succeeded":
            assert "new" in self.state.pods
            assert self.job.status.status == "Complete"

    @invariant()
    def no_job_outlives_its_ttl(self) -> None:
        if self.now > SIM_EPOCH + 300 and self.job.open:
            step = Steps(self.state, "ReservationFirst", arbitration=False).next(self.job, self.now, "")
            assert step.status is not None
            assert (step.status.phase, step.status.reason) == ("Failed", "Timeout")


TestMigration = Migration.TestCase
TestMigration.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
