"""Leader election in virtual time: a Lease in memory, candidates that share one clock, answers that fail on request."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream
from seatrial.scheduler.client.leader import Elector, LeaderElection
from seatrial.scheduler.config import ConfigError, parse
from seatrial.scheduler.tests.scripted import ok, refused

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@dataclass
class LeaseStore:
    """One Lease with the API's optimistic locking; a client whose name is in `cut` gets no answers."""

    clock: SimClock
    lease: dict[str, Any] | None = None
    version: int = 0
    cut: set[str] = field(default_factory=set)
    writes: int = 0

    def answer(self, request: Request) -> Response:
        if request.method == "GET":
            return refused(404, "NotFound", "no lease") if self.lease is None else ok(self.lease)
        body = json.loads(request.body)
        if request.method == "POST":
            assert request.path == PATH
            if self.lease is not None:
                return refused(409, "AlreadyExists", "there is one")
        elif self.lease is None or body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return refused(409, "Conflict", "changed meanwhile")
        self.version += 1
        self.writes += 1
        self.lease = body | {"metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        return ok(self.lease)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


@dataclass
class Line:
    """One candidate's way to the store."""

    store: LeaseStore
    name: str
    delay: float = 0.0  # seconds that each answer takes

    def send(self, request: Request, done: Done) -> None:
        def answer() -> None:
            if self.name in self.store.cut:
                done(Response(0, b"connection lost"))
            else:
                response = self.store.answer(request)
                self.store.clock.call_later(self.delay, lambda: done(response))

        self.store.clock.call_soon(answer)

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        raise AssertionError("an elector watches nothing")


class Candidates:
    """Some electors with what became of them; `leaders` are those that take themselves for one."""

    def __init__(self, *names: str) -> None:
        self.clock = SimClock()
        self.store = LeaseStore(self.clock)
        self.calls: list[str] = []
        self.lines = {name: Line(self.store, name) for name in names}
        self.electors = {name: self._elector(name) for name in names}
        for elector in self.electors.values():
            elector.start()
        self.clock.settle()

    def _elector(self, name: str) -> Elector:
        return Elector(
            self.lines[name],
            self.clock,
            LeaderElection(),
            name,
            on_leading=lambda: self.calls.append(f"{name} leads"),
            on_lost=lambda: self.calls.append(f"{name} lost"),
        )

    @property
    def leaders(self) -> list[str]:
        return [name for name, elector in self.electors.items() if elector.leading]

    def advance(self, duration: float) -> None:
        """Let time pass in small steps; never are there two leaders."""
        for _ in range(round(duration * 10)):
            self.clock.advance(0.1)
            assert len(self.leaders) <= 1, self.leaders


def test_the_first_leads_and_renews() -> None:
    scene = Candidates("a", "b")
    assert scene.leaders == ["a"]
    first = dict(scene.store.spec)
    assert first["leaseDurationSeconds"] == 15
    assert first["holderIdentity"] == "a"
    scene.advance(60)
    assert scene.leaders == ["a"]
    assert scene.calls == ["a leads"]
    assert scene.store.spec["acquireTime"] == first["acquireTime"]
    assert scene.store.spec["renewTime"] > first["renewTime"]
    assert scene.store.writes == 31  # one at the beginning, one each two seconds


def test_a_leader_that_dies_is_succeeded_after_the_lease_has_run_out() -> None:
    scene = Candidates("a", "b")
    scene.advance(30)
    scene.electors.pop("a")
    scene.store.cut.add("a")
    scene.advance(14)
    assert scene.leaders == []
    scene.advance(4)
    assert scene.leaders == ["b"]
    assert scene.store.spec["leaseTransitions"] == 1


def test_a_leader_that_cannot_renew_stops_before_another_begins() -> None:
    scene = Candidates("a", "b")
    scene.advance(30)
    scene.store.cut.add("a")
    scene.advance(40)
    assert scene.calls == ["a leads", "a lost", "b leads"]
    assert scene.leaders == ["b"]
    scene.store.cut = {"b"}
    scene.advance(40)
    assert scene.calls[3:] == ["b lost"], "a has ended: what it knew of the cluster is old"


def test_a_short_outage_costs_nobody_the_lead() -> None:
    scene = Candidates("a", "b")
    scene.advance(30)
    scene.store.cut |= {"a", "b"}
    scene.advance(6)
    scene.store.cut.clear()
    scene.advance(60)
    assert scene.calls == ["a leads"]


def test_stopping_hands_the_lease_over_at_once() -> None:
    scene = Candidates("a", "b")
    scene.advance(30)
    done: list[bool] = []
    scene.electors["a"].stop(lambda: done.append(True))
    scene.clock.settle()
    assert done == [True]
    assert scene.store.spec["holderIdentity"] == ""
    scene.advance(2.1)
    assert scene.leaders == ["b"]


@pytest.mark.parametrize("delay", [pytest.param(0.0, id="sent"), pytest.param(1.0, id="written-and-not-answered")])
def test_a_renewal_that_is_under_way_does_not_prevent_the_release(delay: float) -> None:
    """The renewal changes the Lease's resource version between the last response and the release."""
    scene = Candidates("a", "b")
    scene.advance(1.9)
    scene.lines["a"].delay = delay
    scene.clock.advance(0.1)  # a renews: with a delay, the response is still to come
    renewed = scene.store.version
    if not delay:
        scene.electors["a"]._try()
    done: list[bool] = []
    scene.electors["a"].stop(lambda: done.append(True))
    scene.lines["a"].delay = 0.0
    scene.advance(4)
    assert scene.store.version > renewed
    assert done == [True]
    assert scene.leaders == ["b"]


def test_who_does_not_lead_stops_without_touching_the_lease() -> None:
    scene = Candidates("a", "b")
    done: list[bool] = []
    scene.electors["b"].stop(lambda: done.append(True))
    scene.advance(30)
    assert done == [True]
    assert scene.leaders == ["a"]


@pytest.mark.parametrize("jump", [pytest.param(3600, id="forward"), pytest.param(-3600, id="back")])
def test_a_jump_of_the_wall_clock_changes_nothing(jump: float) -> None:
    scene = Candidates("a", "b")
    scene.advance(30)
    scene.clock.jump(jump)
    scene.advance(60)
    assert scene.calls == ["a leads"]


def test_two_that_write_at_once_do_not_both_lead() -> None:
    scene = Candidates("a", "b", "c")
    scene.advance(10)
    scene.electors.pop("a")
    scene.store.cut.add("a")
    scene.advance(40)
    assert len(scene.leaders) == 1


def test_slow_answers_count_from_when_they_were_asked_for() -> None:
    scene = Candidates("a", "b")
    scene.advance(10)
    scene.lines["a"].delay = 11.0  # each renewal arrives, but is confirmed after the deadline
    scene.advance(60)
    assert scene.calls[:2] == ["a leads", "a lost"]


def test_what_else_is_written_on_the_lease_stays() -> None:
    scene = Candidates("a")
    assert scene.store.lease is not None
    scene.store.lease["metadata"]["labels"] = {"team": "x"}
    scene.store.version += 1
    scene.store.lease["metadata"]["resourceVersion"] = str(scene.store.version)
    scene.advance(10)
    assert scene.leaders == ["a"]
    assert scene.store.lease["metadata"]["labels"] == {"team": "x"}


@pytest.mark.parametrize(
    ("election", "says"),
    [
        pytest.param({"leaseDuration": "10s"}, r"leaderElection.leaseDuration: expected more than renew", id="lease"),
        pytest.param({"retryPeriod": "9s"}, r"leaderElection.renewDeadline: expected more than 1.2 times", id="retry"),
        pytest.param({"retryPeriod": "0s"}, r"leaderElection.retryPeriod: expected more than 0", id="zero"),
        pytest.param({"renewDeadline": 10}, r"leaderElection.renewDeadline: expected str, found 10", id="a-number"),
        pytest.param({"resourceLock": "endpoints"}, r"leaderElection.resourceLock: expected leases", id="lock"),
        pytest.param({"resourceName": ""}, r"leaderElection.resourceName: Required value", id="no-name"),
        pytest.param({"leaderelect": True}, r"unknown field `leaderelect`", id="a-field-that-is-not-there"),
    ],
)
def test_settings_that_would_not_elect_one_leader_are_refused(election: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "leaderElection": election,
            }
        )
