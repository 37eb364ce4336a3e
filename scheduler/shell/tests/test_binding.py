"""Decisions written to the API server, and what its answers mean."""

import json
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.client.events import EventRecorder, cut
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.config import Configuration
from seatrial.scheduler.framework.decisions import Bind, Evict
from seatrial.scheduler.framework.extension_points import Plugin
from seatrial.scheduler.shell.binding import Binder
from seatrial.scheduler.tests.rig import Rig
from seatrial.scheduler.tests.scripted import Scripted, ok, refused


class Scene:
    """A core whose decisions are carried out on a scripted API server."""

    def __init__(self, configuration: Configuration | None = None, *, plugins: Sequence[type[Plugin]] = ()) -> None:
        self.rig = Rig(configuration, plugins=plugins)
        self.api = Scripted(self.rig.clock)
        rest = Rest(self.api, self.rig.clock)
        self.events = EventRecorder(rest, self.rig.clock, "seatrial-scheduler", "here")
        self.binder = Binder(self.rig.core, rest, self.rig.clock, self.events, lambda: None)

    def work(self) -> None:
        while self.rig.core.busy:
            for decision in self.rig.core.decide():
                self.binder.execute(decision)
        self.rig.clock.settle()

    def answers(self, part: str, response: Response) -> None:
        self.api.answer = lambda request: response if part in request.path else ok()

    def paths(self, method: str) -> list[str]:
        return [request.path for request in self.api.sent if request.method == method]

    def notes(self) -> list[tuple[str, str]]:
        return [(event["reason"], event["note"]) for event in self.api.bodies("POST", "/events")]


def test_a_binding_is_one_request_with_the_annotations_in_it() -> None:
    scene = Scene()
    scene.rig.node("n", gpus=1)
    scene.rig.submit(pod("p").gpu_share(50))
    scene.work()
    (binding,) = scene.api.bodies("POST", "/binding")
    assert binding["target"] == {"kind": "Node", "name": "n"}
    assert binding["metadata"]["uid"] == "uid-p"
    assert (
        json.loads(binding["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"])["gpu"][0]["minor"]
        == 0
    )
    assert scene.paths("PATCH") == []
    assert scene.notes() == [("Scheduled", "Successfully assigned default/p to n")]
    assert scene.binder.in_flight == 0


def test_labels_are_patched_before_the_binding() -> None:
    scene = Scene()
    scene.rig.node("n")
    scene.rig.submit(pod("p"))
    (decision,) = scene.rig.core.decide()
    assert isinstance(decision, Bind)
    scene.binder.execute(Bind(decision.info, "n", {}, {"hami.io/vgpu-node": "n"}))
    scene.rig.clock.settle()
    assert [request.method for request in scene.api.sent][:2] == ["PATCH", "POST"]
    assert scene.api.bodies("PATCH")[0]["metadata"]["labels"] == {"hami.io/vgpu-node": "n"}


def test_a_conflict_gives_everything_back_and_is_not_tried_again() -> None:
    scene = Scene()
    scene.rig.node("n", gpus=1)
    scene.rig.submit(pod("p").gpus(1))
    scene.answers("/binding", refused(409, "Conflict", "pod p is already assigned to node m"))
    scene.work()
    assert scene.rig.where("p") == ""
    scene.rig.clock.advance(600)
    scene.work()
    assert len(scene.api.bodies("POST", "/binding")) == 1


class Unheard:
    """An API server whose answer to a binding is lost; `shown` is how the pod looks afterwards."""

    def __init__(self, code: int = 0, *, uid: str = "uid-p", node: str = "") -> None:
        self.code = code
        self.shown: Response = ok({"metadata": {"name": "p", "uid": uid}, "spec": {"nodeName": node}})
        self.scene = Scene()
        self.scene.rig.node("n", gpus=1)
        self.scene.rig.node("m", cpu="1")
        self.scene.rig.submit(pod("p").gpus(1))
        self.scene.api.answer = self._answer
        self.scene.work()

    def _answer(self, request: Request) -> Response:
        if request.path.endswith("/binding"):
            return Response(self.code, b"lost")
        return self.shown if request.method == "GET" else ok()

    @property
    def bindings(self) -> int:
        return len(self.scene.api.bodies("POST", "/binding"))


def test_nobody_else_gets_the_card_while_nobody_knows_whether_a_binding_was_taken() -> None:
    unheard = Unheard()
    unheard.shown = Response(0, b"connection lost")
    scene = unheard.scene
    scene.rig.submit(pod("q").gpus(1))
    for _ in range(60):
        scene.rig.clock.advance(1)
        scene.work()
    assert (scene.rig.where("p"), scene.rig.where("q")) == ("n", "")
    assert scene.binder.in_flight == 1
    assert unheard.bindings == 1


@pytest.mark.parametrize("code", [0, 500, 504])
def test_a_binding_that_was_taken_unheard_counts(code: int) -> None:
    unheard = Unheard(code, node="n")
    unheard.scene.rig.clock.advance(1)
    assert unheard.bindings == 1
    assert unheard.scene.binder.in_flight == 0
    assert unheard.scene.binder.bindings == 1
    assert unheard.scene.notes() == [("Scheduled", "Successfully assigned default/p to n")]


def test_a_binding_that_never_arrived_is_tried_again() -> None:
    unheard = Unheard()
    unheard.scene.rig.clock.advance(0.5)
    assert unheard.scene.rig.where("p") == ""
    unheard.code = 201
    unheard.scene.rig.clock.advance(2)
    unheard.scene.work()
    assert unheard.scene.rig.where("p") == "n"
    assert unheard.bindings == 2


@pytest.mark.parametrize(
    ("uid", "node", "where"),
    [
        pytest.param("uid-p", "m", "m", id="bound-elsewhere-by-another-scheduler"),
        pytest.param("uid-other", "", "", id="another-pod-of-that-name"),
    ],
)
def test_what_the_pod_itself_shows_is_believed(uid: str, node: str, where: str) -> None:
    unheard = Unheard(uid=uid, node=node)
    unheard.scene.rig.clock.advance(60)
    unheard.scene.work()
    assert unheard.scene.rig.where("p") == where
    assert unheard.bindings == 1
    assert unheard.scene.binder.in_flight == 0


def test_a_pod_that_has_gone_before_it_is_shown_stays_gone() -> None:
    unheard = Unheard(node="m")
    unheard.scene.rig.delete("p")
    unheard.scene.rig.clock.advance(60)
    assert unheard.scene.rig.where("p") == ""
    assert unheard.scene.binder.in_flight == 0


def test_a_rejection_sets_the_condition_and_says_why() -> None:
    scene = Scene()
    scene.rig.node("n", cpu="1")
    scene.rig.submit(pod("p").request(cpu=4))
    scene.work()
    (patch,) = scene.api.bodies("PATCH", "/pods/p/status")
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert condition["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert scene.notes() == [("FailedScheduling", condition["message"])]


def test_a_victim_is_marked_then_deleted_by_uid() -> None:
    scene = Scene()
    scene.rig.node("n", cpu="1")
    scene.rig.running(pod("victim").request(cpu=1).priority(1), "n")
    scene.rig.submit(pod("p").request(cpu=1).priority(5))
    scene.work()
    mark = scene.api.bodies("PATCH", "/pods/victim/status")[0]["status"]["conditions"][0]
    assert (mark["type"], mark["reason"]) == ("DisruptionTarget", "PreemptionByScheduler")
    assert mark["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
    assert scene.api.bodies("DELETE", "/pods/victim")[0]["preconditions"] == {"uid": "uid-victim"}
    assert ("Preempted", "Preempted by pod uid-p on node n") in scene.notes()
    assert scene.api.bodies("PATCH", "/pods/p/status")[0]["status"]["nominatedNodeName"] == "n"


def test_the_same_event_again_counts_up() -> None:
    scene = Scene()
    subject = scene.rig.pod(pod("p"))
    scene.events.warning(subject, "FailedScheduling", "Scheduling", "no room")
    scene.events.warning(subject, "FailedScheduling", "Scheduling", "no room")
    scene.rig.clock.settle()
    assert len(scene.api.bodies("POST", "/events")) == 1
    assert scene.api.bodies("PATCH", "/events/")[0]["series"]["count"] == 2


def test_long_notes_are_cut() -> None:
    assert len(cut("x" * 2000).encode()) == 1024
    assert cut("x" * 2000).endswith("x ...")
    assert cut("short") == "short"


def test_passing_faults_are_sent_again_with_growing_pauses() -> None:
    scene = Scene()
    answers = [
        refused(429, "TooManyRequests", "slow down"),
        refused(503, "ServiceUnavailable", "restarting"),
        ok({"fine": True}),
    ]
    scene.api.answer = lambda _: answers.pop(0)
    got: list[Response] = []
    Rest(scene.api, scene.rig.clock).send(Request("PATCH", "/x"), got.append)
    scene.rig.clock.settle()
    assert got == []
    scene.rig.clock.advance(0.1)
    scene.rig.clock.advance(0.2)
    assert got[0].ok


def test_the_node_is_marked_before_the_pod() -> None:
    scene = Scene()
    scene.rig.node("n")
    scene.rig.submit(pod("p"))
    (decision,) = scene.rig.core.decide()
    assert isinstance(decision, Bind)
    scene.binder.execute(Bind(decision.info, "n", {}, {"a": "b"}, {"lock": "me"}))
    scene.rig.clock.settle()
    assert [request.path for request in scene.api.sent][:3] == [
        "/api/v1/nodes/n",
        "/api/v1/namespaces/default/pods/p",
        "/api/v1/namespaces/default/pods/p/binding",
    ]
    assert scene.api.bodies("PATCH")[0] == {"metadata": {"annotations": {"lock": "me"}, "uid": "uid-n"}}


def test_a_node_that_cannot_be_marked_gets_no_pod_this_time() -> None:
    scene = Scene()
    scene.rig.node("n", gpus=1)
    scene.rig.submit(pod("p").gpus(1))
    (decision,) = scene.rig.core.decide()
    assert isinstance(decision, Bind)
    scene.answers("/nodes/n", refused(409, "Conflict", "the object has been modified"))
    scene.binder.execute(Bind(decision.info, "n", {}, {}, {"lock": "me"}))
    scene.rig.clock.settle()
    assert scene.rig.where("p") == ""
    scene.answers("/nodes/n", ok())
    scene.rig.clock.advance(2)
    scene.work()
    assert scene.rig.where("p") == "n", "a conflict over the node is none over the pod"


def preempting(*codes: int, preemptor: str = "default/train") -> Scene:
    """A pod is evicted for a group; the API server answers its deletion with these codes, and then 200."""
    scene = Scene()
    scene.rig.node("n", cpu="4")
    scene.rig.running(pod("low").request(cpu=4).priority(1), "n")
    answers = list(codes)

    def answer(request: Request) -> Response:
        if request.method != "DELETE" or not answers:
            return ok()
        return refused(answers.pop(0), "Reason", "said by the test")

    scene.api.answer = answer
    cache = scene.rig.core.cache
    victim, high = cache.placed("uid-low"), scene.rig.pod(pod("high").request(cpu=4).priority(10))
    assert victim is not None
    scene.binder.execute(Evict(victim, PodInfo(high, cache.classes.of(high)), "n", preemptor))
    scene.rig.clock.settle()
    return scene


def test_a_deletion_that_failed_is_tried_again() -> None:
    scene = preempting(403, 403)
    assert len(scene.paths("DELETE")) == 1
    scene.rig.clock.advance(1)
    scene.rig.clock.advance(1.9)
    assert len(scene.paths("DELETE")) == 2, "the third one comes two seconds after the second one"
    scene.rig.clock.advance(0.2)
    assert len(scene.paths("DELETE")) == 3
    assert ("Preempted", "Preempted by pod uid-high on node n") in scene.notes()
    scene.rig.clock.advance(60)
    assert len(scene.paths("DELETE")) == 3


@pytest.mark.parametrize("code", [404, 409])
def test_a_victim_that_is_gone_is_not_deleted_again(code: int) -> None:
    """409: the uid of the precondition is not that of the pod of this name."""
    scene = preempting(code)
    scene.rig.clock.advance(60)
    assert len(scene.paths("DELETE")) == 1
    assert not [note for note in scene.notes() if note[0] == "Preempted"]


def test_deletions_end_after_six_tries() -> None:
    scene = preempting(*[403] * 20)
    for _ in range(120):
        scene.rig.clock.advance(1)
    assert len(scene.paths("DELETE")) == 6


def test_the_deletion_for_a_single_pod_is_left_to_its_next_attempt() -> None:
    scene = preempting(403, preemptor="")
    scene.rig.clock.advance(60)
    assert len(scene.paths("DELETE")) == 1


@pytest.mark.parametrize(
    ("values", "written"),
    [
        pytest.param({"uid": "uid-p"}, True, id="it-still-waits"),
        pytest.param({"uid": "uid-p", "node": "n"}, False, id="it-is-bound"),
        pytest.param({"uid": "another"}, False, id="another-pod-has-its-name"),
    ],
)
def test_a_condition_is_written_to_the_pod_that_was_decided_on(values: dict[str, str], written: bool) -> None:
    """The pod has changed since the decision, which the watch has not shown."""
    scene = Scene()
    scene.rig.node("n", cpu="1")
    big = scene.rig.pod(pod("p").request(cpu="4"))
    scene.rig.core.intake.set_pod(replace(big, metadata=replace(big.metadata, resource_version="5")))
    now = {
        "metadata": {"name": "p", "namespace": "default", "uid": values["uid"], "resourceVersion": "7"},
        "spec": {"nodeName": values.get("node", "")},
    }

    def answer(request: Request) -> Response:
        if request.method == "GET":
            return ok(now)
        if request.path.endswith("/status") and b'"7"' not in request.body:
            return refused(409, "Conflict", "it has changed")
        return ok()

    scene.api.answer = answer
    scene.work()
    versions = [body["metadata"] for body in scene.api.bodies("PATCH", "/status")]
    first, second = ({"uid": "uid-p", "resourceVersion": version} for version in "57")
    assert versions == ([first, second] if written else [first])


def test_a_victim_is_marked_and_deleted_by_its_uid() -> None:
    scene = Scene()
    scene.rig.node("n")
    victim, by = (
        PodInfo(item, scene.rig.core.cache.classes.of(item))
        for item in (scene.rig.pod(pod(name)) for name in ("v", "b"))
    )
    scene.answers("/status", refused(409, "Conflict", "another pod has the name"))
    scene.binder.execute(Evict(victim, by, "n"))
    scene.rig.clock.settle()
    assert scene.api.bodies("PATCH", "/status")[0]["metadata"] == {"uid": "uid-v"}
    assert scene.api.bodies("DELETE") == []
