"""Reservations written to the API server: placed, refused, used, ended and cleaned up."""

import json
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import ReservationBuilder, pod, reservation
from seatrial.scheduler.api.reservation import (
    RESERVATION_ALLOCATED,
    RESERVATIONS_PATH,
    RESIZE_ALLOCATABLE,
    Reservation,
    ReservationStatus,
)
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.config import Configuration
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.plugins.reservation.controller import ReservationController
from seatrial.scheduler.plugins.reservation.tests.reservations import hold, inside
from seatrial.scheduler.shell.tests.test_binding import Scene
from seatrial.scheduler.tests.rig import profile
from seatrial.scheduler.tests.scripted import ok, refused


class Held(Scene):
    """A scene in which reservations are shown as the API server has them."""

    def __init__(self, configuration: Configuration | None = None, **node: Any) -> None:
        super().__init__(configuration)
        self.rig.node("n", **node)
        (self.controller,) = (each for each in self.binder.controllers if isinstance(each, ReservationController))

    def show(self, built: ReservationBuilder, **status: Any) -> None:
        manifest = built.manifest
        created = self.rig.clock.timestamp()
        manifest["metadata"] |= {"uid": f"uid-{built.name}", "resourceVersion": "7", "creationTimestamp": created}
        self.rig.core.intake.set_reservation(msgspec.convert({**manifest, "status": status}, Reservation))

    def written(self) -> list[dict[str, Any]]:
        """What was written into statuses, in order."""
        sent = [request for request in self.api.sent if request.method == "PATCH" and request.path.endswith("/status")]
        return [json.loads(request.body)["status"] for request in sent]


def of(cores: int) -> ReservationBuilder:
    return reservation("r").like(pod("x").request(cpu=cores)).for_labels(app="a")


def test_placing_one_is_writing_its_status() -> None:
    scene = Held()
    scene.show(of(2))
    scene.work()
    assert [request.path for request in scene.api.sent if request.method == "PATCH"] == [
        f"{RESERVATIONS_PATH}/r/status"
    ]
    (status,) = scene.written()
    assert (status["phase"], status["nodeName"], status["allocatable"]) == ("Available", "n", {"cpu": "2"})
    assert scene.notes() == [("Scheduled", "Successfully assigned r to n")]
    (event,) = scene.api.bodies("POST", "/namespaces/default/events")
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Reservation", "r")
    assert scene.binder.in_flight == 0


def test_owners_use_it_before_its_event_comes() -> None:
    """The watch of reservations is broken. The answer to the status makes it available, and an old event is ignored."""
    scene = Held(cpu="4")
    scene.show(of(3))
    (before,) = ReservationCache.of(scene.rig.core.handle).known.values()
    scene.answers(f"{RESERVATIONS_PATH}/r/status", Response(200, available(before)))
    scene.work()
    scene.rig.core.intake.set_reservation(before)
    scene.rig.submit(pod("owner").label("app", "a").request(cpu=3))
    scene.work()
    assert scene.rig.where("owner") == "n"
    assert RESERVATION_ALLOCATED in scene.api.bodies("POST", "/binding")[0]["metadata"]["annotations"]


def available(reservation: Reservation) -> bytes:
    """The reservation as the API server answers it once it has its node, with a newer version."""
    metadata = msgspec.structs.replace(reservation.metadata, resource_version="8")
    status = ReservationStatus("Available", node_name="n", allocatable={"cpu": "3"})
    return msgspec.json.encode(msgspec.structs.replace(reservation, metadata=metadata, status=status))


def test_its_devices_are_written_before_it_counts() -> None:
    scene = Held(gpus=2)
    scene.show(reservation("r").like(pod("x").gpus(1)).for_labels(app="a"))
    scene.answers(f"{RESERVATIONS_PATH}/r", ok({"metadata": {"name": "r", "resourceVersion": "9"}}))
    scene.work()
    first, second = (request for request in scene.api.sent if request.method == "PATCH")
    assert (first.path, second.path) == (f"{RESERVATIONS_PATH}/r", f"{RESERVATIONS_PATH}/r/status")
    metadata = json.loads(first.body)["metadata"]
    assert metadata["resourceVersion"] == "7", "no other scheduler may have placed it meanwhile"
    assert '"minor":0' in metadata["annotations"]["scheduling.koordinator.sh/device-allocated"]
    assert json.loads(second.body)["metadata"]["resourceVersion"] == "9", "nor since then"


@pytest.mark.parametrize(("code", "again"), [(500, True), (404, False)])
def test_the_annotation_of_a_pod_that_is_taken_over_is_written_again(code: int, again: bool) -> None:
    """A server in trouble may take it later; a pod that is gone stays gone."""
    scene = Held(cpu="4")
    scene.rig.running(pod("old").label("app", "a").request(cpu=3), "n")
    built = of(3).policy("Restricted").label("scheduling.koordinator.sh/pre-allocation-required", "true")
    built.manifest["spec"]["preAllocation"] = True
    scene.show(built)
    (before,) = ReservationCache.of(scene.rig.core.handle).known.values()
    placed, gone = Response(200, available(before)), refused(code, "", "")
    scene.api.answer = lambda request: placed if "/reservations/" in request.path else gone

    def written() -> int:
        return sum(RESERVATION_ALLOCATED.encode() in request.body for request in scene.api.sent)

    scene.work()
    scene.rig.clock.advance(5.0)  # in which each request of its own is repeated
    first = written()
    scene.rig.clock.advance(30.0)
    assert (first > 0, written() > first) == (True, again)


class Unheard(Held):
    """The answer to the status of the reservation `r` is `answer`; afterwards a read shows it as `shown` says."""

    def __init__(self, answer: Response, shown: Response) -> None:
        super().__init__(gpus=1)
        self.show(reservation("r").like(pod("x").gpus(1)).for_labels(app="a"))
        self.answer, self.shown = answer, shown
        self.api.answer = self._answer
        self.work()
        self.wait(1.0)  # for four tries

    def _answer(self, request: Request) -> Response:
        if request.path.endswith("/status") and "/reservations/" in request.path:
            return self.answer
        return self.shown if request.method == "GET" else ok()

    def wait(self, seconds: float) -> None:
        self.rig.clock.advance(seconds)
        self.work()

    @property
    def holds(self) -> bool:
        """Whether the node has given its card away."""
        node = self.rig.core.cache.find("n")
        return node is not None and bool(node.pods)

    def notes_of_placing(self) -> int:
        return [reason for reason, _ in self.notes()].count("Scheduled")


LOST, CONFLICT = Response(0, b"connection lost"), refused(409, "Conflict", "it has changed")
CARD = {"scheduling.koordinator.sh/device-allocated": "here"}


def shown(node: str, phase: str = "", *, uid: str = "uid-r", marks: dict[str, str] | None = None) -> Response:
    return ok(
        {
            "metadata": {"name": "r", "uid": uid, "resourceVersion": "8", "annotations": marks or {}},
            "spec": {"template": {}, "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}]},
            "status": {"phase": phase, "nodeName": node},
        }
    )


@pytest.mark.parametrize("answer", [LOST, refused(504, "Timeout", "too slow"), CONFLICT])
def test_nobody_gets_its_card_while_nobody_knows_whether_it_was_placed(answer: Response) -> None:
    scene = Unheard(answer, shown=LOST)
    scene.rig.submit(pod("q").gpus(1))
    for _ in range(60):
        scene.wait(1.0)
    assert scene.rig.where("q") == ""
    assert scene.holds
    assert scene.binder.in_flight == 1

    (own,) = [
        json.loads(request.body)["metadata"]["annotations"]
        for request in scene.api.sent
        if request.path == f"{RESERVATIONS_PATH}/r" and request.method == "PATCH"
    ]
    scene.shown = shown("n", "Available", marks=own)
    scene.wait(10.0)
    assert scene.rig.where("q") == ""
    assert (scene.binder.in_flight, scene.notes_of_placing()) == (0, 1)


@pytest.mark.parametrize(
    ("response", "again"),
    [
        pytest.param(shown(""), True, id="changed-meanwhile"),
        pytest.param(refused(404, "NotFound", "it is not there"), False, id="gone-meanwhile"),
        pytest.param(shown("", uid="uid-other"), False, id="another-one-of-that-name"),
        pytest.param(shown("m", "Available"), False, id="placed-elsewhere-by-another-scheduler"),
        pytest.param(shown("n", "Available", marks=CARD), False, id="another-card-by-another-scheduler"),
        pytest.param(shown("n", "Failed"), False, id="expired-meanwhile"),
    ],
)
def test_what_the_reservation_itself_shows_is_believed(response: Response, again: bool) -> None:
    """Only one that has no node yet is placed again."""
    scene = Unheard(CONFLICT, shown=response)
    assert (scene.binder.in_flight, scene.notes_of_placing()) == (0, 0)
    before, scene.answer = len(scene.written()), ok()
    scene.wait(60.0)
    assert len(scene.written()) == before + again


def test_a_status_that_is_refused_for_good() -> None:
    """It is gone, so that no read is needed, and what it was given is free again."""
    scene = Unheard(refused(404, "NotFound", "it is not there"), shown=LOST)
    assert not scene.holds
    assert scene.binder.in_flight == 0
    scene.wait(60.0)
    assert len(scene.written()) == 1


def test_one_that_fits_nowhere_says_why() -> None:
    scene = Held(cpu="1")
    scene.show(of(2))
    scene.work()
    (status,) = scene.written()
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Scheduled", "False", "Unschedulable")
    assert condition["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert scene.notes()[0][0] == "FailedScheduling"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param({"owners": []}, "the reservation misses the owner spec", id="no-owners"),
        pytest.param({"template": None}, "the reservation misses the template spec", id="no-template"),
        pytest.param({"ttl": None}, "the reservation misses the expiration spec", id="no-end"),
        pytest.param({"ttl": "soon"}, "the reservation's ttl: expected a duration", id="no-duration"),
    ],
)
def test_one_that_makes_no_sense_says_what_is_missing(changed: dict[str, Any], message: str) -> None:
    scene = Held()
    built = of(2)
    built.manifest["spec"] |= changed
    scene.show(built)
    scene.work()
    assert message in scene.written()[0]["conditions"][0]["message"]


@pytest.mark.parametrize(
    ("policy", "required", "message"),
    [
        pytest.param("Restricted", False, "", id="wherever-there-is-room"),
        pytest.param("Aligned", False, "pre allocation is unsupported with current attributes", id="of-no-such-policy"),
        pytest.param("Restricted", True, "no pod match reservation with pre allocation required", id="no-pod-matches"),
    ],
)
def test_one_that_would_take_from_running_pods(policy: str, required: bool, message: str) -> None:
    scene = Held()
    built = of(2).policy(policy)
    built.manifest["spec"]["preAllocation"] = True
    if required:
        built.label("scheduling.koordinator.sh/pre-allocation-required", "true")
    scene.show(built)
    scene.work()
    (status,) = scene.written()
    assert status.get("phase") == (None if message else "Available")
    assert message in status["conditions"][0].get("message", "")


def test_a_template_that_is_none_is_complained_of() -> None:
    scene = Held()
    built = of(2)
    built.manifest["spec"]["template"] = {"spec": {"containers": 3}}
    scene.show(built)
    scene.work()
    (complaint,) = scene.rig.complaints()
    assert complaint.startswith("reservation r: spec.template:")
    assert scene.written() == []


def test_who_is_in_it_is_written_once() -> None:
    scene = Held()
    hold(scene.rig, "r", "n", {"cpu": 4000})
    inside(scene.rig, "p", "n", "r", cpu=1)
    for _ in range(2):
        scene.controller.work()
        scene.rig.clock.settle()
    (status,) = scene.written()
    assert ([owner["name"] for owner in status["currentOwners"]], status["allocated"]) == (["p"], {"cpu": "1"})


def test_one_whose_time_is_over_is_ended() -> None:
    scene = Held()
    scene.show(of(2).ttl("10s"), phase="Available", nodeName="n", allocatable={"cpu": "2"})
    scene.controller.work()
    scene.rig.clock.advance(9.0)
    assert scene.written() == []
    for _ in range(2):
        scene.controller.work()
        scene.rig.clock.advance(3.0)
    (status,) = scene.written()
    assert (status["phase"], status["conditions"][-1]["reason"]) == ("Failed", "Expired")


def test_one_whose_node_is_gone_is_ended() -> None:
    scene = Held()
    scene.show(of(2), phase="Available", nodeName="n", allocatable={"cpu": "2"})
    scene.rig.core.intake.remove_node("n")
    scene.controller.work()
    scene.rig.clock.advance(20.0)
    assert scene.written()[0]["phase"] == "Failed"


def test_one_that_is_long_over_is_deleted() -> None:
    scene = Held()
    since = scene.rig.clock.timestamp()
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "Expired",
        "lastTransitionTime": since,
        "lastProbeTime": since,
    }
    scene.show(of(2), phase="Failed", nodeName="n", conditions=[ready])

    def pass_by(seconds: float) -> None:
        scene.rig.clock.advance(seconds)
        for _ in range(6):
            scene.controller.work()
            scene.rig.clock.advance(15.0)

    pass_by(0.0)
    assert scene.paths("DELETE") == []
    pass_by(24 * 3600.0)
    assert set(scene.paths("DELETE")) == {f"{RESERVATIONS_PATH}/r"}


def test_a_refused_status_is_written_again() -> None:
    scene = Held()
    hold(scene.rig, "r", "n", {"cpu": 4000})
    inside(scene.rig, "p", "n", "r", cpu=1)
    failures = iter([refused(409, "Conflict", "it has changed")])

    def answer(request: Request) -> Response:
        return next(failures, ok())

    scene.api.answer = answer
    scene.controller.work()
    scene.rig.clock.advance(2.0)
    scene.controller.work()
    scene.rig.clock.settle()
    assert len(scene.written()) == 2


@pytest.mark.parametrize(
    ("resizes", "want"),
    [
        pytest.param(False, {"koordinator.sh/gpu": "200"}, id="as-large-as-its-template"),
        pytest.param(
            True,
            {
                "koordinator.sh/gpu": "200",
                "koordinator.sh/gpu-core": "200",
                "koordinator.sh/gpu-memory": "160Gi",
                "koordinator.sh/gpu-memory-ratio": "200",
            },
            id="as-large-as-its-devices",
        ),
    ],
)
def test_how_large_one_with_devices_is(resizes: bool, want: dict[str, str]) -> None:
    """RSV-R50: the amounts of its very cards are laid over what the template asks for."""
    scene = Held(configuration=profile(pluginConfig=[{"name": "DeviceShare", "args": {"resizePod": resizes}}]), gpus=2)
    scene.show(reservation("r").like(pod("x").gpus(2)).for_labels(app="a").policy("Restricted"))
    scene.work()
    first = json.loads(next(request for request in scene.api.sent if request.method == "PATCH").body)
    (status,) = scene.written()
    resize_allocatable = first["metadata"]["annotations"].get(RESIZE_ALLOCATABLE)
    assert status["allocatable"] == want
    own = {name: value for name, value in want.items() if name != "koordinator.sh/gpu"}
    assert (json.loads(resize_allocatable)["resources"] if resize_allocatable else {}) == own


@pytest.mark.parametrize(
    ("cleans", "phase", "patched"),
    [
        pytest.param(True, "Failed", ["p"], id="over"),
        pytest.param(True, "Succeeded", ["p"], id="used-once"),
        pytest.param(True, "Available", [], id="deleted-in-use"),
        pytest.param(False, "Failed", [], id="by-default"),
    ],
)
def test_pods_of_one_that_is_over_and_deleted(cleans: bool, phase: str, patched: list[str]) -> None:
    """RSV-R9: they are told that it is no more."""
    args = {"cleanExpiredReservationAllocated": cleans}
    scene = Held(configuration=profile(pluginConfig=[{"name": "Reservation", "args": args}]))
    hold(scene.rig, "r", "n", {"cpu": 4000})
    inside(scene.rig, "p", "n", "r", cpu=1)
    inside(scene.rig, "gone", "n", "r", cpu=1)
    if phase != "Available":
        known = ReservationCache.of(scene.rig.core.handle).known["r"]
        scene.rig.core.intake.set_reservation(
            msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, phase=phase))
        )
    scene.rig.delete("gone")
    scene.rig.core.intake.remove_reservation("r")
    scene.controller.work()
    sent = [request for request in scene.api.sent if request.method == "PATCH" and "/pods/" in request.path]
    assert [request.path.rsplit("/", 1)[1] for request in sent] == patched
    for request in sent:
        assert json.loads(request.body)["metadata"]["annotations"] == {RESERVATION_ALLOCATED: None}
