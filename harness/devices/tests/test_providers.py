"""Requirements of every provider: the same tests with all vendors and boundaries."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.fake_devices import faults
from seatrial.fake_devices.machine import from_server
from seatrial.fake_devices.models import catalog
from seatrial.harness.devices.provider import Device, DeviceProvider, Link
from seatrial.harness.devices.tests.boundaries import ALL_WAYS, LIBRARY_WAYS, NODE, SERVERS, Boundary
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.nodes.hardware import NodeHardware

SERVERS_OF_WAY = {
    "nvidia-object": SERVERS["nvidia"],
    "rdma-tree": SERVERS["mellanox"],
    "rdma-netlink": ["dgx-h100"],
    **{f"{name}-library": SERVERS[name] for name in LIBRARY_WAYS},
}
CASES = [(way, server) for way in sorted(ALL_WAYS) for server in SERVERS_OF_WAY[way]]
CARDS = sorted(way for way in ALL_WAYS if not way.startswith("rdma"))


@pytest.fixture(params=sorted(ALL_WAYS))
def boundary(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Boundary]:
    with ALL_WAYS[request.param](tmp_path) as boundary:
        yield boundary


@pytest.fixture
def provider(boundary: Boundary) -> Iterator[DeviceProvider]:
    with boundary.provider() as provider:
        yield provider


def _links_of(hardware: NodeHardware, vendor: str) -> set[Link]:
    links = VENDORS[vendor].hardware.links
    return {link for link in hardware.links() if links is not None and link.kind == links.kind}


def by_table(vendor: str, server: str) -> list[Device]:
    """The devices that are read from the table of the same node."""
    hardware = NodeHardware(NODE, from_server(server, catalog()))
    return [device for device in hardware.devices() if device.vendor == vendor]


@pytest.mark.parametrize(("way", "server"), CASES)
def test_provider_and_table_agree_on_every_field(way: str, server: str, tmp_path: Path) -> None:
    with ALL_WAYS[way](tmp_path, server) as boundary, boundary.provider() as provider:
        devices = sorted(provider.devices(), key=lambda device: device.minor)
        assert [replace(entry, source="fake-table") for entry in devices] == by_table(boundary.vendor, server)
        hardware = NodeHardware(NODE, from_server(server, catalog()))
        assert set(provider.links()) == _links_of(hardware, boundary.vendor)
        assert provider.driver().driver == hardware.driver(boundary.vendor).driver


def test_a_machine_with_devices_is_not_missing_anything(boundary: Boundary) -> None:
    assert boundary.provider().probe() is None


def test_every_device_answers_by_its_uuid(provider: DeviceProvider) -> None:
    devices = provider.devices()
    assert len({candidate.uuid for candidate in devices}) == len(devices) > 0
    for device in devices:
        assert provider.health(device.uuid) == device.health
        assert provider.processes(device.uuid) == ()


def test_use_stays_within_what_there_is(provider: DeviceProvider) -> None:
    for device in provider.devices():
        usage = provider.usage(device.uuid)
        if device.kind == "gpu":
            assert usage.memory is not None
            assert 0 <= usage.memory <= device.memory
            assert usage.core == 0
            assert usage.temperature is not None


@pytest.mark.parametrize("boundary", CARDS, indirect=True)
def test_processes_are_those_of_the_device(provider: DeviceProvider, boundary: Boundary) -> None:
    row = boundary.table.processes[0]
    row.device, row.used, row.pid = boundary.position(1), 3 << 30, 4242
    first, second, *_ = sorted(provider.devices(), key=lambda device: device.index)
    assert provider.processes(first.uuid) == ()
    assert [(process.pid, process.memory) for process in provider.processes(second.uuid)] == [(4242, 3 << 30)]


@pytest.mark.parametrize("verb", ["lost", "remove"])
def test_a_lost_device_does_not_affect_others(verb: str, provider: DeviceProvider, boundary: Boundary) -> None:
    before = sorted(provider.devices(), key=lambda device: device.index)
    gone = before[2].uuid
    faults.apply(boundary.table, boundary.position(2), verb, {}, now=1.0)
    boundary.settle()
    after = {device.uuid: device.health.ok for device in provider.devices()}
    assert not after.get(gone, False)
    assert all(after[device.uuid] for device in before if device.uuid != gone)
    assert not provider.health(gone).ok


def test_a_faulty_device_is_unhealthy_and_recovers_by_the_vendors_rule(
    provider: DeviceProvider, boundary: Boundary
) -> None:
    device = min(provider.devices(), key=lambda candidate: candidate.index)
    verb = "link" if boundary.vendor == "mellanox" else "critical"
    undo = faults.apply(boundary.table, boundary.position(0), verb, {}, now=1.0)
    boundary.settle()
    health = provider.health(device.uuid)
    assert not health.ok
    assert health.code
    assert health.message
    undo(2.0)
    boundary.settle()
    assert provider.health(device.uuid).ok == (not health.sticky)
    assert health.sticky == (boundary.vendor == "nvidia")


def test_events_name_the_device_and_the_fault(provider: DeviceProvider, boundary: Boundary) -> None:
    device = sorted(provider.devices(), key=lambda candidate: candidate.index)[1]
    verb = "link" if boundary.vendor == "mellanox" else "critical"
    faults.apply(boundary.table, boundary.position(1), verb, {}, now=1.0)
    boundary.settle()
    events = [event for event in provider.events() if event.kind in {"xid", "fault", "port"}]
    assert [event.device for event in events] == [device.uuid]
    assert events[0].on
    assert provider.events() == (), "each once"


@pytest.mark.parametrize("boundary", CARDS, indirect=True)
def test_a_closed_provider_may_be_closed_and_opened_again(boundary: Boundary) -> None:
    provider = boundary.provider()
    provider.open()
    provider.open()
    count = len(provider.devices())
    provider.close()
    provider.close()
    with provider:
        assert len(provider.devices()) == count


@pytest.mark.parametrize("way", ["nvidia-object", *(f"{name}-library" for name in LIBRARY_WAYS)])
def test_a_driver_that_does_not_start_is_a_reason_with_a_key(way: str, tmp_path: Path) -> None:
    with ALL_WAYS[way](tmp_path) as boundary:
        for library in boundary.table.header.libraries:
            library.code = VENDORS[boundary.vendor].hardware.no_driver_code
        missing = boundary.provider().probe()
        assert missing is not None
        assert missing.key == "no-driver"
