"""Whom preemption makes go, from which node: kept outcomes against trying every node anew, over random clusters."""

from typing import Any

import msgspec
from hypothesis import given, note
from hypothesis import strategies as st
from msgspec.structs import replace

from seatrial.scheduler.api.core import (
    Affinity,
    Container,
    ContainerPort,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    Pod,
    PodDisruptionBudget,
    PodSpec,
    ResourceRequirements,
    Taint,
    Toleration,
)
from seatrial.scheduler.api.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    NVIDIA_GPU,
    RDMA,
    Device,
    DeviceInfo,
    DeviceSpec,
    DeviceTopology,
)
from seatrial.scheduler.api.wire import Condition, ObjectMeta, Requirement, ResourceList
from seatrial.scheduler.config import Configuration, ProfileConfig
from seatrial.scheduler.engine.tests import test_cluster_wide
from seatrial.scheduler.framework.decisions import Bind, Evict, Reject
from seatrial.scheduler.tests.oracle import judge
from seatrial.scheduler.tests.play import Play, first_ready, stories
from seatrial.scheduler.tests.preempting import PreemptionResult, make_way
from seatrial.scheduler.tests.rig import profile


def enough(percentage: int, absolute: int) -> list[dict[str, Any]]:
    """How many candidates preemption looks for."""
    args = {"minCandidateNodesPercentage": percentage, "minCandidateNodesAbsolute": absolute}
    return [{"name": "DefaultPreemption", "args": args}]


PROFILES = {
    "defaults": Configuration(profiles=(ProfileConfig("default-scheduler"),)),
    "first-come": profile(pluginConfig=enough(0, 1)),
    "half-of-them": profile(pluginConfig=enough(50, 1)),
    "devices-first": profile(
        plugins={"filter": {"enabled": [{"name": "DeviceShare"}, {"name": "NodeResourcesFit"}]}},
        pluginConfig=enough(0, 2),
    ),
}

PRIORITIES = (0, 1, 1, 5, 20)
TERMINATING = "2026-01-01T00:00:00Z"

labels = st.sampled_from([{}, {"app": "a"}, {"app": "a", "tier": "x"}, {"app": "b"}])
marks = st.builds(ObjectMeta, namespace=st.sampled_from(["d", "d", "e"]), labels=labels)
starts = st.sampled_from([None, *(f"2026-01-01T00:0{minute}:00Z" for minute in range(4))])


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, Device | None]:
    """Nodes so small that they are soon full, and so alike that several are with the same fingerprint."""
    name = f"n{draw(st.integers(0, 7))}"
    cards = draw(st.sampled_from([0, 2, 2, 4]))
    allocatable: ResourceList = {"cpu": "4", "memory": "32Gi", "pods": draw(st.sampled_from(["3", "20"]))}
    device = None
    if cards:
        allocatable |= {GPU_CORE: cards * 100, GPU_MEMORY_RATIO: cards * 100, GPU: cards * 100, NVIDIA_GPU: cards}
        allocatable |= {GPU_MEMORY: f"{cards * 24}Gi", RDMA: 100}
        each: ResourceList = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: "24Gi"}
        tree = draw(st.booleans())
        infos = [
            DeviceInfo(
                "gpu",
                minor,
                f"GPU-{name}-{minor}",
                health=True,
                resources=each,
                topology=DeviceTopology(pcie_id=str(minor // 2)) if tree else None,
            )
            for minor in range(cards)
        ]
        infos.append(DeviceInfo("rdma", 0, "0000:1f:00.0", health=True, resources={RDMA: 100}))
        if draw(st.integers(0, 9)):
            device = Device(ObjectMeta(name=name), DeviceSpec(tuple(infos)))
    tainted = not draw(st.integers(0, 5))
    node = Node(
        ObjectMeta(name=name, uid=name, labels={"zone": draw(st.sampled_from("ab")), test_cluster_wide.HOST: name}),
        NodeSpec(taints=(Taint("old", "", "NoSchedule"),) if tainted else ()),
        NodeStatus(allocatable=allocatable),
    )
    return node, device


@st.composite
def specs(draw: st.DrawFn) -> PodSpec:
    requests: ResourceList = {"cpu": draw(st.sampled_from(["500m", "1", "1", "2", "4"]))}
    requests |= draw(
        st.sampled_from(
            [
                {},
                {},
                {GPU: 100},
                {GPU: 100},
                {GPU: 200},
                {GPU: 50},
                {GPU_CORE: 30, GPU_MEMORY_RATIO: 20},
                {GPU: 100, RDMA: 50},
                {RDMA: 50},
            ]
        )
    )
    required = None
    if not draw(st.integers(0, 7)):
        names = draw(st.sampled_from([("n3",), ("n0", "n2", "n5")]))
        required = NodeSelector((NodeSelectorTerm((), (Requirement("metadata.name", "In", names),)),))
    return PodSpec(
        containers=(
            Container(
                resources=ResourceRequirements(requests),
                ports=(ContainerPort(80, 80),) if not draw(st.integers(0, 7)) else (),
            ),
        ),
        node_selector={"zone": draw(st.sampled_from("ab"))} if not draw(st.integers(0, 5)) else {},
        affinity=Affinity(NodeAffinity(required)) if required else None,
        tolerations=(Toleration(key="old", operator="Exists"),) if draw(st.booleans()) else (),
        priority=draw(st.sampled_from(PRIORITIES)),
        preemption_policy=draw(st.sampled_from(["", "", "", "", "Never"])),
    )


@st.composite
def tight(draw: st.DrawFn) -> tuple[Node, None]:
    """Nodes of racks and zones that are soon full."""
    node, _ = draw(test_cluster_wide.nodes())
    return replace(node, status=NodeStatus(allocatable={"cpu": "9", "memory": "64Gi", "pods": "4"})), None


@st.composite
def choosy(draw: st.DrawFn) -> PodSpec:
    """Pods that look at where others are."""
    return replace(draw(test_cluster_wide.specs()), priority=draw(st.sampled_from(PRIORITIES)))


@st.composite
def budgets(draw: st.DrawFn) -> PodDisruptionBudget:
    gone = draw(st.sampled_from([{}, {}, {f"p{number}": TERMINATING for number in range(9)}]))
    manifest = {
        "metadata": {"name": draw(st.sampled_from(["x", "y"])), "namespace": draw(st.sampled_from(["d", "d", "e"]))},
        "spec": {
            "selector": draw(
                st.sampled_from(
                    [
                        None,
                        {"matchLabels": {"app": "a"}},
                        {"matchLabels": {"tier": "x"}},
                        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
                    ]
                )
            )
        },
        "status": {"disruptionsAllowed": draw(st.integers(0, 2)), "disruptedPods": gone},
    }
    return msgspec.convert(manifest, PodDisruptionBudget)


@st.composite
def events(draw: st.DrawFn, pods: st.SearchStrategy[PodSpec]) -> tuple[str, Any]:
    rare = ["node", "gone", "device", "delete", "leaving", "relabel", "no budget"]
    kind = draw(st.sampled_from(["pod"] * 12 + ["start"] * 4 + ["budget"] * 3 + ["victims go"] * 2 + rare))
    match kind:
        case "pod":
            return kind, (draw(pods), draw(marks))
        case "node" | "device":
            return kind, draw(nodes())
        case "start":
            return kind, (draw(st.integers(0, 30)), draw(starts))
        case "relabel":
            return kind, (draw(st.integers(0, 30)), draw(labels))
        case "budget":
            return kind, draw(budgets())
        case _:
            return kind, draw(st.integers(0, 30))


class Struggle(Play):
    """Asks the slow reference about preemption as well."""

    def __init__(self, settings: Configuration) -> None:
        super().__init__(settings)
        self.victims: list[str] = []  # uids of those who were told to go
        self.made_way = 0

    def act(self, kind: str, what: Any) -> None:
        core = self.core
        match kind:
            case "start" | "relabel" if self.bound:
                index, value = what
                uid = sorted(self.bound)[index % len(self.bound)]
                pod, name = self.bound[uid]
                if kind == "start":
                    changed = Pod(pod.metadata, pod.spec, replace(pod.status, start_time=value))
                else:
                    changed = Pod(replace(pod.metadata, labels=value), pod.spec, pod.status)
                self._show(changed, name)
            case "budget":
                core.intake.set_budget(what)
            case "no budget":
                core.intake.remove_budget(("d/x", "d/y", "e/x")[what % 3])
            case "victims go":
                for uid in self.victims:
                    self.bound.pop(uid, None)
                    core.intake.remove_pod(uid)
                self.victims.clear()
            case "start" | "relabel":
                pass
            case _:
                super().act(kind, what)
                return
        self.clock.advance(11)
        self.decide()

    def _show(self, pod: Pod, name: str) -> None:
        placed = Pod(pod.metadata, replace(pod.spec, node_name=name), pod.status)
        self.bound[pod.metadata.uid] = (placed, name)
        self.core.intake.set_pod(placed)

    def decide(self) -> None:
        core = self.core
        for _ in range(100):
            if not core.busy:
                return
            entry = first_ready(core)
            assert entry is not None
            info, runner = entry.info, core.runners.of(entry.info)
            want = judge(core, runner, info)
            way = PreemptionResult() if want.node else make_way(core, runner, info)
            made = core.decide()
            victims = tuple(decision.victim.uid for decision in made if isinstance(decision, Evict))
            for decision in made:
                match decision:
                    case Bind(bound, node):
                        assert node == want.node, f"{bound.key} should go to {want}"
                        core.bound(bound.uid)
                        self.bound[bound.uid] = (bound.pod, node)
                    case Reject():
                        assert not want.node, f"{info.key} should go to {want.node}, was refused: {decision.message}"
                        preemption_result = PreemptionResult(decision.nominated or "", victims, decision.message)
                        self._compare(
                            preemption_result,
                            PreemptionResult(
                                way.node, self._staying_victims(way), f"{want.message} {way.message}".strip()
                            ),
                        )
                    case _:
                        pass
            self.made_way += bool(victims)
            for uid in victims:
                pod, name = self.bound[uid]
                metadata = replace(pod.metadata, deletion_timestamp=TERMINATING)
                condition = Condition("DisruptionTarget", "True", "PreemptionByScheduler")
                self._show(Pod(metadata, pod.spec, replace(pod.status, conditions=(condition,))), name)
            self.victims += victims
        raise AssertionError("the queue does not come to rest")

    def _staying_victims(self, way: PreemptionResult) -> tuple[str, ...]:
        """Those of the victims who are not on their way out already."""
        return tuple(uid for uid in way.victims if uid in self.bound and not self.bound[uid][0].deleting)

    def _compare(self, preemption_result: PreemptionResult, want: PreemptionResult) -> None:
        assert preemption_result == want, f"expected {want}, found {preemption_result}"


def play_through(name: str, start: list[tuple[Node, Device | None]], story: list[tuple[str, Any]]) -> int:
    """How often a pod was evicted."""
    play = Struggle(PROFILES[name])
    play.tell(start, story)
    return play.made_way


def test_victims_equal_those_of_a_full_search() -> None:
    made_way = dict.fromkeys(PROFILES, 0)

    @stories(40, shrink=False)
    @given(start=st.lists(nodes(), min_size=2, max_size=6), story=st.lists(events(specs()), min_size=20, max_size=60))
    def check(start: list[tuple[Node, Device | None]], story: list[tuple[str, Any]]) -> None:
        for name in made_way:
            note(f"profile {name}")
            made_way[name] += play_through(name, start, story)

    check()
    assert min(made_way.values()) > 20, "a test without evictions shows nothing"


def test_victims_equal_those_of_a_full_search_for_pods_with_affinity_between_pods() -> None:
    made_way = dict.fromkeys(("defaults", "first-come"), 0)

    @stories(20, shrink=False)
    @given(start=st.lists(tight(), min_size=2, max_size=6), story=st.lists(events(choosy()), min_size=20, max_size=60))
    def check(start: list[tuple[Node, None]], story: list[tuple[str, Any]]) -> None:
        for name in made_way:
            note(f"profile {name}")
            made_way[name] += play_through(name, [*start], story)

    check()
    assert min(made_way.values()) > 5, "a test without evictions shows nothing"
