"""AMD GPUs: whole cards by the device plugin's own name, from the Device object to the container.

Koordinator counts `amd.com/gpu` in whole cards, like `nvidia.com/gpu`. Nodes report their GPUs as other vendors do,
through koordlet's files.
"""

import pytest

from seatrial.fixtures.allocated_devices import amounts, check_arrival, devices_of, minors, numa_nodes
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, pods
from seatrial.scheduler.api.device import (
    AMD_GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_MODEL_LABEL,
    GPU_VENDOR_LABEL,
    NVIDIA_GPU,
)

SERVER, CARD = "mi300x-8", "mi300x"
CARD_MEMORY = 206141652992

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


@pytest.mark.feature("DEV-1.other-vendors-names")
@pytest.mark.case("DS-100", severity="critical")
@pytest.mark.long(seconds=9)
def test_the_node_reports_vendor_model_and_amounts(trial: Trial) -> None:
    """The Device object names vendor and model; the node offers the plugin's name and Koordinator's amounts."""
    trial.add(node("n1").gpus(CARD, 2))

    device = trial.device("n1")
    assert device["metadata"]["labels"][GPU_VENDOR_LABEL] == "amd"
    assert device["metadata"]["labels"][GPU_MODEL_LABEL] == "AMD-Instinct-MI300X"
    assert [entry["id"].startswith("GPU-") for entry in device["spec"]["devices"]] == [True, True]
    allocatable = trial.node("n1")["status"]["allocatable"]
    assert {name: int(allocatable[name]) for name in (AMD_GPU, GPU_CORE, GPU_MEMORY_RATIO)} == {
        AMD_GPU: 2,
        GPU_CORE: 200,
        GPU_MEMORY_RATIO: 200,
    }


@pytest.mark.feature("DEV-1.other-vendors-names")
@pytest.mark.case("DS-101", severity="blocker")
@pytest.mark.parametrize("cards", [1, 2, 4, 8])
def test_whole_cards(trial: Trial, expect: Expect, cards: int) -> None:
    """Whole cards, on one NUMA node if it has enough; the container gets their nodes and UUIDs and no others."""
    trial.add(node("n1").server(SERVER))
    trial.submit(pod("a").resources({AMD_GPU: cards}))

    a = expect.running("a")

    assert amounts(a, GPU_CORE) == [100] * cards
    assert amounts(a, GPU_MEMORY) == [CARD_MEMORY] * cards
    assert len(numa_nodes(trial, a)) == (2 if cards == 8 else 1)
    inside = check_arrival(trial, a)
    assert "/dev/kfd" in inside.devices
    assert {f"/dev/dri/renderD{128 + minor}" for minor in minors(a)} <= set(inside.devices)
    assert sorted(inside.env["ROCR_VISIBLE_DEVICES"].split(",")) == sorted(part.id for part in devices_of(a))


@pytest.mark.feature("DEV-1.other-vendors-names")
@pytest.mark.case("DS-102", severity="critical")
def test_a_full_node_takes_nothing_more(trial: Trial, expect: Expect) -> None:
    """No card has two pods; a card that comes free is given out again."""
    trial.add(node("n1").gpus(CARD, 2))
    trial.submit(*(builder.resources({AMD_GPU: 1}) for builder in pods("a", 2)))
    first, second = expect.running("a-0", "a-1")
    assert minors(first) != minors(second)

    trial.submit(pod("late").resources({AMD_GPU: 1}))
    expect.pending("late", saying=f"Insufficient {AMD_GPU}")
    trial.delete("a-0")

    assert minors(expect.running("late")) == minors(first)


@pytest.mark.feature("DEV-1.other-vendors-names")
@pytest.mark.case("DS-103", severity="critical")
def test_each_vendor_s_name_leads_to_its_own_nodes(trial: Trial, expect: Expect) -> None:
    """In a mixed cluster `amd.com/gpu` is met by AMD's cards alone, `nvidia.com/gpu` by NVIDIA's."""
    trial.add(node("amd").gpus(CARD, 1), node("nvidia").gpus("a10", 1))
    trial.submit(pod("a").resources({AMD_GPU: 1}), pod("b").resources({NVIDIA_GPU: 1}))

    a, b = expect.running("a", "b")

    assert (a.spec.node_name, b.spec.node_name) == ("amd", "nvidia")
    check_arrival(trial, a)
    check_arrival(trial, b)


@pytest.mark.feature("DEV-1.other-vendors-names")
@pytest.mark.case("DS-104", severity="critical")
def test_a_share_by_koordinators_names_is_given_as_a_share(trial: Trial, expect: Expect) -> None:
    """Koordinator's percent names know no vendor: half a card is booked as half, twice on the same card."""
    trial.add(node("n1").gpus(CARD, 1))
    trial.submit(*(builder.resources({GPU_CORE: 50, GPU_MEMORY_RATIO: 50}) for builder in pods("half", 2)))

    for running in expect.running("half-0", "half-1"):
        assert amounts(running, GPU_MEMORY_RATIO) == [50]
        assert minors(running) == [0]
