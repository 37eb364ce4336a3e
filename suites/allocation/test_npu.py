"""Ascend NPUs: whole cards, HCCS partitions, and virtual NPUs by templates.

Atlas 800T A2: eight 910B3 with twenty AI cores each, two on a PCIe switch, in two HCCS rings of four. The Device object
lists each ring as a partition.
"""

import json
from collections.abc import Iterator

import pytest

from seatrial.fixtures.allocated_devices import (
    amounts,
    check_arrival,
    devices_of,
    first_of,
    minors,
    numa_nodes,
    switches,
)
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, pods
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import (
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_PARTITION_POLICY_LABEL,
    GPU_PARTITIONS,
    GPU_SHARED,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
)

SERVER, CARD = "atlas-800t-a2", "ascend-910b3"
CORES = 20  # AI cores of a 910B3
RINGS = [[0, 1, 2, 3], [4, 5, 6, 7]]
SYSTEM = "koordinator-system"
MODEL = "huawei-Ascend-910B3"
TEMPLATES = {
    # another model's name of the same size, which no card here is called by
    "huawei-Ascend-310P3": {"vir05_of_another": {GPU_MEMORY: "16Gi", NPU_CORE: 5, NPU_CPU: 1, NPU_DVPP: 25}},
    MODEL: {
        "vir05_1c_16g": {GPU_MEMORY: "16Gi", NPU_CORE: 5, NPU_CPU: 1, NPU_DVPP: 25},
        "vir10_3c_32g": {GPU_MEMORY: "32Gi", NPU_CORE: 10, NPU_CPU: 3, NPU_DVPP: 50},
    },
}
TEMPLATES_MAP = "gpu-shared-resource-templates"

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


def whole(name: str, cards: int) -> PodBuilder:
    return pod(name).resources({NPU_CORE: CORES * cards, GPU_MEMORY_RATIO: 100 * cards})


def virtual(name: str, cores: int = 5, cpus: int = 1, dvpp: int = 25, memory: str = "16Gi") -> PodBuilder:
    return pod(name).resources({GPU_SHARED: 1, NPU_CORE: cores, NPU_CPU: cpus, NPU_DVPP: dvpp, GPU_MEMORY: memory})


def named(placed: Pod) -> str:
    """The template of a pod's slice; "" if it names none."""
    extension = devices_of(placed)[0].extension
    return extension.gpu_shared_resource_template if extension else ""


@pytest.fixture
def templates(trial: Trial) -> Iterator[Trial]:
    """The ConfigMap with the templates of virtual NPUs, and a scheduler that has read it."""
    trial.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps"
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": TEMPLATES_MAP},
        "data": {"data.yaml": json.dumps(TEMPLATES)},
    }
    trial.accept(body, path)
    yield trial
    trial.call("DELETE", f"{path}/{TEMPLATES_MAP}")


@pytest.mark.feature("DEV-11.whole")
@pytest.mark.case("DS-060", severity="blocker")
@pytest.mark.parametrize(
    ("cards", "on_switches"),
    [
        pytest.param(1, 1, id="one"),
        pytest.param(2, 1, id="two-on-one-switch"),
        pytest.param(4, 2, id="four-on-two-switches"),
        pytest.param(8, 4, id="all-eight"),
    ],
)
def test_whole_npus(trial: Trial, expect: Expect, cards: int, on_switches: int) -> None:
    """Whole NPUs with all cores and memory, close to each other, under Ascend's names in the container."""
    trial.add(node("n1").server(SERVER))
    trial.submit(whole("a", cards))

    a = expect.running("a")

    assert amounts(a, NPU_CORE) == [CORES] * cards
    assert amounts(a, GPU_MEMORY) == [64 << 30] * cards
    assert len(switches(trial, a)) == len(numa_nodes(trial, a)) == on_switches
    check_arrival(trial, a)


@pytest.mark.feature("DEV-6.hccs", "DEV-11.reported")
@pytest.mark.case("DS-061", severity="critical")
def test_the_node_reports_its_rings(trial: Trial) -> None:
    """The Device object lists the HCCS rings as partitions of four, as a preference."""
    trial.add(node("n1").server(SERVER))

    meta = trial.device("n1")["metadata"]

    table = json.loads(meta["annotations"][GPU_PARTITIONS])
    assert table.keys() == {"4"}
    assert sorted(partition["minors"] for partition in table["4"]) == RINGS
    assert {partition["gpuLinkType"] for partition in table["4"]} == {"HCCS"}
    assert meta["labels"][GPU_PARTITION_POLICY_LABEL] == "Prefer"


@pytest.mark.feature("DEV-6.hccs", "DEV-11.partition")
@pytest.mark.case("DS-062", severity="critical")
def test_four_npus_are_a_ring(trial: Trial, expect: Expect) -> None:
    """Four NPUs are one ring; with both rings partly used, a pod that requires a ring waits, another gets any four."""
    trial.add(node("n1").server(SERVER))
    trial.submit(whole("single", 1))
    single = expect.running("single")
    ring = next(ring for ring in RINGS if first_of(single) in ring)
    other = next(candidate for candidate in RINGS if candidate != ring)

    trial.submit(whole("first", 4).partition("Restricted"))
    first = expect.running("first")
    assert minors(first) == other
    check_arrival(trial, first)

    trial.submit(whole("second", 4).partition("Restricted"))
    expect.pending("second")
    trial.delete("single")
    assert minors(expect.running("second")) == ring


@pytest.mark.feature("DEV-6.hccs", "DEV-11.partition")
@pytest.mark.case("DS-063", severity="critical")
def test_rings_are_a_preference_only(trial: Trial, expect: Expect) -> None:
    """Pods without a requirement get two or six NPUs, for which the table has no row."""
    trial.add(node("n1").server(SERVER))
    trial.submit(whole("two", 2), whole("six", 6))

    two, six = expect.running("two", "six")

    assert sorted(minors(two) + minors(six)) == list(range(8))
    trial.delete("two", "six")
    trial.submit(whole("insists", 2).partition())
    expect.pending("insists", saying="Unsupported number of GPU requests")


@pytest.mark.feature("DEV-11.virtual")
@pytest.mark.needs(Capability.OWN_CLUSTER)
@pytest.mark.case("DS-064", severity="critical")
@pytest.mark.parametrize(
    ("size", "template", "fit"),
    [
        pytest.param((5, 1, 25, "16Gi"), "vir05_1c_16g", 4, id="quarters"),
        pytest.param((10, 3, 50, "32Gi"), "vir10_3c_32g", 2, id="halves"),
    ],
)
def test_virtual_npus(
    templates: Trial, expect: Expect, size: tuple[int, int, int, str], template: str, fit: int
) -> None:
    """A slice has the size of a template, whose name the runtime gets; a card holds as many as fit."""
    templates.add(node("n1").gpus(CARD, 1))
    virtuals = [virtual(pod.name, *size) for pod in pods("slice", fit + 1)]
    templates.submit(*virtuals[:fit])
    names = [pod.name for pod in virtuals]

    bound = expect.running(names[0], names[1], *names[2:fit])

    seen = []
    for bound_pod in bound:
        part = devices_of(bound_pod)[0]
        assert len(devices_of(bound_pod)) == 1
        assert part.extension is not None
        assert part.extension.gpu_shared_resource_template == template
        assert units(part.resources[NPU_CORE]) == size[0]
        inside = check_arrival(templates, bound_pod)
        assert inside.env["ASCEND_VNPU_SPECS"] == template
        assert inside.env["ASCEND_RUNTIME_OPTIONS"] == "VIRTUAL"
        seen.append(inside.env["ASCEND_VISIBLE_DEVICES"])
    assert len(set(seen)) == fit, f"two pods see one virtual NPU: {seen}"
    templates.submit(virtuals[fit])
    expect.pending(names[fit], saying="Insufficient")


@pytest.mark.feature("DEV-11.virtual")
@pytest.mark.case("DS-065", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_a_slice_of_no_known_size_is_refused(templates: Trial, expect: Expect) -> None:
    """A slice whose size matches no template is refused."""
    templates.add(node("n1").gpus(CARD, 1))
    templates.submit(virtual("odd", cores=7))

    expect.pending("odd", saying="no matched GPU shared resource template")


@pytest.mark.feature("DEV-11.virtual")
@pytest.mark.case("DS-181", severity="normal", source="spec DEV-R45")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_a_size_with_two_names_has_none(templates: Trial, expect: Expect) -> None:
    """The ConfigMap has two templates of one size: a slice of it names none, and one of another size its own."""
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{TEMPLATES_MAP}"
    sizes = TEMPLATES[MODEL]
    twice = {**sizes, "vir05_of_another_name": sizes["vir05_1c_16g"]}
    assert templates.call("PATCH", path, {"data": {"data.yaml": json.dumps({MODEL: twice})}}).ok
    templates.settle()
    templates.add(node("n1").gpus(CARD, 1))
    templates.submit(virtual("a"), virtual("b", 10, 3, 50, "32Gi"))

    assert [named(bound) for bound in expect.bound("a", "b")] == ["", "vir10_3c_32g"]


@pytest.mark.feature("DEV-11.virtual")
@pytest.mark.case("DS-276", severity="normal", source="spec DEV-R45, E13")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_a_size_of_another_model(templates: Trial, expect: Expect) -> None:
    """The ConfigMap has a template of the size of a slice for another model only: the pod waits."""
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{TEMPLATES_MAP}"
    other = {"huawei-Ascend-310P3": TEMPLATES["huawei-Ascend-310P3"]}
    assert templates.call("PATCH", path, {"data": {"data.yaml": json.dumps(other)}}).ok
    templates.settle()
    templates.add(node("n1").gpus(CARD, 1))
    templates.submit(virtual("a"))
    expect.pending("a", saying="no matched GPU shared resource template")


@pytest.mark.feature("DEV-11.virtual")
@pytest.mark.case("DS-139", severity="critical", source="spec DEV-R12, DEV-R45; ours: changes wake pods")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_the_templates_change(templates: Trial, expect: Expect) -> None:
    """A pod waits for a size that the changed ConfigMap has, with all of DVPP, instead of another one, which is
    refused from then on, as is a size with DVPP for which there is one without; data that are no templates change
    nothing, a size that has another name gives this one, and when the ConfigMap is gone there is no size."""
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{TEMPLATES_MAP}"
    templates.add(node("n1").gpus(CARD, 3))
    templates.submit(virtual("new", 10, 3, 100, "32Gi"))
    expect.pending("new", saying="no matched GPU shared resource template")
    size = {GPU_MEMORY: "32Gi", NPU_CORE: 10, NPU_CPU: 3, NPU_DVPP: 100}
    less = {GPU_MEMORY: "16Gi", NPU_CORE: 7, NPU_CPU: 1}
    changed = json.dumps({MODEL: {"vir10_3c_32g": size, "vir07_1c_16g": less}})
    assert templates.call("PATCH", path, {"data": {"data.yaml": changed}}).ok
    expect.bound("new")
    templates.submit(virtual("old"), virtual("more", cores=7))
    expect.pending("old", "more", saying="no matched GPU shared resource template")
    assert templates.call("PATCH", path, {"data": {"data.yaml": "no templates"}}).ok
    templates.settle()
    templates.submit(virtual("again", 10, 3, 100, "32Gi"))
    assert named(expect.bound("again")) == "vir10_3c_32g"
    assert templates.call("PATCH", path, {"data": {"data.yaml": json.dumps({MODEL: {"vir10_new_name": size}})}}).ok
    templates.settle()
    templates.submit(virtual("renamed", 10, 3, 100, "32Gi"))
    assert named(expect.bound("renamed")) == "vir10_new_name"
    assert templates.call("DELETE", path).ok
    templates.settle()
    templates.submit(virtual("late", 10, 3, 100, "32Gi"))
    expect.pending("late", saying="no matched GPU shared resource template")


@pytest.mark.feature("DEV-11.virtual")
@pytest.mark.case("DS-066", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_a_cut_npu_is_not_given_whole(templates: Trial, expect: Expect) -> None:
    """A card with a virtual NPU is not allocated as a whole; after the virtual NPU is deleted, it is."""
    templates.add(node("n1").gpus(CARD, 1))
    templates.submit(virtual("slice"))
    expect.running("slice")
    templates.submit(whole("whole", 1))
    expect.pending("whole", saying="Insufficient")

    templates.delete("slice")

    check_arrival(templates, expect.running("whole"))


@pytest.mark.profile("vendor-plugins")
@pytest.mark.feature("DEV-11.whole")
@pytest.mark.case("DS-067", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_what_huaweis_plugin_reads(templates: Trial, expect: Expect) -> None:
    """With the device plugin adaptor on, the pod's annotations name its cards or its slice in Huawei's format."""
    templates.add(node("n1").server(SERVER))
    templates.submit(whole("two", 2).scheduler("vendor-plugins"), virtual("slice").scheduler("vendor-plugins"))

    two, part = expect.running("two", "slice")

    assert two.metadata.annotations.get("huawei.com/npu-core") == ",".join(map(str, minors(two)))
    assert part.metadata.annotations.get("huawei.com/npu-core") == f"{first_of(part)}-vir05_1c_16g"
    for placed in (two, part):
        assert int(placed.metadata.annotations.get("predicate-time", 0)) > 0
        assert placed.metadata.annotations.get("scheduling.koordinator.sh/gpu-minors") == ",".join(
            map(str, minors(placed))
        )
        check_arrival(templates, placed)


@pytest.mark.needs(Capability.DEVICE_FAULTS)
@pytest.mark.feature("DEV-2.unhealthy-leaves", "DEV-11.partition")
@pytest.mark.case("DS-068", severity="critical")
def test_a_sick_npu_breaks_its_ring(trial: Trial, expect: Expect) -> None:
    """A faulty NPU leaves the pool, and its ring cannot be allocated."""
    trial.add(node("n1").server(SERVER))
    trial.inject({"node": "n1", "verb": "critical", "device": 0, "code": 0x80E01801})

    def sick() -> list[int]:
        return [device["minor"] for device in trial.device("n1")["spec"]["devices"] if not device.get("health")]

    assert trial.wait(lambda: len(sick()) == 1, within=30), "expected an unhealthy NPU in the Device object"
    (minor,) = sick()
    well = next(ring for ring in RINGS if minor not in ring)
    for name in ("first", "second"):
        trial.submit(whole(name, 4).partition("Restricted"))
    assert trial.wait(lambda: any(pod.spec.node_name for pod in trial.pods()), within=30)
    expect.stable(seconds=2)

    assert [minors(pod) for pod in trial.pods() if pod.spec.node_name] == [well]
