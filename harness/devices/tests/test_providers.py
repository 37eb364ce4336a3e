"""What every provider owes, whatever the vendor and the boundary: the same tests over all stand-ins."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fake_devices import faults
from fake_devices.machine import from_server
from fake_devices.models import catalog
from harness.devices.provider import Device, DeviceProvider
from harness.devices.tests.standins import ALL_WAYS, NODE, Standin
from harness.nodes.hardware import NodeHardware

SERVERS = {
    "nvidia-object": ["dgx-h100", "hgx-a100", "a10-4", "a10-vm", "mixed-gpu"],
    "nvidia-library": ["dgx-h100", "hgx-a100", "a10-4", "a10-vm", "mixed-gpu"],
    "huawei-library": ["atlas-800t-a2", "ascend-16"],
    "cambricon-library": ["mlu370-x8-8"],
    "rdma-tree": ["dgx-h100", "hgx-a100"],
    "rdma-netlink": ["dgx-h100"],
}


LINKS = {"nvidia": "nvlink", "huawei": "hccs", "cambricon": "mlulink"}
CARDS = [way for way in ALL_WAYS if not way.startswith("rdma")]


@pytest.fixture(params=sorted(ALL_WAYS))
def standin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Standin]:
    with ALL_WAYS[request.param](tmp_path) as standin:
        yield standin


@pytest.fixture
def provider(standin: Standin) -> Iterator[DeviceProvider]:
    with standin.provider() as provider:
        yield provider


def by_table(vendor: str, server: str) -> list[Device]:
    """What the short way for fleets says of the same node."""
    hardware = NodeHardware(NODE, from_server(server, catalog()))
    return [one for one in hardware.devices() if one.vendor == vendor]


@pytest.mark.parametrize(("way", "server"), [(way, server) for way in sorted(ALL_WAYS) for server in SERVERS[way]])
def test_the_long_way_and_the_short_way_agree_on_every_field(way: str, server: str, tmp_path: Path) -> None:
    with ALL_WAYS[way](tmp_path, server) as standin, standin.provider() as provider:
        found = sorted(provider.devices(), key=lambda one: one.minor)
        assert [replace(one, source="fake-table") for one in found] == by_table(standin.vendor, server)
        hardware = NodeHardware(NODE, from_server(server, catalog()))
        assert set(provider.links()) == {one for one in hardware.links() if one.kind == LINKS.get(standin.vendor)}
        assert provider.driver().driver == hardware.driver(standin.vendor).driver


def test_a_machine_with_devices_is_not_missing_anything(standin: Standin) -> None:
    assert standin.provider().probe() is None


def test_every_device_answers_by_its_uuid(provider: DeviceProvider) -> None:
    devices = provider.devices()
    assert len({one.uuid for one in devices}) == len(devices) > 0
    for one in devices:
        assert provider.health(one.uuid) == one.health
        assert provider.processes(one.uuid) == ()


def test_use_stays_within_what_there_is(provider: DeviceProvider) -> None:
    for one in provider.devices():
        usage = provider.usage(one.uuid)
        if one.kind == "gpu":
            assert usage.memory is not None
            assert 0 <= usage.memory <= one.memory
            assert usage.core == 0
            assert usage.temperature is not None


@pytest.mark.parametrize("standin", CARDS, indirect=True)
def test_processes_are_those_of_the_device(provider: DeviceProvider, standin: Standin) -> None:
    row = standin.table.processes[0]
    row.device, row.used, row.pid = standin.position(1), 3 << 30, 4242
    first, second, *_ = sorted(provider.devices(), key=lambda one: one.index)
    assert provider.processes(first.uuid) == ()
    assert [(one.pid, one.memory) for one in provider.processes(second.uuid)] == [(4242, 3 << 30)]


@pytest.mark.parametrize("verb", ["lost", "remove"])
def test_a_device_that_goes_takes_nobody_along(verb: str, provider: DeviceProvider, standin: Standin) -> None:
    before = sorted(provider.devices(), key=lambda one: one.index)
    gone = before[2].uuid
    faults.apply(standin.table, standin.position(2), verb, {}, now=1.0)
    standin.settle()
    after = {one.uuid: one.health.ok for one in provider.devices()}
    assert not after.get(gone, False)
    assert all(after[one.uuid] for one in before if one.uuid != gone)
    assert not provider.health(gone).ok


def test_a_broken_device_is_unhealthy_and_the_vendors_rule_says_whether_it_recovers(
    provider: DeviceProvider, standin: Standin
) -> None:
    device = min(provider.devices(), key=lambda one: one.index)
    verb = "link" if standin.vendor == "mellanox" else "critical"
    undo = faults.apply(standin.table, standin.position(0), verb, {}, now=1.0)
    standin.settle()
    health = provider.health(device.uuid)
    assert not health.ok
    assert health.code
    assert health.message
    undo(2.0)
    standin.settle()
    assert provider.health(device.uuid).ok == (not health.sticky)
    assert health.sticky == (standin.vendor == "nvidia")


def test_events_tell_what_happened_to_whom(provider: DeviceProvider, standin: Standin) -> None:
    device = sorted(provider.devices(), key=lambda one: one.index)[1]
    verb = "link" if standin.vendor == "mellanox" else "critical"
    faults.apply(standin.table, standin.position(1), verb, {}, now=1.0)
    standin.settle()
    told = [one for one in provider.events() if one.kind in {"xid", "fault", "port"}]
    assert [one.device for one in told] == [device.uuid]
    assert told[0].on
    assert provider.events() == (), "each once"


@pytest.mark.parametrize("standin", CARDS, indirect=True)
def test_a_closed_provider_may_be_closed_and_opened_again(standin: Standin) -> None:
    provider = standin.provider()
    provider.open()
    provider.open()
    count = len(provider.devices())
    provider.close()
    provider.close()
    with provider:
        assert len(provider.devices()) == count


@pytest.mark.parametrize("way", ["nvidia-object", "huawei-library", "cambricon-library"])
def test_a_driver_that_does_not_start_is_a_reason_with_a_key(way: str, tmp_path: Path) -> None:
    with ALL_WAYS[way](tmp_path) as standin:
        for library in standin.table.header.libraries:
            library.code = {"nvidia": 9, "huawei": -8005, "cambricon": 1}[standin.vendor]
        missing = standin.provider().probe()
        assert missing is not None
        assert missing.key == "no-driver"
