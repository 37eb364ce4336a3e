"""The page that Prometheus reads: HAMi v2.6's names, one line for each container and card."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from seatrial.fake_devices.hami.region import CardLimits, ProcessUsage, new_region, write_region
from seatrial.harness.errors import UsageError
from seatrial.harness.hami.exposition import Sample, exposition
from seatrial.harness.hami.monitor import UNREADABLE, HostCard, Monitor, Owner, region_files, serving

UUID = "GPU-8f2e1c4a-0000-1111-2222-333344445555"
UID = "5f0c-11"
NOW = 1_700_000_100.0
TENANT = 'ctrname="main",deviceuuid="' + UUID + '",podname="a",podnamespace="team",vdeviceid="0",zone="vGPU"'


def lay_out(folder: Path, owner: str = f"{UID}_main", *, uuid: str = UUID, last_kernel: int = 0) -> Path:
    """A region as the library of HAMi v2.6 leaves it."""
    region = new_region(
        "v2.6.1",
        [CardLimits(uuid, memory=4 << 30, cores=30)],
        [
            ProcessUsage(1, used=({"context": 100, "module": 20, "data": 3},), cores=(25,)),
            ProcessUsage(2, used=({"data": 1000},), cores=(4,)),
        ],
    )
    region.last_kernel = last_kernel
    place = folder / owner
    place.mkdir()
    write_region(place / f"{owner}.cache", region)
    return place / f"{owner}.cache"


def monitor(folder: Path, **more: HostCard) -> Monitor:
    return Monitor(
        folder, "n1", now=lambda: NOW, pods=lambda: {UID: Owner("team", "a")}, cards=lambda: tuple(more.values())
    )


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"vGPU_device_memory_usage_in_bytes{{{TENANT}}} 1123", id="memory-in-use"),
        pytest.param(f"vGPU_device_memory_limit_in_bytes{{{TENANT}}} {4 << 30}", id="memory-limit"),
        pytest.param(f"Device_utilization_desc_of_container{{{TENANT}}} 29", id="cores"),
        pytest.param(f"Device_last_kernel_of_container{{{TENANT}}} 40", id="last-kernel"),
        pytest.param(
            f'Device_memory_desc_of_container{{context="100",ctrname="main",data="1003",deviceuuid="{UUID}",module="20",'
            'offset="0",podname="a",podnamespace="team",vdeviceid="0",zone="vGPU"} 1123',
            id="kinds-of-memory",
        ),
        pytest.param(
            f'HostGPUMemoryUsage{{deviceidx="2",deviceuuid="{UUID}",nodeid="n1",zone="vGPU"}} 77', id="card-memory"
        ),
        pytest.param(
            f'HostCoreUtilization{{deviceidx="2",deviceuuid="{UUID}",nodeid="n1",zone="vGPU"}} 12.5', id="card-cores"
        ),
    ],
)
def test_each_figure_has_hami_s_name(tmp_path: Path, line: str) -> None:
    lay_out(tmp_path, last_kernel=int(NOW) - 40)
    page = monitor(tmp_path, card=HostCard(2, UUID, 77, 12.5)).page()
    assert line in page.splitlines()


def test_a_kernel_time_in_the_future_counts_as_now(tmp_path: Path) -> None:
    lay_out(tmp_path, last_kernel=int(NOW) + 5)
    assert f"Device_last_kernel_of_container{{{TENANT}}} 0" in monitor(tmp_path).page()


def test_unknown_values_have_no_line(tmp_path: Path) -> None:
    """No kernel yet, a card that says nothing of itself: no zeros are made up."""
    lay_out(tmp_path)
    page = monitor(tmp_path, card=HostCard(0, UUID, None, None)).page()
    assert "Device_last_kernel" not in page
    assert "Host" not in page


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        pytest.param("other-uid_main", UUID, id="a-pod-that-is-not-here"),
        pytest.param("lost+found", UUID, id="no-container-s-folder"),
        pytest.param(f"{UID}_main", "GPU-short", id="no-card-s-uuid"),
    ],
)
def test_other_pods_are_left_out(tmp_path: Path, name: str, uuid: str) -> None:
    lay_out(tmp_path, name, uuid=uuid)
    assert monitor(tmp_path).page() == ""


def test_container_names_may_have_what_parts_them_from_the_uid(tmp_path: Path) -> None:
    lay_out(tmp_path, f"{UID}_main_two")
    assert [(region_file.pod_uid, region_file.container) for region_file in region_files(tmp_path)] == [
        (UID, "main_two")
    ]


def test_one_broken_region_leaves_the_others(tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / f"{UID}_side").mkdir()
    (tmp_path / f"{UID}_side" / "x.cache").write_bytes(b"not a region")
    page = monitor(tmp_path).page()
    assert f'{UNREADABLE}{{ctrname="side",podname="a",podnamespace="team",zone="vGPU"}} 1' in page
    assert f"vGPU_device_memory_usage_in_bytes{{{TENANT}}} 1123" in page


def test_without_a_cluster_uids_stand_for_names(tmp_path: Path) -> None:
    lay_out(tmp_path)
    page = Monitor(tmp_path, "n1", now=lambda: NOW).page()
    assert f'podname="{UID}",podnamespace=""' in page


def test_it_is_served_and_follows_the_regions(tmp_path: Path) -> None:
    path = lay_out(tmp_path)
    with serving(monitor(tmp_path), "127.0.0.1", 0) as url:
        assert " 1123\n" in urllib.request.urlopen(url).read().decode()  # noqa: S310 our own address
        write_region(path, new_region("v2.9.0", [CardLimits(UUID)], [ProcessUsage(1, used=({"data": 5},))]))
        with urllib.request.urlopen(url) as answer:  # noqa: S310
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert f"vGPU_device_memory_usage_in_bytes{{{TENANT}}} 5" in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(url.removesuffix("metrics"))  # noqa: S310
        refused.value.close()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with serving(monitor(tmp_path), "127.0.0.1", 0) as url:
        port = int(url.split(":")[2].split("/")[0])
        with (
            pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"),
            serving(monitor(tmp_path), "127.0.0.1", port),
        ):
            pass


def test_labels_are_escaped() -> None:
    page = exposition([Sample("m", {"a": 'x"\\\n'}, 0.5), Sample("m", {}, 2)], {"m": "help\nme"})
    assert page == '# HELP m help\\nme\n# TYPE m gauge\nm{a="x\\"\\\\\\n"} 0.5\nm 2\n'
