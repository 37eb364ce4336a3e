"""Evictions by the MigrationController while its view of the cluster lags behind the API server."""

from typing import Any

import msgspec

from seatrial.scheduler.api.clock import SimClock, rfc3339
from seatrial.scheduler.api.migration import JOBS_PATH, PodMigrationJob
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.descheduler.args import MigrationControllerArgs, read_args
from seatrial.scheduler.descheduler.migration.controller import MigrationController
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import pod


class OneJobServer:
    """Holds one job, applies merge patches to it, and accepts every eviction; no watch tells of the deletion."""

    def __init__(self, clock: SimClock, job: dict[str, Any]) -> None:
        self._clock, self.job = clock, job
        self.evictions: list[float] = []
        self.events: list[str] = []

    def send(self, request: Request, done: Done) -> None:
        body: Any = msgspec.json.decode(request.body) if request.body else {}
        answer: Any = {}
        if request.path.startswith(JOBS_PATH):
            version = int(self.job["metadata"]["resourceVersion"]) + 1
            patched = {key: {k: v for k, v in part.items() if v is not None} for key, part in body.items()}
            self.job = {**self.job, **patched, "metadata": {**self.job["metadata"], "resourceVersion": str(version)}}
            answer = self.job
        elif request.path.endswith("/eviction"):
            self.evictions.append(self._clock.monotonic())
        else:
            self.events.append(body["reason"])
        self._clock.call_soon(lambda: done(Response(200, msgspec.json.encode(answer))))

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        raise NotImplementedError


def test_a_pod_is_not_evicted_again_before_its_deletion_is_seen() -> None:
    """The event about the own status write comes at once, the deletion of the pod does not: one eviction."""
    clock, state = SimClock(), ClusterState()
    state.set_pod(pod("old", "n1"))
    server = OneJobServer(clock, {
        "metadata": {"name": "job", "uid": "job", "resourceVersion": "1", "creationTimestamp": rfc3339(clock.now())},
        "spec": {"mode": "EvictDirectly", "ttl": "5m", "podRef": {"namespace": "default", "name": "old", "uid": "old"}},
        "status": {"phase": "Running"},
    })  # fmt: skip
    rest = Rest(server, clock)
    args = read_args(MigrationControllerArgs, {"evictQPS": 1, "evictBurst": 1})
    controller = MigrationController(state, args, rest, clock, EventRecorder(rest, clock, "d", "d-0"), name="d")
    state.set_job(msgspec.convert(server.job, PodMigrationJob))
    controller.start()
    clock.advance(0.01)

    for _ in range(5):  # the watch delivers the job again and again
        controller.job_changed(state.jobs["job"])
        clock.advance(0.1)

    assert len(server.evictions) == 1
    assert "FailedEvict" not in server.events
    clock.advance(3.0)  # the pod is still there and not being deleted: as soft evictions leave it
    assert len(server.evictions) == 2
