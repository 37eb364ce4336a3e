"""A standby follows the cluster and decides nothing; when it leads, it decides on the cluster as it is then."""

from dataclasses import dataclass, field
from typing import Any

from seatrial.scheduler.api.builders import gang, pod, quota, reservation
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.podgroup import POD_GROUP_LABEL
from seatrial.scheduler.api.quota import QUOTA_NAME
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.app import build_core, default_configuration
from seatrial.scheduler.framework.decisions import Reject
from seatrial.scheduler.shell.loop import Shell
from seatrial.scheduler.tests.rig import Rig
from seatrial.scheduler.tests.scripted import Scripted, ok, refused

PODS, GROUPS = "/api/v1/pods", "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
NODE = {"metadata": {"name": "n0", "uid": "n0"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": 110}}}


@dataclass
class World:
    """The objects of a cluster, and a scheduler that follows it; `late` watches show nothing of what changes."""

    clock: SimClock = field(default_factory=SimClock)
    late: bool = False

    def __post_init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {"/api/v1/nodes": {"n0": NODE}}
        self.version = 10
        self.api = Scripted(self.clock, self._answer)
        self.core = build_core(default_configuration("default-scheduler"), self.clock)
        self.shell = Shell(self.core, self.api, self.clock, standby=True)
        self.shell.start()
        self.clock.advance(1)
        assert self.shell.ready

    def _answer(self, request: Request) -> Response:
        path, _, query = request.path.partition("?")
        if request.method != "GET":
            return ok()
        of_ended = "status.phase%21%3DSucceeded" not in query and path == PODS
        items = [] if of_ended else list(self.objects.get(path, {}).values())
        return ok({"metadata": {"resourceVersion": str(self.version)}, "items": items})

    def set(self, path: str, results: dict[str, Any], *, gone: bool = False) -> None:
        """Add, change or remove an object; the watches show it unless they are late."""
        self.version += 1
        metadata = results["metadata"]
        metadata.setdefault("uid", f"uid-{metadata['name']}")
        metadata.setdefault("namespace", "default")
        kept = self.objects.setdefault(path, {})
        event = "DELETED" if gone else "MODIFIED" if metadata["uid"] in kept else "ADDED"
        results = {**results, "metadata": {**metadata, "resourceVersion": str(self.version)}}
        if gone:
            del kept[metadata["uid"]]
        else:
            kept[metadata["uid"]] = results
        for stream in self.api.streams if not self.late else ():
            if stream.request.path.partition("?")[0] == path and "phase%3D" not in stream.request.path:
                stream.event(event, results)

    def pod(self, name: str, node: str = "", **labels: str) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "schedulerName": "default-scheduler",
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}],
        }
        manifest = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Pending"}}
        self.set(PODS, manifest)
        return manifest

    def writes(self) -> list[tuple[str, str]]:
        """What was written, but for events."""
        sent = [request for request in self.api.sent if request.method != "GET"]
        return [(request.method, request.path) for request in sent if "/events" not in request.path]


def test_a_new_leader_says_nothing_of_pods_that_the_old_one_has_bound() -> None:
    """A member was alone for a minute, so the old leader reported its gang; then it bound both members."""
    world = World()
    group: dict[str, Any] = gang("train", 2).manifest
    world.set(GROUPS, group)
    world.pod("a", **{POD_GROUP_LABEL: "train"})
    world.clock.advance(60)
    for name in ("b", "a"):
        world.pod(name, "n0", **{POD_GROUP_LABEL: "train"})
    world.clock.advance(3600)
    assert world.writes() == []
    world.shell.lead()
    world.clock.advance(60)
    assert [path for _, path in world.writes() if "/pods/" in path] == []


def test_a_new_leader_reports_what_holds_now() -> None:
    """The gang is incomplete since an hour: the new leader says so after the usual pause."""
    world = World()
    world.set(GROUPS, gang("train", 2).manifest)
    world.pod("a", **{POD_GROUP_LABEL: "train"})
    world.clock.advance(3600)
    world.shell.lead()
    world.clock.advance(60)
    (body,) = world.api.bodies("PATCH", "/pods/a/status")
    assert body["status"]["conditions"][0]["reason"] == "SchedulingGated"


def test_a_new_leader_knows_what_its_late_watches_have_not_shown() -> None:
    """The old leader bound a pod and died; the watches of the standby hang since. The room is not given away again."""
    world = World()
    world.pod("a")
    world.late = True
    world.pod("a", "n0")
    world.pod("b")
    world.clock.advance(600)
    world.shell.lead()
    world.clock.advance(60)
    assert world.core.find("default/a") is not None
    bindings = [path for _, path in world.writes() if path.endswith("/binding")]
    assert bindings == [], "there is room for one pod"


def test_nothing_is_decided_before_all_lists_have_come() -> None:
    """One list is refused for a while: the new leader decides only then."""
    world = World()
    world.pod("a")
    answer = world.api.answer
    down = refused(503, "", "not now")
    world.api.answer = lambda sent: down if sent.path.startswith("/api/v1/nodes?") else answer(sent)
    world.shell.lead()
    world.clock.advance(60)
    assert world.writes() == []
    world.api.answer = answer
    world.clock.advance(60)
    assert ("POST", "/api/v1/namespaces/default/pods/a/binding") in world.writes()


def test_a_watch_that_is_ahead_of_the_list_counts() -> None:
    """The list comes from a server that lags behind; the watch has shown the binding already."""
    world = World()
    world.pod("a")
    listed = {**world.objects[PODS]}
    world.pod("a", "n0")
    world.pod("b")
    world.objects[PODS], world.version = listed, world.version - 2
    world.shell.lead()
    world.clock.advance(5)
    assert world.core.cache.placed("uid-a") is not None
    assert [path for _, path in world.writes() if "/pods/a/" in path] == []


def test_a_standby_gathers_nothing() -> None:
    """Gangs, quotas, reservations, nodes and pods come and go for a day; nothing of them is left."""
    world = World()

    def one_round(number: int) -> None:
        node = {**NODE, "metadata": {"name": f"n{number}", "uid": f"n{number}"}}
        world.set("/api/v1/nodes", node)
        group = gang(f"g{number}", 2).manifest
        world.set(GROUPS, group)
        world.set(GROUPS, {**group, "spec": {"minMember": 3}})
        limit = quota(f"q{number}").max(cpu=2).manifest
        world.set(QUOTAS, limit)
        held = reservation(f"r{number}").like(pod("x").request(cpu=1)).for_labels(app="x").manifest
        held["metadata"]["annotations"] = {"scheduling.koordinator.sh/device-allocated": "{"}
        world.set(RESERVATIONS, {**held, "status": {"phase": "Available", "nodeName": f"n{number}"}})
        alone = world.pod(f"a{number}", **{POD_GROUP_LABEL: f"g{number}", QUOTA_NAME: f"q{number}"})
        placed = world.pod(f"b{number}", f"n{number}")
        world.clock.advance(60)
        for path, result in (
            (PODS, alone),
            (PODS, placed),
            (RESERVATIONS, held),
            (QUOTAS, limit),
            (GROUPS, group),
            ("/api/v1/nodes", node),
        ):
            world.set(path, result, gone=True)
        world.clock.advance(60)

    one_round(1)
    before = gathered(world)
    for number in range(2, 52):
        one_round(number)
    assert gathered(world) == before
    assert world.writes() == []


WITH_CLASSES = {"ClassRegistry", "NodeColumns"}  # they drop in bulk what is out of use


def gathered(world: World) -> dict[str, int]:
    """The sizes of the collections of core, handle, queue, plugins' caches and controllers, by path."""
    by_path: dict[str, int] = {}
    seen: set[int] = set()

    def visit(value: Any, path: str, depth: int) -> None:
        if id(value) in seen or depth > 5:
            return
        seen.add(id(value))
        if isinstance(value, dict | set | list) or type(value).__name__ == "deque":
            by_path[path] = len(value)
            for number, each in enumerate(value.values() if isinstance(value, dict) else []):
                visit(each, f"{path}[{number}]", depth + 1)
        elif type(value).__module__.startswith("seatrial.scheduler") and type(value).__name__ not in WITH_CLASSES:
            names = [*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())]
            for name in names:
                if hasattr(value, name):
                    visit(getattr(value, name), f"{path}.{name}", depth + 1)

    visit(world.shell, "shell", 0)
    del by_path["shell.core.handle.cache._relevant"]  # emptied when it has MAX_CLASSES
    return by_path


def test_a_leader_that_lost_its_lease_writes_nothing_more() -> None:
    """It holds reports back and has pods in backoff when it is stopped; their timers end afterwards."""
    world = World()
    world.shell.lead()
    world.set(GROUPS, gang("train", 2).manifest)
    world.pod("a", **{POD_GROUP_LABEL: "train"})
    world.clock.advance(1)
    world.shell.stop()
    before = world.writes()
    world.clock.advance(3600)
    assert world.writes() == before


def test_a_decision_of_a_timer_is_dropped_when_its_pod_leaves_the_queue() -> None:
    """The decision waits, as too many bindings are under way; meanwhile the pod is bound by another scheduler."""
    rig = Rig()
    rig.node("n")
    rig.submit(pod("a"), pod("b"))
    for name in "ab":
        entry = rig.core.queue.find(f"uid-{name}")
        assert entry is not None
        rig.core.outbox.put(Reject(entry.info, "preempted"))
    rig.running(pod("a"), "n")
    assert [decision.info.pod.metadata.name for decision in rig.core.decide() if isinstance(decision, Reject)] == ["b"]
