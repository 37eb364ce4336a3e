"""CPUs, NUMA nodes and devices of aligned pods in reservations and beside them (NUMA-R62, DEV-R62)."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod, reservation
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, Device, DeviceSpec, parse_allocations
from seatrial.scheduler.api.numa import NUMA_TOPOLOGY_POLICY_LABEL, RESOURCE_STATUS, parse_cpuset
from seatrial.scheduler.api.quantity import Amounts, quantities
from seatrial.scheduler.api.reservation import RESERVATION_ALLOCATED, Reservation, ReservationStatus
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache
from seatrial.scheduler.plugins.deviceshare.tests.machines import card
from seatrial.scheduler.plugins.deviceshare.tests.test_reservation_view import allocated, confirmed, shares
from seatrial.scheduler.plugins.nodenuma.cache import NumaCache
from seatrial.scheduler.plugins.nodenuma.reservation_rest import left_of
from seatrial.scheduler.plugins.nodenuma.states import NumaAllocation, NumaState
from seatrial.scheduler.plugins.nodenuma.tests.machines import topology_of
from seatrial.scheduler.plugins.nodenuma.tests.numarig import Machines, lsr, share

RESTRICTED, SINGLE = "Restricted", "SingleNUMANode"
POLICIES = [pytest.param(policy, id=policy.lower() or "default") for policy in ("", "Aligned", RESTRICTED)]


def aligned(policy: str = SINGLE, *, gpus: int = 0) -> Machines:
    """Node n: two NUMA nodes of 8 CPUs and 128 GiB, with half of the cards each."""
    rig = Machines()
    rig.machine("n", labels={NUMA_TOPOLOGY_POLICY_LABEL: policy})
    if gpus:
        rig.node("n", cpu="16", memory="256Gi", gpus=gpus, labels={NUMA_TOPOLOGY_POLICY_LABEL: policy})
        cards = tuple(card(minor, numa=minor * 2 // gpus, switch=f"s{minor * 2 // gpus}") for minor in range(gpus))
        rig.core.intake.set_device("n", Device(ObjectMeta(name="n"), DeviceSpec(cards)))
        rig.core.intake.set_topology("n", topology_of("n", (2, 1, 4, 2)))
    return rig


def status(zones: Mapping[int, int], cpuset: str = "") -> str:
    """CPUs of each of these NUMA nodes, and twice as many GiB."""
    listed = [{"node": node, "resources": {"cpu": str(n), "memory": f"{2 * n}Gi"}} for node, n in zones.items()]
    return msgspec.json.encode({"cpuset": cpuset, "numaNodeResources": listed}).decode()


def hold(
    rig: Machines, name: str, zones: Mapping[int, int], *, policy: str = "", cpuset: str = "", **more: Any
) -> None:
    """An available reservation for pods labelled `a`; `cards`: minors and percent."""
    count, cards = sum(zones.values()), more.get("cards") or {}
    amounts: Amounts = {"cpu": count * 1000, "memory": 2 * count << 30}
    allocatable: dict[str, Any] = dict(quantities(amounts)) | (shares(sum(cards.values())) if cards else {})
    built = reservation(name).like(pod("x").resources(allocatable)).for_labels(app="a").many()
    if policy:
        built.policy(policy)
    if zones:
        built.annotation(RESOURCE_STATUS, status(zones, cpuset))
    if cards:
        built.annotation(DEVICE_ALLOCATED, allocated(cards))
    built.manifest["metadata"]["uid"] = name
    reservation_status = ReservationStatus("Available", node_name="n", allocatable=allocatable)
    rig.core.intake.set_reservation(
        msgspec.structs.replace(msgspec.convert(built.manifest, Reservation), status=reservation_status)
    )


def owned(builder: PodBuilder, *, into: bool = True) -> PodBuilder:
    return builder.label("app", "a").into_reservation() if into else builder.label("app", "a")


def numa_of(rig: Machines, name: str) -> list[int]:
    return [item.node for item in rig.resource_status(name).numa_node_resources]


def booked(rig: Machines) -> NumaState:
    result = NumaCache.of(rig.core.handle).find("n")
    assert result is not None
    return result.state


def cpus_left(rig: Machines) -> list[int]:
    """By NUMA node, in whole CPUs."""
    return [amounts["cpu"] // 1000 for amounts in booked(rig).available.values()]


@pytest.mark.parametrize("policy", POLICIES)
def test_an_owner_gets_the_reserved_numa_node(policy: str) -> None:
    """The other NUMA node is free, and this one is full for all other pods."""
    rig = aligned()
    hold(rig, "r", {1: 8}, policy=policy)
    rig.submit(owned(share("a", "6", "12Gi")), share("stranger", "2"))
    confirmed(rig)
    assert (numa_of(rig, "a"), numa_of(rig, "stranger")) == ([1], [0])
    assert cpus_left(rig) == [6, 0], "the reservation still holds what its owner leaves"


@pytest.mark.parametrize("policy", POLICIES)
def test_an_owner_gets_the_reserved_cpus(policy: str) -> None:
    rig = aligned()
    hold(rig, "r", {1: 4}, policy=policy, cpuset="10-13")
    rig.submit(owned(lsr("a", "2", "2Gi")), lsr("stranger", "2").align(SINGLE))
    confirmed(rig)
    a = parse_cpuset(rig.resource_status("a").cpuset)
    assert a <= parse_cpuset("10-13")
    assert parse_cpuset(rig.resource_status("stranger").cpuset).isdisjoint(parse_cpuset("10-13"))
    assert booked(rig).marks.keys() >= parse_cpuset("10-13")
    assert all(mark.pods == 1 for mark in booked(rig).marks.values()), "no CPU is booked twice"


def test_devices_of_a_deleted_owner_are_reserved_again() -> None:
    rig = aligned()
    hold(rig, "r", {1: 8}, policy=RESTRICTED)
    rig.submit(owned(share("a", "8", "16Gi")))
    confirmed(rig)
    assert cpus_left(rig) == [8, 0]
    rig.delete("a")
    assert cpus_left(rig) == [8, 0]
    rig.core.intake.remove_reservation("r")
    assert cpus_left(rig) == [8, 8]


@pytest.mark.parametrize(
    ("policy", "cpus", "numa", "message"),
    [
        pytest.param(RESTRICTED, "4", [1], "", id="as-much-as-is-held"),
        pytest.param(RESTRICTED, "5", None, "Reservation(s) ", id="restricted-and-no-more"),
        pytest.param("Aligned", "4", [1], "", id="aligned-and-as-much-as-is-held"),
        pytest.param("Aligned", "5", [0], "", id="aligned-and-more-goes-where-it-would"),
    ],
)
def test_requests_larger_than_the_reservation(policy: str, cpus: str, numa: list[int] | None, message: str) -> None:
    rig = aligned()
    rig.holds(share("there", "3", "2Gi"), "n", status({1: 3}))
    hold(rig, "r", {1: 4}, policy=policy)
    rig.submit(owned(share("a", cpus, "2Gi")))
    rig.run()
    if numa is None:
        assert message in rig.filter_message("a")
    else:
        assert numa_of(rig, "a") == numa


def test_another_matching_reservation_keeps_its_cpus() -> None:
    rig = aligned()
    hold(rig, "r0", {0: 6}, policy=RESTRICTED)
    hold(rig, "r1", {1: 6}, policy=RESTRICTED)
    for name in ("a", "b", "c"):
        rig.submit(owned(share(name, "6", "12Gi")))
        confirmed(rig)
    assert sorted([numa_of(rig, "a"), numa_of(rig, "b")]) == [[0], [1]]
    assert rig.where("c") == ""
    assert cpus_left(rig) == [2, 2]


def test_outside_reservations_only_unreserved_cpus_are_free() -> None:
    rig = aligned()
    hold(rig, "r", {0: 4, 1: 4}, policy=RESTRICTED)
    rig.submit(owned(share("a", "6", "2Gi"), into=False))
    rig.run()
    assert "Unaligned NUMA Hint" in rig.filter_message("a"), (
        "neither 4 of each NUMA node nor the 4 beside them are 6 of one"
    )


def test_a_pod_that_ignores_reservations_may_use_reserved_cpus() -> None:
    rig = aligned()
    hold(rig, "r", {0: 8, 1: 8})
    rig.submit(share("a", "6", "2Gi").ignores_reservations())
    rig.run()
    assert len(numa_of(rig, "a")) == 1
    assert RESERVATION_ALLOCATED not in rig.binding("a").annotations


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("minor", [0, 3])
def test_an_aligned_owner_gets_the_reserved_card(policy: str, minor: int) -> None:
    """Its CPUs follow the card."""
    rig = aligned(gpus=4)
    hold(rig, "r", {minor // 2: 4}, policy=policy, cards={minor: 100})
    rig.submit(owned(share("a", "4", "8Gi").resources(shares(100))))
    confirmed(rig)
    gpu = parse_allocations(rig.binding("a").annotations)["gpu"]
    assert [entry.minor for entry in gpu] == [minor]
    assert numa_of(rig, "a") == [minor // 2]
    assert cpus_left(rig) == ([4, 8] if minor == 0 else [8, 4])


def test_an_aligned_owner_needs_card_and_cpus_on_one_numa_node() -> None:
    rig = aligned(gpus=4)
    hold(rig, "r", {0: 4}, policy=RESTRICTED, cards={3: 100})
    rig.submit(owned(share("a", "4", "8Gi").resources(shares(100))))
    rig.run()
    assert "Reservation(s) " in rig.filter_message("a")
    rig.submit(owned(share("b", "4", "8Gi").resources(shares(100)), into=False))
    rig.run()
    assert [card.minor for card in parse_allocations(rig.binding("b").annotations)["gpu"]] == [2]
    assert RESERVATION_ALLOCATED not in rig.binding("b").annotations


def test_a_reservation_is_aligned_and_annotated() -> None:
    rig = aligned(gpus=4)
    built = reservation("r").like(share("x", "4", "8Gi").resources(shares(200))).for_labels(app="a").many()
    built.manifest["metadata"]["uid"] = "r"
    rig.core.intake.set_reservation(msgspec.convert(built.manifest, Reservation))
    rig.run()
    binding = rig.binding("r")
    gpu = parse_allocations(binding.annotations)["gpu"]
    assert [entry.minor for entry in gpu] == [0, 1]
    assert '"node":0' in binding.annotations[RESOURCE_STATUS]


def test_removing_an_owner_frees_nothing_for_other_pods() -> None:
    """NUMA-R63: the owner's part of its NUMA node returns to the reservation."""
    rig = aligned()
    hold(rig, "r", {1: 8}, policy=RESTRICTED)
    rig.submit(owned(share("a", "8", "16Gi")))
    rig.holds(share("there", "8", "2Gi").priority(20), "n", status({0: 8}))
    confirmed(rig)
    rig.submit(share("stranger", "2", "1Gi").priority(10))
    rig.run()
    assert rig.victims() == []


@pytest.mark.parametrize(
    ("taken", "want"),
    [
        pytest.param([], NumaAllocation(frozenset({1, 2}), "PCPULevel", ((0, (("cpu", 2000),)),)), id="none"),
        pytest.param(
            [NumaAllocation(frozenset({1}), "", ((0, (("cpu", 500),)),)), None],
            NumaAllocation(frozenset({2}), "PCPULevel", ((0, (("cpu", 1500),)),)),
            id="a-part",
        ),
        pytest.param(
            [NumaAllocation(frozenset({1, 2, 3}), "", ((0, (("cpu", 9000),)),))],
            NumaAllocation(),
            id="more-than-there-is",
        ),
        pytest.param(
            [NumaAllocation(zones=((1, (("cpu", 500),)),))],
            NumaAllocation(frozenset({1, 2}), "PCPULevel", ((0, (("cpu", 2000),)),)),
            id="something-else",
        ),
    ],
)
def test_the_rest_of_a_reservation(taken: list[NumaAllocation | None], want: NumaAllocation) -> None:
    assert left_of(NumaAllocation(frozenset({1, 2}), "PCPULevel", ((0, (("cpu", 2000),)),)), taken) == want


def test_allocations_copied_into_a_template_are_ignored() -> None:
    rig = aligned(gpus=4)
    template = share("x", "4", "8Gi").annotation(RESOURCE_STATUS, status({1: 8}))
    built = reservation("r").like(template.annotation(DEVICE_ALLOCATED, allocated({3: 100}))).for_labels(app="a").many()
    built.manifest["metadata"]["uid"] = "r"
    reservation_status = ReservationStatus("Available", node_name="n", allocatable={"cpu": "4", "memory": "8Gi"})
    rig.core.intake.set_reservation(
        msgspec.structs.replace(msgspec.convert(built.manifest, Reservation), status=reservation_status)
    )
    devices = DeviceCache.of(rig.core.handle).find("n")
    assert devices is not None
    assert cpus_left(rig) == [8, 8]
    assert not any(devices.state.touched(minor) for minor in range(4))


@pytest.mark.parametrize("policy", POLICIES)
def test_an_important_owner_preempts_an_owner(policy: str) -> None:
    rig = aligned(gpus=4)
    hold(rig, "r", {1: 8}, policy=policy, cards={3: 100})
    rig.holds(share("there", "8", "2Gi").priority(20), "n", status({0: 8}))
    rig.submit(owned(share("a", "8", "16Gi").resources(shares(100))))
    confirmed(rig)
    assert numa_of(rig, "a") == [1]
    rig.submit(owned(share("b", "4", "8Gi").resources(shares(100))).priority(10))
    rig.run()
    assert rig.victims() == ["a"]
    rig.delete("a")
    rig.clock.advance(2.0)
    confirmed(rig)
    assert numa_of(rig, "b") == [1]
    assert [card.minor for card in parse_allocations(rig.binding("b").annotations)["gpu"]] == [3]
