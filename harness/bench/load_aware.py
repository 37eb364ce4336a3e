"""`bench load-aware`: what the NodeMetrics of many nodes cost our scheduler's core.

Nodes with pods get a report each within a minute of virtual time, while pods of several shapes wait because all nodes
are hot. The processor time of the whole is measured: decoding, updating one row for each report, and looking again
whether waiting pods fit.
"""

import gc
import json
import random
import sys
import time
from typing import Any

from seatrial.harness.bench.core import GC_THRESHOLDS, Progress, starved
from seatrial.harness.bench.mixes import NODE_CPU, device_manifest, names, node_manifest, pod_spec
from seatrial.harness.errors import SubjectError
from seatrial.harness.sample_statistics import percentile
from seatrial.harness.subject.inprocess import BareCore
from seatrial.scheduler.api.clock import SIM_EPOCH, rfc3339
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.slo import AGGREGATIONS

MINUTE = 60.0
CORE_BUDGET = 2.0  # percent of a core
DURATIONS = ("5m0s", "10m0s", "30m0s")
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": KOORD_SCHEDULER,
            "plugins": {"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}},
            "pluginConfig": [
                {
                    "name": "LoadAwareScheduling",
                    "args": {
                        "usageThresholds": {"cpu": 65, "memory": 95},
                        "prodUsageThresholds": {"cpu": 55},
                        "prodUsageIncludeSys": True,
                        "dominantResourceWeight": 1,
                        "resourceWeights": {"cpu": 1, "memory": 1},
                    },
                }
            ],
        }
    ],
}


def bench_load_aware(
    nodes: int, pods: int, waiting: int, rounds: int, progress: Progress, *, seed: int
) -> dict[str, Any]:
    """Run the benchmark and return its figures.

    Args:
        nodes: number of nodes; each reports once a minute.
        pods: pods on each node.
        waiting: shapes of pods that wait; one pod of each.
        rounds: minutes that are measured.
        progress: called with a line of text after each minute.
        seed: of the amounts in reports.

    Raises:
        SubjectError: a waiting pod was placed, although all nodes are hot.
    """
    chance = random.Random(seed)  # noqa: S311 no secret
    core = BareCore(seed=seed, configuration=CONFIGURATION)
    listed = list(names("node", nodes))
    template = core.spec(pod_spec({"cpu": "1", "memory": "1Gi"}, KOORD_SCHEDULER))
    for name in listed:
        core.add_node(node_manifest(name), device_manifest(name))
        for number in range(pods):
            core.place(f"{name}-{number}", template, name)
    _report_all(core, listed, pods, 0.0, chance)
    for number in range(waiting):
        core.add_pod(f"waiting-{number}", core.spec(pod_spec({"cpu": f"{number + 1}"}, KOORD_SCHEDULER)))
    if _decide_all(core):
        raise SubjectError("a pod was placed on a node above its usage thresholds")
    seconds, shares = _measured(core, listed, pods, rounds, chance=chance, progress=progress)
    percent = [100 * second / MINUTE for second in seconds]
    middle = percentile(sorted(percent), 50)
    return {
        "through": "core",
        "nodes": nodes,
        "pods_per_node": pods,
        "waiting_shapes": waiting,
        "report_bytes": len(_lines(listed[:1], pods, 0.0, chance)[0]),
        "core_percent": round(middle, 2),
        "update_us": round(middle / 100 * MINUTE / nodes * 1e6, 1),
        "within_budget": middle <= CORE_BUDGET,
        "valid": not (because := starved(shares)),
        "invalid_because": because,
        "python": sys.version.split()[0],
    }


def _measured(
    core: BareCore, nodes: list[str], pods: int, rounds: int, *, chance: random.Random, progress: Progress
) -> tuple[list[float], list[float]]:
    """For each minute, the seconds of processor time and the share of a core that this process got."""
    seconds: list[float] = []
    shares: list[float] = []
    gc.collect()
    gc.freeze()  # as the scheduler's process does after the first synchronisation, with the same thresholds
    thresholds = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        for number in range(rounds):
            lines = _lines(nodes, pods, MINUTE * (number + 1), chance)
            wall, cpu = time.perf_counter(), time.process_time()
            for line in lines:
                core.receive_node_metric(line)
                core.pause(MINUTE / len(nodes))
                _decide_all(core)
            spent = time.process_time() - cpu
            shares.append(spent / (time.perf_counter() - wall))
            seconds.append(spent)
            progress(f"minute {number + 1} of {rounds}: {spent:.2f} s of processor time")
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    return seconds, shares


def _decide_all(core: BareCore) -> int:
    """Decide until no pod is ready; the number of pods that were placed."""
    placed = 0
    while core.ready:
        placed += core.decide()
    return placed


def _report_all(core: BareCore, nodes: list[str], pods: int, now: float, chance: random.Random) -> None:
    for line in _lines(nodes, pods, now, chance):
        core.receive_node_metric(line)


def _lines(nodes: list[str], pods: int, now: float, chance: random.Random) -> list[bytes]:
    """One report of each node as a line of a watch, in random order; all nodes use 70 to 90 percent of their CPU."""

    def usage(low: float, high: float) -> dict[str, Any]:
        milli = int(NODE_CPU * 1000 * chance.uniform(low, high))
        return {"resources": {"cpu": f"{milli}m", "memory": str(chance.randrange(1 << 34, 1 << 36))}}

    lines = []
    for place, name in enumerate(chance.sample(nodes, len(nodes))):
        moment = SIM_EPOCH + now + MINUTE * place / len(nodes)
        info: dict[str, Any] = {"nodeUsage": usage(0.7, 0.9), "systemUsage": usage(0.01, 0.02)}
        for field in ("aggregatedNodeUsages", "aggregatedSystemUsages"):
            info[field] = [
                {"duration": duration, "usage": {kind: usage(0.7, 0.9) for kind in AGGREGATIONS}}
                for duration in DURATIONS
            ]
        metrics = [
            {
                "namespace": "bench",
                "name": f"{name}-{number}",
                "priority": "koord-prod",
                "qos": "LS",
                "podUsage": usage(0.65 / pods, 0.85 / pods),
            }
            for number in range(pods)
        ]
        manifest = {
            "metadata": {"name": name, "uid": name, "resourceVersion": str(int(moment))},
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": int(MINUTE)}},
            "status": {"updateTime": rfc3339(moment), "nodeMetric": info, "podsMetric": metrics},
        }
        lines.append(json.dumps({"type": "MODIFIED", "object": manifest}).encode())
    return lines
