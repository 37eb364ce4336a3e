"""The kept verdicts against the slow reference where CPUs are bound and resources aligned, over random stories."""

from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from seatrial.scheduler.api.core import Container, Node, NodeSpec, NodeStatus, PodSpec, ResourceRequirements
from seatrial.scheduler.api.device import (
    DEVICE_JOINT_ALLOCATE,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    Device,
    DeviceInfo,
    DeviceSpec,
    DeviceTopology,
)
from seatrial.scheduler.api.numa import (
    AMPLIFICATION_RATIO,
    CPU_BIND_POLICY_LABEL,
    NUMA_ALLOCATE_STRATEGY_LABEL,
    NUMA_TOPOLOGY_POLICY_LABEL,
    NUMA_TOPOLOGY_SPEC,
    QOS_LABEL,
    RESOURCE_SPEC,
    NodeResourceTopology,
)
from seatrial.scheduler.api.wire import ObjectMeta, ResourceList
from seatrial.scheduler.plugins.nodenuma.tests.machines import Shape, topology_of
from seatrial.scheduler.tests.play import Play, stories
from seatrial.scheduler.tests.rig import profile

CONFIGURATIONS = {
    "spread": profile(),
    "pack": profile(
        pluginConfig=[
            {
                "name": "NodeNUMAResource",
                "args": {
                    "defaultCPUBindPolicy": "SpreadByPCPUs",
                    "scoringStrategy": {"type": "MostAllocated"},
                    "numaScoringStrategy": {"type": "MostAllocated"},
                },
            },
            {"name": "DeviceShare", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
        ]
    ),
}
Machine = tuple[Node, Device | None, NodeResourceTopology | None]


def _device(name: str, cards: int, numa: int) -> Device:
    places = [DeviceTopology(0, number * numa // cards, f"pci{number // 2}") for number in range(cards)]
    infos = [
        DeviceInfo(
            "gpu",
            number,
            health=True,
            topology=places[number],
            resources={GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: "24Gi"},
        )
        for number in range(cards)
    ]
    infos += [
        DeviceInfo("rdma", number, health=True, topology=places[2 * number], resources={RDMA: 100})
        for number in range(cards // 2)
    ]
    return Device(ObjectMeta(name=name), DeviceSpec(tuple(infos)))


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    name = f"n{draw(st.integers(0, 5))}"
    shape: Shape = draw(st.sampled_from([(2, 1, 4, 2), (2, 1, 4, 2), (1, 1, 8, 1), (2, 2, 2, 2)]))
    cpus, numa = shape[0] * shape[1] * shape[2] * shape[3], shape[0] * shape[1]
    labels, annotations = {"kubernetes.io/hostname": name}, {}
    if draw(st.booleans()):
        labels[NUMA_TOPOLOGY_POLICY_LABEL] = draw(st.sampled_from(["BestEffort", "Restricted", "SingleNUMANode"]))
    if not draw(st.integers(0, 4)):
        labels[CPU_BIND_POLICY_LABEL] = draw(st.sampled_from(["FullPCPUsOnly", "SpreadByPCPUs"]))
    if not draw(st.integers(0, 3)):
        labels[NUMA_ALLOCATE_STRATEGY_LABEL] = "MostAllocated"
    ratio = draw(st.sampled_from([1, 1, 1, 2]))
    if ratio > 1:
        annotations[AMPLIFICATION_RATIO] = '{"cpu":2}'
    allocatable: ResourceList = {"cpu": cpus * ratio, "memory": f"{32 * numa}Gi", "pods": "20"}
    cards = draw(st.sampled_from([0, 4]))
    device = None
    if cards:
        allocatable |= {GPU_CORE: cards * 100, GPU_MEMORY_RATIO: cards * 100, GPU: cards * 100, RDMA: cards * 50}
        allocatable |= {GPU_MEMORY: f"{cards * 24}Gi"}
        device = _device(name, cards, numa)
    report = None
    if draw(st.integers(0, 5)):
        policy = draw(st.sampled_from(["None", "None", "Restricted", "SingleNUMANodePodLevel"]))
        report = topology_of(name, shape, memory=32, policy=policy, cpus=bool(draw(st.integers(0, 5))))
    metadata = ObjectMeta(name=name, uid=name, labels=labels, annotations=annotations)
    return Node(metadata, NodeSpec(), NodeStatus(allocatable=allocatable)), device, report


@st.composite
def pods(draw: st.DrawFn) -> tuple[PodSpec, ObjectMeta]:
    requests: ResourceList = {"cpu": draw(st.sampled_from(["500m", "1", "2", "3", "4", "6", "9"]))}
    requests |= draw(st.sampled_from([{}, {"memory": "1Gi"}, {"memory": "20Gi"}, {"memory": "40Gi"}]))
    requests |= draw(st.sampled_from([{}, {}, {GPU: 100}, {GPU: 200}, {GPU: 50}, {GPU: 100, RDMA: 50}]))
    labels, annotations = {}, {}
    qos = draw(st.sampled_from(["", "", "LS", "LSR", "LSE"]))
    if qos:
        labels[QOS_LABEL] = qos
    if qos in {"LSR", "LSE"}:
        exclusive = draw(st.sampled_from(["", "", "PCPULevel", "NUMANodeLevel"]))
        annotations[RESOURCE_SPEC] = draw(
            st.sampled_from(
                [
                    "{}",
                    '{"requiredCPUBindPolicy":"FullPCPUs"EX}',
                    '{"preferredCPUBindPolicy":"SpreadByPCPUs"EX}',
                    '{"requiredCPUBindPolicy":"SpreadByPCPUs"EX}',
                ]
            )
        ).replace("EX", f',"preferredCPUExclusivePolicy":"{exclusive}"' if exclusive else "")
    if not draw(st.integers(0, 2)):
        policy = draw(st.sampled_from(["BestEffort", "Restricted", "SingleNUMANode"]))
        exclusive = draw(st.sampled_from(["", "Preferred", "Required"]))
        annotations[NUMA_TOPOLOGY_SPEC] = f'{{"numaTopologyPolicy":"{policy}","singleNUMANodeExclusive":"{exclusive}"}}'
    if RDMA in requests and draw(st.booleans()):
        annotations[DEVICE_JOINT_ALLOCATE] = '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'
    spec = PodSpec(
        containers=(Container(resources=ResourceRequirements(requests)),),
        priority=draw(st.sampled_from([0, 0, 5500, 9500])),
    )
    return spec, ObjectMeta(namespace="d", labels=labels, annotations=annotations)


@st.composite
def events(draw: st.DrawFn) -> tuple[str, Any]:
    kind = draw(st.sampled_from(["pod"] * 10 + ["machine", "report", "gone", "delete", "delete", "delete"]))
    match kind:
        case "pod":
            return kind, draw(pods())
        case "machine" | "report":
            return kind, draw(machines())
        case _:
            return kind, draw(st.integers(0, 30))


class NumaPlay(Play):
    """A story in which machines have NUMA nodes."""

    def act(self, kind: str, what: Any) -> None:
        core = self.core
        match kind:
            case "machine":
                node, device, report = what
                core.intake.set_node(node)
                core.intake.set_device(node.name, device)
                core.intake.set_topology(node.name, report)
            case "report":
                core.intake.set_topology(what[0].name, what[2])
            case "gone":
                core.intake.remove_node(f"n{what % 6}")
            case _:
                super().act(kind, what)
                return
        self.decide()


@stories(90)
@given(start=st.lists(machines(), min_size=1, max_size=5), story=st.lists(events(), min_size=5, max_size=40))
def test_aligned_pods_are_placed_as_by_a_full_evaluation(start: list[Machine], story: list[tuple[str, Any]]) -> None:
    for name, configuration in CONFIGURATIONS.items():
        note(f"configuration {name}")
        NumaPlay(configuration).tell(start, story, first="machine")
