"""Tables of the rules of devices: which requests mean something, and what devices they get.

The tables are those of koordinator's own tests where these have some (specification of devices, chapter 15).
"""

from typing import Any

import pytest

from seatrial.fixtures.allocated_devices import amounts, card_memory, minors
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ApiRefused
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.device import (
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HYGON_DCU,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    NVIDIA_GPU,
    RDMA,
)
from seatrial.suites.allocation.listed import Json, relist

DEVICE_SHARE = "koordinator pkg/scheduler/plugins/deviceshare"
CARD, NIC = "a10", "connectx-7"
AMOUNTS = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: "16Gi", NPU_CORE: 20, NPU_CPU: 8, NPU_DVPP: 100}
INVALID, NO_SIZE = "invalid resource", "no matched GPU shared resource template"
SLICE = {NPU_CORE: 10, NPU_CPU: 3, GPU_MEMORY: "16Gi"}

pytestmark = [pytest.mark.needs(Capability.NODES)]


def spelled(value: Any) -> str | None:
    """Part of a row's name: resources without their domains."""
    return (
        "+".join(f"{key.partition('/')[2]}-{amount}" for key, amount in value.items())
        if value.__class__ is dict
        else None
    )


@pytest.mark.feature("DEV-1.refusals", "DEV-1.combined-names")
@pytest.mark.case("DS-220", severity="critical", source=f"{DEVICE_SHARE}/utils_test.go TestValidateDeviceRequest; E1")
@pytest.mark.parametrize(
    ("resources", "saying"),
    [
        ({GPU: 101}, INVALID),
        ({FPGA: 150}, INVALID),
        ({FPGA: 201}, INVALID),
        ({RDMA: 201}, INVALID),
        ({GPU_CORE: 100, GPU_MEMORY_RATIO: 101}, INVALID),
        ({GPU_CORE: 101, GPU_MEMORY_RATIO: 100}, INVALID),
        ({GPU_CORE: 50}, INVALID),
        ({GPU_MEMORY: "8Gi", GPU_MEMORY_RATIO: 50}, INVALID),
        ({NVIDIA_GPU: 1, GPU_CORE: 100}, INVALID),
        ({GPU: 100, GPU_MEMORY_RATIO: 100}, INVALID),
        ({GPU_SHARED: 1}, INVALID),
        ({GPU_SHARED: 1, GPU_MEMORY_RATIO: 101}, INVALID),
        ({GPU_SHARED: 1, GPU_MEMORY_RATIO: 200}, INVALID),
        ({GPU_SHARED: 2, GPU_MEMORY_RATIO: 101}, INVALID),
        ({GPU_SHARED: 2, GPU_CORE: 51, GPU_MEMORY_RATIO: 100}, INVALID),
        ({GPU_SHARED: 2, GPU_CORE: 202, GPU_MEMORY_RATIO: 200}, INVALID),
        ({GPU_SHARED: 1, GPU_CORE: 101, GPU_MEMORY: "32Gi"}, INVALID),
        ({NPU_CORE: 40, GPU_MEMORY: "32Gi"}, INVALID),
        ({GPU_SHARED: 1, NPU_CORE: 10, GPU_MEMORY: "16Gi"}, INVALID),
        ({GPU_SHARED: 1, NPU_CORE: 10, GPU_MEMORY_RATIO: 50}, INVALID),
        ({GPU_SHARED: 1, **SLICE}, NO_SIZE),
        ({GPU_SHARED: 1, **SLICE, NPU_DVPP: 100}, NO_SIZE),
        ({GPU_SHARED: 1, **SLICE, NPU_DVPP: 101}, INVALID),
        ({GPU_SHARED: 2, **SLICE, NPU_DVPP: 100}, INVALID),
        ({GPU_SHARED: 2, **SLICE}, INVALID),
        ({GPU_CORE: 200, GPU_MEMORY: "32Gi"}, "Insufficient"),
    ],
    ids=spelled,
)
def test_requests_that_mean_nothing(trial: Trial, expect: Expect, resources: Json, saying: str) -> None:
    """The pod waits and says why. A webhook for pods may refuse it before the scheduler sees it."""
    trial.add(node("n1").gpus(CARD, 2))
    try:
        trial.submit(pod("odd").resources(dict(resources)))
    except ApiRefused:
        return
    expect.pending("odd", saying=saying)


@pytest.mark.feature("DEV-1.combined-names", "DEV-1.share-by-bytes")
@pytest.mark.case(
    "DS-191",
    severity="critical",
    source=f"{DEVICE_SHARE}/devicehandler_gpu_test.go Test_calcDesiredRequestsAndCountForGPU; E3",
)
@pytest.mark.parametrize(
    ("resources", "core", "ratio", "shared"),
    [
        ({NVIDIA_GPU: 2}, [100, 100], [100, 100], False),
        ({GPU: 200}, [100, 100], [100, 100], False),
        ({HYGON_DCU: 2}, [100, 100], [100, 100], False),
        ({GPU: 50}, [50], [50], True),
        ({GPU_MEMORY_RATIO: 200}, [0, 0], [100, 100], False),
        ({GPU_MEMORY_RATIO: 50}, [0], [50], True),
        ({GPU_CORE: 50, GPU_MEMORY_RATIO: 100}, [50], [100], False),
        ({GPU_SHARED: 2, GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, [50, 50], [50, 50], True),
        ({GPU_SHARED: 2, GPU_MEMORY_RATIO: 200}, [0, 0], [100, 100], False),
        ({GPU_SHARED: 2, GPU_CORE: 200, GPU_MEMORY_RATIO: 200}, [100, 100], [100, 100], False),
        ({GPU_CORE: 100, GPU_MEMORY: "16Gi"}, [100], [100], True),
        ({GPU_SHARED: 2, GPU_CORE: 100, GPU_MEMORY: "16Gi"}, [50, 50], [50, 50], True),
        ({NPU_CORE: 40, GPU_MEMORY_RATIO: 200}, [0, 0], [100, 100], False),
    ],
    ids=spelled,
)
def test_how_a_request_is_split(  # noqa: PLR0917 a case and its row
    trial: Trial, expect: Expect, resources: Json, core: list[int], ratio: list[int], shared: bool
) -> None:
    """The sum is split over cards of 16 GiB; a part that leaves room, or is in bytes, needs who isolates it."""
    bare, isolating = (node(name).gpus(CARD, 2).extended(NPU_CORE, 40).extended(HYGON_DCU, 2) for name in ("n1", "n2"))
    trial.add(isolating.isolation())
    relist(trial, "n2", lambda _: {"resources": AMOUNTS})
    trial.submit(pod("a").resources(dict(resources)).isolated())
    a = expect.bound("a")
    assert (amounts(a, GPU_CORE), amounts(a, GPU_MEMORY_RATIO)) == (core, ratio)
    assert amounts(a, GPU_MEMORY) == [(16 << 30) * percent // 100 for percent in ratio]
    trial.add(bare)
    relist(trial, "n1", lambda _: {"resources": AMOUNTS})
    trial.submit(pod("b").resources(dict(resources)).isolated().on(**{"kubernetes.io/hostname": "n1"}))
    if shared:
        expect.pending("b")
    else:
        expect.bound("b")


@pytest.mark.feature("DEV-1.combined-names")
@pytest.mark.case("DS-281", severity="normal", source="spec DEV-R2: the request is that of all containers")
def test_containers_that_share_a_request(trial: Trial, expect: Expect) -> None:
    """Two containers ask for a half of a card each, and an init container for as much: the pod has a half of two."""
    trial.add(node("n1").gpus(CARD, 3))
    built = pod("a").resources({GPU_SHARED: 1, GPU_CORE: 50, GPU_MEMORY_RATIO: 50})
    spec = built.manifest["spec"]
    spec["containers"].append({**spec["containers"][0], "name": "second"})
    spec["initContainers"] = [{**spec["containers"][0], "name": "first"}]
    trial.submit(built)
    assert amounts(expect.bound("a"), GPU_CORE) == [50, 50]


@pytest.mark.feature("DEV-1.share-by-bytes")
@pytest.mark.case("DS-192", severity="normal", source="spec DEV-R10, DEV-R11: percent of bytes is cut off")
@pytest.mark.parametrize(
    ("parts_of", "percent"), [((2, 3), 66), ((1, 24), 4), ((999, 1000), 99), ((1, 2), 50), ((1, 1), 100)]
)
def test_percent_of_bytes(trial: Trial, expect: Expect, parts_of: tuple[int, int], percent: int) -> None:
    """What a pod asks for in bytes is listed in whole percent of the card too."""
    trial.add(node("n1").gpus(CARD, 1))
    size = card_memory(trial, "n1") * parts_of[0] // parts_of[1]
    trial.submit(pod("a").gpu_memory(size))
    a = expect.bound("a")
    assert (amounts(a, GPU_MEMORY), amounts(a, GPU_MEMORY_RATIO)) == ([size], [percent])


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case(
    "DS-193", severity="normal", source=f"{DEVICE_SHARE}/devicehandler_default_test.go; spec DEV-R14, edge cases 8, 9"
)
@pytest.mark.parametrize(
    ("rdma", "hint", "nics", "each"),
    [
        pytest.param(1, {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"type": "w"}}}, [1, 2, 3], 1),
        pytest.param(1, {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"type": "s"}}}, None, 1),
        pytest.param(1, {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"type": "x"}}}, None, 1),
        pytest.param(1, {"allocateStrategy": "ApplyForAll"}, None, 1, id="all-and-one-is-unhealthy"),
        pytest.param(200, {"allocateStrategy": "RequestsAsCount"}, [1, 2], 100, id="hundreds-are-nics"),
        pytest.param(200, {"allocateStrategy": "ApplyForAll"}, [1, 2], 100, id="hundreds-are-not-for-all"),
        pytest.param(100, {"selector": {"matchLabels": {"type": "w"}}}, [1], 100, id="healthy"),
        pytest.param(2, {"allocateStrategy": "RequestsAsCount"}, [1, 2], 1, id="count"),
        pytest.param(
            2,
            {
                "allocateStrategy": "RequestsAsCount",
                "selector": {"matchExpressions": [{"key": "last", "operator": "Exists"}]},
            },
            None,
            1,
            id="count-beyond-the-selected",
        ),
    ],
)
def test_how_many_of_the_nics_that_a_hint_selects(  # noqa: PLR0917 a case and its row
    trial: Trial, expect: Expect, rdma: int, hint: Json, nics: list[int] | None, each: int
) -> None:
    """Of four NICs the first is unhealthy and of another kind. What is for all counts it, and cannot have it."""
    trial.add(node("n1").gpus(CARD, 1).nics(NIC, 4))

    def sort(one: Json) -> Json | None:
        if one["type"] != "rdma":
            return None
        labels = {"type": "w" if one["minor"] else "s"} | ({"last": ""} if one["minor"] == 3 else {})
        return {"labels": labels, "health": bool(one["minor"])}

    relist(trial, "n1", sort)
    trial.submit(pod("a").rdma(rdma).hint("rdma", **hint))
    if nics is None:
        expect.pending("a", saying="Insufficient rdma devices")
        return
    a = expect.bound("a")
    assert (minors(a, "rdma"), amounts(a, RDMA, "rdma")) == (nics, [each] * len(nics))


@pytest.mark.feature("DEV-1.once")
@pytest.mark.case(
    "DS-240", severity="normal", source=f"spec DEV-R14, DEV-R47; {DEVICE_SHARE}/devicehandler_default.go@v1.7.0"
)
@pytest.mark.needs(Capability.DEVICE_FAULTS)  # no node of the catalog runs pods on FPGAs
def test_fpgas(trial: Trial, expect: Expect) -> None:
    """Whole FPGAs of those that a hint selects, a part of each, a share of one: as NICs, and none beyond 100 %."""
    trial.add(node("n1").gpus(CARD, 1).nics(NIC, 4).extended(FPGA, 400))

    def fpga(one: Json) -> Json | None:
        labels = {"speed": "fast" if one["minor"] in {1, 2} else "slow"}
        return {"type": "fpga", "resources": {FPGA: 100}, "labels": labels} if one["type"] == "rdma" else None

    relist(trial, "n1", fpga)
    trial.inject({"node": "n1", "verb": "frozen"})
    fast, slow = ({"selector": {"matchLabels": {"speed": word}}} for word in ("fast", "slow"))
    for builder, chosen, percent in (
        (pod("two").resources({FPGA: 200}).hint("fpga", **fast), [1, 2], 100),
        (pod("each").resources({FPGA: 5}).hint("fpga", allocateStrategy="ApplyForAll", **slow), [0, 3], 5),
        (pod("a").resources({FPGA: 60}), [0], 60),
        (pod("b").resources({"kubernetes.io/fpga": 60}), [3], 60),
        (pod("c").resources({FPGA: 35}), [0], 35),
    ):
        trial.submit(builder)
        placed = expect.bound(builder.name)
        assert (minors(placed, "fpga"), amounts(placed, FPGA, "fpga")) == (chosen, [percent] * len(chosen))
    trial.submit(pod("d").resources({FPGA: 36}))
    expect.pending("d", saying="Insufficient fpga devices")


@pytest.mark.feature("DEV-1.none-without-request")
@pytest.mark.case("DS-262", severity="normal", source=f"{DEVICE_SHARE}/utils.go@v1.7.0; spec DEV-R2, edge case 2")
def test_a_request_of_nothing_is_none(trial: Trial, expect: Expect) -> None:
    """A pod that asks for no card and no NIC is bound without any, and one that asks for a card and no core has one."""
    trial.add(node("n1").gpus(CARD, 1).nics(NIC, 1))
    trial.submit(pod("none").resources({GPU: 0, GPU_CORE: 0, RDMA: 0}), pod("card").resources({NVIDIA_GPU: 1, GPU: 0}))
    none, card = expect.bound("none", "card")
    assert (minors(none), minors(none, "rdma"), minors(card)) == ([], [], [0])


@pytest.mark.feature("DEV-7.vf")
@pytest.mark.case("DS-263", severity="normal", source="spec DEV-R16, edge case 10")
@pytest.mark.parametrize("kind", ["gpu", "rdma"])
def test_devices_that_have_no_functions(trial: Trial, expect: Expect, kind: str) -> None:
    """A hint selects functions, of cards or of NICs, and none of these has any: the pod says so and waits."""
    trial.add(node("n1").gpus(CARD, 1).nics(NIC, 1))
    relist(trial, "n1", lambda _: {"vfGroups": []})
    builder = pod("a").hint("gpu", vfSelector={}) if kind == "gpu" else pod("a").hint("rdma", vfSelector={})
    trial.submit(builder.gpus(1) if kind == "gpu" else builder.rdma(1))
    expect.pending("a", saying=f"Insufficient {kind} VirtualFunctions")
