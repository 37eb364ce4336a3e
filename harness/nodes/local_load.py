"""The CPU and memory use of this machine and of its pods, from /proc and cgroup files (QOS-KM-1 to KM-3, KM-7).

A rate needs two samples: the first sample of a counter is only stored. A pod whose containers have control groups of
their own is read from these; otherwise its processes are summed.
"""

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seatrial.harness.nodes.numa_usage import NumaUse, read_nodes, read_pod
from seatrial.harness.nodes.usage_model import KEPT, Load
from seatrial.harness.nodes.usage_samples import Samples

Owner = tuple[str, str]  # namespace and name of a pod

_BUSY = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq in a line of /proc/stat
_WITHOUT_PAGE_CACHE = frozenset({"inactive_anon", "active_anon", "unevictable"})
_PAGE_CACHE = frozenset({"active_file", "inactive_file"})
_KIB = 1024

Counters = tuple[float, float, float]  # CPU seconds, bytes without page cache, bytes of page cache


@dataclass(slots=True)
class _Series:
    """Samples of one pod or of the node: moment, milli-CPU, bytes without page cache, bytes of page cache."""

    rows: deque[tuple[float, float, float, float]] = field(default_factory=deque)
    counter: float | None = None  # CPU seconds at the last look
    moment: float = 0.0

    def look(self, now: float, seconds: float, memory: float, cache: float) -> None:
        """Take in a counter of CPU seconds and the present bytes; a counter that fell begins anew."""
        if self.counter is not None and now > self.moment and seconds >= self.counter:
            self.rows.append((now, (seconds - self.counter) / (now - self.moment) * 1000, memory, cache))
            while self.rows[0][0] < now - KEPT:
                self.rows.popleft()
        self.counter, self.moment = seconds, now

    def samples(self) -> Samples:
        rows = np.array(self.rows, np.float64).reshape(-1, 4)
        return Samples(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3])


class LocalLoad:
    """Samples of CPU and memory use of one machine and its pods, from /proc and control groups."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root`: the folder that has proc and sys."""
        self._root = root
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._node, self._system = _Series(), deque[tuple[float, float, float, float]]()
        self._pods: dict[Owner, _Series] = {}
        self._numa: dict[int, _Series] = {}
        self._numa_system: dict[int, deque[tuple[float, float, float, float]]] = {}

    def look(self, now: float, owners: Mapping[int, Owner]) -> None:
        """Take one sample. `owners`: the first processes of the pods. A pod that cannot be read is skipped.

        Raises:
            OSError: the files of the node cannot be read.
        """
        stat = self._read("proc/stat")
        self._node.look(now, *self._of_node(stat))
        pids: dict[Owner, list[int]] = {}
        for pid, owner in owners.items():
            pids.setdefault(owner, []).append(pid)
        self._pods = {owner: series for owner, series in self._pods.items() if owner in pids}
        on_numa: list[dict[int, float] | None] = []
        for owner, own in pids.items():
            try:
                used = self._of_pod(own)
            except (OSError, ValueError, IndexError):
                continue
            self._pods.setdefault(owner, _Series()).look(now, *used)
            on_numa.append(self._numa_of_pod(own))
        self._look_at_system(now)
        self._look_at_numa(now, stat, on_numa)

    def _look_at_system(self, now: float) -> None:
        """What is left of the node's use without its pods', where all of them have a sample of now."""
        fresh = [series.rows[-1] for series in self._pods.values() if series.rows and series.rows[-1][0] == now]
        rows = self._node.rows
        if not rows or rows[-1][0] != now or len(fresh) < len(self._pods):
            return
        cpu, memory, cache = (max(rows[-1][place] - sum(row[place] for row in fresh), 0.0) for place in (1, 2, 3))
        self._system.append((now, cpu, memory, cache))
        while self._system[0][0] < now - KEPT:
            self._system.popleft()

    def _look_at_numa(self, now: float, stat: str, pods: Sequence[dict[int, float] | None]) -> None:
        """The NUMA nodes; their system's use where it is known for the node, and all pods' memory by NUMA node."""
        used = read_nodes(self._root, stat, self._ticks)
        for number, (seconds, memory) in used.items():
            self._numa.setdefault(number, _Series()).look(now, seconds, memory, 0.0)
        fresh = {
            number: series.rows[-1]
            for number, series in self._numa.items()
            if series.rows and series.rows[-1][0] == now
        }
        everything = sum(row[1] for row in fresh.values())
        if not self._system or self._system[-1][0] != now or (None in pods and len(used) > 1):
            return
        for number, row in fresh.items():
            if len(used) == 1:
                of_pods = sum(series.rows[-1][2] for series in self._pods.values() if series.rows)
            else:
                of_pods = sum(pod.get(number, 0.0) for pod in pods if pod is not None)
            cpu = self._system[-1][1] * row[1] / everything if everything else 0.0
            rows = self._numa_system.setdefault(number, deque())
            rows.append((now, cpu, max(row[2] - of_pods, 0.0), 0.0))
            while rows[0][0] < now - KEPT:
                rows.popleft()

    def measured_numa(self) -> tuple[NumaUse, ...]:
        """The samples of each NUMA node, by number; none before the second look."""
        return tuple(
            NumaUse(
                number,
                series.samples(),
                _Series(rows=self._numa_system[number]).samples() if number in self._numa_system else None,
            )
            for number, series in sorted(self._numa.items())
            if series.rows
        )

    def measured(self) -> tuple[dict[Owner, Samples], Load | None]:
        """The samples by pod, and of the node; None before its second sample."""
        if not self._node.rows:
            return {}, None
        system = _Series(rows=self._system).samples() if self._system else None
        pods = {owner: series.samples() for owner, series in self._pods.items() if series.rows}
        return pods, Load(self._node.samples(), system)

    # -- files --------------------------------------------------------------------------------------------------------

    def _of_node(self, stat: str) -> Counters:
        """CPU seconds; in bytes MemTotal - MemAvailable, and what MemTotal - MemFree is more. `stat`: /proc/stat."""
        first = stat.splitlines()[0].split()[1:]
        memory = dict(line.split(":", 1) for line in self._read("proc/meminfo").splitlines() if ":" in line)
        amounts = (int(memory[name].split()[0]) * _KIB for name in ("MemTotal", "MemAvailable", "MemFree"))
        total, available, free = amounts
        busy = sum(int(first[place]) for place in _BUSY) / self._ticks
        return busy, float(total - available), float(max(available - free, 0))

    def _of_pod(self, pids: Sequence[int]) -> Counters:
        groups = {group for pid in pids if (group := self._group_of(pid)) is not None}
        if groups and len(groups) == len(pids):
            parts = [self._of_group(*group) for group in groups]
        else:
            parts = [self._of_process(pid) for pid in self._descendants(pids)]
        seconds, memory, cache = (sum(part[place] for part in parts) for place in range(3))
        return seconds, memory, cache

    def _numa_of_pod(self, pids: Sequence[int]) -> dict[int, float] | None:
        """The pod's bytes on each NUMA node; None if its processes have no control groups of their own."""
        try:
            groups = {group for pid in pids if (group := self._group_of(pid)) is not None}
            return read_pod(memory for _, memory in groups) if groups and len(groups) == len(pids) else None
        except (OSError, ValueError):
            return None

    def _group_of(self, pid: int) -> tuple[Path, Path] | None:
        """The folders with the CPU and memory files of the process's control group; None if it is not its own."""
        own, ours = self._groups(pid), self._groups(os.getpid())
        if own == ours:
            return None
        sys = self._root / "sys/fs/cgroup"
        if "" in own:
            folder = sys / own[""].lstrip("/")
            return (folder, folder) if (folder / "cpu.stat").is_file() else None
        if "cpuacct" not in own or "memory" not in own:
            return None
        cpu = next(
            (
                sys / name / own["cpuacct"].lstrip("/")
                for name in ("cpu,cpuacct", "cpuacct", "cpu")
                if (sys / name / own["cpuacct"].lstrip("/") / "cpuacct.usage").is_file()
            ),
            None,
        )
        return None if cpu is None else (cpu, sys / "memory" / own["memory"].lstrip("/"))

    def _groups(self, pid: int) -> dict[str, str]:
        """Path by controller; "" is the controller of version 2."""
        lines = (line.split(":", 2) for line in self._read(f"proc/{pid}/cgroup").splitlines())
        return {controller: path for _, controllers, path in lines for controller in controllers.split(",")}

    def _of_group(self, cpu: Path, memory: Path) -> Counters:
        rows = dict(line.split() for line in (memory / "memory.stat").read_text().splitlines())
        prefix = "total_" if "total_inactive_anon" in rows else ""
        used, cache = (
            float(sum(int(rows.get(f"{prefix}{name}", 0)) for name in names))
            for names in (_WITHOUT_PAGE_CACHE, _PAGE_CACHE)
        )
        if (cpu / "cpuacct.usage").is_file():
            return int((cpu / "cpuacct.usage").read_text()) / 1e9, used, cache
        stat = dict(line.split() for line in (cpu / "cpu.stat").read_text().splitlines())
        return int(stat["usage_usec"]) / 1e6, used, cache

    def _descendants(self, pids: Sequence[int]) -> Iterator[int]:
        """The processes and all below them."""
        waiting = list(pids)
        while waiting:
            pid = waiting.pop()
            yield pid
            try:
                waiting += map(int, self._read(f"proc/{pid}/task/{pid}/children").split())
            except OSError:
                continue

    def _of_process(self, pid: int) -> Counters:
        """CPU seconds of the process and its ended children, resident bytes without file pages, and file pages."""
        try:
            fields = self._read(f"proc/{pid}/stat").rpartition(")")[2].split()
            resident, shared = self._read(f"proc/{pid}/statm").split()[1:3]
        except OSError:
            return 0.0, 0.0, 0.0  # it ended meanwhile
        seconds = sum(map(int, fields[11:15])) / self._ticks
        return seconds, float((int(resident) - int(shared)) * self._page), float(int(shared) * self._page)

    def _read(self, path: str) -> str:
        return (self._root / path).read_text(encoding="ascii", errors="replace")
