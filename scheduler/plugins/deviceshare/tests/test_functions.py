"""Virtual functions that a reservation holds (DEV-R48, DEV-R62)."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod, reservation
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, RDMA, parse_allocations
from seatrial.scheduler.api.reservation import Reservation, ReservationStatus
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.plugins.deviceshare.tests.machines import NIC_BUSES, paired
from seatrial.scheduler.plugins.deviceshare.tests.test_nodes import machine
from seatrial.scheduler.plugins.deviceshare.tests.test_reservation_view import confirmed
from seatrial.scheduler.tests.rig import Rig

BUS = NIC_BUSES[2]


def hold(rig: Rig, policy: str, *functions: int, percent: int = 2) -> None:
    """An available reservation with an amount of NIC 2, and these of its functions."""
    extension = {"vfs": [{"busID": f"{BUS}.{number}"} for number in functions]}
    entry: dict[str, Any] = {"minor": 2, "resources": {RDMA: str(percent)}, "id": "x"}
    built = reservation("r").like(pod("x").resources({RDMA: percent})).for_labels(app="a").many()
    built.annotation(
        DEVICE_ALLOCATED, to_json({"rdma": [entry | ({"extension": extension} if functions else {})]}).decode()
    )
    if policy:
        built.policy(policy)
    built.manifest["metadata"]["uid"] = "r"
    status = ReservationStatus("Available", node_name="n", allocatable={RDMA: str(percent)})
    rig.core.intake.set_reservation(
        msgspec.structs.replace(msgspec.convert(built.manifest, Reservation), status=status)
    )


def wants(name: str) -> PodBuilder:
    return pod(name).resources({RDMA: 1}).hint("rdma", vfSelector={})


def got(rig: Rig, name: str) -> tuple[int, list[str]]:
    (entry,) = parse_allocations(rig.binding(name).annotations)["rdma"]
    assert entry.extension is not None
    return entry.minor, [item.bus_id for item in entry.extension.vfs]


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_owners_get_the_functions_that_are_held_for_them(policy: str) -> None:
    rig = Rig()
    machine(rig, "n", paired())
    hold(rig, policy, 4, 5)
    for name in ("a", "b", "c"):
        rig.submit(wants(name).label("app", "a").into_reservation())
    confirmed(rig)
    assert (got(rig, "a"), got(rig, "b")) == ((2, [f"{BUS}.4"]), (2, [f"{BUS}.5"]))
    if policy == "Restricted":
        assert "Reservation(s) Insufficient" in rig.message("c")
    else:
        assert got(rig, "c") == (2, [f"{BUS}.2"]), "its NIC comes first, in whole"


def test_a_reservation_without_functions_allows_any_function() -> None:
    rig = Rig()
    machine(rig, "n", paired())
    hold(rig, "Restricted")
    rig.submit(wants("a").label("app", "a").into_reservation())
    rig.run()
    assert got(rig, "a") == (2, [f"{BUS}.2"])


def test_other_pods_get_unreserved_functions() -> None:
    rig = Rig()
    machine(rig, "n", [info for info in paired() if info.minor == 2 and info.type == "rdma"])
    hold(rig, "", 2, 4, percent=10)
    for name in ("a", "b", "c"):
        rig.submit(wants(name))
        rig.run()
    assert (got(rig, "a"), got(rig, "b")) == ((2, [f"{BUS}.3"]), (2, [f"{BUS}.5"]))
    assert "Insufficient rdma devices" in rig.message("c")


def test_devices_of_a_deleted_owner_are_reserved_again() -> None:
    rig = Rig()
    machine(rig, "n", [info for info in paired() if info.minor == 2 and info.type == "rdma"])
    hold(rig, "Restricted", 3)
    rig.submit(wants("a").label("app", "a").into_reservation())
    confirmed(rig)
    rig.delete("a")
    rig.submit(wants("stranger"), wants("b").label("app", "a").into_reservation())
    confirmed(rig)
    assert (got(rig, "stranger"), got(rig, "b")) == ((2, [f"{BUS}.2"]), (2, [f"{BUS}.3"]))
