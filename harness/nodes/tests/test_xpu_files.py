"""Files of koord-device-daemon as koordlet reads them: the same Device object as straight from the devices."""

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.fake_devices import faults
from seatrial.fake_devices.machine import from_devices, from_server
from seatrial.fake_devices.models import catalog
from seatrial.harness.nodes import devices as device_object
from seatrial.harness.nodes import xpu_files
from seatrial.harness.nodes.device_daemon import infos_json
from seatrial.harness.nodes.hardware import NodeHardware

MACHINES = [
    pytest.param(from_server("atlas-800t-a2", catalog()), id="eight-npus-in-two-rings"),
    pytest.param(from_devices((("mlu370-x8", 3),), catalog()), id="mlus"),
    pytest.param(from_devices((("mi300x", 3),), catalog()), id="amd-gpus"),
]


def card(**content: Any) -> dict[str, Any]:
    """One card in the daemon's words."""
    return {"vendor": "huawei", "model": "Ascend-910B3", "uuid": "npu-0-0", "minor": "0", **content}


def written(folder: Path, *cards: dict[str, Any]) -> tuple[xpu_files.Xpu, ...]:
    (folder / "ic-device").write_text(json.dumps(cards))
    return xpu_files.read_xpus(folder)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_way_over_the_file_changes_nothing(tmp_path: Path, machine: Any) -> None:
    node = NodeHardware("n1", machine)
    faults.apply(node.table, 0, "critical", {}, now=0.0)
    (tmp_path / "ic-device").write_bytes(infos_json(node.devices(), node.links()))
    xpus = xpu_files.read_xpus(tmp_path)
    cards = [device for device in node.devices() if device.kind == "gpu"]

    assert xpu_files.entries(xpus, now="t") == device_object.spec(cards, now="t")["devices"]
    assert xpu_files.labels(xpus) == device_object.labels(cards, None)
    assert xpu_files.partitions(xpus) == device_object.partitions(cards, node.links())


@pytest.mark.parametrize(
    ("status", "health", "reason"),
    [
        pytest.param(None, True, None, id="no-status-is-well-and-has-no-condition"),
        pytest.param({"healthy": True}, True, "DeviceHealthy", id="well"),
        pytest.param({"healthy": False}, False, "Unknown", id="ill-without-a-code"),
        pytest.param({"healthy": False, "errCode": "0x1"}, False, "0x1", id="ill-with-a-code"),
    ],
)
def test_health(tmp_path: Path, status: dict[str, Any] | None, health: bool, reason: str | None) -> None:
    content = {"status": status} if status is not None else {}
    (entry,) = xpu_files.entries(written(tmp_path, card(**content)), now="t")
    assert entry["health"] is health
    assert [condition["reason"] for condition in entry.get("conditions", [])] == ([reason] if reason else [])


def test_a_condition_s_time_moves_with_its_status_alone(tmp_path: Path) -> None:
    well, ill = card(status={"healthy": True}), card(status={"healthy": False})
    first = xpu_files.entries(written(tmp_path, well), now="1")
    second = xpu_files.entries(written(tmp_path, well), first, now="2")
    third = xpu_files.entries(written(tmp_path, ill), second, now="3")
    assert [entries[0]["conditions"][0]["lastTransitionTime"] for entries in (first, second, third)] == ["1", "1", "3"]


def test_bare_names_get_a_prefix_and_the_ratio_is_added(tmp_path: Path) -> None:
    (entry,) = xpu_files.entries(written(tmp_path, card(resources={"gpu-memory": "16Gi", "gpu-core": "100"})), now="t")
    assert entry["resources"] == {
        "koordinator.sh/gpu-memory": "16Gi",
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory-ratio": "100",
    }


def test_all_files_count_and_one_that_is_broken_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a").write_text(json.dumps([card(uuid="npu-1-1", minor="1")]))
    (tmp_path / "b").write_text(json.dumps([card()]))
    (tmp_path / "c").write_text("[{")
    (tmp_path / ".ic-device.7").write_text("half")
    assert [xpu.uuid for xpu in xpu_files.read_xpus(tmp_path)] == ["npu-0-0", "npu-1-1"]
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == [tmp_path / "c"]
    assert xpu_files.read_xpus(tmp_path / "nowhere") == ()
