"""An exception in the work for one object, in each part of the scheduler: other pods are bound."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.faults import LONGEST_PAUSE, Faults
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.app import build_core, default_configuration
from seatrial.scheduler.client.informer import Informer
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.plugins.coscheduling.controller import PodGroupController
from seatrial.scheduler.plugins.coscheduling.topology.controller import NetworkTopologyController
from seatrial.scheduler.plugins.reservation import lifecycle
from seatrial.scheduler.plugins.reservation.controller import ReservationController
from seatrial.scheduler.shell.binding import Binder
from seatrial.scheduler.shell.loop import Shell
from seatrial.scheduler.shell.preparations import Preparations
from seatrial.scheduler.tests.scripted import Scripted, ok

POISON, OTHER = "poison", "other"


def reservation(expires: str) -> dict[str, Any]:
    metadata = {"name": POISON, "uid": "r1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    template = {"spec": {"containers": [{"name": "c"}], "nodeName": ""}}
    status = {"phase": "Available", "nodeName": "n1"}
    return {"metadata": metadata, "spec": {"template": template, "expires": expires}, "status": status}


def pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main"}]},
    }


class Stage:
    """A scheduler with one node and the pods `poison` and `other`; faults are logged, as in a process."""

    def __init__(self, **more: list[dict[str, Any]]) -> None:
        self.clock = SimClock(faults=Faults())
        self.api = Scripted(self.clock)
        listed = {
            "nodes": [{"metadata": {"name": "n1", "uid": "n1"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}}],
            "pods": [pod(POISON), pod(OTHER)],
            **more,
        }

        def answer(request: Request) -> Response:
            plural = request.path.partition("?")[0].rpartition("/")[2]
            if request.method == "GET" and plural in {POISON, OTHER}:  # read back: not bound yet
                return ok(pod(plural))
            return ok({"metadata": {"resourceVersion": "1"}, "items": listed.get(plural, [])})

        self.api.answer = answer
        self.shell = Shell(build_core(default_configuration(), self.clock), self.api, self.clock)

    def run(self, seconds: float = 5.0) -> None:
        self.shell.start()
        self.clock.advance(seconds)

    def bound(self) -> set[str]:
        paths = [request.path for request in self.api.sent if request.path.endswith("/binding")]
        return {path.split("/")[-2] for path in paths}


def concerns(argument: object) -> bool:
    """Whether an argument of a method is, or names, the object `poison`."""
    info = getattr(argument, "info", argument)
    return POISON in str(getattr(info, "key", info))


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        pytest.param(Preparations, "work", id="preparations"),
        pytest.param(ReservationController, "work", id="reservations"),
        pytest.param(PodGroupController, "work", id="pod-groups"),
        pytest.param(NetworkTopologyController, "work", id="network-topologies"),
    ],
)
def test_a_part_of_the_turn_that_raises_does_not_keep_pods_from_being_bound(
    kind: type[Any], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise TypeError("a fault")

    monkeypatch.setattr(kind, method, broken)
    stage = Stage()
    stage.run()
    assert stage.bound() == {POISON, OTHER}
    assert sum(stage.clock.faults.counts.values()) > 1


def failing_for(poison: Callable[..., bool], right: Callable[..., Any], broken: list[bool]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **more: Any) -> Any:
        if broken[0] and any(poison(argument) for argument in args):
            raise TypeError("a fault")
        return right(self, *args, **more)

    return method


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("_execute", id="decision"),
        pytest.param("_post_binding", id="request"),
        pytest.param("_bound", id="answer"),
    ],
)
def test_a_binding_that_raises_ends_and_other_pods_are_bound(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod is bound once the cause is gone, and no binding is counted as under way."""
    broken = [True]
    monkeypatch.setattr(Binder, method, failing_for(concerns, getattr(Binder, method), broken))
    stage = Stage()
    stage.run()
    assert OTHER in stage.bound()
    assert stage.clock.faults.counts
    broken[0] = False
    stage.clock.advance(LONGEST_PAUSE)
    assert stage.bound() == {POISON, OTHER}
    assert stage.shell.binder.in_flight == 0


def test_decide_that_raises_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    right, left = Core.decide, [5]

    def decide(core: Core) -> Any:
        left[0] -= 1
        if left[0] > 0:
            raise TypeError("a fault")
        return right(core)

    monkeypatch.setattr(Core, "decide", decide)
    stage = Stage()
    stage.run()
    assert stage.bound() == {POISON, OTHER}
    assert stage.clock.faults.counts == {"Core.decide": 4}


@pytest.mark.parametrize("expires", ["0000-01-01T00:00:00Z", "9999-99-99T99:99:99Z", "2026-01-01T00:00:00+99:99"])
def test_a_reservation_whose_expiry_cannot_be_read_does_not_stop_scheduling(expires: str) -> None:
    stage = Stage(reservations=[reservation(expires)])
    stage.run(200)
    assert stage.bound() == {POISON, OTHER}


def test_other_reservations_expire_beside_one_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    right = lifecycle.is_over

    def is_over(pod: Any, now: float) -> bool:
        if pod.name == POISON:
            raise TypeError("a fault")
        return right(pod, now)

    monkeypatch.setattr(lifecycle, "is_over", is_over)
    good = reservation("2026-01-01T00:00:30Z")
    good["metadata"] = {**good["metadata"], "name": OTHER, "uid": "r2"}
    stage = Stage(reservations=[reservation("2026-01-01T00:00:30Z"), good])
    stage.run(120)
    written = [json.loads(sent.body) for sent in stage.api.sent if sent.path.endswith(f"reservations/{OTHER}/status")]
    assert [body["status"]["phase"] for body in written][:1] == ["Failed"]


def test_an_object_that_raises_in_an_informer_is_read_again_and_others_follow() -> None:
    """Without a handler of errors, as in the manager, the descheduler and the webhooks."""
    clock = SimClock(faults=Faults())
    api, seen, broken = Scripted(clock), list[str](), True
    nodes = [{"metadata": {"name": name, "uid": name}} for name in (POISON, OTHER)]

    def set_node(node: Node) -> None:
        if broken and node.name == POISON:
            raise TypeError("a fault")
        seen.append(node.name)

    api.answer = lambda request: ok(
        nodes[0] if request.path.endswith(POISON) else {"metadata": {"resourceVersion": "1"}, "items": nodes}
    )
    informer = Informer(
        api,
        clock,
        "/api/v1/nodes",
        decoder(Node),
        on_set=set_node,
        on_gone=lambda _: None,
        on_synced=lambda: None,
        on_batch=lambda: None,
    )
    informer.start()
    clock.settle()
    assert seen == [OTHER]
    assert informer.synced
    assert list(clock.faults.failing) == [("Informer /api/v1/nodes", POISON)]
    broken = False
    clock.advance(10)
    assert seen == [OTHER, POISON]
    assert not clock.faults.failing


def test_decisions_that_are_no_bindings_are_isolated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing the condition of a pod that fits nowhere raises."""

    def broken(*_: object) -> None:
        raise TypeError("a fault")

    monkeypatch.setattr(Binder, "_reject", broken)
    large = pod(POISON)
    large["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "99"}}
    stage = Stage(pods=[large, pod(OTHER)])
    stage.run()
    assert stage.bound() == {OTHER}
    assert list(stage.clock.faults.counts) == ["Binder.execute"]
