"""Use of cards in NodeMetric: the sums, the pace, and who is left out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.fake_devices import faults
from seatrial.harness.devices.provider import Device, Health, Share
from seatrial.harness.devices.tests.boundaries import nvml_object
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.fleet import node_manifest
from seatrial.harness.nodes.node_agents import NodeAgents
from seatrial.harness.nodes.pods import BoundPod, PodMeta
from seatrial.harness.nodes.tests.little_api import LittleApi
from seatrial.harness.nodes.usage import (
    NODE_METRICS,
    USAGE_ANNOTATION,
    CardUse,
    NodeUse,
    PodUse,
    interval_of,
    measured_use,
    metric_status,
    scripted_use,
)
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.clock import SIM_EPOCH, SimClock
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO

GIB = 1 << 30


def card(minor: int, *, vendor: str = "nvidia", health: Health | None = None) -> Device:
    return Device(
        vendor,
        "gpu",
        "A10",
        "A10",
        7 - minor,
        minor,
        f"GPU-{minor}",
        f"0000:0{minor}:00.0",
        0,
        "pci0000:00",
        20 * GIB,
        health or Health(ok=True),
    )


def amounts(entries: list[dict[str, Any]]) -> list[tuple[int, str, str, str]]:
    """Minor, cores, bytes, ratio."""
    return [
        (entry["minor"], *(entry["resources"][name] for name in (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO)))
        for entry in entries
    ]


def test_a_card_s_use_is_the_sum_of_its_pods() -> None:
    use = NodeUse(
        (card(1), card(0)),
        (
            PodUse("b", "x", (CardUse("GPU-0", 2 * GIB, 10.4),)),
            PodUse("a", "y", (CardUse("GPU-0", 4 * GIB, 20.4), CardUse("GPU-1", GIB, 5))),
            PodUse("a", "plain", ()),
            PodUse("", "", (CardUse("GPU-1", GIB, 1),)),
        ),
    )
    status = metric_status(use, now=SIM_EPOCH)
    assert status["updateTime"] == "2026-01-01T00:00:00Z"
    assert amounts(status["nodeMetric"]["nodeUsage"]["devices"]) == [
        (0, "31", str(6 * GIB), "30"),
        (1, "6", str(2 * GIB), "10"),
    ]
    assert [(metric["namespace"], metric["name"]) for metric in status["podsMetric"]] == [("a", "y"), ("b", "x")]
    assert amounts(status["podsMetric"][1]["podUsage"]["devices"]) == [(0, "10", str(2 * GIB), "10")]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(card(1, vendor="huawei"), id="of-another-vendor"),
        pytest.param(card(1, health=Health(ok=False, code="Xid79")), id="off-the-bus"),
    ],
)
def test_cards_that_koordlet_cannot_measure_are_left_out(other: Device) -> None:
    status = metric_status(NodeUse((card(0), other), (PodUse("a", "x", (CardUse("GPU-1", 1, 1),)),)), now=SIM_EPOCH)
    assert amounts(status["nodeMetric"]["nodeUsage"]["devices"]) == [(0, "0", "0", "0")]
    assert status["podsMetric"] == []


def bound(text: str) -> BoundPod:
    return BoundPod(metadata=PodMeta(name="a", namespace="team", annotations={USAGE_ANNOTATION: text} if text else {}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", (0, 0.0), id="says-nothing"),
        pytest.param('{"core": 12.5, "memory": "2Gi"}', (2 * GIB, 12.5), id="both"),
        pytest.param('{"core": 30}', (0, 30.0), id="cores-alone"),
        pytest.param('{"memory": "100Gi"}', (20 * GIB, 0.0), id="no-more-than-the-card-has"),
    ],
)
def test_a_pod_does_what_it_says(text: str, expected: tuple[int, float]) -> None:
    shares = (Share(card(0), {}), Share(card(0), {}), Share(card(1, vendor="huawei"), {}))
    memory, core = expected
    assert scripted_use(bound(text), shares) == PodUse("team", "a", (CardUse("GPU-0", memory, core),))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no-json"),
        pytest.param("[]", id="no-object"),
        pytest.param('{"cores": 1}', id="an-unknown-name"),
        pytest.param('{"core": 101}', id="more-than-a-card"),
        pytest.param('{"memory": "many"}', id="no-quantity"),
        pytest.param('{"core": null}', id="no-number"),
    ],
)
def test_what_a_pod_says_wrongly_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"pod team/a: annotation {USAGE_ANNOTATION}"):
        scripted_use(bound(text), ())


@pytest.mark.parametrize(("amount", "seconds"), [(None, 60.0), (0, 60.0), (5, 30.0), (90, 90.0)])
def test_the_interval_has_a_floor(amount: int | None, seconds: float) -> None:
    assert interval_of(amount) == seconds


def test_real_processes_are_found_through_the_provider(tmp_path: Path) -> None:
    """Through the NVML boundary: a process with both figures counts, a lost card is left out, strangers have no pod."""
    with nvml_object(tmp_path) as boundary, boundary.provider() as provider:
        devices = provider.devices()
        first, second = boundary.position(0), boundary.position(1)
        for number, (pid, at) in enumerate([(100, first), (200, first), (300, second)]):
            record = boundary.table.processes[number]
            with boundary.table.writing(record):
                record.pid, record.device, record.used, record.sm = pid, at, (number + 1) * GIB, 10 * (number + 1)
                record.sampled_us = 1
        faults.apply(boundary.table, second, "lost", {}, now=0.0)

        use = measured_use(provider, {100: ("team", "a")}.get)

    assert PodUse("team", "a", (CardUse(devices[0].uuid, GIB, 10.0),)) in use.pods
    assert PodUse("", "", (CardUse(devices[0].uuid, 2 * GIB, 20.0),)) in use.pods
    assert devices[1].uuid not in {device.uuid for device in use.devices}
    assert len(use.devices) == len(devices) - 1


class Rig:
    """Agents with one node of two cards and one pod on the first."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.api = LittleApi(self.clock)
        self.agents = NodeAgents(self.api, self.clock)
        self.agents.start()
        self.clock.settle()
        self.api.put("/api/v1/nodes", node_manifest(node("n1").gpus("a10", 2).manifest))
        self.clock.settle()
        one = pod("a").namespace("default").node_name("n1")
        one.annotation(USAGE_ANNOTATION, '{"core": 40, "memory": "6Gi"}')
        resources = {GPU_CORE: "50", GPU_MEMORY: "12Gi", GPU_MEMORY_RATIO: "50"}
        one.annotation(DEVICE_ALLOCATED, json.dumps({"gpu": [{"minor": 0, "resources": resources}]}))
        self.api.put("/api/v1/namespaces/default/pods", one.manifest)
        self.clock.run_until(self.clock.monotonic() + 5)

    def ask(self, seconds: int | None = None) -> None:
        spec: dict[str, Any] = {"metricCollectPolicy": {"reportIntervalSeconds": seconds}} if seconds else {}
        self.api.put(NODE_METRICS, {"metadata": {"name": "n1", "uid": "m"}, "spec": spec})
        self.clock.settle()

    def reports(self, seconds: float) -> int:
        before = len(self.api.writes("nodemetrics"))
        self.clock.run_until(self.clock.monotonic() + seconds)
        return len(self.api.writes("nodemetrics")) - before


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.agents.stop()


def test_nothing_is_sent_until_somebody_asks(rig: Rig) -> None:
    assert rig.reports(600) == 0


def test_a_report_each_interval(rig: Rig) -> None:
    rig.ask(40)
    assert rig.reports(39) == 0
    assert rig.reports(2) == 1
    assert rig.reports(400) == 10
    status = rig.api.get(f"{NODE_METRICS}/n1")["status"]
    assert [row[:3] for row in amounts(status["nodeMetric"]["nodeUsage"]["devices"])] == [
        (0, "40", str(6 * GIB)),
        (1, "0", "0"),
    ]
    assert [metric["name"] for metric in status["podsMetric"]] == ["a"]


def test_another_interval_counts_from_now(rig: Rig) -> None:
    rig.ask()
    rig.reports(50)
    rig.api.patch(f"{NODE_METRICS}/n1", {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 30}}})
    rig.clock.settle()
    assert rig.reports(29) == 0
    assert rig.reports(62) == 3


@pytest.mark.parametrize("silence", ["frozen", "gone"])
def test_a_node_that_is_not_there_says_nothing(rig: Rig, silence: str) -> None:
    rig.ask()
    assert rig.reports(61) == 1
    if silence == "frozen":
        faults_text = json.dumps([{"verb": "frozen"}])
        rig.api.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"seatrial.dev/faults": faults_text}}})
    else:
        rig.api.drop(f"{NODE_METRICS}/n1")
    rig.clock.settle()
    assert rig.reports(300) == 0
