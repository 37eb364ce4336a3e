"""Events of several watches are judged in the order of their resourceVersions."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from seatrial.harness.audit.auditor import Auditor
from seatrial.harness.audit.follower import PATHS, Follower
from seatrial.harness.audit.ordering import EventOrder
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Request, Response

NODES, PODS, QUOTAS, DEVICES = (PATHS[kind] for kind in ("Node", "Pod", "ElasticQuota", "Device"))
TAINT = {"taints": [{"key": "team", "effect": "NoSchedule"}]}
Json = dict[str, Any]


def delivered(events: list[tuple[float, str, str]], *, window: float = 0.25) -> list[str]:
    """Tell the events (arrival, kind, version), and list them as they were delivered after ten seconds."""
    clock, out = SimClock(), list[str]()
    order = EventOrder(clock, window)

    def deliver(kind: str, version: str) -> Callable[[float], None]:
        return lambda _: out.append(f"{kind}{version}")

    for at, kind, version in events:
        clock.call_later(at, lambda kind=kind, version=version: order.add(kind, version, deliver(kind, version)))  # type: ignore[misc]
    clock.advance(10)
    return out


@pytest.mark.parametrize(
    ("events", "want"),
    [
        pytest.param([(0, "p", "7"), (0.1, "n", "5")], "n5 p7", id="late-node"),
        pytest.param([(0, "p", "10"), (0.1, "n", "9")], "n9 p10", id="versions-are-numbers"),
        pytest.param([(0, "p", "7"), (0.2, "n", "5"), (0.24, "p", "8")], "n5 p7 p8", id="later-ones-wait-their-time"),
        pytest.param([(0, "p", "7"), (1.0, "n", "5")], "p7 n5", id="later-than-the-window"),
        pytest.param([(0, "p", "7"), (0.1, "p", "5")], "p7 p5", id="one-watch-keeps-its-order"),
        pytest.param([(0, "p", "7"), (0.1, "n", "x"), (0.2, "p", "8")], "p7 nx p8", id="a-version-that-is-no-number"),
        pytest.param([(0, "d", "900"), (0.1, "p", "7")], "p7 d900", id="a-kind-of-another-etcd"),
    ],
)
def test_order_of_delivery(events: list[tuple[float, str, str]], want: str) -> None:
    assert delivered(events) == want.split()


def test_events_of_another_etcd_are_late_by_the_window_at_most() -> None:
    """A kind with far higher versions, among a stream of pods that never ends."""
    events = [(0.05, "d", "9000"), *((number / 10, "p", str(number)) for number in range(30))]
    names = delivered(events)
    assert names.index("d9000") == 4  # after p0 to p3: p3 arrived 0.25 s after it

    assert delivered(events, window=0)[:3] == ["p0", "d9000", "p1"]


class Server:
    """A transport whose watches deliver when the test says so."""

    def __init__(self, listed: dict[str, list[Json]]) -> None:
        self._listed, self.lines = listed, dict[str, Callable[[bytes], None]]()

    def call(self, request: Request) -> Response:
        items = self._listed.get(request.path, [])
        return Response(200, json.dumps({"metadata": {"resourceVersion": "100"}, "items": items}).encode())

    def send(self, request: Request, done: Callable[[Response], None]) -> None:
        raise NotImplementedError

    def stream(self, request: Request, on_line: Callable[[bytes], None], on_end: Callable[[Response], None]) -> "Open":
        del on_end
        self.lines[request.path.partition("?")[0]] = on_line
        return Open()

    def store(self, path: str, objects: list[tuple[int, Json]]) -> None:
        """What a list shows from now on: objects with their versions."""
        self._listed[path] = [
            {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}} for version, body in objects
        ]

    def tell(self, path: str, version: int, body: Json, event: str = "MODIFIED") -> None:
        meta = {**body["metadata"], "resourceVersion": str(version)}
        self.lines[path](json.dumps({"type": event, "object": {**body, "metadata": meta}}).encode())


class Open:
    def close(self) -> None: ...


def a_node(**spec: Any) -> Json:
    allocatable = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    return {"metadata": {"name": "n1", "uid": "n1"}, "spec": spec, "status": {"allocatable": allocatable}}


def a_pod(name: str, *, node: str = "", quota: str = "") -> Json:
    labels = {"quota.scheduling.koordinator.sh/name": quota} if quota else {}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    if node:
        spec["nodeName"] = node  # type: ignore[assignment]
    meta = {"name": name, "namespace": "default", "uid": name, "labels": labels}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def a_quota(most: int) -> Json:
    return {"metadata": {"name": "q", "namespace": "default", "uid": "q"}, "spec": {"max": {"cpu": str(most)}}}


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


def follow(clock: SimClock, listed: dict[str, list[Json]], **more: float) -> tuple[Server, Follower, Auditor]:
    server, auditor = Server(listed), Auditor()
    follower = Follower(auditor, server, server.call, clock, **more)
    follower.start()
    clock.advance(60)
    return server, follower, auditor


@pytest.mark.parametrize("late", [0.0, 0.2], ids=["at-once", "a-fifth-of-a-second-late"])
def test_a_binding_is_judged_after_the_node_change_that_came_first(clock: SimClock, late: float) -> None:
    """A node loses its taint, then gets a pod; the watch of nodes is slower."""
    server, follower, auditor = follow(clock, {NODES: [a_node(**TAINT)]})
    server.tell(PODS, 101, a_pod("p"), "ADDED")
    clock.advance(60)
    server.tell(PODS, 103, a_pod("p", node="n1"))
    clock.advance(late)
    server.tell(NODES, 102, a_node())
    assert follower.judged_until() == clock.monotonic() - late
    clock.advance(1)
    assert not auditor.violations
    assert follower.judged_until() == clock.monotonic()


def test_a_binding_before_the_node_change_is_still_a_violation(clock: SimClock) -> None:
    """The taint goes after the binding, but its event arrives first: without the order the pod would look innocent."""
    server, follower, auditor = follow(clock, {NODES: [a_node(**TAINT)]})
    server.tell(PODS, 101, a_pod("p"), "ADDED")
    clock.advance(60)
    server.tell(NODES, 103, a_node())
    clock.advance(0.1)
    server.tell(PODS, 102, a_pod("p", node="n1"))
    follower.flush()
    assert [violation.invariant for violation in auditor.violations] == ["AUD-112"]


def test_a_quota_is_judged_by_what_its_max_was(clock: SimClock) -> None:
    """The max grows before a binding and its event is late; it shrinks less than two seconds before another binding."""
    server, _, auditor = follow(clock, {NODES: [a_node()], QUOTAS: [a_quota(0)]})
    for number, name in enumerate("ab"):
        server.tell(PODS, 101 + number, a_pod(name, quota="q"), "ADDED")
    clock.advance(60)
    server.tell(PODS, 104, a_pod("a", node="n1", quota="q"))
    clock.advance(0.1)
    server.tell(QUOTAS, 103, a_quota(2))
    clock.advance(60)
    server.tell(QUOTAS, 105, a_quota(1))
    clock.advance(1)
    server.tell(PODS, 106, a_pod("b", node="n1", quota="q"))
    clock.advance(60)
    assert not auditor.violations

    server.tell(PODS, 107, a_pod("c", quota="q"), "ADDED")
    server.tell(PODS, 108, a_pod("c", node="n1", quota="q"))
    clock.advance(60)
    assert [violation.invariant for violation in auditor.violations] == ["AUD-602"]


def test_of_two_quotas_with_one_name_neither_bounds_a_pod(clock: SimClock) -> None:
    """Pods name a quota without its namespace. When one of the two goes, the other one counts."""
    other = a_quota(1)
    other["metadata"] = {**other["metadata"], "namespace": "other"}
    server, _, auditor = follow(clock, {NODES: [a_node()], QUOTAS: [a_quota(9)]})
    server.tell(QUOTAS, 100, other, "ADDED")
    for number, name in enumerate("ab"):
        server.tell(PODS, 101 + number, a_pod(name, quota="q"), "ADDED")
        server.tell(PODS, 103 + number, a_pod(name, node="n1", quota="q"))
    clock.advance(60)
    assert not auditor.violations

    server.tell(QUOTAS, 105, a_quota(9), "DELETED")
    clock.advance(60)
    server.tell(PODS, 106, a_pod("c", quota="q"), "ADDED")
    server.tell(PODS, 107, a_pod("c", node="n1", quota="q"))
    clock.advance(60)
    assert [violation.invariant for violation in auditor.violations] == ["AUD-602"]


def test_events_are_judged_at_once_when_the_watches_show_what_a_list_shows(clock: SimClock) -> None:
    """A node loses its taint and gets a pod; another pod is deleted. Each watch is behind the list once."""
    server, follower, auditor = follow(clock, {NODES: [a_node(**TAINT)], PODS: [a_pod("old")]})
    server.store(NODES, [(102, a_node())])
    server.store(PODS, [(103, a_pod("p", node="n1"))])
    server.tell(PODS, 101, a_pod("p"), "ADDED")
    server.tell(PODS, 103, a_pod("p", node="n1"))
    assert not follower.catch_up()  # the node
    server.tell(NODES, 102, a_node())
    assert not follower.catch_up()  # the deleted pod
    assert set(auditor.state.pods) == {"old"}
    server.tell(PODS, 104, a_pod("old"), "DELETED")
    assert follower.catch_up()
    assert set(auditor.state.pods) == {"p"}
    assert not auditor.violations
    assert follower.judged_until() == clock.monotonic()

    server.store(PODS, [(103, a_pod("p", node="n1")), (105, a_pod("new"))])
    assert not follower.catch_up()


def test_what_is_listed_is_known_at_once(clock: SimClock) -> None:
    _, follower, auditor = follow(clock, {NODES: [a_node()], PODS: [a_pod("p", node="n1")]})
    assert set(auditor.state.pods) == {"p"}
    assert follower.judged_until() == clock.monotonic()
