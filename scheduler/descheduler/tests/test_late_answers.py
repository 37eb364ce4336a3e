"""The MigrationController when answers are late or refused, and objects change or go before the answers come."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.clock import SimClock, rfc3339
from seatrial.scheduler.api.migration import JOBS_PATH, PodMigrationJob
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH, Reservation
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.descheduler.args import MigrationControllerArgs, read_args
from seatrial.scheduler.descheduler.migration.controller import MigrationController
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import pod

ARGS: dict[str, Any] = {
    "arbitrationArgs": {"enabled": True, "interval": "1s"},
    "objectLimiters": {"workload": {"duration": "0s"}},
    "skipCheckExpectedReplicas": True,
    "defaultJobMode": "EvictDirectly",
}


class Scripted:
    """Requests wait until a test answers them; those for events are answered at once."""

    def __init__(self) -> None:
        self.clock, self.state = SimClock(), ClusterState()
        self.waiting: list[tuple[Request, Done]] = []
        rest = Rest(self, self.clock)
        args = read_args(MigrationControllerArgs, ARGS)
        events = EventRecorder(rest, self.clock, "d", "d-0")
        self.controller = MigrationController(self.state, args, rest, self.clock, events, name="d")
        self.state.set_pod(pod("old", "n1"))
        self.controller.start()

    def send(self, request: Request, done: Done) -> None:
        if "/events" in request.path:
            self.clock.call_soon(lambda: done(Response(200, b"{}")))
        else:
            self.waiting.append((request, done))

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        raise NotImplementedError

    def requests(self) -> list[str]:
        return [f"{request.method} {request.path.rsplit('/', 1)[-1]}" for request, _ in self.waiting]

    def answer(self, code: int, body: Any = None) -> None:
        """Answer the oldest request, and let what follows at once happen."""
        _, done = self.waiting.pop(0)
        done(Response(code, msgspec.json.encode(body or {})))
        self.clock.advance(0.01)

    def shown(self, job: dict[str, Any]) -> PodMigrationJob:
        """The watch delivers a job."""
        pod_migration_job = msgspec.convert(job, PodMigrationJob)
        if self.state.set_job(pod_migration_job):
            self.controller.job_changed(pod_migration_job)
        self.clock.advance(0.01)
        return pod_migration_job

    def gone(self, job: PodMigrationJob) -> None:
        self.controller.job_gone(job)
        self.state.remove_job(job)
        self.clock.advance(0.01)


@pytest.fixture
def server() -> Scripted:
    return Scripted()


def job(server: Scripted, version: int = 1, *, phase: str = "Running", uid: str = "u", **spec: Any) -> dict[str, Any]:
    metadata = {"name": "job", "uid": uid, "resourceVersion": str(version)}
    reference = {"namespace": "default", "name": "old", "uid": "old"}
    return {
        "metadata": {**metadata, "creationTimestamp": rfc3339(server.clock.now())},
        "spec": {"mode": "EvictDirectly", "ttl": "5m", "podRef": reference, **spec},
        "status": {"phase": phase},
    }


def test_an_answer_about_a_job_that_is_gone_evicts_nothing(server: Scripted) -> None:
    """The job is deleted after the API server wrote its status; the watch is faster than the answer."""
    first = server.shown(job(server))
    assert server.requests() == ["PATCH status"]
    server.gone(first)
    server.answer(200, job(server, 2))
    assert server.waiting == []
    assert server.state.jobs == {}


def test_a_job_that_is_made_again_while_an_answer_is_late_goes_on(server: Scripted) -> None:
    """The answer is about the first job of the name."""
    for code in (200, 404):
        first = server.shown(job(server, 10 * code, uid=f"first-{code}"))
        server.gone(first)
        second = server.shown(job(server, 10 * code + 5, uid=f"second-{code}"))
        assert server.requests() == ["PATCH status"]
        server.answer(code, job(server, 10 * code + 1, uid=f"first-{code}"))
        assert server.state.jobs["job"] == second
        server.clock.advance(5.0)
        assert server.requests() == ["PATCH status"]
        server.answer(200, job(server, 10 * code + 6, uid=f"second-{code}"))
        assert server.requests() == ["POST eviction"]
        server.answer(200)
        server.gone(server.state.jobs["job"])


def test_a_job_that_ended_before_the_answer_to_its_creation_stays_gone(server: Scripted) -> None:
    assert server.controller.migrate(server.state.pods["old"], "trigger", "reason")
    (request, _), *_ = server.waiting
    assert request.path == JOBS_PATH
    made = msgspec.json.decode(request.body)
    made["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    server.gone(server.shown(made))
    server.answer(201, made)
    assert server.state.jobs == {}


def test_a_change_that_came_during_a_refused_write_stays(server: Scripted) -> None:
    """The job is paused while the annotation of its arbitration is being written, which is refused."""
    server.shown(job(server, phase=""))
    server.clock.advance(1.0)
    assert server.requests() == ["PATCH job"]
    server.shown(job(server, 2, phase="", paused=True))
    server.answer(403)
    assert server.state.jobs["job"].spec.paused


def test_a_pod_that_could_not_be_read_for_seconds_is_read_again(server: Scripted) -> None:
    """No event comes meanwhile, and the timer of the job ended while it waited."""
    server.shown(job(server, mode="ReservationFirst"))
    assert server.requests() == ["GET old"]
    server.clock.advance(10.0)
    server.answer(403)
    server.clock.advance(5.0)
    assert server.requests() == ["GET old"]


def reserved(server: Scripted) -> dict[str, Any]:
    """A job with the reservation that was made for it."""
    metadata = {"name": "u", "uid": "r", "labels": {"app.kubernetes.io/created-by": "koord-descheduler"}}
    server.state.set_reservation(msgspec.convert({"metadata": metadata, "spec": {"template": {}}}, Reservation))
    return job(server, mode="ReservationFirst", reservationOptions={"reservationRef": {"name": "u"}})


def test_a_reservation_whose_deletion_was_refused_is_deleted_again(server: Scripted) -> None:
    """Until it is gone: its room is kept from others for as long."""
    server.gone(server.shown(reserved(server)))
    server.waiting.pop(0)  # a status
    for _ in range(3):
        assert server.requests() == ["DELETE u"]
        assert server.waiting[0][0].path == f"{RESERVATIONS_PATH}/u"
        server.answer(403)
        assert server.waiting == []
        server.clock.advance(3.0)
    server.answer(200)
    server.clock.advance(10.0)
    assert server.waiting == []


@pytest.mark.parametrize("method", ["_take_job", "_write_status"], ids=["answer", "request"])
def test_a_job_whose_write_raises_an_exception_goes_on(
    server: Scripted, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not busy for ever; once the cause is gone its pod is evicted."""
    right, broken = getattr(MigrationController, method), [True]

    def failing(*value: Any) -> Any:
        if broken:
            broken.clear()
            raise TypeError("a fault")
        return right(*value)

    monkeypatch.setattr(MigrationController, method, failing)
    server.clock.faults.raises = False
    server.shown(job(server))
    if method == "_take_job":
        server.answer(200, job(server, 2))
    assert sum(server.clock.faults.counts.values()) == 1
    server.clock.advance(5.0)
    assert server.requests() == ["PATCH status"]
    server.answer(200, job(server, 3))
    assert server.requests() == ["POST eviction"]
