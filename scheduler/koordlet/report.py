"""The status of a NodeMetric from samples (RP-1 to RP-4)."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.slo import AGGREGATE_DURATIONS, AGGREGATE_SECONDS, CollectPolicy
from seatrial.scheduler.koordlet.collectors import (
    COLD,
    NODE_CPU,
    NODE_MEMORY,
    NODE_WITH_CACHE,
    NUMA_CPU,
    NUMA_MEMORY,
    NUMA_SYSTEM_CPU,
    NUMA_SYSTEM_MEMORY,
    SYSTEM_CPU,
    SYSTEM_MEMORY,
)
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.prediction import Amounts
from seatrial.scheduler.koordlet.samples import Samples, average, percentile
from seatrial.scheduler.koordlet.strategies import HostApplication

LEAST_INTERVAL, LEAST_AGGREGATE = 30, 60  # seconds
_PARTS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_COVERED = 0.5  # of a duration, for its aggregates to be reported
WITH_CACHE, WITH_HOT = "usageWithPageCache", "usageWithHotPageCache"


def status(  # noqa: PLR0917 what a report consists of
    samples: Samples,
    now: float,
    policy: CollectPolicy,
    pods: Iterable[LocalPod],
    applications: Iterable[HostApplication],
    reclaimable: Amounts | None,
    zones: Iterable[int],
) -> dict[str, Any] | None:
    """The status but its time; None while the node itself has no sample (RP-5).

    `reclaimable`: thousandths of a core and bytes that prod pods have requested and will not use; None: not predicted.
    `zones`: the numbers of NUMA nodes.
    """
    start = now - window(policy)
    memory_policy = policy.node_memory_collect_policy
    hot = memory_policy == WITH_HOT and samples.last(COLD, start) is not None  # else as without page cache (KM-14)
    cached = memory_policy == WITH_CACHE or hot
    memory_kind = "memory-with-page-cache" if cached else "memory"
    node_memory = NODE_WITH_CACHE if cached else NODE_MEMORY

    def usage(cpu: Hashable, memory: Hashable, since: float = start) -> dict[str, Any] | None:
        cores, size = average(samples.between(cpu, since, now)), average(samples.between(memory, since, now))
        if cores is None or size is None:
            return None
        if hot and memory == node_memory:
            size -= average(samples.between(COLD, since, now)) or 0.0
        return _resources(cores, max(size, 0.0))

    node = usage(NODE_CPU, node_memory)
    if node is None:
        return None
    info: dict[str, Any] = {"nodeUsage": node}
    system = usage(SYSTEM_CPU, SYSTEM_MEMORY)
    if system is not None:
        info["systemUsage"] = system
    info["numaUsages"] = []
    for number in sorted(zones):
        used = usage((NUMA_CPU, number), (NUMA_MEMORY, number))
        part = usage((NUMA_SYSTEM_CPU, number), (NUMA_SYSTEM_MEMORY, number))
        if used is not None:
            more = {} if part is None else {"systemUsage": part}
            info["numaUsages"].append({"numaNodeID": number, "nodeUsage": used, **more})
    durations = (
        policy.node_aggregate_policy.durations if policy.node_aggregate_policy is not None else AGGREGATE_DURATIONS
    )
    for name, cpu, memory in (
        ("aggregatedNodeUsages", NODE_CPU, node_memory),
        ("aggregatedSystemUsages", SYSTEM_CPU, SYSTEM_MEMORY),
    ):
        info[name] = [_aggregated(samples, now, duration, cpu, memory) for duration in durations]
    metrics = []
    for pod in sorted(pods, key=lambda pod: (pod.pod.metadata.namespace, pod.pod.metadata.name)):
        used = usage(("cpu", "pod", pod.uid), (memory_kind, "pod", pod.uid))
        if used is not None:
            metadata = pod.pod.metadata
            named = {"namespace": metadata.namespace, "name": metadata.name}
            metrics.append({**named, "priority": pod.priority_class, "qos": pod.qos, "podUsage": used})
    programs = []
    for each in sorted(applications, key=lambda each: each.name):
        used = usage(("cpu", "application", each.name), (memory_kind, "application", each.name))
        if used is not None:
            programs.append({"name": each.name, "usage": used, "priority": each.priority, "qos": each.qos})
    return {
        "nodeMetric": info,
        "podsMetric": metrics,
        "hostApplicationMetric": programs,
        "prodReclaimableMetric": {
            "resource": {} if reclaimable is None else _resources(reclaimable.cpu / 1000, reclaimable.memory)
        },
    }


def window(policy: CollectPolicy) -> float:
    """Seconds over which usage is averaged."""
    return max(policy.aggregate_duration_seconds or AGGREGATE_SECONDS, LEAST_AGGREGATE)


def _aggregated(samples: Samples, now: float, duration: str, cpu: Hashable, memory: Hashable) -> dict[str, Any]:
    seconds = go_duration(duration) or 0.0
    results = [samples.between(metric, now - seconds, now) for metric in (cpu, memory)]
    if any(len(each) < 1 or each[-1].at - each[0].at < seconds * _COVERED for each in results):
        return {"duration": duration, "usage": {}}
    usage = {"avg": _resources(*_both(results, None))}
    usage |= {name: _resources(*_both(results, part)) for name, part in _PARTS.items()}
    return {"duration": duration, "usage": usage}


def _both(results: Sequence[list[Any]], part: float | None) -> tuple[float, float]:
    cpu, memory = ((average(each) if part is None else percentile(each, part)) or 0.0 for each in results)
    return cpu, memory


def _resources(cores: float, memory: float) -> dict[str, Any]:
    return {"resources": {"cpu": f"{int(cores * 1000)}m", "memory": str(int(memory))}}
