"""Allocation on this machine as a node, with its real cards or stand-ins (`--fake`).

The number and size of the cards are read from the Device object.
"""

from typing import Any

import pytest

from seatrial.fixtures.allocated_devices import amounts, minors
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.devices.survey import survey
from seatrial.harness.nodes.devices import device_id
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_MODEL_LABEL, GPU_VENDOR_LABEL, RDMA

pytestmark = [pytest.mark.needs(Capability.CONTAINERS)]


@pytest.fixture
def devices(trial: Trial) -> list[dict[str, Any]]:
    """The healthy devices of this machine's node."""
    node = trial.machine()
    if GPU_VENDOR_LABEL not in node["metadata"]["labels"]:
        pytest.skip("needs accelerators; this machine has none, and --fake stands in for none")
    return [device for device in trial.device(node["metadata"]["name"])["spec"]["devices"] if device["health"]]


@pytest.fixture
def cards(trial: Trial, devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The healthy NVIDIA cards of this machine's node."""
    node = trial.machine()
    vendor = node["metadata"]["labels"][GPU_VENDOR_LABEL]
    if vendor != "nvidia":
        pytest.skip(f"needs NVIDIA cards; this machine's accelerators are of {vendor}")
    return [device for device in devices if device["type"] == "gpu"]


@pytest.mark.feature("DEV-13.discovers", "DEV-13.labels")
@pytest.mark.case("DS-079", severity="critical")
def test_all_devices_are_discovered(trial: Trial, pytestconfig: pytest.Config, devices: list[dict[str, Any]]) -> None:
    """The Device object has what the vendors' libraries report; vendor and model are labels of the node."""
    there, _ = survey(pytestconfig.getoption("--seatrial-fake") or None)
    kinds = {(device.kind, device.minor, device_id(device)) for device in there if device.health.ok}
    assert {(device["type"], device["minor"], device["id"]) for device in devices} == kinds
    node = trial.machine()
    cards = [device for device in there if device.kind == "gpu"]
    labels = node["metadata"]["labels"]
    assert labels[GPU_VENDOR_LABEL] in {card.vendor for card in cards}
    assert labels[GPU_MODEL_LABEL] in {card.label for card in cards}


@pytest.mark.feature("DEV-1.whole-cards", "HIL-1.embedded", "HIL-1.kubelet")
@pytest.mark.case("DS-080", severity="critical")
def test_all_cards_at_once(trial: Trial, expect: Expect, cards: list[dict[str, Any]]) -> None:
    """One pod requests all cards and gets each once; the next one waits, and runs when the first is deleted."""
    trial.submit(pod("all").gpus(len(cards)))
    assert sorted(minors(expect.running("all"))) == sorted(device["minor"] for device in cards)
    trial.submit(pod("late").gpus(1))
    expect.pending("late", saying="Insufficient")
    trial.delete("all")
    expect.running("late")


@pytest.mark.feature("DEV-3.annotation", "HIL-1.embedded", "HIL-1.kubelet")
@pytest.mark.case("DS-081", severity="critical")
def test_halves_fill_the_machine(trial: Trial, expect: Expect, cards: list[dict[str, Any]]) -> None:
    """Two halves fit on each card and no third: in the end every card is full and none is overcommitted."""
    names = [f"half{number}" for number in range(2 * len(cards))]
    trial.submit(*(pod(name).gpu_share(50) for name in names))
    held: dict[int, int] = {}
    for name in names:
        one = expect.running(name)
        (minor,), (core,) = minors(one), amounts(one, GPU_CORE)
        held[minor] = held.get(minor, 0) + core
    assert held == {device["minor"]: 100 for device in cards}
    trial.submit(pod("late").gpu_share(50))
    expect.pending("late", saying="Insufficient")


@pytest.mark.feature("DEV-1.share-by-bytes", "HIL-1.embedded")
@pytest.mark.case("DS-082", severity="normal")
def test_bytes_of_a_card(trial: Trial, expect: Expect, cards: list[dict[str, Any]]) -> None:
    """A share by memory is allocated to the byte; more than the largest card is refused."""
    size = max(units(device["resources"][GPU_MEMORY]) for device in cards)
    trial.submit(pod("part").gpu_memory("1Gi", core=10))
    assert amounts(expect.running("part"), GPU_MEMORY) == [1 << 30]
    trial.submit(pod("more").gpu_memory(str(size + (1 << 30)), core=10))
    expect.pending("more")


@pytest.mark.feature("DEV-7.on-machine", "HIL-1.embedded")
@pytest.mark.case("DS-083", severity="normal")
def test_a_nic_of_this_machine(trial: Trial, expect: Expect, devices: list[dict[str, Any]]) -> None:
    """A pod gets a whole NIC of the machine; as many pods as there are NICs get different ones."""
    nics = [device["minor"] for device in devices if device["type"] == "rdma"]
    if not nics:
        pytest.skip("needs an RDMA NIC; this machine has none, and --fake stands in for none")
    names = [f"n{minor}" for minor in nics]
    trial.submit(*(pod(name).resources({RDMA: 100}) for name in names))
    assert sorted(minors(expect.running(name), "rdma")[0] for name in names) == sorted(nics)
