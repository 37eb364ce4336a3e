"""What the manager writes for colocation: amounts, when they are written, when they are taken back, NodeSLOs."""

import json
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.clock import SimClock, rfc3339
from seatrial.scheduler.api.core import ConfigMap, Node, Pod
from seatrial.scheduler.api.numa import NodeResourceTopology
from seatrial.scheduler.api.quantity import binary
from seatrial.scheduler.api.slo import NODE_SLOS_PATH, NodeSlo
from seatrial.scheduler.manager.shell import Manager
from seatrial.scheduler.manager.tests.test_manager import Recorder, manager
from seatrial.scheduler.manager.usage_report import UsageReport

NODE, STATUS, TOPOLOGY = "/api/v1/nodes/n1", "/api/v1/nodes/n1/status", "noderesourcetopologies/n1"
NAMES = [f"kubernetes.io/{name}" for name in ("batch-cpu", "batch-memory", "mid-cpu", "mid-memory")]
ENABLED = {"enable": True, "cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65}


class Setting:
    """A manager with one node of 100 cores and 100 Gi, whose writes are applied to the node as the API server does."""

    def __init__(self, *, gpu_shared: bool = False, **config: Any) -> None:
        self.api, self.clock = Recorder(), SimClock()
        self.manager: Manager = manager(self.api, clock=self.clock, gpu_shared=gpu_shared)
        self.manager._pods.synced = True
        self.manager._pods.start = lambda: None  # type: ignore[method-assign]
        self.annotations: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.extra: dict[str, Any] = {}
        self.capacity: dict[str, str] = {}  # where it differs from allocatable
        self.configure(**config)
        self.show()

    def configure(self, **config: Any) -> None:
        data = {key.replace("_", "-"): json.dumps(value) for key, value in config.items()}
        self.manager._set_config(ConfigMap(data=data))

    def show(self) -> None:
        """The watch shows the node as it is by now."""
        for path, body in self.written():
            if path == STATUS:
                self.extra = {**self.extra, **body["status"]["allocatable"]}
            elif path == NODE:
                self.annotations |= body["metadata"].get("annotations", {})
                self.labels |= body["metadata"].get("labels", {})
        self.api.writes.clear()
        amounts = {"cpu": "100", "memory": "100Gi", **{k: v for k, v in self.extra.items() if v is not None}}
        status = {"capacity": {**amounts, **self.capacity}, "allocatable": amounts}
        metadata = {"name": "n1", "uid": "u", "annotations": dict(self.annotations), "labels": dict(self.labels)}
        self.manager._set_node(msgspec.convert({"metadata": metadata, "status": status}, Node))

    def report(self, cpu: int, *, age: float = 0.0, pods: dict[str, int] | None = None, **more: Any) -> None:
        """The node's agent reports this usage of cores, as that of the system; `pods`: cores by name."""
        used = {"resources": {"cpu": str(cpu), "memory": "10Gi"}}
        metrics = [
            {"namespace": "d", "name": name, "podUsage": {"resources": {"cpu": str(cores), "memory": "0"}}}
            for name, cores in (pods or {}).items()
        ]
        status = {
            "updateTime": rfc3339(self.clock.now() - age),
            "nodeMetric": {"nodeUsage": used, "systemUsage": used},
            "podsMetric": metrics,
            **more,
        }
        self.manager._set_metric(msgspec.convert({"metadata": {"name": "n1"}, "status": status}, UsageReport))

    def pod(self, name: str, cpu: int, phase: str = "Running") -> Pod:
        container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
        plain = {
            "metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"nodeName": "n1", "containers": [container]},
            "status": {"phase": phase},
        }
        return msgspec.convert(plain, Pod)

    def written(self) -> list[tuple[str, Any]]:
        return [(path, body) for _, path, body in self.api.writes if path.startswith(NODE) or path.endswith(TOPOLOGY)]

    def amounts(self) -> list[Any]:
        """The last amounts that were written to the node, in the order of NAMES; empty: none since the last `show`."""
        statuses = [body["status"] for path, body in self.written() if path == STATUS]
        assert all(status["capacity"] == status["allocatable"] for status in statuses)
        return [statuses[-1]["allocatable"][name] for name in NAMES] if statuses else []


def test_nothing_is_offered_until_colocation_is_enabled() -> None:
    setting = Setting(colocation_config={})
    setting.report(5)
    assert setting.written() == []
    setting.configure(colocation_config=ENABLED)
    assert setting.amounts()[0] == "60000"  # 100 - 35 - 5


def test_a_report_changes_the_offer_and_disabling_removes_it(caplog: pytest.LogCaptureFixture) -> None:
    """NR-1, NR-9, D3-1: pods count with what they use, those without a report with their request."""
    setting = Setting(colocation_config=ENABLED)
    setting.manager._resources.set_pod(setting.pod("a", 20))
    setting.manager._resources.set_pod(setting.pod("b", 4))
    setting.report(5, pods={"a": 10})
    assert setting.amounts() == ["46000", "55Gi", "0", "0"]
    setting.show()
    assert setting.written() == [], "what is written already is not written again"
    assert json.loads(setting.annotations["node.koordinator.sh/originExtendedAllocatable"]) == {
        "resources": {"kubernetes.io/batch-cpu": "46k", "kubernetes.io/batch-memory": "55Gi"}
    }
    caplog.set_level("DEBUG", logger="seatrial.scheduler.manager")
    setting.configure(colocation_config={**ENABLED, "enable": False})
    assert setting.amounts() == [None] * 4
    assert "node colocation is disabled in Config, reason: DisableInConfig" in caplog.text
    setting.show()
    assert setting.written() == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_counts_no_longer(phase: str) -> None:
    setting = Setting(colocation_config=ENABLED)
    setting.manager._resources.set_pod(setting.pod("a", 20))
    setting.manager._resources.set_pod(setting.pod("a", 20, phase))
    setting.report(5)
    assert setting.amounts()[0] == "60000"


def test_a_node_can_be_excluded_but_not_included_alone() -> None:
    """NR-1: settings of nodes can only disable."""
    setting = Setting(colocation_config=ENABLED)
    setting.report(5)
    setting.show()
    setting.annotations["node.koordinator.sh/colocation-strategy"] = '{"enable": false}'
    setting.show()
    assert setting.amounts() == [None] * 4
    setting.annotations["node.koordinator.sh/colocation-strategy"] = '{"enable": true}'
    setting.configure(colocation_config={})
    setting.show()
    assert setting.amounts() in ([], [None] * 4)


@pytest.mark.parametrize("how", ["no-report", "old", "late"])
def test_without_reports_nothing_is_offered(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """NR-2, D3-1: after degradeTimeMinutes; a report that stays away causes no event."""
    caplog.set_level("DEBUG", logger="seatrial.scheduler.manager")
    setting = Setting(colocation_config={**ENABLED, "degradeTimeMinutes": 2})
    if how == "no-report":
        setting.extra = dict.fromkeys(NAMES, "1000")
        setting.show()
    else:
        setting.report(5)
        setting.show()
        if how == "old":
            setting.report(5, age=121)
        else:
            setting.clock.advance(110)
            assert setting.amounts() == []
            setting.clock.advance(75)
    assert setting.amounts() == [None] * 4
    because = "because of abnormal nodeMetric, reason: degradedBy"
    assert f"degrade node resource {because}BatchResource" in caplog.text
    assert f"degrade node Mid resource {because}MidResource" in caplog.text


def test_small_changes_wait() -> None:
    """NR-3: a difference of a tenth at most is written once updateTimeThresholdSeconds have passed."""
    setting = Setting(colocation_config=ENABLED)
    setting.report(5)
    setting.show()
    setting.report(11)
    assert setting.amounts() == []
    setting.report(12)
    assert setting.amounts()[0] == "53000"
    setting.show()
    setting.clock.advance(299)
    setting.report(13)
    assert setting.amounts() == []
    setting.clock.advance(2)
    setting.report(13)
    assert setting.amounts()[0] == "52000"


def test_others_get_their_part_first() -> None:
    """NR-12, YN-3: what Hadoop YARN has is not offered to Kubernetes. Annotations that cannot be read subtract none."""
    setting = Setting(colocation_config=ENABLED)
    key = "node.koordinator.sh/thirdPartyAllocations"
    resources = {"kubernetes.io/batch-cpu": "10k", "kubernetes.io/batch-memory": "5Gi"}
    yarn = {"name": "hadoop-yarn", "priority": "koord-batch", "resources": resources}
    setting.annotations[key] = json.dumps({"allocations": [yarn, {**yarn, "priority": "koord-mid"}]})
    setting.show()
    setting.report(5)
    assert setting.amounts()[:2] == ["50000", "50Gi"]
    setting.show()
    assert "60k" in setting.annotations["node.koordinator.sh/originExtendedAllocatable"]
    setting.annotations[key] = "{"
    setting.show()
    assert setting.amounts()[0] == "60000"


def test_batch_cpu_follows_the_ratio_of_the_same_round() -> None:
    """NR-12: not the ratio that the node has."""
    setting = Setting(colocation_config=ENABLED)
    setting.annotations["node.koordinator.sh/cpu-normalization-ratio"] = "1.20"
    setting.show()
    setting.report(5)
    assert setting.annotations["node.koordinator.sh/cpu-normalization-ratio"] == "1.20"
    assert setting.amounts()[0] == "60000", "normalization is not enabled, so the ratio of this round is 1"


def test_zones_get_their_share_and_give_it_back() -> None:
    """NR-13 to NR-15; a topology whose zones lack memory gets nothing."""
    setting = Setting(colocation_config=ENABLED)

    def topology(**more: str) -> None:
        resources = [
            {"name": name, **dict.fromkeys(("capacity", "allocatable", "available"), value)}
            for name, value in {"cpu": "50", "memory": "50Gi", **more}.items()
            if value
        ]
        zones = [{"name": f"node-{number}", "type": "Node", "resources": resources} for number in range(2)]
        metadata = {"name": "n1"}
        setting.manager._set_topology(msgspec.convert({"metadata": metadata, "zones": zones}, NodeResourceTopology))

    topology(memory="")
    setting.report(5)
    assert [path for path, _ in setting.written()] == [STATUS, NODE]
    topology()
    steps = next(body for path, body in setting.written() if path.endswith(TOPOLOGY))
    assert [(step["op"], step["path"]) for step in steps] == [
        (verb, f"/zones/{zone}/{part}")
        for zone in (0, 1)
        for verb, part in (("test", "name"), ("add", "resources/-"), ("add", "resources/-"))
    ]
    assert [step["value"]["allocatable"] for step in steps if step["op"] == "add"] == [
        "30000",
        binary((55 << 30) // 2),
    ] * 2
    setting.show()
    setting.configure(colocation_config={})
    setting.show()
    topology(**{NAMES[0]: "30000", NAMES[1]: "1Gi"})
    ((_, steps),) = setting.written()
    assert [(step["path"], step["value"]) for step in steps if step["op"] == "test"][:3] == [
        ("/zones/0/name", "node-0"),
        ("/zones/0/resources/2/name", NAMES[0]),
        ("/zones/0/resources/3/name", NAMES[1]),
    ]
    assert {step["value"]["available"] for step in steps if step["op"] == "replace"} == {"0"}


def test_mid_resources_are_what_prod_pods_leave_unused() -> None:
    setting = Setting(colocation_config={**ENABLED, "midCPUThresholdPercent": 10})
    setting.report(5, prodReclaimableMetric={"resource": {"resources": {"cpu": "20", "memory": "3Gi"}}})
    assert setting.amounts()[2:] == ["10000", "3Gi"]


@pytest.mark.parametrize("bad", ["ten", "-"])
def test_a_report_that_cannot_be_read_leaves_the_offer(bad: str, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(colocation_config=ENABLED)
    setting.report(5)
    setting.show()
    setting.report(5, hostApplicationMetric=[{"name": "a", "usage": {"resources": {"cpu": bad}}}])
    setting.report(5, hostApplicationMetric=[{"name": "a", "usage": {"resources": {"cpu": bad}}}])
    assert setting.written() == []
    assert len([record for record in caplog.records if "batch and mid resources kept" in record.message]) == 1


def test_a_bad_configuration_keeps_the_last_and_is_an_event() -> None:
    setting = Setting(colocation_config=ENABLED)
    setting.report(5)
    setting.show()
    setting.configure(colocation_config={**ENABLED, "degradeTimeMinutes": 0})
    (event,) = [body for _, path, body in setting.api.writes if path.endswith("/events")]
    assert (event["type"], event["reason"]) == ("Warning", "ColocationCfgUnmarshalFailed")
    assert "degradeTimeMinutes" in event["note"]
    assert setting.written() == []


def test_each_broken_key_is_an_event() -> None:
    setting = Setting(colocation_config=ENABLED)
    setting.api.writes.clear()
    broken = ["resource-threshold-config", "colocation-config", "system-config"]
    setting.manager._set_config(ConfigMap(data=dict.fromkeys(broken, "[")))
    notes = [body["note"] for _, path, body in setting.api.writes if path.endswith("/events")]
    assert sorted(key for key in broken for note in notes if f": {key}: " in note) == sorted(broken)


def test_settings_that_were_never_good_take_nothing_back() -> None:
    """C-1: a manager that starts with settings that cannot be read leaves what nodes offer."""
    setting = Setting(colocation_config={**ENABLED, "degradeTimeMinutes": 0})
    setting.extra = dict.fromkeys(NAMES, "1000")
    setting.show()
    assert setting.written() == []
    setting.configure(colocation_config={})
    assert setting.amounts() == [None] * 4


def test_a_node_gets_a_node_slo_by_its_labels() -> None:
    """NS-1, C-4: defaults, the cluster's settings, the first matching strategy; the same is not written again."""
    threshold = {
        "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60},
        "nodeStrategies": [{"name": "a", "nodeSelector": {"matchLabels": {}}, "cpuSuppressPolicy": "cfsQuota"}],
    }
    setting = Setting(resource_threshold_config=threshold)
    (method, path, body) = setting.api.slos[-1]
    assert (method, path, body["kind"], body["metadata"]) == ("POST", NODE_SLOS_PATH, "NodeSLO", {"name": "n1"})
    assert body["spec"]["resourceUsedThresholdWithBE"] == {
        "enable": True,
        "cpuSuppressThresholdPercent": 60,
        "cpuSuppressPolicy": "cfsQuota",
        "memoryEvictThresholdPercent": 70,
    }
    setting.api.slos.clear()
    setting.manager._set_slo(
        NodeSlo(msgspec.convert({"name": "n1", "uid": "s"}, type(NodeSlo().metadata)), body["spec"])
    )
    assert setting.api.slos == []
    setting.configure(resource_threshold_config={})
    ((method, path, steps),) = setting.api.slos
    assert (method, path) == ("PATCH", f"{NODE_SLOS_PATH}/n1")
    assert steps[0] == {"op": "test", "path": "/metadata/uid", "value": "s"}
    assert steps[1]["value"]["resourceUsedThresholdWithBE"]["enable"] is False
