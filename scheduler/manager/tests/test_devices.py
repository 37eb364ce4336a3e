"""Totals of GPUs, NPUs and NICs on nodes: sums, labels, when they are written and removed (NR-23, NR-24)."""

import json
from typing import Any

import pytest

from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.manager.__main__ import run
from seatrial.scheduler.manager.devices import GPU_NAMES, DeviceTotals, read_totals
from seatrial.scheduler.manager.tests.test_noderesource import ENABLED, NODE, STATUS, Setting

K = "koordinator.sh"
LABELS = {"gpu-vendor": "nvidia", "gpu-model": "A100", "gpu-driver-version": "480"}
GPU_A = {f"{K}/gpu-core": "100", f"{K}/gpu-memory": "8000", f"{K}/gpu-memory-ratio": "100"}
GPU_B = {**GPU_A, f"{K}/gpu-memory": "10000"}
NPU = {"huawei.com/npu-core": "20", "huawei.com/npu-cpu": "20", "huawei.com/npu-dvpp": "100"}
ALL = (*GPU_NAMES, f"{K}/rdma")


def entry(kind: str, resources: dict[str, str], *, health: bool = True) -> dict[str, Any]:
    return {"type": kind, "minor": 0, "health": health, "resources": resources}


def device(*entries: dict[str, Any], labels: dict[str, str] = LABELS) -> bytes:
    own = {f"node.{K}/{name}": value for name, value in labels.items()}
    return json.dumps({"metadata": {"name": "n1", "uid": "d", "labels": own}, "spec": {"devices": entries}}).encode()


CARDS = (entry("gpu", GPU_A), entry("gpu", GPU_B))
NIC = entry("rdma", {f"{K}/rdma": "1"})


class Devices(Setting):
    """The node of `Setting` with a Device object; colocation is enabled."""

    def __init__(self, *entries: dict[str, Any], gpu_shared: bool = False, **settings: Any) -> None:
        super().__init__(gpu_shared=gpu_shared, colocation_config={**ENABLED, **settings})
        self.shared = gpu_shared
        self.totals: DeviceTotals | None = None
        if entries:
            self.set(*entries)
        self.manager._totals.listed()

    def set(self, *entries: dict[str, Any], **more: Any) -> None:
        self.totals = read_totals(device(*entries, **more), shared=self.shared)
        self.manager._totals.set(self.totals)

    def delete(self) -> None:
        assert self.totals is not None
        self.manager._totals.gone(self.totals)

    def written_totals(self) -> dict[str, str | None]:
        """The last amounts of devices that were written since the last `show`."""
        statuses = [body["status"] for path, body in self.written() if path == STATUS]
        assert all(status["capacity"] == status["allocatable"] for status in statuses)
        return {name: value for name, value in statuses[-1]["allocatable"].items() if name in ALL} if statuses else {}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("vendor", ["nvidia", ""])
def test_two_cards(vendor: str, shared: bool) -> None:
    """E8, TestPluginCalculate; a NIC and a card that are not healthy, and names of others, count nothing."""
    others = (entry("gpu", GPU_A, health=False), entry("rdma", {}, health=False), entry("fpga", {f"{K}/fpga": "100"}))
    setting = Devices(*CARDS, *others, entry("gpu", {**GPU_A, "example.com/x": "7"}, health=False), gpu_shared=shared)
    setting.set(*CARDS, *others, labels={**LABELS, "gpu-vendor": vendor})
    assert setting.written_totals() == {
        f"{K}/gpu": "200",
        f"{K}/gpu-core": "200",
        f"{K}/gpu-memory": "18000",
        f"{K}/gpu-memory-ratio": "200",
        **({f"{K}/gpu.shared": "200"} if shared else {}),
    }
    setting.show()
    assert setting.labels == {f"node.{K}/{name}": value for name, value in {**LABELS, "gpu-vendor": vendor}.items()}
    assert setting.written() == [], "what is written already is not written again"


def test_an_amount_of_0_is_one() -> None:
    setting = Devices(entry("gpu", {**GPU_A, f"{K}/gpu-memory": "0"}), CARDS[1])
    assert setting.written_totals()[f"{K}/gpu-memory"] == "10000"


def test_npus_and_nics() -> None:
    """E8: no koordinator.sh/gpu for NPUs; 100 for each NIC."""
    cards = [entry("gpu", {**NPU, f"{K}/gpu-memory": size, f"{K}/gpu-memory-ratio": "100"}) for size in ("8k", "10k")]
    setting = Devices(gpu_shared=True)
    setting.set(*cards, NIC, NIC, labels={"gpu-vendor": "huawei"})
    assert setting.written_totals() == {
        "huawei.com/npu-core": "40",
        "huawei.com/npu-cpu": "40",
        "huawei.com/npu-dvpp": "200",
        f"{K}/gpu-memory": "18000",
        f"{K}/gpu-memory-ratio": "200",
        f"{K}/gpu.shared": "200",
        f"{K}/rdma": "200",
    }
    setting.show()
    assert setting.labels == {f"node.{K}/gpu-vendor": "huawei"}


def test_totals_follow_the_device(caplog: pytest.LogCaptureFixture) -> None:
    """Without reports of usage: a card fails, then the other one and the NIC, then all are well, then the Device goes.
    Labels stay. D3-5."""
    caplog.set_level("DEBUG", logger="seatrial.scheduler.manager")
    setting = Devices(*CARDS, NIC)
    assert setting.written_totals()[f"{K}/rdma"] == "100"
    assert "node gpu resources from device\nnode rdma resources from device" in caplog.text
    setting.show()
    setting.set(CARDS[0], entry("gpu", GPU_B, health=False), NIC)
    assert (setting.written_totals()[f"{K}/gpu"], setting.written_totals()[f"{K}/gpu-memory"]) == ("100", "8000")
    setting.show()
    setting.set(entry("gpu", GPU_A, health=False), entry("rdma", {}, health=False))
    removed = dict.fromkeys((f"{K}/gpu", *GPU_A, f"{K}/rdma"))
    assert setting.written_totals() == removed
    assert "reset node gpu resources\nreset node rdma resources" in caplog.text
    setting.show()
    setting.set(*CARDS)
    assert setting.written_totals()[f"{K}/gpu"] == "200"
    setting.show()
    setting.delete()
    assert setting.written_totals() == {name: None for name in removed if name != f"{K}/rdma"}
    setting.show()
    assert setting.written() == []
    assert len(setting.labels) == 3


def test_a_node_without_a_device_has_none() -> None:
    """Names of device plugins of others stay."""
    setting = Devices()
    setting.extra = {**dict.fromkeys(ALL, "100"), "nvidia.com/gpu": "1"}
    setting.show()
    assert setting.written_totals() == dict.fromkeys(ALL)


def test_nothing_is_removed_before_the_devices_are_known() -> None:
    """The kind may never be served; amounts of batch pods do not wait for it."""
    setting = Setting(colocation_config=ENABLED)
    setting.extra = dict.fromkeys(ALL, "100")
    setting.report(5)
    setting.manager._devices._list_refused(Response(404, b"{}"))
    setting.show()
    assert setting.amounts() == []
    assert {setting.extra[name] for name in ALL} == {"100"}
    setting.manager._totals.listed()
    assert setting.amounts()[0] == "60000", "all in one patch"
    setting.show()
    assert setting.extra[f"{K}/gpu"] is None


@pytest.mark.parametrize("where", ["node", "cluster"])
def test_disabled_colocation_leaves_them(where: str) -> None:
    """Koordinator's plugins of devices reset nothing then."""
    setting = Devices(*CARDS)
    setting.report(5)
    setting.show()
    if where == "node":
        setting.annotations["node.koordinator.sh/colocation-strategy"] = '{"enable": false}'
        setting.show()
    else:
        setting.configure(colocation_config={**ENABLED, "enable": False})
    assert (setting.amounts(), setting.written_totals()) == ([None] * 4, {})
    setting.show()
    setting.delete()
    setting.set(CARDS[0], labels={**LABELS, "gpu-model": "H100"})
    assert setting.written() == []


def test_small_differences_wait() -> None:
    """One of 16 cards is no tenth; an amount that is new is written at once."""
    setting = Devices(*[CARDS[0]] * 16)
    setting.show()
    setting.set(*[CARDS[0]] * 15)
    assert setting.written() == []
    setting.clock.advance(301)
    assert setting.written_totals()[f"{K}/gpu"] == "1500"
    setting.show()
    setting.set(*[CARDS[0]] * 14, NIC)
    assert setting.written_totals()[f"{K}/rdma"] == "100"


@pytest.mark.parametrize("bad", ["1e1.5", "-1", "ten", [3]])
def test_an_amount_that_cannot_be_read_leaves_those_of_cards(bad: Any, caplog: pytest.LogCaptureFixture) -> None:
    """NR-24: NICs of the Device go on where its form is good, and batch pods in any case; said once."""
    setting = Devices(*CARDS)
    setting.show()
    for _ in range(2):
        setting.set(entry("gpu", {**GPU_A, f"{K}/gpu-core": bad}), NIC, labels={})
    assert setting.written_totals() == ({} if bad == [3] else {f"{K}/rdma": "100"})
    setting.report(5)
    assert setting.amounts()[0] == "60000"
    setting.show()
    assert setting.extra[f"{K}/gpu-core"] == "200"
    assert len([record for record in caplog.records if "device resources kept node=n1" in record.message]) == 1
    setting.set(CARDS[0])
    assert setting.written_totals()[f"{K}/gpu-core"] == "100"


def test_a_report_that_cannot_be_read_leaves_devices_alone() -> None:
    """NR-24, the other way around."""
    setting = Devices(CARDS[0])
    setting.report(5)
    setting.show()
    setting.report(5, hostApplicationMetric=[{"name": "a", "usage": {"resources": {"cpu": "ten"}}}])
    assert setting.written() == []
    setting.set(*CARDS)
    assert setting.written_totals()[f"{K}/gpu"] == "200"
    assert setting.extra["kubernetes.io/batch-cpu"] == "60000"


def test_labels_are_written_by_themselves() -> None:
    setting = Devices(*CARDS)
    setting.show()
    setting.set(*CARDS, labels={"gpu-model": "H100"})
    ((path, body),) = setting.written()
    assert (path, body["metadata"]["labels"]) == (NODE, {f"node.{K}/gpu-model": "H100"})


@pytest.mark.parametrize("gates", ["GPUShared=true", "EnableSyncGPUSharedResource", "EnableSyncGPUSharedResource=on"])
def test_a_gate_that_is_not_known_is_refused(
    gates: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seatrial.scheduler.manager.__main__.load_server", lambda _: None)
    assert run(feature_gates=gates) == 2
    expected = f"expected EnableSyncGPUSharedResource with =true or =false, found {gates!r}"
    assert expected in capsys.readouterr().err


def test_capacity_is_written_with_the_rest() -> None:
    """A device plugin's failed card is in the capacity that kubelet writes: that alone is no reason to write."""
    setting = Devices(*CARDS, NIC)
    setting.show()
    setting.capacity = {f"{K}/gpu-core": "300", f"{K}/rdma": "200"}
    setting.show()
    assert setting.written() == []
    setting.set(CARDS[0], NIC)
    assert (setting.written_totals()[f"{K}/gpu-core"], setting.written_totals()[f"{K}/rdma"]) == ("100", "100")


def test_a_device_plugin_without_a_healthy_card_is_left_alone() -> None:
    """kubelet would write its names again, and both of them for ever."""
    setting = Devices(entry("gpu", GPU_A, health=False))
    setting.extra, setting.capacity = {f"{K}/gpu-core": "0"}, {f"{K}/gpu-core": "100"}
    setting.show()
    assert setting.written() == []
