"""Samples of use and what is reported of them, for simulated nodes and for this machine."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.fleet import node_manifest
from seatrial.harness.nodes.local_load import LocalLoad
from seatrial.harness.nodes.node_agents import NodeAgents
from seatrial.harness.nodes.tests.little_api import LittleApi
from seatrial.harness.nodes.usage import NODE_METRICS, reported_classes
from seatrial.harness.nodes.usage_model import USAGE, UsageModel, read_node_script, read_script
from seatrial.harness.nodes.usage_samples import Samples, aggregates, reported
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.clock import SIM_EPOCH, SimClock, rfc3339
from seatrial.scheduler.api.slo import AggregatePolicy, CollectPolicy

GIB = 1 << 30
FIVE = CollectPolicy(aggregate_duration_seconds=300, node_aggregate_policy=AggregatePolicy(("5m",)))


def samples(count: int, period: float = 1.0) -> Samples:
    """CPU of 1, 2, 3, … milli, one sample each period; the last one at 0."""
    times = -np.arange(count, dtype=np.float64)[::-1] * period
    return Samples(times, np.arange(1, count + 1, dtype=np.float64), np.full(count, 7.0))


@pytest.mark.parametrize(
    ("count", "part", "expected"),
    [(10, 0.5, 5), (10, 0.9, 9), (10, 0.95, 9), (10, 0.99, 9), (100, 0.95, 95), (1, 0.99, 1), (3, 0.1, 1)],
)
def test_percentiles(count: int, part: float, expected: int) -> None:
    """QOS-MC-2: index int(n · p) - 1 with p as a 32-bit float: 0.9 of 10 samples is the ninth, as is 0.99."""
    assert samples(count).percentile(part)["cpu"] == expected


@pytest.mark.parametrize(("part", "expected"), [(0.9, 700), (0.5, 300)])
def test_percentiles_of_nine_samples(part: float, expected: int) -> None:
    """QOS-E19: 0, 100, … 800 in any order; of a single sample each percentile is the sample."""
    values = np.array([300, 800, 0, 500, 100, 700, 200, 600, 400], dtype=np.float64)
    assert Samples(np.arange(9, dtype=np.float64), values, values).percentile(part)["cpu"] == expected
    assert samples(1).percentile(part)["cpu"] == 1


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(CollectPolicy(), 400, id="the-last"),
        pytest.param(CollectPolicy(aggregate_duration_seconds=100), 350, id="mean-of-the-window"),
        pytest.param(CollectPolicy(aggregate_duration_seconds=5), 370, id="at-least-a-minute"),
    ],
)
def test_the_reported_amount(policy: CollectPolicy, expected: int) -> None:
    amounts = reported(samples(400), policy, 0.0)
    assert amounts is not None
    assert abs(amounts["cpu"] - expected) <= 1


@pytest.mark.parametrize(("covered", "has_usage"), [(149.0, False), (150.0, True)])
def test_an_aggregate_needs_half_of_its_duration(covered: float, has_usage: bool) -> None:
    """QOS-RP-2."""
    (entry,) = aggregates(samples(2, covered), FIVE, 0.0)
    assert entry["duration"] == "5m0s"
    assert bool(entry["usage"]) is has_usage
    if has_usage:
        assert set(entry["usage"]) == {"avg", "p50", "p90", "p95", "p99"}


class Rig:
    """Agents with a node that has system processes and a host application, and one pod."""

    def __init__(self, *, seed: int = 1) -> None:
        self.clock = SimClock()
        self.api = LittleApi(self.clock)
        self.agents = NodeAgents(self.api, self.clock, seed=seed)
        self.agents.start()
        self.clock.settle()
        manifest = node_manifest(node("n1").cpu(32).manifest)
        script = {"cpu": "1", "memory": "2Gi", "hostApplications": {"nginx": {"cpu": "500m", "qos": "LS"}}}
        manifest["metadata"]["annotations"][USAGE] = json.dumps(script)
        self.api.put("/api/v1/nodes", manifest)
        self.clock.settle()
        builder = (
            pod("a").namespace("default").node_name("n1").request(cpu=8).annotation(USAGE, '{"cpu":"4","noise":50}')
        )
        self.api.put("/api/v1/namespaces/default/pods", builder.manifest)
        spec = {"reportIntervalSeconds": 60, "aggregateDurationSeconds": 300}
        manifest = {"metadata": {"name": "n1", "uid": "m"}, "spec": {"metricCollectPolicy": spec}}
        self.api.put(NODE_METRICS, manifest)
        self.clock.settle()

    def after(self, seconds: float) -> dict[str, Any]:
        self.clock.advance(seconds)
        status: dict[str, Any] = self.api.get(f"{NODE_METRICS}/n1").get("status") or {}
        return status

    def fault(self, *verbs: str) -> None:
        text = json.dumps([{"verb": verb} for verb in verbs])
        self.api.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"seatrial.dev/faults": text}}})
        self.clock.settle()


def test_a_simulated_node_reports_pods_system_and_programs() -> None:
    status = Rig().after(660)
    (only,) = status["podsMetric"]
    assert (only["priority"], only["qos"]) == ("koord-prod", "LS")
    info = status["nodeMetric"]
    assert info["systemUsage"]["resources"] == {"cpu": "1", "memory": "2Gi"}
    (host,) = status["hostApplicationMetric"]
    assert (host["name"], host["usage"]["resources"]["cpu"]) == ("nginx", "500m")
    used = int(only["podUsage"]["resources"]["cpu"].removesuffix("m"))
    assert 3000 < used < 5000, "a mean of 4 cores with noise of 50 percent"
    assert info["nodeUsage"]["resources"]["cpu"] in {f"{used + 1500}m", f"{used + 1501}m"}
    by_duration = {entry["duration"]: entry["usage"] for entry in info["aggregatedNodeUsages"]}
    assert set(by_duration) == {"5m0s", "10m0s", "30m0s"}
    assert not by_duration["30m0s"], "the node is younger than half of it"
    amounts = [int(by_duration["10m0s"][kind]["resources"]["cpu"].removesuffix("m")) for kind in ("p50", "p90", "p99")]
    assert amounts == sorted(amounts)
    assert amounts[0] < amounts[2]


def test_use_depends_on_the_seed_alone() -> None:
    assert Rig(seed=1).after(300) == Rig(seed=1).after(300)
    assert Rig(seed=1).after(300)["podsMetric"] != Rig(seed=2).after(300)["podsMetric"]


def test_a_silent_agent_writes_nothing() -> None:
    rig = Rig()
    before = rig.after(61)["updateTime"]
    rig.fault("metrics_silent")
    assert rig.after(200)["updateTime"] == before
    rig.fault()
    assert rig.after(61)["updateTime"] == rfc3339(SIM_EPOCH + 300)


def test_a_stale_agent_repeats_its_report() -> None:
    rig = Rig()
    rig.after(61)
    rig.fault("metrics_stale")
    first = rig.after(60)
    assert first["updateTime"] == rfc3339(SIM_EPOCH + 120)
    assert rig.after(180) == first


def test_garbage_is_negative() -> None:
    rig = Rig()
    rig.fault("metrics_garbage")
    status = rig.after(61)
    assert status["nodeMetric"]["nodeUsage"]["resources"]["cpu"].startswith("-")


def test_the_use_of_the_past_stays_as_it_was() -> None:
    """A pod uses 4 cores for five minutes, 8 for one minute, and is gone after that."""
    clock = SimClock()
    model = UsageModel(clock, "n1")
    model.started("u", "default/a", '{"cpu": "4"}')
    clock.advance(300)
    model.changed("u", "default/a", '{"cpu": "8"}')
    clock.advance(60)
    model.ended("u")
    clock.advance(60)
    pods, load = model.measure(1800)
    assert load is not None
    assert pods == {}
    result = dict(zip((load.node.times - SIM_EPOCH).tolist(), load.node.cpu.tolist(), strict=True))
    assert (result[0], result[285], result[300], result[345], result[360], result[420]) == (
        4000,
        4000,
        8000,
        8000,
        0,
        0,
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("{", "unexpected end of data", id="no-json"),
        pytest.param("[]", "expected {", id="no-object"),
        pytest.param('{"gpu": 1}', "expected {", id="unknown-name"),
        pytest.param('{"cpu": "many"}', "'many' is not a quantity", id="no-quantity"),
        pytest.param('{"cpu": "-1"}', "expected amounts of 0 and more", id="negative"),
        pytest.param('{"noise": 101}', "expected noise of 0 to 100 percent, found 101", id="noise"),
    ],
)
def test_scripts_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match="pod a: ") as refused:
        read_script("pod a", text)
    assert why in str(refused.value)
    with pytest.raises(UsageError, match="hostApplications"):
        read_node_script("node n", '{"hostApplications": [1]}')


@pytest.mark.parametrize(
    ("labels", "priority", "expected"),
    [
        ({}, 0, ("koord-prod", "LS")),
        ({}, 5500, ("koord-batch", "BE")),
        ({"koordinator.sh/qosClass": "BE"}, 0, ("koord-batch", "BE")),
        ({"koordinator.sh/qosClass": "LSR"}, 9500, ("koord-prod", "LSR")),
        ({"koordinator.sh/priority-class": "koord-mid"}, 9500, ("koord-mid", "LS")),
    ],
)
def test_classes_in_reports(labels: dict[str, str], priority: int, expected: tuple[str, str]) -> None:
    assert reported_classes(labels, priority) == expected


def write_machine(root: Path, *, busy: int, used: int, pod_usec: int, cache: int = 9, files: int = 9) -> None:
    """A machine of 100 Gi with one pod in a control group of version 2, and this process in another.

    `cache`, `files`: page cache in Mi, of the node and of the pod.
    """
    available = (100 << 20) - used * 1024
    for path, text in {
        "proc/stat": f"cpu  {busy} 0 0 5000 900 0 0 0 0 0\n",
        "proc/meminfo": (
            f"MemTotal: {100 << 20} kB\nMemFree: {available - cache * 1024} kB\nMemAvailable: {available} kB\n"
        ),
        "proc/70/cgroup": "0::/pods/a\n",
        f"proc/{os.getpid()}/cgroup": "0::/agent\n",
        "sys/fs/cgroup/pods/a/cpu.stat": f"usage_usec {pod_usec}\nuser_usec 1\n",
        "sys/fs/cgroup/pods/a/memory.stat": (
            f"anon 1\ninactive_anon {64 << 20}\nactive_anon {1 << 20}\nactive_file {files << 20}\nunevictable 0\n"
        ),
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_this_machine_is_read_from_its_files(tmp_path: Path) -> None:
    """Two looks 10 s apart: 20 s of CPU on the node, of which the pod has 15 s; file pages do not count."""
    load, owners = LocalLoad(tmp_path), {70: ("team", "a")}
    ticks = os.sysconf("SC_CLK_TCK")
    write_machine(tmp_path, busy=1000, used=300, pod_usec=5_000_000)
    load.look(100.0, owners)
    assert load.measured() == ({}, None), "the first look only remembers the counters"
    write_machine(tmp_path, busy=1000 + 20 * ticks, used=400, pod_usec=20_000_000)
    load.look(110.0, owners)
    pods, value = load.measured()
    assert value is not None
    assert value.system is not None
    assert pods["team", "a"].last() == {"cpu": 1500, "memory": 65 << 20}
    assert value.node.last() == {"cpu": 2000, "memory": 400 << 20}
    assert value.system.last() == {"cpu": 500, "memory": (400 - 65) << 20}


@pytest.mark.parametrize(
    ("policy", "pod", "node"),
    [
        pytest.param(None, 65, 400, id="default"),
        pytest.param("usageWithoutPageCache", 65, 400, id="without"),
        pytest.param("usageWithHotPageCache", 65, 400, id="hot-pages-are-not-measured"),
        pytest.param("usageWithPageCache", 165, 700, id="with"),
    ],
)
def test_the_policy_decides_whether_page_cache_counts(tmp_path: Path, policy: str | None, pod: int, node: int) -> None:
    """QOS-KM-2, QOS-KM-3: the pod has 100 Mi of file pages; 300 Mi of the node's memory is available and not free."""
    load, owners = LocalLoad(tmp_path), {70: ("team", "a")}
    ticks = os.sysconf("SC_CLK_TCK")
    for moment, busy in ((100.0, 1000), (110.0, 1000 + 20 * ticks)):
        write_machine(tmp_path, busy=busy, used=400, pod_usec=int(moment) * 1_000_000, cache=300, files=100)
        load.look(moment, owners)
    pods, value = load.measured()
    assert value is not None
    assert value.system is not None
    collect_policy = CollectPolicy(node_memory_collect_policy=policy)
    measured = [reported(samples, collect_policy, 110.0) for samples in (pods["team", "a"], value.node, value.system)]
    assert [amounts["memory"] >> 20 for amounts in measured if amounts] == [pod, node, node - pod]


def test_this_very_machine_has_a_use() -> None:
    """A child burns CPU time between two looks; without a group of its own its process tree is read."""
    load = LocalLoad()
    owners = {os.getpid(): ("team", "self")}
    load.look(0.0, owners)
    total = sum(number * number for number in range(2_000_000))
    assert total
    load.look(1.0, owners)
    pods, value = load.measured()
    assert value is not None
    assert value.node.last()["memory"] > 0
    assert pods["team", "self"].last()["cpu"] > 0
    assert pods["team", "self"].last()["memory"] > 1 << 20
