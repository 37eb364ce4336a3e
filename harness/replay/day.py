"""A day of a fleet whose load rises and falls, as usage reports of its nodes, with a descheduler or without one.

Half of the nodes join after the pods were placed, as when a fleet is extended. Everything runs in simulated time: the
API server, the nodes, our scheduler and our descheduler.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from math import pi, sin
from typing import Any

import orjson

from seatrial.harness.apiserver.quantities import milli
from seatrial.harness.clusters.answers import accepted, listed
from seatrial.harness.clusters.backends import VIRTUAL, backend_named
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.nodes.usage import RESOURCES_ANNOTATION
from seatrial.harness.subject.descheduler import open_descheduler
from seatrial.harness.subject.inprocess import InProcess
from seatrial.scheduler.api.builders import node
from seatrial.scheduler.api.migration import JOBS_PATH
from seatrial.scheduler.api.slo import NODE_METRICS_PATH
from seatrial.scheduler.api.transport import Request

CORES, PODS_EACH, REPLICAS = 16, 12, 6  # of a node; pods of an old node; pods of a workload
STEP = 600.0  # seconds between two rows
HIGH, LOW = 65, 40  # percent of CPU
CONFIGURATION: dict[str, Any] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerConfiguration",
    "deschedulingInterval": "5m",
    "maxNoOfPodsToEvictTotal": 20,
    "profiles": [
        {
            "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}},
            "pluginConfig": [
                {
                    "name": "LowNodeLoad",
                    "args": {
                        "lowThresholds": {"cpu": LOW},
                        "highThresholds": {"cpu": HIGH},
                        "nodeMetricExpirationSeconds": 900,
                        "anomalyCondition": {"timeout": "30m", "consecutiveAbnormalities": 2},
                    },
                },
                {
                    "name": "MigrationController",
                    "args": {
                        "schedulerNames": ["default-scheduler"],
                        "maxMigratingPerNode": 2,
                        "maxUnavailablePerWorkload": 2,
                    },
                },
            ],
        }
    ],
}
Row = dict[str, Any]


def rows_of_a_day(
    nodes: int, hours: int, *, descheduled: bool, seed: int = 0, tell: Callable[[str], None] = lambda _: None
) -> list[Row]:
    """One row each ten minutes: hour, percent of CPU used on each node, migration jobs so far."""
    with backend_named(VIRTUAL, seed=seed).start() as cluster, InProcess(cluster, seed=seed):
        old = [f"old-{number}" for number in range(nodes // 2)]
        new = [f"new-{number}" for number in range(nodes - nodes // 2)]
        _add(cluster, old)
        names = [f"app-{number}" for number in range(len(old) * PODS_EACH // REPLICAS)]
        for name in names:
            _deployment(cluster, name)
        cluster.wait(lambda: len(_running(cluster)) == REPLICAS * len(names), within=120)
        _add(cluster, new)
        running = open_descheduler("", cluster, CONFIGURATION) if descheduled else nullcontext()
        with running:
            return list(_day(cluster, hours, tell))


def _day(cluster: Cluster, hours: int, tell: Callable[[str], None]) -> Iterator[Row]:
    begin = cluster.clock.now()
    for step in count(1):
        hour = (cluster.clock.now() - begin) / 3600
        if hour >= hours:
            return
        for pod in _running(cluster):
            _use(cluster, pod, hour)
        cluster.pass_time(STEP)
        if step % 36 == 0:
            tell(f"hour {hour:.0f} of {hours}")
        yield {"hour": round(hour, 2), "used": _used(cluster), "jobs": _jobs(cluster)}


def load_at(app: int, hour: float) -> float:
    """What a pod uses of the core that it requests: most by day, and each workload's peak at a time of its own."""
    wave = sin(2 * pi * (hour - 8 - app % 5) / 24)
    return 0.25 + 0.85 * max(0.0, wave)


def _use(cluster: Cluster, pod: Row, hour: float) -> None:
    metadata = pod["metadata"]
    app = int(metadata["labels"]["app"].rpartition("-")[2])
    used = orjson.dumps({"cpu": f"{int(1000 * load_at(app, hour))}m", "memory": "1Gi"}).decode()
    if metadata["annotations"].get(RESOURCES_ANNOTATION) != used:
        patch = {"metadata": {"annotations": {RESOURCES_ANNOTATION: used}}}
        path = f"/api/v1/namespaces/default/pods/{metadata['name']}"
        cluster.call(Request("PATCH", path, orjson.dumps(patch), "application/merge-patch+json"))


def _add(cluster: Cluster, names: list[str]) -> None:
    cluster.add_nodes([node(name).cpu(CORES).memory("64Gi") for name in names])
    for name in names:
        _post(
            cluster,
            NODE_METRICS_PATH,
            {
                "apiVersion": "slo.koordinator.sh/v1alpha1",
                "kind": "NodeMetric",
                "metadata": {"name": name},
                "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 300}},
            },
        )


def _deployment(cluster: Cluster, name: str) -> None:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    metadata = {"labels": {"app": name}, "annotations": {RESOURCES_ANNOTATION: '{"cpu": "250m", "memory": "1Gi"}'}}
    _post(
        cluster,
        "/apis/apps/v1/namespaces/default/deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": REPLICAS,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": metadata, "spec": {"containers": [container]}},
            },
        },
    )


def _post(cluster: Cluster, path: str, body: Row) -> None:
    accepted(
        cluster.call(Request("POST", path, orjson.dumps(body))), f"create {body['kind']} {body['metadata']['name']}"
    )


def _running(cluster: Cluster) -> list[Row]:
    return [
        pod for pod in listed(cluster.call, "/api/v1/namespaces/default/pods") if pod["status"]["phase"] == "Running"
    ]


def _used(cluster: Cluster) -> dict[str, float]:
    """Percent of CPU by node, as the nodes reported it last."""
    by_name = {}
    for metric in listed(cluster.call, NODE_METRICS_PATH):
        report = (metric.get("status") or {}).get("nodeMetric") or {}
        usage = (report.get("nodeUsage") or {}).get("resources") or {}
        by_name[metric["metadata"]["name"]] = round(milli(usage.get("cpu", "0")) / CORES / 10, 1)
    return by_name


def _jobs(cluster: Cluster) -> int:
    return len(listed(cluster.call, JOBS_PATH))
