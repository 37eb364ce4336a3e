"""Cached results against the slow reference, with topology, partition tables, functions and hints."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from seatrial.scheduler.api.core import Container, Node, NodeSpec, NodeStatus, Pod, PodSpec, ResourceRequirements
from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_ALLOCATED,
    DEVICE_JOINT_ALLOCATE,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_MODEL_LABEL,
    GPU_PARTITION_POLICY_LABEL,
    GPU_PARTITION_SPEC,
    GPU_PARTITIONS,
    GPU_SHARED,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    RDMA,
    Device,
    DeviceInfo,
    DeviceSpec,
)
from seatrial.scheduler.api.wire import ObjectMeta, ResourceList
from seatrial.scheduler.plugins.deviceshare.tests.machines import FUNCTIONS, JOINT, NIC_LABELS, card, paired, single
from seatrial.scheduler.plugins.deviceshare.tests.test_slices import HUAWEI, SIZES, SOURCE, config_map, npus
from seatrial.scheduler.tests.play import Play, stories
from seatrial.scheduler.tests.rig import profile

TABLE = '{"1":[{"minors":[0]},{"minors":[5]}],"2":[{"minors":[2,3],"allocationScore":"7"},{"minors":[0,1]}]}'
MetadataChanges = dict[str, str]
KINDS: list[
    tuple[list[DeviceInfo], MetadataChanges, MetadataChanges, MetadataChanges]
] = [  # labels and annotations of the Device, labels of the Node
    (paired(), {}, {}, {}),
    (paired(), {GPU_PARTITION_POLICY_LABEL: "Honor"}, {GPU_PARTITIONS: TABLE}, {}),
    (single(), {}, {}, {GPU_MODEL_LABEL: "H800", GPU_PARTITION_POLICY_LABEL: "Honor"}),
    (single(), {}, {}, {GPU_MODEL_LABEL: "H800"}),
    ([card(minor, health=minor != 2) for minor in range(4)], {}, {}, {}),
    ([card(0, switch="a"), card(1, switch="b")], {}, {}, {GPU_PARTITION_POLICY_LABEL: "Honor"}),
    (npus(3), {}, {}, HUAWEI),
]

SAME_PCIE = JOINT | {"requiredScope": "SamePCIe"}
WISHES: list[tuple[ResourceList, dict[str, Any]]] = [
    ({GPU: 100}, {}),
    ({GPU: 200}, {}),
    ({GPU: 400}, {}),
    ({GPU_CORE: 40, GPU_MEMORY_RATIO: 40}, {}),
    ({GPU_SHARED: 2, GPU_MEMORY_RATIO: 120}, {}),
    ({GPU: 200}, {DEVICE_ALLOCATE_HINT: {"gpu": {"requiredTopologyScope": "PCIe"}}}),
    ({GPU: 300}, {DEVICE_ALLOCATE_HINT: {"gpu": {"requiredTopologyScope": "NUMANode"}}}),
    ({GPU: 100}, {DEVICE_ALLOCATE_HINT: {"gpu": {"exclusivePolicy": "PCIeLevel"}}}),
    ({GPU: 200}, {GPU_PARTITION_SPEC: {}}),
    ({GPU: 200}, {GPU_PARTITION_SPEC: {"allocatePolicy": "Restricted"}}),
    ({GPU: 300, RDMA: 100}, {DEVICE_JOINT_ALLOCATE: JOINT}),
    ({GPU: 200, RDMA: 100}, {DEVICE_JOINT_ALLOCATE: SAME_PCIE}),
    ({GPU: 300, RDMA: 1}, {DEVICE_JOINT_ALLOCATE: SAME_PCIE, DEVICE_ALLOCATE_HINT: FUNCTIONS}),
    ({RDMA: 1}, {DEVICE_ALLOCATE_HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}}),
    ({RDMA: 60}, {DEVICE_ALLOCATE_HINT: {"rdma": {"selector": {"matchLabels": NIC_LABELS}}}}),
    ({RDMA: 100}, {DEVICE_ALLOCATE_HINT: {"rdma": {"selector": {"matchLabels": {"type": "none"}}}}}),
    ({GPU: 100}, {DEVICE_ALLOCATE_HINT: "not a hint"}),
    ({GPU_SHARED: 1, **SIZES["vir04"]}, {}),
    ({GPU_SHARED: 1, **SIZES["vir04_4c_dvpp"]}, {}),
    ({NPU_CORE: 16, GPU_MEMORY_RATIO: 200}, {}),
]


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, Device | None]:
    name = f"n{draw(st.integers(0, 4))}"
    infos, labels, annotations, node_labels = draw(st.sampled_from(KINDS))
    allocatable: ResourceList = {"cpu": "64", "memory": "512Gi", "pods": "30", RDMA: 800, GPU: 800}
    allocatable |= {
        NPU_CORE: 64,
        NPU_CPU: 56,
        NPU_DVPP: 800,
        GPU_CORE: 800,
        GPU_MEMORY_RATIO: 800,
        GPU_SHARED: 800,
        GPU_MEMORY: "640Gi",
    }
    node = Node(ObjectMeta(name=name, uid=name, labels=node_labels), NodeSpec(), NodeStatus(allocatable=allocatable))
    return node, Device(ObjectMeta(name=name, labels=labels, annotations=annotations), DeviceSpec(tuple(infos)))


wishes = st.sampled_from(WISHES)
events = st.one_of(
    st.tuples(st.just("preference"), wishes),
    st.tuples(st.just("preference"), wishes),
    st.tuples(st.just("node"), nodes()),
    st.tuples(st.just("relabel"), st.integers(0, 4)),
    st.tuples(st.just("sizes"), st.booleans()),
    st.tuples(st.just("stranger"), st.integers(0, 7)),
    st.tuples(st.just("delete"), st.integers(0, 30)),
)


class AnnotatedPlay(Play):
    """Pods with annotations, pods placed by others, and changing sizes and labels."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(profile(**parts))

    def act(self, kind: str, what: Any) -> None:
        match kind:
            case "preference":
                self.count += 1
                requests, hints = what
                marks = {name: msgspec.json.encode(value).decode() for name, value in hints.items()}
                name = f"p{self.count}"
                spec = PodSpec(containers=(Container(resources=ResourceRequirements(requests)),))
                metadata = ObjectMeta(name=name, namespace="d", uid=f"u{self.count:04}", annotations=marks)
                self.core.intake.set_pod(Pod(metadata, spec))
                self.decide()
            case "relabel":
                result = self.core.cache.find(f"n{what}")
                if result is not None:
                    node = result.known
                    other = {GPU_MODEL_LABEL: "H20"} if node.metadata.labels else {GPU_PARTITION_POLICY_LABEL: "Honor"}
                    self.core.intake.set_node(replace(node, metadata=replace(node.metadata, labels=other)))
                self.decide()
            case "sizes":
                self.core.intake.set_config_map(SOURCE, config_map() if what else None)
                self.decide()
            case "stranger" if self.core.cache.known_count:
                where = min(self.core.cache, key=lambda info: (len(info.pods), info.name)).name
                self.count += 1
                text = f'{{"gpu":[{{"minor":{what},"resources":{{"{GPU_CORE}":"100","{GPU_MEMORY_RATIO}":"100"}}}}]}}'
                name = f"s{self.count}"
                metadata = ObjectMeta(name=name, namespace="d", uid=name, annotations={DEVICE_ALLOCATED: text})
                self.core.intake.set_pod(Pod(metadata, PodSpec(node_name=where)))
                self.bound[name] = (Pod(metadata), where)
                self.decide()
            case _:
                super().act(kind, what)


def arguments(strategy: str) -> list[Any]:
    return [{"name": "DeviceShare", "args": {"scoringStrategy": {"type": strategy}}}]


CARDS_ALONE = {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "DeviceShare", "weight": 3}]}}
PROFILES: list[dict[str, Any]] = [
    {},
    {"pluginConfig": arguments("MostAllocated")},
    {"pluginConfig": arguments("MostAllocated"), "plugins": CARDS_ALONE},
    {"pluginConfig": arguments("LeastAllocated"), "plugins": CARDS_ALONE},
]


@pytest.mark.parametrize("parts", PROFILES, ids=["spread", "pack", "pack-by-cards", "spread-by-cards"])
@stories(60)
@given(start=st.lists(nodes(), min_size=1, max_size=4), story=st.lists(events, min_size=5, max_size=40))
def test_cached_results_equal_a_full_evaluation(
    parts: dict[str, Any], start: list[tuple[Node, Device | None]], story: list[tuple[str, Any]]
) -> None:
    play = AnnotatedPlay(**parts)
    play.tell(start, story)


def selecting(value: str) -> dict[str, Any]:
    return {DEVICE_ALLOCATE_HINT: {"gpu": {"selector": {"matchLabels": {"bin": value}}}}}


SHARES: list[tuple[ResourceList, dict[str, Any]]] = [
    ({GPU_CORE: percent, GPU_MEMORY_RATIO: percent}, selecting(value)) for percent in (20, 50) for value in "ab"
]


@pytest.mark.parametrize("strategy", ["MostAllocated", "LeastAllocated"])
@settings(max_examples=60)
@given(story=st.lists(st.one_of(st.sampled_from(SHARES), st.integers(0, 30)), min_size=10, max_size=60))
def test_scores_of_selected_cards_follow_their_allocations(strategy: str, story: list[Any]) -> None:
    play = AnnotatedPlay(pluginConfig=arguments(strategy), plugins=CARDS_ALONE)
    allocatable: ResourceList = {"cpu": "64", "memory": "512Gi", "pods": "99", GPU_CORE: 800, GPU_MEMORY_RATIO: 800}
    for number in range(6):
        name = f"n{number}"
        node = Node(ObjectMeta(name=name, uid=name), NodeSpec(), NodeStatus(allocatable=allocatable))
        cards = tuple(replace(card(minor), labels={"bin": "aabab"[minor % 5 - number % 2]}) for minor in range(4))
        play.act("node", (node, Device(ObjectMeta(name=name), DeviceSpec(cards))))
    for what in story:
        play.act("delete" if isinstance(what, int) else "preference", what)
