"""The manager beside simulated nodes, which report the totals of their devices themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from seatrial.fake_devices.models import catalog
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.clusters.virtual import VirtualBackend
from seatrial.harness.subject.manager import running_manager
from seatrial.scheduler.api.builders import node
from seatrial.scheduler.api.transport import Request

COLOCATION = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slo-controller-config"},
    "data": {"colocation-config": '{"enable": true, "metricReportIntervalSeconds": 3600}'},
}


def node_state(cluster: Cluster, name: str) -> tuple[Any, ...]:
    """Labels, and amounts other than batch and mid."""
    manifest = orjson.loads(cluster.call(Request("GET", f"/api/v1/nodes/{name}")).body)
    status = [
        {key: value for key, value in manifest["status"][part].items() if "batch-" not in key and "mid-" not in key}
        for part in ("capacity", "allocatable")
    ]
    return manifest["metadata"]["labels"], *status


@contextmanager
def colocated(cluster: Cluster) -> Iterator[None]:
    """The manager runs with colocation enabled, and has looked."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "koordinator-system"}}
    cluster.call(Request("POST", "/api/v1/namespaces", orjson.dumps(namespace)))
    path = "/api/v1/namespaces/koordinator-system/configmaps"
    assert cluster.call(Request("POST", path, orjson.dumps(COLOCATION))).ok
    with running_manager(cluster, ""):
        cluster.pass_time(30)
        yield


@pytest.mark.parametrize("server", catalog().server_names())
def test_both_write_the_same(server: str) -> None:
    """Each server of the catalogue, as it is and with a card that failed: nodes stay what they were."""
    with VirtualBackend().start() as cluster:
        cluster.add_nodes([node("n1").server(server), node("n2").server(server)])
        devices = orjson.loads(cluster.call(Request("GET", "/apis/scheduling.koordinator.sh/v1alpha1/devices")).body)
        if devices["items"]:
            cluster.inject({"node": "n2", "type": "gpu", "device": 0, "verb": "lost"})
        cluster.pass_time(30)
        before = node_state(cluster, "n1"), node_state(cluster, "n2")
        with colocated(cluster):
            assert (node_state(cluster, "n1"), node_state(cluster, "n2")) == before


def test_they_do_not_write_against_each_other() -> None:
    """The only card fails and is well again, while the manager runs: the node is what it was, and nobody writes any
    more."""
    with VirtualBackend().start() as cluster:
        cluster.add_nodes([node("n1").gpus("a10", 1)])
        before = node_state(cluster, "n1")
        with colocated(cluster):
            cluster.inject({"node": "n1", "type": "gpu", "device": 0, "verb": "lost", "at": 5, "for": 30})
            cluster.pass_time(20)
            assert "koordinator.sh/gpu" not in node_state(cluster, "n1")[2]
            cluster.pass_time(60)
            assert node_state(cluster, "n1") == before
            version = node_version(cluster)
            cluster.pass_time(900)
            assert node_version(cluster) == version


def node_version(cluster: Cluster) -> str:
    version: str = orjson.loads(cluster.call(Request("GET", "/api/v1/nodes/n1")).body)["metadata"]["resourceVersion"]
    return version
