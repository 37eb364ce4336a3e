"""The manager against a small API: what it creates, changes and deletes, in any order of events."""

from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import ConfigMap, Node
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.numa import NodeResourceTopology
from seatrial.scheduler.api.slo import NODE_METRICS_PATH, NODE_SLOS_PATH, NodeSlo
from seatrial.scheduler.api.transport import Done, Request, Response
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.manager.shell import Manager
from seatrial.scheduler.manager.strategy import ColocationStrategy
from seatrial.scheduler.manager.usage_report import UsageReport


class Recorder:
    """A transport that records writes and answers them at once, or on `answer` if `late`; reads are never answered.
    Those of NodeSLOs are in `slos`."""

    def __init__(self) -> None:
        self.slos: list[tuple[str, str, Any]] = []
        self.writes: list[tuple[str, str, Any]] = []
        self.code, self.body = 200, b"{}"
        self.late = False
        self._unanswered: list[Done] = []

    def send(self, request: Request, done: Done) -> None:
        if request.method != "GET":
            kept = self.slos if request.path.startswith(NODE_SLOS_PATH) else self.writes
            kept.append((request.method, request.path, orjson.loads(request.body) if request.body else None))
            if self.late:
                self._unanswered.append(done)
            else:
                done(Response(self.code, self.body))

    def answer(self) -> None:
        """Answer what waits for it."""
        waiting, self._unanswered = self._unanswered, []
        for done in waiting:
            done(Response(self.code, self.body))

    def stream(self, *_: object) -> object:
        raise AssertionError("no watch in this test")


@pytest.fixture
def api() -> Recorder:
    return Recorder()


def manager(api: Recorder, *, selector: str = "", clock: SimClock | None = None, gpu_shared: bool = False) -> Manager:
    manager = Manager(api, clock or SimClock(), selector=selector, gpu_shared=gpu_shared)  # type: ignore[arg-type]
    manager.ready = True
    return manager


def node(name: str, **annotations: str) -> Node:
    return msgspec.convert({"metadata": {"name": name, "annotations": annotations}}, Node)


def metric(name: str, **policy: Any) -> UsageReport:
    return msgspec.convert(
        {"metadata": {"name": name, "uid": "m"}, "spec": {"metricCollectPolicy": policy}}, UsageReport
    )


def test_a_node_metric_is_made_with_the_default_policy(api: Recorder) -> None:
    manager(api)._set_node(node("n1"))
    ((method, path, body),) = api.writes
    assert (method, path, body["metadata"]) == ("POST", NODE_METRICS_PATH, {"name": "n1"})
    assert body["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 60


@pytest.mark.parametrize("first", ["node", "metric"])
def test_a_node_metric_goes_with_its_node(api: Recorder, first: str) -> None:
    """The NodeMetric may become known after the node has gone."""
    result = manager(api, selector="pool=a")
    result._set_node(node("n1"))
    steps: list[Callable[[], object]] = [
        lambda: result._set_metric(metric("n1")),
        lambda: result._node_gone(node("n1")),
    ]
    for step in steps if first == "metric" else steps[::-1]:
        step()
    method, path, body = api.writes[-1]
    assert (method, path) == ("DELETE", f"{NODE_METRICS_PATH}/n1")
    assert body["preconditions"] == {"uid": "m"}


@pytest.mark.parametrize(("selector", "deleted"), [("", True), ("pool=a", False)])
def test_an_orphan_is_deleted_unless_it_may_be_another_s(api: Recorder, selector: str, deleted: bool) -> None:
    manager(api, selector=selector)._set_metric(metric("absent"))
    assert [write[0] for write in api.writes] == ["DELETE"] * deleted


def test_orphans_of_the_time_before_the_manager_are_deleted(api: Recorder) -> None:
    """Both kinds, all of them, as soon as the nodes are known."""
    result = manager(api)
    result.ready = False
    result._set_node(node("here"))
    for name in ("a", "here", "b"):
        result._set_metric(metric(name))
        result._set_slo(NodeSlo(ObjectMeta(name=name, uid="s")))
    assert (api.writes, api.slos) == ([], [])
    for informer in result._informers:
        informer.synced = True
    result._synced()
    for writes, path in ((api.writes, NODE_METRICS_PATH), (api.slos, NODE_SLOS_PATH)):
        assert {write[1] for write in writes if write[0] == "DELETE"} == {f"{path}/a", f"{path}/b"}


def test_a_node_metric_with_its_policy_is_not_written_again(api: Recorder) -> None:
    result = manager(api)
    result._set_node(node("n1"))
    written = api.writes[0][2]["spec"]["metricCollectPolicy"]
    api.writes.clear()
    result._set_metric(metric("n1", **written))
    assert api.writes == []


def test_a_policy_that_somebody_changed_is_written_again(api: Recorder) -> None:
    """Without colocation too, and what else of a NodeMetric changes is no reason to look at its node."""
    result = manager(api)
    result._set_node(node("n1"))
    policy = api.writes[0][2]["spec"]["metricCollectPolicy"]
    result._set_metric(metric("n1", **policy))
    api.writes.clear()
    result._set_metric(metric("n1", **{**policy, "reportIntervalSeconds": 5}))
    assert [(method, path) for method, path, _ in api.writes] == [("PATCH", f"{NODE_METRICS_PATH}/n1")]


def test_a_changed_configuration_changes_policies(api: Recorder) -> None:
    """A broken one changes none."""
    result = manager(api)
    result._set_node(node("n1"))
    result._set_metric(metric("n1", reportIntervalSeconds=60))
    api.writes.clear()
    data = {"colocation-config": '{"enable": true, "metricReportIntervalSeconds": 30}'}
    result._set_config(ConfigMap(data=data))
    ((method, path, body),) = api.writes
    assert (method, path) == ("PATCH", f"{NODE_METRICS_PATH}/n1")
    assert body["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 30
    api.writes.clear()
    result._set_config(ConfigMap(data={"colocation-config": "{"}))
    assert [path for _, path, _ in api.writes if not path.endswith("/events")] == []


def test_nodes_are_not_written_where_nothing_is_configured(api: Recorder) -> None:
    result = manager(api)
    result._set_metric(metric("n1"))
    result._set_node(node("n1"))
    assert not any(path.startswith("/api/v1/nodes") for _, path, _ in api.writes)
    result._set_config(ConfigMap(data={"cpu-normalization-config": '{"enable": false}'}))
    assert api.writes[-1][1] == "/api/v1/nodes/n1"
    assert api.writes[-1][2] == {"metadata": {"annotations": {"node.koordinator.sh/cpu-normalization-ratio": "1.00"}}}


def test_settings_that_change_while_they_are_written_are_written_after_it(api: Recorder) -> None:
    """The watch shows the first write before its answer comes, and nothing happens after the answer."""
    result = manager(api)
    result._set_metric(metric("n1", reportIntervalSeconds=60))
    result._set_node(node("n1"))
    api.writes.clear()
    api.late = True
    for seconds in (30, 20):
        result._set_config(ConfigMap(data={"colocation-config": interval(seconds)}))
    result._set_metric(metric("n1", **api.writes[0][2]["spec"]["metricCollectPolicy"]))
    assert len(api.writes) == 1
    api.answer()
    assert [write[2]["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] for write in api.writes] == [30, 20]


def interval(seconds: int) -> str:
    return orjson.dumps({"enable": True, "metricReportIntervalSeconds": seconds}).decode()


def test_refused_writes_do_not_multiply(api: Recorder) -> None:
    """Two writes of a node are refused for ten minutes: one round of them in five seconds, however often the node's
    labels change, and the last settings are written in the end."""
    clock = SimClock()
    result = manager(api, clock=clock)
    result._set_metric(metric("n1", reportIntervalSeconds=60))
    result._set_node(node("n1"))
    api.writes.clear()
    api.code = 422
    normalization = '{"enable": false}'
    result._set_config(ConfigMap(data={"colocation-config": interval(30), "cpu-normalization-config": normalization}))
    for second in range(60):
        clock.advance(1.0)
        if second % 10 == 0:
            result._set_node(node("n1", other=str(second)))
    assert len(api.writes) <= 2 * (1 + 12 + 6 + 1)  # the first, retries, labels, the look for stale reports
    api.writes.clear()
    clock.advance(540.0)
    assert 2 * 540 / 5 <= len(api.writes) <= 2 * (540 / 5 + 540 / 60)
    api.code = 200
    api.writes.clear()
    clock.advance(5.0)
    assert sorted(write[1] for write in api.writes) == ["/api/v1/nodes/n1", f"{NODE_METRICS_PATH}/n1"]
    clock.advance(30.0)
    assert len(api.writes) == 2


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        pytest.param({"uid": "u", "resourceVersion": "9"}, False, id="newer"),
        pytest.param({"uid": "u", "resourceVersion": "4"}, True, id="older-than-the-watch"),
        pytest.param({"uid": "other", "resourceVersion": "9"}, True, id="another-node"),
    ],
)
def test_the_answer_of_a_write_is_what_the_node_is(api: Recorder, answer: dict[str, str], again: bool) -> None:
    """Before the watch shows the write, the node's topology changes: the same is not written again."""
    result = manager(api)
    result._set_metric(metric("n1"))
    metadata = {"name": "n1", "uid": "u", "resourceVersion": "5"}
    result._set_node(msgspec.convert({"metadata": metadata}, Node))
    ratio = {"node.koordinator.sh/cpu-normalization-ratio": "1.00"}
    api.body = orjson.dumps({"metadata": {**metadata, **answer, "annotations": ratio}})
    api.writes.clear()
    result._set_config(ConfigMap(data={"cpu-normalization-config": '{"enable": false}'}))
    result._set_topology(NodeResourceTopology(metadata=ObjectMeta(name="n1")))
    assert len([path for _, path, _ in api.writes if path == "/api/v1/nodes/n1"]) == 1 + again


@pytest.mark.parametrize("back", [False, True], ids=["gone", "back-again"])
def test_a_deletion_that_was_refused_is_tried_again(api: Recorder, back: bool) -> None:
    """Unless the node is there again."""
    clock = SimClock()
    result = manager(api, clock=clock)
    result._set_metric(metric("n1"))
    result._set_node(node("n1"))
    api.code = 422
    result._node_gone(node("n1"))
    api.code = 200
    if back:
        result._set_node(node("n1"))
    api.writes.clear()
    clock.advance(30.0)
    assert [write[0] for write in api.writes if write[0] == "DELETE"] == ([] if back else ["DELETE"])


def test_node_metrics_are_made_when_the_api_server_serves_them(api: Recorder) -> None:
    """Until then one node is tried in half a minute, not each of them."""
    clock = SimClock()
    result = manager(api, clock=clock)
    api.code = 404
    for name in ("n1", "n2", "n3"):
        result._set_node(node(name))
    api.writes.clear()
    clock.advance(300.0)
    assert len(api.writes) == 10
    api.code = 200
    api.writes.clear()
    clock.advance(30.0)
    assert {write[2]["metadata"]["name"] for write in api.writes} == {"n1", "n2", "n3"}
    api.writes.clear()
    clock.advance(300.0)
    assert api.writes == []


def test_a_node_that_the_manager_fails_at_does_not_stop_the_others(
    api: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new configuration concerns all nodes; the first one's raises an exception until its cause is gone."""
    right, broken = Manager._metric_writes, True

    def failing(self: Manager, node: Node, strategy: ColocationStrategy) -> Any:
        if broken and node.name == "a":
            raise TypeError("a fault")
        return right(self, node, strategy)

    monkeypatch.setattr(Manager, "_metric_writes", failing)
    clock = SimClock(faults=Faults())
    result = manager(api, clock=clock)
    for name in ("a", "b"):
        result._set_node(node(name))
    assert [body["metadata"]["name"] for _, _, body in api.writes] == ["b"]
    assert [line.split(" failed")[0] for line in clock.faults.report()] == ["[!]Manager._write_changes a"]
    broken = False
    clock.advance(1.0)
    assert [body["metadata"]["name"] for _, _, body in api.writes] == ["b", "a"]
    assert not clock.faults.report()
