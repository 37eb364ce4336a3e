"""The operator against a small API and a ResourceManager: sizes, allocations, and what cannot be read."""

import json
from typing import Any

import msgspec
import orjson
import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.transport import Done, Request, Response
from seatrial.scheduler.yarn.operator import Operator

ORIGIN = "node.koordinator.sh/originExtendedAllocatable"
ALLOCATIONS = "node.koordinator.sh/thirdPartyAllocations"
OFFER = {"kubernetes.io/batch-cpu": "50500", "kubernetes.io/batch-memory": "120Gi"}


class Api:
    """A transport that answers writes with success, and reads with `read` where that is set."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, Any]] = []
        self.read: Response | None = None
        self.code = 200

    def send(self, request: Request, done: Done) -> None:
        if request.method != "GET":
            self.writes.append((request.path, orjson.loads(request.body)))
            done(Response(self.code, b"{}"))
        elif self.read is not None:
            done(self.read)

    def stream(self, *_: object) -> object:
        raise AssertionError("no watch in this test")


class Setting:
    """One node with a NodeManager."""

    def __init__(self) -> None:
        self.cluster, self.yarn, self.clock = Api(), Api(), SimClock()
        self.operator = Operator(self.cluster, self.yarn, self.clock)  # type: ignore[arg-type]
        for informer in self.operator._informers:
            informer.synced = True
            informer.start = lambda: None  # type: ignore[method-assign]
        self.operator.start()
        self.annotations = {ORIGIN: json.dumps({"resources": OFFER})}
        self.uses(0, 0)
        self.node()
        self.pod("manager", 1000, **{"yarn.hadoop.apache.org/node-id": "n1:8041"})

    def uses(self, cores: int, memory: int) -> None:
        body = {"node": {"usedVirtualCores": cores, "usedMemoryMB": memory, "state": "RUNNING"}}
        self.yarn.read = Response(200, orjson.dumps(body))

    def node(self, **annotations: str) -> None:
        self.annotations |= annotations
        metadata = {"name": "n1", "uid": "u", "annotations": dict(self.annotations)}
        self.operator._set_node(msgspec.convert({"metadata": metadata}, Node))

    def pod(self, name: str, cpu: int, phase: str = "Running", **annotations: str) -> Pod:
        container = {"name": "c", "resources": {"requests": {"kubernetes.io/batch-cpu": str(cpu)}}}
        metadata = {"name": name, "namespace": "d", "uid": name, "annotations": annotations}
        plain = {
            "metadata": metadata,
            "spec": {"nodeName": "n1", "containers": [container]},
            "status": {"phase": phase},
        }
        pod = msgspec.convert(plain, Pod)
        self.operator._set_pod(pod)
        return pod

    def sizes(self) -> list[tuple[int, int]]:
        return [(body["resource"]["vCores"], body["resource"]["memory"]) for _, body in self.yarn.writes]

    def allocations(self) -> list[Any]:
        text = self.cluster.writes[-1][1]["metadata"]["annotations"][ALLOCATIONS]
        allocations: list[Any] = json.loads(text)["allocations"]
        return allocations


def test_yarn_gets_what_pods_leave() -> None:
    """YN-2: whole cores and MiB, less the requests of other pods that have not ended; nothing is sent twice."""
    setting = Setting()
    pod = setting.pod("a", 10_000)
    setting.pod("b", 40_000, "Succeeded")
    setting.clock.advance(60)
    assert setting.sizes() == [(50, 122_880), (40, 122_880)]
    assert setting.yarn.writes[0][0] == "/ws/v1/cluster/nodes/n1%3A8041/resource"
    setting.pod("c", 99_000)
    assert setting.sizes()[-1] == (0, 122_880), "never below 0"
    for gone in (pod, setting.pod("c", 1)):
        setting.operator._pod_gone(gone)
    assert setting.sizes()[-1] == (50, 122_880)


def test_kubernetes_learns_what_yarn_has() -> None:
    """YN-3: beside what others have."""
    setting = Setting()
    other = {"name": "other", "priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": "1"}}
    setting.node(**{ALLOCATIONS: json.dumps({"allocations": [other, {**other, "name": "hadoop-yarn"}]})})
    setting.uses(12, 2048)
    setting.clock.advance(15)
    own = {"kubernetes.io/batch-cpu": "12000", "kubernetes.io/batch-memory": "2Gi"}
    assert setting.allocations() == [other, {"name": "hadoop-yarn", "priority": "koord-batch", "resources": own}]
    written = len(setting.cluster.writes)
    setting.node(**{ALLOCATIONS: setting.cluster.writes[-1][1]["metadata"]["annotations"][ALLOCATIONS]})
    setting.clock.advance(60)
    assert len(setting.cluster.writes) == written, "the same is not written again"


def test_a_node_that_offers_nothing_is_left_alone() -> None:
    setting = Setting()
    setting.yarn.writes.clear()
    del setting.annotations[ORIGIN]
    setting.node()
    setting.clock.advance(60)
    assert setting.yarn.writes == []


def test_a_size_that_was_refused_is_sent_again() -> None:
    setting = Setting()
    setting.yarn.code = 503
    setting.pod("a", 10_000)
    setting.yarn.code = 200
    setting.clock.advance(15)
    assert setting.sizes()[-2:] == [(40, 122_880), (40, 122_880)]
    setting.clock.advance(60)
    assert len(setting.sizes()) == 3


@pytest.mark.parametrize("text", ["{", '{"resources": {"kubernetes.io/batch-cpu": "x"}}', "[]"])
def test_offers_that_cannot_be_read(text: str, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting()
    setting.yarn.writes.clear()
    setting.node(**{ORIGIN: text})
    setting.clock.advance(60)
    assert setting.yarn.writes == []
    assert len(caplog.records) == 1
    assert not setting.clock.faults.report()


@pytest.mark.parametrize(
    "answer",
    [Response(500, b"no"), Response(200, b"<html>"), Response(200, b'{"node": 1}'), Response(0, b"refused")],
    ids=["error", "html", "other", "gone"],
)
def test_answers_of_yarn_that_cannot_be_read(answer: Response, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting()
    setting.cluster.writes.clear()
    setting.yarn.read = answer
    setting.clock.advance(60)
    assert setting.cluster.writes == []
    assert len(caplog.records) == 1
    assert not setting.clock.faults.report()
