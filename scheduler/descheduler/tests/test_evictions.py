"""Evictions by the MigrationController while its view of the cluster lags behind the API server."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.clock import SimClock, rfc3339
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.migration import JOBS_PATH, PodMigrationJob
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.descheduler.args import MigrationControllerArgs, read_args
from seatrial.scheduler.descheduler.migration.controller import MigrationController
from seatrial.scheduler.descheduler.migration.steps import Steps
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import pod


class OneJobServer:
    """Holds one job, applies merge patches to it, and accepts every eviction; no watch tells of the deletion.

    While it is `refusing`, writes of the job are not accepted."""

    def __init__(self, clock: SimClock, job: dict[str, Any]) -> None:
        self._clock, self.job = clock, job
        self.refusing = False
        self.evictions: list[float] = []
        self.events: list[str] = []

    def send(self, request: Request, done: Done) -> None:
        body: Any = msgspec.json.decode(request.body) if request.body else {}
        answer: Any = {}
        if request.path.startswith(JOBS_PATH) and self.refusing:
            self._clock.call_soon(lambda: done(Response(503)))
            return
        if request.path.startswith(JOBS_PATH):
            version = int(self.job["metadata"]["resourceVersion"]) + 1
            patched = {key: {k: v for k, v in part.items() if v is not None} for key, part in body.items()}
            self.job = {**self.job, **patched, "metadata": {**self.job["metadata"], "resourceVersion": str(version)}}
            answer = self.job
        elif request.path.endswith("/eviction"):
            self.evictions.append(self._clock.monotonic())
        elif request.method == "POST":
            self.events.append(body["reason"])
        self._clock.call_soon(lambda: done(Response(200, msgspec.json.encode(answer))))

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        raise NotImplementedError


def running_job(clock: SimClock, name: str) -> dict[str, Any]:
    """A running job that evicts the pod `name` directly."""
    created = rfc3339(clock.now())
    return {
        "metadata": {"name": f"job-{name}", "uid": name, "resourceVersion": "1", "creationTimestamp": created},
        "spec": {"mode": "EvictDirectly", "ttl": "5m", "podRef": {"namespace": "default", "name": name, "uid": name}},
        "status": {"phase": "Running"},
    }


def controller_with(
    server: OneJobServer, clock: SimClock, state: ClusterState, args: dict[str, Any]
) -> MigrationController:
    rest = Rest(server, clock)
    events = EventRecorder(rest, clock, "d", "d-0")
    return MigrationController(state, read_args(MigrationControllerArgs, args), rest, clock, events, name="d")


def test_a_pod_is_not_evicted_again_before_its_deletion_is_seen() -> None:
    """The event about the own status write comes at once, the deletion of the pod does not: one eviction."""
    clock, state = SimClock(), ClusterState()
    state.set_pod(pod("old", "n1"))
    server = OneJobServer(clock, running_job(clock, "old"))
    controller = controller_with(server, clock, state, {"evictQPS": 1, "evictBurst": 1})
    state.set_job(msgspec.convert(server.job, PodMigrationJob))
    controller.start()
    clock.advance(0.01)

    for _ in range(5):  # the watch delivers the job again and again
        controller.job_changed(state.jobs["job-old"])
        clock.advance(0.1)

    assert len(server.evictions) == 1
    assert "FailedEvict" not in server.events
    clock.advance(3.0)  # the pod is still there and not being deleted: as soft evictions leave it
    assert len(server.evictions) == 2


def test_a_refused_status_keeps_the_place_of_its_job_in_the_object_limiter() -> None:
    """The job that the limiter counted goes on as soon as its status is accepted; a second job of the namespace waits
    for the next token, and a job that is made again with the name of the first is counted anew."""
    clock, state = SimClock(), ClusterState()
    for name in ("old", "other"):
        state.set_pod(pod(name, "n1"))
    server = OneJobServer(clock, running_job(clock, "old"))
    limiters = {"namespace": {"duration": "100s", "maxMigrating": 1}}
    controller = controller_with(server, clock, state, {"objectLimiters": limiters})
    first = msgspec.convert(server.job, PodMigrationJob)
    state.set_job(first)
    server.refusing = True
    controller.start()
    clock.advance(10.0)
    assert server.evictions == []

    server.refusing = False
    clock.advance(5.0)
    assert len(server.evictions) >= 1

    state.remove_pod(state.pods["old"])
    state.remove_job(first)
    controller.job_gone(first)
    before = len(server.evictions)
    for again in ("other", "old"):
        state.set_pod(pod(again, "n1"))
        server.job = running_job(clock, again)
        state.set_job(msgspec.convert(server.job, PodMigrationJob))
        controller.look_at(f"job-{again}")
        clock.advance(20.0)
        assert len(server.evictions) == before, again
        state.remove_job(state.jobs[f"job-{again}"])


def test_a_job_that_the_controller_fails_at_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of one of two jobs raise an exception until its cause is gone."""
    right, broken = Steps.next, True

    def failing(self: Steps, job: PodMigrationJob, *rest: Any) -> Any:
        if broken and job.name == "job-a":
            raise TypeError("a fault")
        return right(self, job, *rest)

    monkeypatch.setattr(Steps, "next", failing)
    clock, state = SimClock(faults=Faults()), ClusterState()
    server = OneJobServer(clock, running_job(clock, "b"))
    controller = controller_with(server, clock, state, {})
    for name in ("a", "b"):
        state.set_pod(pod(name, "n1"))
        state.set_job(msgspec.convert(running_job(clock, name), PodMigrationJob))
    controller.start()
    clock.advance(0.05)
    assert len(server.evictions) == 1
    assert [line.split(" failed")[0] for line in clock.faults.report()] == ["[!]MigrationController._take_step job-a"]
    broken, server.job = False, running_job(clock, "a")  # its writes come next
    clock.advance(0.2)
    assert not clock.faults.report()
