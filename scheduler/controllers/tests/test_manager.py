"""The manager against a small API: what it creates, changes and deletes, in any order of events."""

from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import ConfigMap, Node
from seatrial.scheduler.api.slo import NODE_METRICS_PATH, NodeMetric
from seatrial.scheduler.api.transport import Done, Request, Response
from seatrial.scheduler.controllers.shell import Manager


class Recorder:
    """A transport that records writes and answers them at once; reads are never answered."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, str, Any]] = []
        self.code = 200

    def send(self, request: Request, done: Done) -> None:
        if request.method != "GET":
            self.writes.append((request.method, request.path, orjson.loads(request.body) if request.body else None))
            done(Response(self.code, b"{}"))

    def stream(self, *_: object) -> object:
        raise AssertionError("no watch in this test")


@pytest.fixture
def api() -> Recorder:
    return Recorder()


def manager(api: Recorder, *, selector: str = "") -> Manager:
    found = Manager(api, SimClock(), selector=selector)  # type: ignore[arg-type]
    found.ready = True
    return found


def node(name: str, **annotations: str) -> Node:
    return msgspec.convert({"metadata": {"name": name, "annotations": annotations}}, Node)


def metric(name: str, **policy: Any) -> NodeMetric:
    return msgspec.convert(
        {"metadata": {"name": name, "uid": "m"}, "spec": {"metricCollectPolicy": policy}}, NodeMetric
    )


def test_a_node_metric_is_made_with_the_default_policy(api: Recorder) -> None:
    manager(api)._set_node(node("n1"))
    ((method, path, body),) = api.writes
    assert (method, path, body["metadata"]) == ("POST", NODE_METRICS_PATH, {"name": "n1"})
    assert body["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 60


@pytest.mark.parametrize("first", ["node", "metric"])
def test_a_node_metric_goes_with_its_node(api: Recorder, first: str) -> None:
    """The NodeMetric may become known after the node has gone."""
    found = manager(api, selector="pool=a")
    found._set_node(node("n1"))
    steps: list[Callable[[], object]] = [lambda: found._set_metric(metric("n1")), lambda: found._node_gone(node("n1"))]
    for step in steps if first == "metric" else steps[::-1]:
        step()
    method, path, body = api.writes[-1]
    assert (method, path) == ("DELETE", f"{NODE_METRICS_PATH}/n1")
    assert body["preconditions"] == {"uid": "m"}


@pytest.mark.parametrize(("selector", "deleted"), [("", True), ("pool=a", False)])
def test_an_orphan_is_deleted_unless_it_may_be_another_s(api: Recorder, selector: str, deleted: bool) -> None:
    manager(api, selector=selector)._set_metric(metric("absent"))
    assert [write[0] for write in api.writes] == ["DELETE"] * deleted


def test_a_changed_configuration_changes_policies(api: Recorder) -> None:
    """A broken one changes none."""
    found = manager(api)
    found._set_node(node("n1"))
    found._set_metric(metric("n1", reportIntervalSeconds=60))
    api.writes.clear()
    data = {"colocation-config": '{"enable": true, "metricReportIntervalSeconds": 30}'}
    found._set_config(ConfigMap(data=data))
    ((method, path, body),) = api.writes
    assert (method, path) == ("PATCH", f"{NODE_METRICS_PATH}/n1")
    assert body["spec"]["metricCollectPolicy"]["reportIntervalSeconds"] == 30
    api.writes.clear()
    found._set_config(ConfigMap(data={"colocation-config": "{"}))
    assert api.writes == []


def test_nodes_are_not_written_where_nothing_is_configured(api: Recorder) -> None:
    found = manager(api)
    found._set_metric(metric("n1"))
    found._set_node(node("n1"))
    assert not any(path.startswith("/api/v1/nodes") for _, path, _ in api.writes)
    found._set_config(ConfigMap(data={"cpu-normalization-config": '{"enable": false}'}))
    assert api.writes[-1][1] == "/api/v1/nodes/n1"
    assert api.writes[-1][2] == {"metadata": {"annotations": {"node.koordinator.sh/cpu-normalization-ratio": "1.00"}}}
