"""NodeMetrics of these cases: written by the case itself, or asked of the node agents through the manager."""

from typing import Any

import orjson

from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.nodes.usage_model import USAGE
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.slo import NODE_METRICS_PATH

Manifest = dict[str, Any]

# Seconds between reports of the node agent. Its first one comes so long after the NodeMetric was made: until then the
# case alone writes. It is also the time that a pod must have been there to be covered by a report.
COVERED = 60
INTERVAL = 30  # seconds, the shortest there is
SEEN_WITHIN = 2.0  # seconds until a scheduler has taken in a report, and has tried waiting pods again


def report(
    trial: Trial,
    node: str,
    cpu: str,
    memory: str,
    *,
    system: tuple[str, str] = ("0", "0"),
    pods: dict[str, tuple[str, str, str]] | None = None,
    age: float = 0.0,
    peak: str = "",
    long_peak: str = "",
    **more: Any,
) -> None:
    """Write a node's NodeMetric; `pods`: name → cpu, memory, priority class; `peak`, `long_peak`: p95 of the
    CPU over 5 and 30 minutes; `more`: other fields of its status."""
    path = f"{NODE_METRICS_PATH}/{node}"
    if trial.call("GET", path).code == 404:
        spec = {"metricCollectPolicy": {"reportIntervalSeconds": COVERED}}
        trial.apply(
            {
                "apiVersion": "slo.koordinator.sh/v1alpha1",
                "kind": "NodeMetric",
                "metadata": {"name": node},
                "spec": spec,
            }
        )
    info: Manifest = {
        "nodeUsage": {"resources": {"cpu": cpu, "memory": memory}},
        "systemUsage": {"resources": {"cpu": system[0], "memory": system[1]}},
        "aggregatedNodeUsages": [
            {"duration": duration, "usage": {"p95": {"resources": {"cpu": used, "memory": memory}}}}
            for duration, used in (("5m0s", peak or cpu), ("30m0s", long_peak))
            if used
        ],
    }
    metrics = [
        {
            "namespace": trial.name,
            "name": name,
            "priority": priority,
            "podUsage": {"resources": {"cpu": used, "memory": held}},
        }
        for name, (used, held, priority) in (pods or {}).items()
    ]
    moment = rfc3339(trial.cluster.clock.now() - age)
    status = {"updateTime": moment, "nodeMetric": info, "podsMetric": metrics, **more}
    accepted(trial.call("PATCH", f"{path}/status", {"status": status}), f"write the NodeMetric of {node}")


def reported(trial: Trial, node: str) -> Manifest:
    """The status of a node's NodeMetric; empty before the first report."""
    response = trial.call("GET", f"{NODE_METRICS_PATH}/{node}")
    if response.code == 404:
        return {}
    body: Manifest = orjson.loads(accepted(response, f"read the NodeMetric of {node}").body)
    return body.get("status") or {}


def next_report(trial: Trial, node: str) -> Manifest:
    """The first report from now on."""
    before = reported(trial, node).get("updateTime")
    arrived = trial.reaches(lambda: reported(trial, node).get("updateTime") != before, within=INTERVAL + 15)
    assert arrived, f"expected a report of {node} after {before}"
    return reported(trial, node)


def settle(trial: Trial, seconds: float = SEEN_WITHIN) -> None:
    """Let time pass."""
    trial.pass_time(seconds)


def annotate(trial: Trial, path: str, key: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {key: value}}}
    accepted(trial.call("PATCH", path, patch), f"annotate {path}")


def node_use(trial: Trial, node: str, **amounts: str) -> None:
    """Set what a simulated node uses besides its pods."""
    annotate(trial, f"/api/v1/nodes/{node}", USAGE, orjson.dumps(amounts).decode())
