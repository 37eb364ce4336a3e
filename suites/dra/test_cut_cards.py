"""Cards cut into partitions or given in shares, as drivers of simulated nodes and `device-plugin --dra` offer them."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Manifest, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import claim, claim_template, node, pod
from seatrial.suites.dra.offers import NVIDIA, Offers, device, offers, served

__all__ = ["offers", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
MIG, VNPU = "mig.nvidia.com", "vnpu.huawei.com"
_CUT, _SHARED = "kubernetes 1.36 DRAPartitionableDevices", "kubernetes 1.36 DRAConsumableCapacity"  # on by default
PARTITIONS = f"{_CUT}; NVIDIA/k8s-dra-driver-gpu 2026-05 cmd/gpu-kubelet-plugin/partitions.go"
SHARES = f"{_SHARED}; Project-HAMi/HAMi-DRA 2025-12 pkg/webhook/dra/mutating.go"
HALF = f"device.attributes['{NVIDIA}'].profile == '3g.40gb'"


@pytest.mark.feature("DRA-3.partitions")
@pytest.mark.case("DR-080", severity="critical", source=PARTITIONS)
def test_mig_devices_of_a_card_do_not_overlap(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Two halves fill the memory of a card; the whole card is free again when both are gone."""
    trial.add(node("n1").devices("h100-80g", 1).dra("partitions"))
    trial.apply(claim_template("half").asks("gpu", MIG, HALF), claim_template("whole").asks("gpu", NVIDIA))
    for name in ("a", "b", "late"):
        trial.submit(pod(name).claim("gpu", template="half"))
        if name != "late":
            expect.running(name)
    expect.pending("late", saying="cannot allocate all claims")
    trial.delete("late")
    assert sorted(offers.devices_of(offers.claim_of(name))[0] for name in ("a", "b")) == [
        "gpu=gpu-0-mig-3g40gb-9-0",
        "gpu=gpu-0-mig-3g40gb-9-4",
    ]
    trial.submit(pod("whole").claim("gpu", template="whole"))
    trial.delete("a")
    expect.pending("whole", saying="cannot allocate all claims")

    trial.delete("b")

    expect.running("whole")
    assert offers.devices_of(offers.claim_of("whole")) == ["gpu=gpu-0"]


@pytest.mark.feature("DRA-3.partitions")
@pytest.mark.case(
    "DR-206", severity="normal", source="NVIDIA/k8s-dra-driver-gpu 2026-05 cmd/gpu-kubelet-plugin/{mig,deviceinfo}.go"
)
def test_mig_devices_that_an_administrator_has_made(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Of three cards two are cut: in place of them their MIG devices are published, without counters. Two halves of one
    card, a half, and a whole card are given. There is no second whole card, and another half when it has been made."""
    cards = {"gpu-0": ["3g.40gb-0", "3g.40gb-4"], "gpu-1": ["1g.10gb-0", "3g.40gb-4"]}

    def made(card: str, profile: str, place: str) -> Manifest:
        attributes = {"type": "mig", "parentUUID": f"GPU-{card[-1]}", "profile": profile}
        return device(f"{card}-mig-{profile.replace('.', '')}-{place}", attributes=attributes)

    trial.add(node("n1"))
    devices = [made(card, *place.split("-")) for card in reversed(cards) for place in cards[card]]
    devices.append(device("gpu-2", attributes={"type": "gpu"}))
    offers.publish("n1", *devices)
    half, whole = f"{offers.attribute('?profile')}.orValue('') == '3g.40gb'", f"{offers.attribute('type')} == 'gpu'"
    pair = claim("pair").asks("d", offers.of_class, half, count=2).matching(f"{offers.driver}/parentUUID")
    trial.apply(pair, *[claim(f"half-{number}").asks("d", offers.of_class, half) for number in range(2)])
    trial.apply(*[claim(f"whole-{number}").asks("d", offers.of_class, whole) for number in range(2)])
    for name in ("pair", "half-0", "whole-0", "half-1", "whole-1"):
        trial.submit(pod(name).claim("d", name=name))
        if name.endswith("-1"):
            expect.pending(name, saying="cannot allocate all claims")
        else:
            expect.bound(name)
    assert offers.devices_of("pair") == ["d=gpu-0-mig-3g40gb-0", "d=gpu-0-mig-3g40gb-4"]
    assert offers.devices_of("half-0") == ["d=gpu-1-mig-3g40gb-4"]
    assert offers.devices_of("whole-0") == ["d=gpu-2"]

    devices[0] = made("gpu-1", "3g.40gb", "0")
    offers.change("n1", {"devices": devices, "pool": {"generation": 2}})

    expect.bound("half-1")
    assert offers.devices_of("half-1") == ["d=gpu-1-mig-3g40gb-0"]


@pytest.mark.feature("DRA-3.partitions")
@pytest.mark.case("DR-081", severity="critical", source=f"{_CUT}; ours: no driver of the vendor is published")
def test_vnpus_are_cut_as_far_as_cores_and_memory_go(trial: Trial, expect: Expect) -> None:
    """A half and two quarters of a chip; the next quarter goes to the second chip."""
    trial.add(node("n1").devices("ascend-910b3", 1).dra("partitions"))
    template = "device.attributes['npu.huawei.com'].template == '{}'"
    trial.apply(
        claim_template("half").asks("npu", VNPU, template.format("vir10_3c_32g")),
        claim_template("quarter").asks("npu", VNPU, template.format("vir05_1c_16g")),
    )
    trial.submit(pod("half").claim("npu", template="half"))
    expect.running("half")
    for name in ("a", "b"):
        trial.submit(pod(name).claim("npu", template="quarter"))
        expect.running(name)
    trial.submit(pod("late").claim("npu", template="quarter"))
    expect.pending("late", saying="cannot allocate all claims")

    trial.delete("half")

    expect.running("late")


@pytest.mark.feature("DRA-3.shares")
@pytest.mark.case("DR-082", severity="critical", source=SHARES)
def test_shares_of_a_card_stay_within_it(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Cores and memory are both counted; a claim that names no amount takes the whole card."""
    trial.add(node("n1").devices("a10", 1).dra("shares"))

    def share(name: str, **amounts: str) -> None:
        trial.apply(claim_template(name).asks("gpu", NVIDIA, capacity={"requests": amounts}))
        trial.submit(pod(name).claim("gpu", template=name))

    share("a", cores="40", memory="8Gi")
    share("b", cores="60", memory="8Gi")
    expect.running("a", "b")
    share("cores", cores="1", memory="1Gi")
    expect.pending("cores", saying="cannot allocate all claims")
    trial.delete("a")
    expect.running("cores")
    trial.apply(claim_template("whole").asks("gpu", NVIDIA))
    trial.submit(pod("whole").claim("gpu", template="whole"))
    expect.pending("whole", saying="cannot allocate all claims")

    trial.delete("b", "cores")

    expect.running("whole")
    allocation = offers.claim(offers.claim_of("whole")).status.allocation
    assert allocation is not None
    (result,) = allocation.devices.results
    assert result.consumed_capacity["cores"] == "100"
