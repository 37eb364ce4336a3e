"""The table: fresh from the factory, written so that readers see whole records, shared through a file."""

from pathlib import Path

import pytest

from seatrial.fake_devices.layout import layout_hash
from seatrial.fake_devices.machine import Machine, from_server
from seatrial.fake_devices.models import catalog
from seatrial.fake_devices.table import FULL, DeviceTable, Room


@pytest.fixture
def machine() -> Machine:
    return from_server("dgx-h100", catalog())


def test_records_stand_where_the_slots_stand(machine: Machine) -> None:
    table = DeviceTable.create(machine, "n1")
    for slot, record in table:
        assert record.minor == slot.minor
        assert f"{record.domain:04x}:{record.bus:02x}:{record.device:02x}.{record.function:x}" == slot.bus
        assert record.root.decode() == slot.root
    assert table.header.layout_hash == layout_hash()


def test_two_nodes_share_a_machine_and_nothing_else(machine: Machine) -> None:
    one, two = DeviceTable.create(machine, "n1"), DeviceTable.create(machine, "n2")
    with one.writing(one.devices[0]) as record:
        record.temperature = 99
    assert two.devices[0].temperature != 99
    assert one.devices[1].uuid != two.devices[1].uuid


def test_a_record_is_odd_while_it_is_written(machine: Machine) -> None:
    table = DeviceTable.create(machine, "n1")
    before = table.header.generation
    with table.writing(table.devices[0]) as record:
        assert record.lock % 2 == 1
    assert table.devices[0].lock % 2 == 0
    assert table.header.generation == before + 1


def test_a_record_is_released_when_the_writer_fails(machine: Machine) -> None:
    table = DeviceTable.create(machine, "n1")
    with pytest.raises(RuntimeError, match="halfway"), table.writing(table.devices[0]):
        raise RuntimeError("halfway")
    assert table.devices[0].lock % 2 == 0


def test_the_ring_keeps_the_newest_events(machine: Machine) -> None:
    table = DeviceTable.create(machine, "n1", room=Room(events=4))
    for code in range(6):
        table.event(0, type_=8, code=code, now=float(code))
    assert sorted(event.code for event in table.events) == [2, 3, 4, 5]
    assert table.header.event_head == 7


def test_a_file_holds_what_memory_holds(machine: Machine, tmp_path: Path) -> None:
    table = DeviceTable.create(machine, "n1", room=FULL, path=tmp_path / "device.table")
    with table.writing(table.devices[0]) as record:
        record.temperature = 77
    again = DeviceTable(bytearray((tmp_path / "device.table").read_bytes()), machine, "n1")
    assert again.devices[0].temperature == 77
    del record
    table.close()


@pytest.mark.parametrize("name", ["0000:43:00.0", "0000:18:00.0"])
def test_a_device_is_found_by_its_address_and_its_uuid(machine: Machine, name: str) -> None:
    table = DeviceTable.create(machine, "n1")
    position = table.position(name)
    assert position is not None
    assert machine.slots[position].bus == name
    assert table.position(table.devices[position].uuid.decode()) == position
    assert table.position("nothing") is None
