"""Measures the node, its pods, programs outside of pods, the system and best-effort pods together (KM-1 to KM-9).

Rates need two looks: the first only remembers counters. What cannot be read costs that pod alone.
"""

import logging
from collections.abc import Hashable, Iterable

from seatrial.scheduler.api.numa import CpusetError, parse_cpuset
from seatrial.scheduler.api.quantity import QuantityError
from seatrial.scheduler.api.slo import AGGREGATE_SECONDS, BATCH_CPU
from seatrial.scheduler.koordlet.cgroups import (
    CPU_STAT,
    CPU_USAGE,
    CPUS,
    IDLE_PAGES,
    MEMORY_STAT,
    NO_LIMIT,
    NUMA_STAT,
    QUOTA,
    QUOTA_PERIOD,
    CgroupError,
    Cgroups,
)
from seatrial.scheduler.koordlet.cold_pages import IdleStatsError, cold_bytes
from seatrial.scheduler.koordlet.machine import Machine, MachineError
from seatrial.scheduler.koordlet.numa_usage import group_bytes
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.samples import Samples
from seatrial.scheduler.koordlet.strategies import HostApplication, Strategies
from seatrial.scheduler.pods.qos import BE, BEST_EFFORT
from seatrial.scheduler.pods.requests import pod_requests
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

FRESH = 10.0  # seconds: older samples say nothing about the system's usage (KM-7)
NODE_CPU, NODE_MEMORY, SYSTEM_CPU, SYSTEM_MEMORY = "node-cpu", "node-memory", "system-cpu", "system-memory"
NODE_WITH_CACHE, COLD = "node-memory-with-page-cache", "node-cold-memory"
NUMA_CPU, NUMA_MEMORY, NUMA_SYSTEM_CPU, NUMA_SYSTEM_MEMORY = (
    f"numa-{kind}" for kind in ("cpu", "memory", "system-cpu", "system-memory")
)
BE_USED, BE_REQUEST, BE_LIMIT = "be-used", "be-request", "be-limit"
_PLAIN = ("inactive_anon", "active_anon", "unevictable")
_CACHED = ("active_file", "inactive_file")


class Collectors:
    """Adds samples at each look; CPU in cores, memory in bytes."""

    def __init__(self, cgroups: Cgroups, machine: Machine, samples: Samples, *, cold: bool) -> None:
        """`cold`: whether pages that nobody has touched for minutes are counted (KM-10)."""
        self._cold = cold
        self._cgroups, self._machine, self.samples = cgroups, machine, samples
        self._counters: dict[Hashable, tuple[float, float]] = {}  # → moment, seconds or periods
        self._zones: Iterable[int] = ()
        self._say = Once(log)
        self.window = float(AGGREGATE_SECONDS)  # seconds for which the usage of pods is kept

    def look(self, now: float, pods: Iterable[LocalPod], strategies: Strategies) -> None:
        """Measure everything once."""
        pods = list(pods)
        self._node(now)
        for pod in pods:
            self._group(now, ("pod", pod.uid), pod.folder)
            for name, folder in pod.containers.items():
                self._throttled(now, (pod.uid, name), folder)
        for application in strategies.applications:
            self._group(now, ("application", application.name), application.folder(self._cgroups.layout))
        self._best_effort(now, pods)
        if strategies.known:
            self._system(now, pods, strategies.applications)

    def forget(self, pod: LocalPod) -> None:
        """The pod is gone."""
        kinds = ("cpu", "memory", "memory-with-page-cache")
        for key in (*((kind, "pod", pod.uid) for kind in kinds), *(("throttled", pod.uid, n) for n in pod.containers)):
            self.samples.drop(key)
            self._counters.pop(key, None)

    def _rate(self, key: Hashable, now: float, counter: float) -> float | None:
        """The growth of a counter since the last look, for each second; None at the first look or if it fell."""
        before = self._counters.get(key)
        self._counters[key] = (now, counter)
        if before is None or now <= before[0] or counter < before[1]:
            return None
        return (counter - before[1]) / (now - before[0])

    def _node(self, now: float) -> None:
        try:
            busy, zones = self._machine.usages()
            cpu, memory = self._rate(NODE_CPU, now, busy), self._machine.memory()
        except MachineError as error:
            self._say("node", f"unread: {error}")
            return
        if cpu is not None:
            self.samples.add(NODE_CPU, now, cpu)
        self.samples.add(NODE_MEMORY, now, memory.total - memory.available)
        self.samples.add(NODE_WITH_CACHE, now, memory.total - memory.free)
        for number, (seconds, size) in zones.items():
            cpu = self._rate((NUMA_CPU, number), now, seconds)
            if cpu is not None:
                self.samples.add((NUMA_CPU, number), now, cpu)
            self.samples.add((NUMA_MEMORY, number), now, size)
        self._zones = zones.keys()
        if self._cold and not self._cgroups.v2 and self._cgroups.path("", IDLE_PAGES).exists():
            try:
                self.samples.add(COLD, now, cold_bytes(self._cgroups.path("", IDLE_PAGES).read_text(encoding="ascii")))
            except (OSError, ValueError, IdleStatsError) as error:
                self._say("cold", f"unread: {error}")

    def _group(self, now: float, owner: tuple[str, str], folder: str) -> None:
        try:
            cpu = self._rate(("cpu", *owner), now, self._cgroups.number(folder, CPU_USAGE) / 1e9)
            rows = self._cgroups.rows(folder, MEMORY_STAT)
        except CgroupError:
            return  # not started, or gone: normal
        prefix = "" if self._cgroups.v2 else "total_"
        plain, cached = (sum(rows.get(prefix + name, 0) for name in names) for names in (_PLAIN, _CACHED))
        if cpu is not None:
            self.samples.add(("cpu", *owner), now, cpu, self.window)
        self.samples.add(("memory", *owner), now, plain, self.window)
        self.samples.add(("memory-with-page-cache", *owner), now, plain + cached, self.window)

    def _throttled(self, now: float, owner: tuple[str, str], folder: str) -> None:
        try:
            rows = self._cgroups.rows(folder, CPU_STAT)
        except CgroupError:
            return
        periods, throttled = float(rows.get("nr_periods", 0)), float(rows.get("nr_throttled", 0))
        before = self._counters.get(("throttled", *owner))
        self._counters["throttled", *owner] = (periods, throttled)
        if before is not None and periods >= before[0] and throttled >= before[1]:
            new = periods - before[0]
            self.samples.add(("throttled", *owner), now, (throttled - before[1]) / new if new else 0.0, FRESH)

    def _best_effort(self, now: float, pods: Iterable[LocalPod]) -> None:
        folder = self._cgroups.layout.qos(BEST_EFFORT)
        try:
            used = self._rate(BE_USED, now, self._cgroups.number(folder, CPU_USAGE) / 1e9)
            limit = real_limit(self._cgroups, folder)
        except CgroupError:
            return
        request = 0
        for pod in pods:
            if pod.raw_qos == BE:
                try:
                    request += pod_requests(pod.pod.spec).get(BATCH_CPU, 0)
                except QuantityError as error:
                    self._say(pod.uid, f"unread: {error}")
        if used is not None:
            self.samples.add(BE_USED, now, used * 1000)
            self.samples.add(BE_REQUEST, now, request)
            self.samples.add(BE_LIMIT, now, limit)

    def _system(self, now: float, pods: Iterable[LocalPod], applications: Iterable[HostApplication]) -> None:
        """What neither pods nor programs outside of pods use; nothing if one of them is not known (KM-7)."""
        owners = [("pod", pod.uid) for pod in pods if self._cgroups.exists(pod.folder)]
        layout = self._cgroups.layout
        owners += [("application", each.name) for each in applications if self._cgroups.exists(each.folder(layout))]
        for kind, node, target in (("cpu", NODE_CPU, SYSTEM_CPU), ("memory", NODE_MEMORY, SYSTEM_MEMORY)):
            whole = self.samples.last(node, now - FRESH)
            parts = [self.samples.last((kind, *owner), now - FRESH) for owner in owners]
            if whole is not None and None not in parts:
                self.samples.add(target, now, max(whole - sum(part or 0 for part in parts), 0))
        self._system_zones(now, pods)

    def _system_zones(self, now: float, pods: Iterable[LocalPod]) -> None:
        """Of each NUMA node: its part of the system's CPU, and the memory that pods leave (KM-8)."""
        system = self.samples.last(SYSTEM_CPU, now)
        cores = {number: self.samples.last((NUMA_CPU, number), now) for number in self._zones}
        if system is None or None in cores.values():
            return
        everything = sum(each or 0.0 for each in cores.values())
        left = {number: self.samples.last((NUMA_MEMORY, number), now) or 0.0 for number in self._zones}
        for pod in pods:
            try:
                sizes = group_bytes(self._cgroups.read(pod.folder, NUMA_STAT))
            except CgroupError:
                continue  # gone, or a kernel without NUMA
            for number in left.keys() & sizes.keys():
                left[number] -= sizes[number]
        for number, size in left.items():
            part = (cores[number] or 0.0) / everything if everything else 0.0
            self.samples.add((NUMA_SYSTEM_CPU, number), now, system * part)
            self.samples.add((NUMA_SYSTEM_MEMORY, number), now, max(size, 0.0))


def real_limit(cgroups: Cgroups, folder: str) -> int:
    """Thousandths of a core that the pods of the group can use by its CPUs and its quota (KM-9).

    Raises:
        CgroupError: the group cannot be read.
    """
    try:
        by_cpus = 1000 * len(parse_cpuset(cgroups.read(folder, CPUS)))
    except CpusetError as error:
        raise CgroupError(f"{cgroups.path(folder, CPUS)}: {error}") from error
    quota = cgroups.number(folder, QUOTA)
    if quota == NO_LIMIT:
        return by_cpus
    period = cgroups.number(folder, QUOTA_PERIOD)
    return min(by_cpus, quota * 1000 // max(period, 1))
