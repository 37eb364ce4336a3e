"""Claims that wait for their first consumer: the choice, what is written, and what the pod then waits for."""

from typing import Any

import pytest

from seatrial.scheduler.api.storage import BOUND_BY_CONTROLLER, SELECTED_NODE
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.plugins.volumes.binding import VolumeBinding
from seatrial.scheduler.plugins.volumes.tests.test_volumes import ZONE, Storage, owned_by, using, with_scratch
from seatrial.scheduler.shell.binding import Binder
from seatrial.scheduler.tests.scripted import Scripted, ok, refused

NONE = "3 node(s) didn't find available persistent volumes to bind"
WRITTEN = 7  # the resource version of what the API server was told
OF: dict[str, Any] = {"storageClassName": "local"}
ANSWER = ok({"metadata": {"resourceVersion": str(WRITTEN)}})


class Scene:
    """A cluster with storage whose decisions are carried out on a scripted API server."""

    def __init__(self, provisioner: str = "kubernetes.io/no-provisioner", zone: str = "") -> None:
        self.rig = Storage()
        self.rig.storage_class("local", "WaitForFirstConsumer", provisioner, zone)
        self.api = Scripted(self.rig.clock, lambda _: ANSWER)
        rest = Rest(self.api, self.rig.clock)
        events = EventRecorder(rest, self.rig.clock, "seatrial-scheduler", "here")
        self.binder = Binder(self.rig.core, rest, self.rig.clock, events, lambda: None)

    def claim(self, name: str, **more: Any) -> None:
        self.rig.claim(name, **{"of": "local", "phase": "Pending", **more})

    def bound_claim(self, name: str, volume: str) -> None:
        """What the controller makes of a claim."""
        self.claim(name, volume=volume, phase="Bound", version=WRITTEN + 1, annotations={SELECTED_NODE: "b"})

    def claimed_volume(self, name: str, host: str, claim: str, *, version: int = WRITTEN, **more: Any) -> None:
        """A volume with a claimRef, as the watch shows it."""
        reference = {"namespace": "default", "name": claim, "uid": f"uid-{claim}", **more}
        self.rig.volume(name, host=host, version=version, phase="Bound", claimRef=reference, **OF)

    def work(self, *pods: Any) -> None:
        self.rig.submit(*pods)
        for _ in range(3):
            self.binder.preparations.work()
            while self.rig.core.busy:
                for decision in self.rig.core.decide():
                    self.rig.decisions.append(decision)
                    self.binder.execute(decision)
            self.rig.clock.settle()

    def patched(self, part: str) -> list[Any]:
        return self.api.bodies("PATCH", part)

    def bindings(self) -> list[str]:
        return [body["metadata"]["name"] for body in self.api.bodies("POST", "/binding")]

    def condition_message(self, name: str) -> str:
        """The last message of the pod's condition."""
        matches = [body for body in self.patched(f"/pods/{name}/status") if "conditions" in body["status"]]
        return str(matches[-1]["status"]["conditions"][0]["message"])


def test_a_volume_is_claimed_and_the_pod_waits_until_its_claim_is_bound() -> None:
    scene = Scene()
    scene.rig.volume("v", host="b", version=5, **OF)
    scene.claim("c", version=3)
    scene.work(using("p", "c"))
    assert scene.patched("persistentvolumes/v") == [
        {
            "metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}, "uid": "uid-v", "resourceVersion": "5"},
            "spec": {
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": "default",
                    "name": "c",
                    "uid": "uid-c",
                    "resourceVersion": "3",
                }
            },
        }
    ]
    assert scene.rig.where("p") == "b", "it keeps its place"
    scene.claimed_volume("v", "b", "c")
    scene.work()
    assert scene.bindings() == []
    scene.bound_claim("c", "v")
    scene.work()
    assert scene.bindings() == ["p"]
    assert len(_choices(scene)) == 0
    scene.rig.clock.advance(700)
    scene.work()
    assert scene.bindings() == ["p"], "the time-out ended with the wait"


def _choices(scene: Scene) -> Any:
    plugins = scene.rig.core.runners["default-scheduler"].profile.all
    return next(plugin for plugin in plugins if isinstance(plugin, VolumeBinding)).choices


def test_a_provisioner_gets_the_node() -> None:
    scene = Scene("disks.example.com", zone="b")
    scene.claim("c", version=3)
    scene.work(using("p", "c"))
    expected = {"annotations": {SELECTED_NODE: "b"}, "uid": "uid-c", "resourceVersion": "3"}
    assert scene.patched("persistentvolumeclaims/c") == [{"metadata": expected}]
    scene.claim("c", version=4)
    scene.work()
    assert scene.rig.where("p") == "b", "an event from before the write says nothing"
    scene.bound_claim("c", "made")
    scene.work()
    assert scene.bindings() == ["p"]


def test_a_provisioner_gets_the_node_of_a_pod_with_an_ephemeral_volume() -> None:
    scene = Scene("disks.example.com", zone="b")
    scene.claim("p-scratch", version=3, ownerReferences=owned_by("p"))
    scene.work(with_scratch("p"))
    expected = {"annotations": {SELECTED_NODE: "b"}, "uid": "uid-p-scratch", "resourceVersion": "3"}
    assert scene.patched("persistentvolumeclaims/p-scratch") == [{"metadata": expected}]
    assert scene.bindings() == []
    scene.claim(
        "p-scratch",
        volume="made",
        phase="Bound",
        version=WRITTEN + 1,
        annotations={SELECTED_NODE: "b"},
        ownerReferences=owned_by("p"),
    )
    scene.work()
    assert scene.bindings() == ["p"]


def test_a_chosen_volume_is_free_again_after_a_refusal() -> None:
    """Two pods and one volume: the second waits though nothing is written yet, and goes when the first is refused."""
    scene = Scene()
    scene.rig.volume("v", host="b", **OF)
    for name in "cd":
        scene.claim(name)
    scene.api.answer = lambda request: _refuse_first(scene, request)
    scene.work(using("p", "c"), using("q", "d"))
    assert NONE in scene.condition_message("q")
    scene.rig.delete("p")
    scene.rig.clock.advance(30)
    scene.work()
    assert [body["spec"]["claimRef"]["name"] for body in scene.patched("persistentvolumes/v")] == ["c", "d"]
    assert scene.rig.where("q") == "b"


def _refuse_first(scene: Scene, request: Request) -> Response:
    first = "persistentvolumes/v" in request.path and len(scene.patched("persistentvolumes/v")) == 1
    return refused(409, "Conflict", "the object has been modified") if first else ANSWER


def test_a_conflict_is_told_and_tried_again() -> None:
    scene = Scene()
    scene.rig.volume("v", host="b", **OF)
    scene.claim("c")
    scene.api.answer = lambda request: _refuse_first(scene, request)
    scene.work(using("p", "c"))
    assert scene.condition_message("p") == 'failed to patch persistentvolume "v": the object has been modified'
    assert scene.rig.where("p") == ""
    scene.rig.clock.advance(30)
    scene.work()
    assert len(scene.patched("persistentvolumes/v")) == 2
    assert scene.rig.where("p") == "b"


def test_the_wait_has_an_end() -> None:
    scene = Scene()
    scene.rig.volume("v", host="b", **OF)
    scene.claim("c")
    scene.work(using("p", "c"))
    scene.claimed_volume("v", "b", "c")
    scene.rig.clock.advance(599)
    scene.work()
    assert scene.rig.where("p") == "b"
    scene.rig.clock.advance(1)
    scene.rig.clock.settle()
    assert scene.condition_message("p") == "binding volumes: claims are not bound after 600 s: default/c"
    scene.rig.clock.advance(30)
    scene.work()
    assert scene.rig.where("p") == "b", "it is tried anew"
    assert len(scene.patched("persistentvolumes/v")) == 1, "and the volume is the claim's already"


@pytest.mark.parametrize(
    ("event", "message"),
    [
        pytest.param("gone", 'persistentvolume "v" not found', id="volume-deleted"),
        pytest.param("free", 'ClaimRef got reset for pv "v"', id="claim-ref-taken-away"),
        pytest.param("stolen", 'pv "v" was given to another claim', id="claim-ref-of-another"),
        pytest.param("moved", 'pv "v" node affinity doesn\'t match node "b"', id="volume-of-another-node"),
        pytest.param("other", 'PVC "c" got another volume, "w"', id="claim-has-another-volume"),
        pytest.param("no-claim", 'persistentvolumeclaim "c" not found', id="claim-deleted"),
    ],
)
def test_what_ends_the_wait_for_a_volume(event: str, message: str) -> None:
    scene = Scene()
    scene.rig.volume("v", host="b", **OF)
    scene.claim("c")
    scene.work(using("p", "c"))
    volumes = scene.rig.core.cache.volumes
    scene.claimed_volume("v", "a" if event == "moved" else "b", "d" if event == "stolen" else "c")
    if event == "gone":
        volumes.set_volume(volumes.volumes["v"], gone=True)
    elif event == "free":
        scene.rig.volume("v", host="b", version=WRITTEN + 1, **OF)
    elif event == "other":
        scene.bound_claim("c", "w")
    elif event == "no-claim":
        volumes.set_claim(volumes.claims["default", "c"], gone=True)
    scene.work()
    assert scene.condition_message("p") == f"binding volumes: {message}"
    assert scene.bindings() == []


def test_a_provisioner_that_gives_up_ends_the_wait() -> None:
    """It takes the annotation away; the pod is tried anew, and the node is told to it again."""
    scene = Scene("disks.example.com", zone="b")
    scene.claim("c")
    scene.work(using("p", "c"))
    scene.claim("c", version=WRITTEN + 1)
    scene.work()
    assert scene.condition_message("p") == 'binding volumes: provisioning failed for PVC "c"'
    scene.rig.clock.advance(30)
    scene.work()
    assert [body["metadata"]["resourceVersion"] for body in scene.patched("claims/c")] == ["1", str(WRITTEN + 1)]


@pytest.mark.parametrize("kind", ["volume", "node"])
def test_what_an_earlier_scheduler_wrote_is_understood(kind: str) -> None:
    """A volume that is the claim's, or a node told to the provisioner: only that node is left, nothing is written."""
    scene = Scene("disks.example.com")
    if kind == "volume":
        scene.rig.volume("a-free-one", host="a", **OF)
        scene.claimed_volume("v", "b", "c")
    scene.claim("c", annotations={SELECTED_NODE: "b"} if kind == "node" else {})
    builder = using("p", "c")
    if kind == "volume":
        builder = builder.select({ZONE: "b"})
    scene.work(builder)
    assert scene.rig.where("p") == "b"
    assert scene.patched("persistentvolume") == []
    scene.bound_claim("c", "v")
    scene.work()
    assert scene.bindings() == ["p"]


def test_a_node_that_was_told_to_the_provisioner_is_kept() -> None:
    scene = Scene("disks.example.com")
    scene.claim("c", annotations={SELECTED_NODE: "b"})
    scene.work(using("p", "c").select({ZONE: "a"}))
    assert "1 node(s) didn't find available persistent volumes to bind" in scene.condition_message("p")


def test_two_pods_of_one_claim_write_it_once() -> None:
    scene = Scene()
    scene.rig.volume("v", host="b", **OF)
    scene.claim("c")
    scene.work(using("p", "c"), using("q", "c"))
    assert len(scene.patched("persistentvolumes/v")) == 1
    scene.claimed_volume("v", "b", "c")
    scene.bound_claim("c", "v")
    scene.work()
    assert sorted(scene.bindings()) == ["p", "q"]


def test_two_claims_of_a_pod_do_not_get_one_volume() -> None:
    scene = Scene()
    scene.rig.volume("v-2", host="b", size="2Gi", **OF)
    scene.claim("large", size="2Gi")
    scene.claim("small", size="1Gi")
    scene.work(using("p", "large", "small"))
    assert NONE in scene.condition_message("p")
    scene.rig.volume("v-1", host="b", size="1Gi", **OF)
    scene.rig.clock.advance(30)
    scene.work()
    assert scene.patched("persistentvolumes/v-2")[0]["spec"]["claimRef"]["name"] == "large"
    assert scene.patched("persistentvolumes/v-1")[0]["spec"]["claimRef"]["name"] == "small"


def test_a_pod_that_is_gone_gives_its_choice_back() -> None:
    scene = Scene()
    scene.rig.volume("v", host="b", **OF)
    for name in "cd":
        scene.claim(name)
    scene.api.answer = lambda _: refused(503, "ServiceUnavailable", "starting")  # tried again: not written meanwhile
    scene.work(using("p", "c"))
    scene.rig.delete("p")
    scene.api.answer = lambda _: ANSWER
    scene.work(using("q", "d"))
    scene.rig.clock.advance(30)
    scene.work()
    assert scene.rig.where("q") == "b"
    assert scene.bindings() == []


@pytest.mark.parametrize(
    ("volume", "claim"),
    [
        pytest.param({"size": "1Gi"}, {"size": "1025Mi"}, id="too-small"),
        pytest.param({"accessModes": ["ReadOnlyMany"]}, {"mode": "ReadWriteOnce"}, id="access-modes"),
        pytest.param({"volumeMode": "Block"}, {}, id="volume-mode"),
        pytest.param({"labels": {"disk": "slow"}}, {"selector": {"matchLabels": {"disk": "fast"}}}, id="selector"),
        pytest.param({"storageClassName": "other"}, {}, id="class"),
        pytest.param({"phase": "Released"}, {}, id="phase"),
        pytest.param({"claimRef": {"namespace": "default", "name": "c", "uid": "former"}}, {}, id="a-former-claim"),
    ],
)
def test_volumes_that_do_not_serve(volume: dict[str, Any], claim: dict[str, Any]) -> None:
    scene = Scene()
    scene.rig.volume("v", host="b", **{**OF, **volume})
    scene.claim("c", **claim)
    scene.work(using("p", "c"))
    assert NONE in scene.condition_message("p")


def test_a_volume_that_a_user_reserved_for_the_claim_goes_first() -> None:
    scene = Scene()
    scene.rig.volume("small", host="b", size="1Gi", **OF)
    scene.rig.volume("mine", host="b", size="9Gi", claimRef={"namespace": "default", "name": "c"}, **OF)
    scene.claim("c")
    scene.work(using("p", "c"))
    (written,) = scene.patched("persistentvolumes/")
    assert written["metadata"] == {"uid": "uid-mine", "resourceVersion": "1"}, "it stays the claim's without us"
    assert written["spec"]["claimRef"]["uid"] == "uid-c"
