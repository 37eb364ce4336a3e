"""Faults: their changes, their end, and refused verbs and arguments."""

from typing import Any

import pytest

from seatrial.fake_devices import faults
from seatrial.fake_devices.machine import from_server
from seatrial.fake_devices.models import catalog
from seatrial.fake_devices.table import DeviceTable

SERVERS = {
    "nvidia": "dgx-h100",
    "huawei": "atlas-800t-a2",
    "cambricon": "mlu370-x8-8",
    "mellanox": "dgx-h100",
    "amd": "mi300x-8",
}


def table_and_device(vendor: str) -> tuple[DeviceTable, int]:
    table = DeviceTable.create(from_server(SERVERS[vendor], catalog()), "n1")
    return table, next(at for at, slot in enumerate(table.machine.slots) if slot.model.vendor == vendor)


CASES = [(verb, vendor) for verb, known in faults.VERBS.items() for vendor in sorted(known.vendors)]


@pytest.mark.parametrize(("verb", "vendor"), CASES)
def test_a_fault_that_ends_leaves_the_device_as_it_was(verb: str, vendor: str) -> None:
    table, at = table_and_device(vendor)
    before = _content(table, at)
    undo = faults.apply(table, at, verb, {}, now=1.0)
    during = _content(table, at)
    undo(2.0)
    assert _content(table, at) == before
    if verb != "app_error":
        assert during != before, "an application's error alone changes nothing but the event ring"


def _content(table: DeviceTable, at: int) -> tuple[bytes, list[int]]:
    record = bytes(table.devices[at])[4:]  # all but the lock
    return record, [link.up for link in table.links if link.device == at]


@pytest.mark.parametrize(
    ("vendor", "verb", "want"),
    [
        ("nvidia", "critical", [(0x8, 95), (0x8000, 1)]),
        ("nvidia", "lost", [(0x8, 79)]),
        ("nvidia", "app_error", [(0x8, 31)]),
        ("nvidia", "ecc", [(0x2, 0), (0x8, 48)]),
        ("nvidia", "link", [(0x8, 74)]),
        ("huawei", "lost", [(0x8, 0x40F84E00)]),
        ("huawei", "link", [(0x8, 0x81078603)]),
        ("cambricon", "critical", [(0x1, 1)]),
        ("nvidia", "throttle", []),
        ("amd", "critical", [(3, 4)]),
        ("amd", "reset_needed", [(5, 0)]),
        ("amd", "throttle", [(2, 0)]),
    ],
)
def test_a_fault_is_announced_in_the_vendors_codes(vendor: str, verb: str, want: list[tuple[int, int]]) -> None:
    table, at = table_and_device(vendor)
    faults.apply(table, at, verb, {}, now=1.5)
    types = [(event.type, event.code) for event in table.events if event.sequence]
    assert types == want
    assert all(event.time_us == 1_500_000 for event in table.events if event.sequence)


def test_recovery_is_announced() -> None:
    table, at = table_and_device("huawei")
    faults.apply(table, at, "critical", {}, now=1.0)(9.0)
    assert [event.assertion for event in table.events if event.sequence] == [1, 0]


def test_two_faults_may_overlap() -> None:
    table, at = table_and_device("nvidia")
    leak = faults.apply(table, at, "leak", {"mebibytes": 100}, now=1.0)
    hot = faults.apply(table, at, "throttle", {"celsius": 95}, now=2.0)
    leak(3.0)
    assert (table.devices[at].memory_used, table.devices[at].temperature) == (0, 95)
    hot(4.0)
    assert table.devices[at].temperature < 95


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_faults_of_one_kind_end_in_any_order(order: tuple[int, int]) -> None:
    table, at = table_and_device("nvidia")
    before = _content(table, at)
    undo = [faults.apply(table, at, "critical", {"xid": xid}, now=1.0) for xid in (62, 119)]
    undo[order[0]](2.0)
    assert table.devices[at].error_codes[0] == (119, 62)[order[0]]
    undo[order[1]](3.0)
    assert _content(table, at) == before


def test_one_port_of_many_goes_down() -> None:
    table, at = table_and_device("nvidia")
    faults.apply(table, at, "link", {"port": 3}, now=1.0)
    assert [link.port for link in table.links if not link.up] == [3]


@pytest.mark.parametrize(
    ("vendor", "verb", "arguments", "words"),
    [
        ("nvidia", "explode", {}, "no fault verb 'explode'"),
        ("huawei", "app_error", {}, "expected a device of amd, nvidia, found huawei"),
        ("nvidia", "critical", {"colour": 1}, "found 'colour'"),
        ("nvidia", "critical", {"xid": "79"}, "xid: expected a whole number, found '79'"),
        ("nvidia", "critical", {"xid": 31}, "the application's fault"),
        ("nvidia", "app_error", {"xid": 79}, "see verb 'critical'"),
        ("nvidia", "shrink", {}, "expected a device of mellanox"),
    ],
)
def test_what_a_device_cannot_have_is_refused(vendor: str, verb: str, arguments: dict[str, Any], words: str) -> None:
    table, at = table_and_device(vendor)
    before = bytes(table.devices[at])
    with pytest.raises(faults.FaultError, match=words):
        faults.apply(table, at, verb, arguments, now=1.0)
    assert bytes(table.devices[at]) == before
