"""Reader and writer know nothing of each other; what they must agree on is the library's layout."""

import ctypes
from pathlib import Path
from typing import Any

import pytest

from seatrial.fake_devices.hami.region import (
    RELEASES,
    V0_BYTES,
    CardLimits,
    ProcessUsage,
    Region11,
    new_region,
    write_region,
)
from seatrial.harness.hami.region import LAYOUTS, RUNNING, RegionError, Use, read_region

UUID = "GPU-8f2e1c4a-0000-1111-2222-333344445555"
OTHER = "GPU-00000000-aaaa-bbbb-cccc-ddddeeeeffff"
CARDS = (CardLimits(UUID, memory=8 << 30, cores=40), CardLimits(OTHER, memory=1 << 30))
PROCESSES = (
    ProcessUsage(
        pid=11,
        host_pid=4011,
        used=({"context": 300, "module": 20, "data": 1000, "offset": 7}, {"data": 5}),
        cores=(30, 2),
        sequence=4,
    ),
    ProcessUsage(pid=12, used=({"context": 300, "data": 64},), cores=(9,), sequence=6),
)


@pytest.mark.parametrize(("release", "layout"), [("v2.6.1", "1.1"), ("v2.8.1", "1.1 of v2.8.1"), ("v2.9.0", "1.2")])
def test_what_a_release_wrote_is_read(tmp_path: Path, release: str, layout: str) -> None:
    region = new_region(release, CARDS, PROCESSES)
    region.owner, region.switch, region.recent_kernel, region.priority, region.last_kernel = 77, 1, 2, 1, 1700000000
    region.slots[1].monitor_used[1] = 123
    write_region(tmp_path / "a.cache", region)

    current_region = read_region(tmp_path / "a.cache")

    assert current_region.layout.name == layout
    assert [(card.uuid, card.memory_limit, card.core_limit) for card in current_region.cards] == [
        (UUID, 8 << 30, 40),
        (OTHER, 1 << 30, 0),
    ]
    assert [(tenant.pid, tenant.host_pid, tenant.status) for tenant in current_region.tenants] == [
        (11, 4011, RUNNING),
        (12, 0, RUNNING),
    ]
    assert current_region.parts(0) == Use(context=600, module=20, data=1064, offset=7, total=1684)
    assert (current_region.used(0), current_region.used(1)) == (1684, 5)
    assert (current_region.cores(0), current_region.cores(1)) == (39, 2)
    assert current_region.tenants[1].seen == (0, 123)
    assert (
        current_region.lock_owner,
        current_region.switch,
        current_region.recent_kernel,
        current_region.priority,
    ) == (77, 1, 2, 1)
    assert current_region.last_kernel == 1700000000


@pytest.mark.parametrize(
    ("release", "field", "offset"),
    [
        pytest.param("v2.6.1", "memory_limits", 1600, id="1.1-limits"),
        pytest.param("v2.6.1", "slots", 1856, id="1.1-slots"),
        pytest.param("v2.6.1", "last_kernel", 2008912, id="1.1-last-kernel"),
        pytest.param("v2.8.1", "device_count", 88, id="2.8.1-count"),
        pytest.param("v2.8.1", "process_count", 2008928, id="2.8.1-processes"),
        pytest.param("v2.9.0", "started", 2008920, id="1.2-second-semaphore"),
    ],
)
def test_the_writer_keeps_the_measured_offsets(release: str, field: str, offset: int) -> None:
    assert getattr(RELEASES[release][0], field).offset == offset


def test_the_writer_keeps_the_measured_sizes() -> None:
    assert sorted(ctypes.sizeof(kind) + 1 for kind, _ in RELEASES.values()) == sorted(
        layout.bytes for layout in LAYOUTS
    )


def _magic(region: Any) -> None:
    region.magic = 1


def _unfinished(region: Any) -> None:
    region.magic = 0


def _version(region: Any) -> None:
    region.minor = 7


def _devices(region: Any) -> None:
    region.device_count = 17


def _processes(region: Any) -> None:
    region.process_count = 1025


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        pytest.param(_magic, "expected the magic number 19920718, found 1", id="not-a-region"),
        pytest.param(_unfinished, "no process has finished it yet", id="still-being-made"),
        pytest.param(_version, "found version 1.7 in 2008953 bytes", id="an-undescribed-version"),
        pytest.param(_devices, "expected at most 16 devices, found 17", id="more-cards-than-places"),
        pytest.param(_processes, "expected 0 to 1024 processes, found 1025", id="more-processes-than-slots"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, spoil: Any, says: str) -> None:
    region = new_region("v2.6.1", CARDS, PROCESSES)
    spoil(region)
    write_region(tmp_path / "a.cache", region)

    with pytest.raises(RegionError, match=says) as caught:
        read_region(tmp_path / "a.cache")
    assert str(tmp_path / "a.cache") in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(b"", "expected 24 bytes at 0, found 0", id="empty"),
        pytest.param(bytes(100), "found 100 bytes", id="of-another-size"),
        pytest.param(bytes(V0_BYTES), "from before HAMi v2.4.1", id="of-the-oldest-layout"),
        pytest.param(bytes(Region11())[:-1], "found 2008951 bytes", id="cut-short"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "a.cache").write_bytes(content)
    with pytest.raises(RegionError, match=says):
        read_region(tmp_path / "a.cache")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegionError, match=r"none\.cache: No such file"):
        read_region(tmp_path / "none.cache")


def test_slots_of_ended_processes_are_ignored(tmp_path: Path) -> None:
    """v2.9.0 takes out the pid of a process that has ended and leaves its amounts in the slot."""
    left = ProcessUsage(pid=0, used=({"data": 64 << 20},), cores=(50,), status=0)
    here = ProcessUsage(pid=12, used=({"data": 5},), cores=(1,))
    write_region(tmp_path / "a.cache", new_region("v2.9.0", CARDS, [left, here]))
    region = read_region(tmp_path / "a.cache")
    assert ([tenant.pid for tenant in region.tenants], region.used(0), region.cores(0)) == ([12], 5, 1)


@pytest.mark.parametrize("release", ["v2.8.1", "v2.9.0"])
def test_a_slot_in_the_middle_of_a_write_is_torn(tmp_path: Path, release: str) -> None:
    write_region(tmp_path / "a.cache", new_region(release, CARDS, [ProcessUsage(pid=1, sequence=5)]))
    with pytest.raises(RegionError, match="slot 0: expected an even sequence number that stays, found 5"):
        read_region(tmp_path / "a.cache")
