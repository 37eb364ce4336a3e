"""The NVIDIA provider with both stand-ins: neutral values of the table, and faults."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.fake_devices import faults
from seatrial.fake_devices.machine import from_server
from seatrial.fake_devices.models import catalog
from seatrial.harness.devices.nvidia import NvidiaProvider
from seatrial.harness.devices.provider import Device
from seatrial.harness.devices.tests.boundaries import NODE, NVML_WAYS, Boundary
from seatrial.harness.nodes.hardware import NodeHardware


@pytest.fixture(params=sorted(NVML_WAYS))
def boundary(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Boundary]:
    with NVML_WAYS[request.param](tmp_path) as boundary:
        yield boundary


@pytest.fixture
def provider(boundary: Boundary) -> Iterator[NvidiaProvider]:
    with NvidiaProvider(boundary.library, root=boundary.root, source="fake-abi") as provider:
        yield provider


def by_table(server: str) -> list[Device]:
    """The devices that are read from the table of the same node."""
    hardware = NodeHardware(NODE, from_server(server, catalog()))
    return [device for device in hardware.devices() if device.vendor == "nvidia"]


@pytest.mark.parametrize("server", ["dgx-h100", "hgx-a100", "a10-4", "a10-vm", "mixed-gpu"])
@pytest.mark.parametrize("way", sorted(NVML_WAYS))
def test_provider_and_table_agree_on_every_field(way: str, server: str, tmp_path: Path) -> None:
    with (
        NVML_WAYS[way](tmp_path, server) as boundary,
        NvidiaProvider(boundary.library, root=boundary.root, source="fake-abi") as provider,
    ):
        devices = sorted(provider.devices(), key=lambda device: device.minor)
        assert [replace(entry, source="fake-table") for entry in devices] == by_table(server)
        assert set(provider.links()) == set(NodeHardware(NODE, from_server(server, catalog())).links())
        assert provider.driver().driver == "570.124.06"


def test_what_a_card_does_is_in_neutral_units(provider: NvidiaProvider, boundary: Boundary) -> None:
    at = boundary.position(0)
    with boundary.table.writing(boundary.table.devices[at]) as record:
        record.core_use, record.power_mw, record.memory_used, record.throttle = 63, 412_500, 8 << 30, 0x44
    row = boundary.table.processes[0]
    row.device, row.used, row.sm, row.sampled_us, row.name, row.pid = at, 8 << 30, 61, 5, b"train", 4242
    uuid = provider.devices()[0].uuid
    usage = provider.usage(uuid)
    assert (usage.core, usage.power) == (63.0, 412.5)
    assert usage.memory == (8 << 30) + record.memory_reserved
    assert usage.throttle == frozenset({"software-power-cap", "hardware-thermal"})
    (process,) = provider.processes(uuid)
    assert (process.pid, process.memory, process.core, process.name) == (4242, 8 << 30, 61.0, "train")


def test_an_applications_error_changes_no_health(provider: NvidiaProvider, boundary: Boundary) -> None:
    uuid = provider.devices()[0].uuid
    faults.apply(boundary.table, boundary.position(0), "app_error", {"xid": 43}, now=1.0)
    (event,) = provider.events()
    assert (event.device, event.code, event.severity) == (uuid, "Xid43", "info")
    assert provider.health(uuid).ok


def test_a_critical_error_is_sticky_until_the_card_is_replaced(provider: NvidiaProvider, boundary: Boundary) -> None:
    uuid = provider.devices()[0].uuid
    undo = faults.apply(boundary.table, boundary.position(0), "critical", {"xid": 95}, now=1.0)
    health = provider.health(uuid)
    assert (health.ok, health.code, health.action, health.sticky) == (False, "Xid95", "gpu-reset", True)
    undo(2.0)
    assert not provider.health(uuid).ok
    provider.forget(uuid)
    assert provider.health(uuid).ok


def test_a_lost_card_is_listed_unhealthy_beside_the_others(provider: NvidiaProvider, boundary: Boundary) -> None:
    before = provider.devices()
    faults.apply(boundary.table, boundary.position(3), "lost", {}, now=1.0)
    after = provider.devices()
    assert [item.uuid for item in after] == [device.uuid for device in before]
    assert [item.health.ok for item in after] == [True, True, True, False, True, True, True, True]
    assert after[3].health.sticky


def test_a_card_lost_before_it_was_ever_read_is_still_counted(boundary: Boundary) -> None:
    faults.apply(boundary.table, boundary.position(0), "lost", {}, now=1.0)
    with NvidiaProvider(boundary.library, root=boundary.root) as provider:
        first, *others = provider.devices()
        assert (first.uuid, first.health.ok) == ("unknown-0", False)
        assert all(other.health.ok for other in others)


def test_missing_devices_have_a_key(boundary: Boundary, tmp_path: Path) -> None:
    boundary.table.header.libraries[0].code = 9
    missing = NvidiaProvider(boundary.library, root=boundary.root).probe()
    assert missing is not None
    assert missing.key == "no-driver"
    absent = NvidiaProvider(tmp_path / "nowhere.so").probe()
    assert absent is not None
    assert absent.key == "no-library"


def test_a_lost_library_can_be_closed(boundary: Boundary) -> None:
    provider = NvidiaProvider(boundary.library, root=boundary.root)
    provider.open()
    with provider._nvml as nvml:
        nvml.nvmlShutdown()
    provider.close()
    provider.close()
