"""Stories of devices and CPUs that are given wrongly."""

import json
from collections.abc import Callable

from seatrial.harness.audit.tests.story import CORE, GIB, MEMORY, RATIO, Json, Story, card, gpu_pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATE_HINT, DEVICE_ALLOCATED, DEVICE_JOINT_ALLOCATE
from seatrial.scheduler.api.numa import NUMA_TOPOLOGY_SPEC, QOS_LABEL, RESOURCE_SPEC, RESOURCE_STATUS


def unreadable(story: Story, broken: bool) -> None:
    story.pod("p").bind("p", **{DEVICE_ALLOCATED: "{" if broken else "{}"})


def devices_change(story: Story, broken: bool) -> None:
    gpu_pod(story, "p")
    story.grant("p", {"gpu": [card(0)]})
    story.grant("p", {"gpu": [card(1 if broken else 0)]})


def none_granted(story: Story, broken: bool) -> None:
    gpu_pod(story, "p")
    story.grant("p", {} if broken else {"gpu": [card(0)]})


def unasked(story: Story, broken: bool) -> None:
    story.pod("p").grant("p", {"gpu": [card(0)]} if broken else {})


def amount(story: Story, broken: bool) -> None:
    gpu_pod(story, "p", 50)
    story.grant("p", {"gpu": [card(0, 40 if broken else 50)]})


def forms(story: Story, broken: bool) -> None:
    gpu_pod(story, "p", 50)
    story.grant("p", {"gpu": [card(0, 50, memory=10 * GIB if broken else 40 * GIB)]})


def twice(story: Story, broken: bool) -> None:
    gpu_pod(story, "p", 50)
    parts = [card(0, 25), card(0, 25)] if broken else [card(0, 25), card(1, 25)]
    story.grant("p", {"gpu": parts})


def identity(story: Story, broken: bool) -> None:
    gpu_pod(story, "p")
    story.grant("p", {"gpu": [card(0, id_="GPU-1" if broken else "GPU-0")]})


def unknown_device(story: Story, broken: bool) -> None:
    gpu_pod(story, "p")
    story.grant("p", {"gpu": [card(7 if broken else 0)]})


def unhealthy(story: Story, broken: bool) -> None:
    story.device("n1", healthy=not broken)
    story.at += 10
    gpu_pod(story, "p")
    story.grant("p", {"gpu": [card(0)]})


def shares(resource: str) -> Callable[[Story, bool], None]:
    """Two pods whose shares of one resource exceed card 0; of the others they ask for little."""

    def tell(story: Story, broken: bool) -> None:
        for name in ("a", "b"):
            each = 60 if broken else 40
            amounts = {CORE: 10, RATIO: 10, MEMORY: 8 * GIB}
            amounts[resource] = each * 80 * GIB // 100 if resource == MEMORY else each
            story.pod(name, requests={CORE: "10"} if resource != CORE else {CORE: str(each)})
            by_key = {key: str(value) for key, value in amounts.items()}
            story.grant(name, {"gpu": [{"minor": 0, "resources": by_key}]})

    return tell


def nic_sum(story: Story, broken: bool) -> None:
    for name in ("a", "b"):
        story.pod(name, requests={"koordinator.sh/rdma": "60"})
        values = {"koordinator.sh/rdma": "60" if broken else "40"}
        story.grant(name, {"rdma": [{"minor": 0, "resources": values}]})


def whole(story: Story, broken: bool) -> None:
    gpu_pod(story, "a")
    story.grant("a", {"gpu": [card(0)]})
    gpu_pod(story, "b", 50)
    story.grant("b", {"gpu": [card(0 if broken else 1, 50)]})


def functions(story: Story, broken: bool) -> None:
    for name, bus in (("a", "v1"), ("b", "v1" if broken else "v2")):
        story.pod(name, requests={"koordinator.sh/rdma": "1"})
        extension = {"vfs": [{"busID": bus}]}
        story.grant(name, {"rdma": [{"minor": 0, "resources": {"koordinator.sh/rdma": "1"}, "extension": extension}]})


def hinted(hint: Json, broken_cards: list[int], good_cards: list[int]) -> Callable[[Story, bool], None]:
    def tell(story: Story, broken: bool) -> None:
        cards = broken_cards if broken else good_cards
        text = json.dumps({"gpu": hint})
        gpu_pod(story, "p", 100 * len(cards), annotations={DEVICE_ALLOCATE_HINT: text})
        story.grant("p", {"gpu": [card(number) for number in cards]})

    return tell


def joint(story: Story, broken: bool) -> None:
    text = json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})
    story.pod(
        "p", requests={CORE: "100", RATIO: "100", "koordinator.sh/rdma": "1"}, annotations={DEVICE_JOINT_ALLOCATE: text}
    )
    nic = {"minor": 0, "resources": {"koordinator.sh/rdma": "1"}}
    story.grant("p", {"gpu": [card(0 if broken else 1)], "rdma": [nic]})


def switch_alone(story: Story, broken: bool) -> None:
    gpu_pod(story, "a", 50)
    story.grant("a", {"gpu": [card(0, 50)]})
    text = json.dumps({"gpu": {"exclusivePolicy": "PCIeLevel"}})
    gpu_pod(story, "b", 50, annotations={DEVICE_ALLOCATE_HINT: text})
    story.grant("b", {"gpu": [card(0 if broken else 1, 50)]})


def partition(story: Story, broken: bool) -> None:
    table = json.dumps({"1": [{"minors": [1]}]})
    story.device(
        "n1",
        annotations={"scheduling.koordinator.sh/gpu-partitions": table},
        labels={"node.koordinator.sh/gpu-partition-policy": "Honor"},
    )
    story.at += 10
    gpu_pod(story, "p")
    story.grant("p", {"gpu": [card(0 if broken else 1)]})


def isolation(story: Story, broken: bool) -> None:
    label = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
    if not broken:
        story.node("n1", labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"})
        story.at += 10
    gpu_pod(story, "p", 50, labels=label)
    story.grant("p", {"gpu": [card(0, 50)]})


def status_unreadable(story: Story, broken: bool) -> None:
    story.pod("p").bind("p", **{RESOURCE_STATUS: '{"cpuset": "x"}' if broken else '{"cpuset": ""}'})


def cpus_change(story: Story, broken: bool) -> None:
    story.pod("p", cpu="2").cpus("p", "0-1")
    story.cpus("p", "2-3" if broken else "0-1")


def cpus_twice(story: Story, broken: bool) -> None:
    story.pod("a", cpu="2").cpus("a", "0-1")
    story.pod("b", cpu="2").cpus("b", "1-2" if broken else "2-3")


def one_cpuset(cpu: str, broken_set: str, good_set: str, spec: Json | None = None) -> Callable[[Story, bool], None]:
    def tell(story: Story, broken: bool) -> None:
        annotations = {RESOURCE_SPEC: json.dumps(spec)} if spec else None
        story.pod("p", cpu=cpu, annotations=annotations).cpus("p", broken_set if broken else good_set)

    return tell


def without_cpus(story: Story, broken: bool) -> None:
    spec = {RESOURCE_SPEC: json.dumps({"requiredCPUBindPolicy": "FullPCPUs"})}
    story.pod("p", cpu="2", labels={QOS_LABEL: "LSR"}, annotations=spec).cpus("p", "" if broken else "0-1")


def one_numa_node(story: Story, broken: bool) -> None:
    spec = {NUMA_TOPOLOGY_SPEC: json.dumps({"numaTopologyPolicy": "SingleNUMANode"})}
    story.pod("p", cpu="2", annotations=spec).cpus("p", "3-4" if broken else "2-3")


def zone_sum(story: Story, broken: bool) -> None:
    for name in ("a", "b"):
        zone = [{"node": 0, "resources": {"cpu": "3" if broken else "2"}}]
        story.pod(name, cpu="3").cpus(name, "", zone)


STORIES: dict[str, Callable[[Story, bool], None]] = {
    "AUD-201": unreadable,
    "AUD-202": devices_change,
    "AUD-203": none_granted,
    "AUD-204": unasked,
    "AUD-205": amount,
    "AUD-206": forms,
    "AUD-207": twice,
    "AUD-208": identity,
    "AUD-209": unknown_device,
    "AUD-210": unhealthy,
    "AUD-211": shares(CORE),
    "AUD-212": shares(RATIO),
    "AUD-213": shares(MEMORY),
    "AUD-214": nic_sum,
    "AUD-215": whole,
    "AUD-216": functions,
    "AUD-217": hinted({"requiredTopologyScope": "NUMANode"}, [0, 1], [0]),
    "AUD-218": hinted({"selector": {"matchLabels": {"slot": "1"}}}, [0], [1]),
    "AUD-219": joint,
    "AUD-220": switch_alone,
    "AUD-221": partition,
    "AUD-222": isolation,
    "AUD-301": status_unreadable,
    "AUD-302": cpus_change,
    "AUD-303": cpus_twice,
    "AUD-304": one_cpuset("2", "0-2", "0-1"),
    "AUD-305": one_cpuset("2", "0,99", "0,1"),
    "AUD-306": one_cpuset("2", "6-7", "4-5"),
    "AUD-307": one_cpuset("2", "0,2", "0-1", {"requiredCPUBindPolicy": "FullPCPUs"}),
    "AUD-308": one_cpuset("2", "0-1", "0,2", {"requiredCPUBindPolicy": "SpreadByPCPUs"}),
    "AUD-309": without_cpus,
    "AUD-310": one_numa_node,
    "AUD-311": zone_sum,
}
