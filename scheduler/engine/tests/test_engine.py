"""Kept results against the reference: every decision and every message, over random clusters and events."""

from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from seatrial.scheduler.api.core import (
    Affinity,
    Container,
    ContainerImage,
    ContainerPort,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    PodSpec,
    PreferredSchedulingTerm,
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
)
from seatrial.scheduler.api.wire import ObjectMeta, Requirement, ResourceList
from seatrial.scheduler.config import Configuration, parse
from seatrial.scheduler.tests.play import Play, stories

PROFILES: dict[str, dict[str, Any]] = {
    "spread": {},
    "pack": {
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
            {"name": "DeviceShare", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
        ]
    },
    "fragments": {"plugins": {"score": {"enabled": [{"name": "DeviceFragmentation", "weight": 3}]}}},
    "cards-weigh": {
        "pluginConfig": [
            {
                "name": "NodeResourcesFit",
                "args": {
                    "scoringStrategy": {
                        "type": "MostAllocated",
                        "resources": [{"name": GPU_CORE, "weight": 3}, {"name": "cpu", "weight": 1}],
                    }
                },
            }
        ]
    },
    "shape": {
        "pluginConfig": [
            {
                "name": "NodeResourcesFit",
                "args": {
                    "scoringStrategy": {
                        "type": "RequestedToCapacityRatio",
                        "requestedToCapacityRatio": {
                            "shape": [
                                {"utilization": 0, "score": 0},
                                {"utilization": 60, "score": 10},
                                {"utilization": 100, "score": 2},
                            ]
                        },
                    }
                },
            }
        ]
    },
}


def configuration(name: str) -> Configuration:
    return parse(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", **PROFILES[name]}],
        }
    )


cpus = st.sampled_from(["100m", "1", "3", "7500m", "16"])
memories = st.sampled_from(["64Mi", "1Gi", "10Gi", "64Gi"])
zones = st.sampled_from(["a", "b", "c"])
taints = st.lists(
    st.builds(
        Taint,
        key=st.sampled_from(["gpu", "old"]),
        effect=st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    ),
    max_size=2,
    unique_by=lambda taint: taint.key,
).map(tuple)


images = st.lists(st.sampled_from(["a", "b:2", "reg:5000/c"]), max_size=2, unique=True).map(
    lambda names: tuple(ContainerImage((name if ":2" in name else f"{name}:latest",), 700 << 20) for name in names)
)
ports = st.sampled_from(
    [
        (),
        (),
        (),
        (ContainerPort(80, 80),),
        (ContainerPort(80, 80, "10.0.0.1"),),
        (ContainerPort(80, 80, protocol="UDP"),),
        (ContainerPort(80, 80, "10.0.0.2"), ContainerPort(81, 81)),
    ]
)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, Device | None]:
    name = f"n{draw(st.integers(0, 7))}"
    cards = draw(st.sampled_from([0, 0, 1, 2, 4, 10]))
    memory = draw(st.sampled_from(["0", "32Gi", "256Gi"]))
    allocatable: ResourceList = {
        "cpu": draw(st.sampled_from(["4", "32", "64"])),
        "memory": memory,
        "pods": draw(st.sampled_from(["2", "20"])),
    }
    device = None
    if cards:
        allocatable |= {GPU_CORE: cards * 100, GPU_MEMORY_RATIO: cards * 100, GPU: cards * 100, NVIDIA_GPU: cards}
        allocatable |= {GPU_MEMORY: f"{cards * 24}Gi", RDMA: 100}
    if cards and draw(st.integers(0, 5)):
        sick = draw(st.sampled_from([-1, 0, 1]))
        infos = [
            DeviceInfo(
                "gpu",
                minor,
                f"GPU-{name}-{minor}",
                health=minor != sick,
                resources={GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: "24Gi"},
            )
            for minor in range(cards)
        ]
        infos.append(DeviceInfo("rdma", 0, "0000:1f:00.0", health=True, resources={RDMA: 100}))
        device = Device(ObjectMeta(name=name), DeviceSpec(tuple(infos)))
    node = Node(
        ObjectMeta(name=name, uid=name, labels={"zone": draw(zones), "kubernetes.io/hostname": name}),
        NodeSpec(unschedulable=not draw(st.integers(0, 9)), taints=draw(taints) if draw(st.booleans()) else ()),
        NodeStatus(allocatable=allocatable, images=draw(images) if draw(st.booleans()) else ()),
    )
    return node, device


@st.composite
def specs(draw: st.DrawFn) -> PodSpec:
    requests: ResourceList = {}
    if draw(st.booleans()):
        requests["cpu"] = draw(cpus)
    if draw(st.booleans()):
        requests["memory"] = draw(memories)
    requests |= draw(
        st.sampled_from(
            [
                {},
                {},
                {NVIDIA_GPU: 1},
                {NVIDIA_GPU: 2},
                {GPU: 100},
                {GPU: 50},
                {GPU: 300},
                {GPU_CORE: 30, GPU_MEMORY_RATIO: 20},
                {GPU_CORE: 10, GPU_MEMORY: "10Gi"},
                {GPU_MEMORY: "20Gi"},
                {GPU: 100, RDMA: 50},
                {RDMA: 30},
                {GPU: 150},
                {NVIDIA_GPU: 1, GPU: 100},
                {"example.com/odd": 1},
            ]
        )
    )
    required = preferred = None
    if not draw(st.integers(0, 4)):
        key, values = draw(
            st.sampled_from([("zone", ("a", "b")), ("zone", ("c",)), ("kubernetes.io/hostname", ("n1", "n2"))])
        )
        required = NodeSelector((NodeSelectorTerm((Requirement(key, "In", values),)),))
    if not draw(st.integers(0, 5)):
        names = draw(st.sampled_from([("n3",), ("n1",), ("n0", "n2", "n5"), ("gone",)]))
        labels = required.node_selector_terms[0].match_expressions if required else ()
        terms = [NodeSelectorTerm(labels, (Requirement("metadata.name", "In", names),))]
        if not draw(st.integers(0, 3)):
            terms.append(NodeSelectorTerm((), (Requirement("metadata.name", "In", ("n4",)),)))
        required = NodeSelector(tuple(terms))
    if not draw(st.integers(0, 3)):
        term = NodeSelectorTerm((Requirement("zone", "In", (draw(zones),)),))
        preferred = (PreferredSchedulingTerm(draw(st.integers(1, 100)), term),)
    affinity = Affinity(NodeAffinity(required, preferred or ())) if required or preferred else None
    return PodSpec(
        containers=(
            Container(
                image=draw(st.sampled_from(["", "", "a", "b:2", "reg:5000/c"])),
                resources=ResourceRequirements(requests),
                ports=draw(ports),
            ),
        ),
        node_selector={"zone": draw(zones)} if not draw(st.integers(0, 5)) else {},
        affinity=affinity,
        tolerations=(Toleration(key="gpu", operator="Exists"),) if draw(st.booleans()) else (),
        priority=draw(st.sampled_from([0, 0, 10])),
    )


@st.composite
def events(draw: st.DrawFn) -> tuple[str, Any]:
    kind = draw(
        st.sampled_from(["pod"] * 8 + ["node", "node", "gone", "device", "delete", "delete", "foreign", "leaving"])
    )
    match kind:
        case "pod" | "foreign":
            return kind, (draw(specs()), ObjectMeta(namespace="d"))
        case "node":
            return kind, draw(nodes())
        case "device":
            return kind, draw(nodes())
        case _:
            return kind, draw(st.integers(0, 30))


@stories(120)
@given(start=st.lists(nodes(), min_size=1, max_size=6), story=st.lists(events(), min_size=5, max_size=40))
def test_kept_results_equal_a_full_evaluation(
    start: list[tuple[Node, Device | None]], story: list[tuple[str, Any]]
) -> None:
    """Each story is played under all profiles: to generate one takes longer than to play it."""
    for profile in PROFILES:
        note(f"profile {profile}")
        Play(configuration(profile)).tell(start, story)
