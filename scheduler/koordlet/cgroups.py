"""Control groups of a node: where they are, and their files on cgroup v1 and v2 by the names of v1 (A12).

Values are those of v1 on both: shares, microseconds (-1: no limit), bytes (-1: no limit), CPU lists.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.pods.qos import BEST_EFFORT, BURSTABLE, GUARANTEED

NO_LIMIT = -1
PERIOD = 100_000  # microseconds, of quotas
_UNLIMITED_MEMORY = 0x7FFFFFFFFFFFF000
_LEAST_SHARES, _MOST_SHARES = 2, 262144
_MOST_WEIGHT = 10000
_PATHS = 8192  # kept: a path costs as much as the reading of its file


class CgroupError(Exception):
    """A file of a control group cannot be read or written, or is not of its form."""


@dataclass(frozen=True, slots=True)
class File:
    """One file by its name on v1; `v2` "": cgroup v2 has none. `low`, `high`: what may be written."""

    v1: str
    subsystem: str
    v2: str
    low: int = -(1 << 63)
    high: int = (1 << 63) - 1


SHARES = File("cpu.shares", "cpu", "cpu.weight", _LEAST_SHARES, _MOST_SHARES)
QUOTA = File("cpu.cfs_quota_us", "cpu", "cpu.max", NO_LIMIT)
QUOTA_PERIOD = File("cpu.cfs_period_us", "cpu", "cpu.max", 1)
CPU_BURST = File("cpu.cfs_burst_us", "cpu", "cpu.max.burst", 0)
CPU_STAT = File("cpu.stat", "cpu", "cpu.stat")
GROUP_IDENTITY = File("cpu.bvt_warp_ns", "cpu", "cpu.bvt_warp_ns", -1, 2)
CPU_IDLE = File("cpu.idle", "cpu", "cpu.idle", 0, 1)
CPU_USAGE = File("cpuacct.usage", "cpuacct", "cpu.stat")
CPUS = File("cpuset.cpus", "cpuset", "cpuset.cpus")
MEMORY_LIMIT = File("memory.limit_in_bytes", "memory", "memory.max", NO_LIMIT)
MEMORY_STAT = File("memory.stat", "memory", "memory.stat")
NUMA_STAT = File("memory.numa_stat", "memory", "memory.numa_stat")
MEMORY_MIN = File("memory.min", "memory", "memory.min", 0)
MEMORY_LOW = File("memory.low", "memory", "memory.low", 0)
MEMORY_HIGH = File("memory.high", "memory", "memory.high", 0)
WMARK_RATIO = File("memory.wmark_ratio", "memory", "memory.wmark_ratio", 0, 100)
WMARK_SCALE = File("memory.wmark_scale_factor", "memory", "memory.wmark_scale_factor", 1, 1000)
WMARK_MIN_ADJ = File("memory.wmark_min_adj", "memory", "memory.wmark_min_adj", -25, 50)
MEMORY_PRIORITY = File("memory.priority", "memory", "memory.priority", 0, 12)
PRIORITY_OOM = File("memory.use_priority_oom", "memory", "memory.use_priority_oom", 0, 1)
OOM_GROUP = File("memory.oom.group", "memory", "memory.oom.group", 0, 1)
PAGE_CACHE_ENABLE = File("memory.pagecache_limit.enable", "memory", "memory.pagecache_limit.enable", 0, 1)
PAGE_CACHE_SIZE = File("memory.pagecache_limit.size", "memory", "memory.pagecache_limit.size", 0)
PAGE_CACHE_SYNC = File("memory.pagecache_limit.sync", "memory", "memory.pagecache_limit.sync", 0, 1)
IDLE_PAGES = File("memory.idle_page_stats", "memory", "")
CPU_PRESSURE, MEMORY_PRESSURE, IO_PRESSURE = (
    File(f"{kind}.pressure", "cpuacct", f"{kind}.pressure") for kind in ("cpu", "memory", "io")
)
TASKS = File("tasks", "cpu", "cgroup.threads")
PROCESSES = File("cgroup.procs", "cpu", "cgroup.procs")
_MAX = frozenset({(QUOTA, NO_LIMIT), (MEMORY_LIMIT, NO_LIMIT), (MEMORY_HIGH, MEMORY_HIGH.high)})  # on v2


def weight_of(shares: int) -> int:
    """`cpu.weight` of `cpu.shares`."""
    return 1 + (shares - _LEAST_SHARES) * (_MOST_WEIGHT - 1) // (_MOST_SHARES - _LEAST_SHARES)


def shares_of(weight: int) -> int:
    """`cpu.shares` of `cpu.weight`."""
    return _LEAST_SHARES + (weight - 1) * (_MOST_SHARES - _LEAST_SHARES) // (_MOST_WEIGHT - 1)


@dataclass(frozen=True, slots=True)
class Layout:
    """How kubelet names the groups of pods; `parent`: the folder in which they are, as kubelet's --cgroup-root."""

    systemd: bool = False
    parent: str = ""

    def qos(self, kubernetes_class: str) -> str:
        """The folder of a class; pods of the class Guaranteed are directly below that of all pods."""
        name = {GUARANTEED: "", BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}[kubernetes_class]
        above = f"{self.parent}/" if self.parent else ""
        if not self.systemd:
            return f"{above}kubepods/{name}".rstrip("/")
        return f"{above}kubepods.slice/kubepods-{name}.slice" if name else f"{above}kubepods.slice"

    def pod(self, kubernetes_class: str, uid: str) -> str:
        parent = self.qos(kubernetes_class)
        if not self.systemd:
            return f"{parent}/pod{uid}"
        above = parent.rpartition("/")[2].removesuffix(".slice")
        return f"{parent}/{above}-pod{uid.replace('-', '_')}.slice"

    def container(self, pod: str, container_id: str) -> str:
        """`container_id` as a pod's status has it, `containerd://…`."""
        runtime, _, name = container_id.partition("://")
        prefix = {"docker": "docker", "cri-o": "crio", "pouch": "pouch"}.get(runtime, "cri-containerd")
        return f"{pod}/{prefix}-{name}.scope" if self.systemd else f"{pod}/{name}"


class Cgroups:
    """The control groups below one root."""

    def __init__(self, root: Path, *, v2: bool = False, layout: Layout | None = None) -> None:
        self.root, self.v2, self.layout = root, v2, layout or Layout()
        self._path = lru_cache(maxsize=_PATHS)(self._path_of)

    def path(self, folder: str, file: File) -> Path:
        """The file of one group.

        Raises:
            CgroupError: cgroup v2 has no such file.
        """
        return self._path(folder, file)

    def _path_of(self, folder: str, file: File) -> Path:
        if not self.v2:
            return self.root / file.subsystem / folder / file.v1
        if not file.v2:
            raise CgroupError(f"{file.v1}: cgroup v2 has no such file")
        return self.root / folder / file.v2

    def exists(self, folder: str, subsystem: str = "cpu") -> bool:
        return (self.root / folder if self.v2 else self.root / subsystem / folder).is_dir()

    def children(self, folder: str, subsystem: str = "cpuset") -> list[str]:
        """The groups below one, those of pods before those of their containers."""
        base = self.root if self.v2 else self.root / subsystem
        top = base / folder
        if not top.is_dir():
            return []
        return sorted(
            (str(path.relative_to(base)) for path in top.rglob("*") if path.is_dir()), key=lambda p: p.count("/")
        )

    def read(self, folder: str, file: File) -> str:
        """The text of a file.

        Raises:
            CgroupError: it cannot be read.
        """
        path = self.path(folder, file)
        if self.v2 and file is CPUS:
            path = path.with_name("cpuset.cpus.effective")
        try:
            return path.read_text(encoding="ascii", errors="replace").strip()
        except OSError as error:
            raise CgroupError(f"{path}: {error.strerror}") from error

    def number(self, folder: str, file: File) -> int:
        """The value of a file that has one number, in the units of v1.

        Raises:
            CgroupError: it cannot be read, or has none.
        """
        written = self.read(folder, file)
        value = self._number_v2(written, file) if self.v2 else integer(written)
        if value is None:
            raise CgroupError(f"{self.path(folder, file)}: expected a number, found {written[:60]!r}")
        if value >= _UNLIMITED_MEMORY:
            return NO_LIMIT if file is MEMORY_LIMIT else file.high
        return value

    def _number_v2(self, written: str, file: File) -> int | None:
        if file in {QUOTA, QUOTA_PERIOD}:
            fields = written.split()
            if len(fields) != 2:
                return None
            written = fields[0] if file is QUOTA else fields[1]
        if file is CPU_USAGE:
            micro = _row(written, "usage_usec")
            return None if micro is None else micro * 1000
        if written == "max":
            return file.high if file in {MEMORY_MIN, MEMORY_LOW, MEMORY_HIGH} else NO_LIMIT
        value = integer(written)
        if file is SHARES:
            return shares_of(value) if value is not None and 1 <= value <= _MOST_WEIGHT else None
        return value

    def rows(self, folder: str, file: File) -> dict[str, int]:
        """The rows `name number` of a file; others are left out.

        Raises:
            CgroupError: it cannot be read.
        """
        rows = (line.partition(" ") for line in self.read(folder, file).splitlines())
        by_name = {name: integer(value.strip()) for name, _, value in rows}
        return {name: value for name, value in by_name.items() if value is not None}

    def text_of(self, file: File, value: int | str) -> str:
        """What is written for a value.

        Raises:
            CgroupError: the value is out of the range of the file.
        """
        if isinstance(value, str):
            return value
        if not file.low <= value <= file.high:
            raise CgroupError(f"{file.v1}: expected {file.low} to {file.high}, found {value}")
        if self.v2 and file is SHARES:
            return str(weight_of(value))
        if self.v2 and (
            (value == NO_LIMIT and file in {QUOTA, MEMORY_LIMIT}) or (file is MEMORY_HIGH and value == file.high)
        ):
            return "max"
        return str(value)

    def write(self, folder: str, file: File, value: int | str) -> None:
        """Write a value; on v2 a quota alone, so that its period stays.

        Raises:
            CgroupError: the value is out of range, or cannot be written.
        """
        path, written = self.path(folder, file), self.text_of(file, value)
        try:
            with path.open("r+", encoding="ascii") as opened:  # a group that is gone must not come back as a file
                opened.write(written)
                opened.truncate()
        except OSError as error:
            raise CgroupError(f"{path}: {error.strerror}") from error


def _row(written: str, name: str) -> int | None:
    for line in written.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return integer(value.strip())
    return None
