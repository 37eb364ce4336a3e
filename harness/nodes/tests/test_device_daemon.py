"""The file of koord-device-daemon: what stands in it, and when it comes and goes."""

import json
from pathlib import Path

import pytest

from seatrial.fake_devices import faults
from seatrial.fake_devices.machine import from_devices, from_server
from seatrial.fake_devices.models import catalog
from seatrial.harness.nodes.device_daemon import PERIOD, DeviceDaemon, device_infos, replace_file
from seatrial.harness.nodes.hardware import NodeHardware
from seatrial.scheduler.api.clock import SimClock


def hardware(model: str) -> NodeHardware:
    """A node with two cards of a model."""
    return NodeHardware("n1", from_devices(((model, 2),), catalog()))


def break_minor(node: NodeHardware, minor: int) -> None:
    """In the table, minors are not in order."""
    position = next(at for at, slot in enumerate(node.machine.slots) if slot.minor == minor)
    faults.apply(node.table, position, "critical", {}, now=0.0)


@pytest.mark.parametrize(
    ("model", "first"),
    [
        pytest.param(
            "ascend-910b3", {"vendor": "huawei", "model": "Ascend-910B3", "minor": "0", "uuid": "npu-1-0"}, id="ascend"
        ),
        pytest.param("mlu370-x8", {"vendor": "cambricon", "model": "MLU370-X8", "minor": "0"}, id="cambricon"),
    ],
)
def test_a_card_in_the_daemon_s_words(model: str, first: dict[str, str]) -> None:
    node = hardware(model)
    infos = device_infos(node.devices(), node.links())
    assert len(infos) == 2
    assert {name: infos[0][name] for name in first} == first
    assert infos[0]["status"] == {"healthy": True, "errCode": "", "errMessage": ""}


def test_an_npu_brings_its_cores(tmp_path: Path) -> None:
    resources = device_infos(hardware("ascend-910b3").devices())[0]["resources"]
    assert resources == {
        "koordinator.sh/gpu-memory": "64Gi",
        "huawei.com/npu-core": "20",
        "huawei.com/npu-cpu": "7",
        "huawei.com/npu-dvpp": "100",
    }


def test_links_name_the_peers() -> None:
    node = NodeHardware("n1", from_server("atlas-800t-a2", catalog()))
    infos = device_infos(node.devices(), node.links())
    links = infos[0]["topology"]["p2pLinks"]
    assert [link["type"] for link in links] == ["HCCS"]
    assert links[0]["peerMinor"] == "1,2,3", "HCCS joins four chips of the eight"


def test_nvidia_cards_are_not_its_business() -> None:
    assert device_infos(hardware("a10").devices()) == []


def test_a_sick_chip_says_why() -> None:
    node = hardware("ascend-910b3")
    break_minor(node, 1)
    assert [info["status"]["healthy"] for info in device_infos(node.devices())] == [True, False]
    assert device_infos(node.devices())[1]["status"] == {
        "healthy": False,
        "errCode": "0x80E01801",
        "errMessage": "chip error",
    }


def test_the_file_follows_the_devices_each_quarter_of_an_hour(tmp_path: Path) -> None:
    clock, node = SimClock(), hardware("ascend-910b3")
    path = tmp_path / "infos" / "ic-device"
    daemon = DeviceDaemon(path, clock, lambda: (node.devices(), node.links()))
    daemon.start()
    assert path.stat().st_mode & 0o777 == 0o644
    break_minor(node, 0)

    clock.run_until(clock.monotonic() + PERIOD - 1)
    assert json.loads(path.read_bytes())[0]["status"]["healthy"] is True
    clock.run_until(clock.monotonic() + 1)
    assert json.loads(path.read_bytes())[0]["status"]["healthy"] is False
    assert [item.name for item in path.parent.iterdir()] == ["ic-device"]

    daemon.stop()
    daemon.stop()
    assert not path.exists()
    clock.run_until(clock.monotonic() + 2 * PERIOD)
    assert not path.exists()


def test_reload_looks_at_once(tmp_path: Path) -> None:
    clock, node = SimClock(), hardware("mlu370-x8")
    daemon = DeviceDaemon(tmp_path / "f", clock, lambda: (node.devices(), node.links()))
    daemon.start()
    break_minor(node, 0)
    daemon.reload()
    assert json.loads((tmp_path / "f").read_bytes())[0]["status"]["healthy"] is False
    daemon.stop()
    assert clock.next_due() is None


def test_once_leaves_the_file(tmp_path: Path) -> None:
    clock, node = SimClock(), hardware("mlu370-x8")
    daemon = DeviceDaemon(tmp_path / "f", clock, lambda: (node.devices(), ()), once=True)
    daemon.start()
    assert clock.next_due() is None
    daemon.stop()
    assert len(json.loads((tmp_path / "f").read_bytes())) == 2


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(OSError, match="f"):
        replace_file(tmp_path / "f", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
