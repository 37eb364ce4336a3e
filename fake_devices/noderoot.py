"""A fake root of a node: /proc, /sys and control groups as files, for kernels and machines that one does not have.

A node agent whose roots are options reads and writes it like a real one; nothing is enforced. Tests and suites drive
the counters: `use` gives a group CPU time and memory.
"""

import os
from pathlib import Path

_SHARED_MEMORY = "/dev/shm"  # noqa: S108
# Where a root is made best: thousands of small files, for which a disk takes much longer. None: no such folder.
IN_MEMORY = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
TICKS = 100  # per second, as Linux shows them
_PERIOD = 100_000
_PAGE = 4096
_SUBSYSTEMS = ("cpu", "cpuacct", "cpuset", "memory", "blkio")
_V1 = {
    "cpu": {"cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": str(_PERIOD), "cpu.stat": ""},
    "cpuacct": {"cpuacct.usage": "0"},
    "cpuset": {},
    "memory": {"memory.limit_in_bytes": "9223372036854771712", "memory.stat": ""},
    "blkio": {f"blkio.throttle.{way}_{unit}_device": "" for way in ("read", "write") for unit in ("iops", "bps")},
}
_FILES = ("active_file", "inactive_file")
_V2 = {"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.oom.group": "0"}
_IDLE_PAGES = "memory.idle_page_stats"


def _idle_pages(cold: int) -> str:
    head = ("version: 1.0", "page_scans: 24", "slab_scans: 0", "scan_period_in_seconds: 5", "use_hierarchy: 1")
    lines = [f"# {text}" for text in (*head, "buckets: 1,2,5,15,30,60,120,240")] + ["#"] * 8
    names = [f"{a}{b}{c}{d}" for a in "cd" for b in "sf" for c in "eu" for d in "ia"]
    counts = {"cfei": f"{cold // 2} 0 0 0 0 {cold} 0 0"}  # half as many are idle since a moment ago, and not cold
    lines += [f"{name} {counts.get(name, '0 0 0 0 0 0 0 0')}" for name in (*names, "slab")]
    return "\n".join(lines)


_ANOLIS = {  # beyond those of all kernels, by subsystem
    "cpu": {"cpu.bvt_warp_ns": "0", "cpu.idle": "0"},
    "memory": {
        **_V2,
        "memory.high": "9223372036854771712",
        "memory.wmark_ratio": "0",
        "memory.wmark_scale_factor": "50",
        "memory.wmark_min_adj": "0",
        _IDLE_PAGES: _idle_pages(0),
        "memory.priority": "0",
        "memory.use_priority_oom": "0",
    },
    "blkio": {"blkio.cost.weight": "", "blkio.cost.qos": "", "blkio.cost.model": ""},
}


class NodeRoot:
    """Builds the tree below `path`; all CPUs have two threads."""

    def __init__(
        self,
        path: Path,
        *,
        cpus: int = 8,
        memory: int = 16 << 30,
        v2: bool = False,
        nodes: int = 1,
        anolis: bool = False,
        systemd: bool = False,
    ) -> None:
        """`anolis`: the kernel has what Anolis adds: group identities, watermarks and priorities of memory, kidled.
        `systemd`: groups are named by kubelet's driver systemd."""
        self._systemd = systemd
        self.path, self.cpus, self.memory_total, self.v2, self._anolis = path, cpus, memory, v2, anolis
        self._nodes = nodes
        self.proc, self.sys, self.cgroup = path / "proc", path / "sys", path / "sys/fs/cgroup"
        self.busy = 0.0  # seconds of all CPUs
        self._used: dict[str, tuple[float, int]] = {}
        self._throttled: dict[str, tuple[int, int]] = {}
        self.memory_used = self.page_cache = 0
        self.resctrl = self.sys / "fs/resctrl"
        system = self.sys / "devices/system"
        (self.sys / "bus/node").mkdir(parents=True)
        (self.sys / "bus/node/devices").symlink_to("../../devices/system/node")
        for name in ("online", "possible", "present"):
            self._write(system / f"cpu/{name}", f"0-{cpus - 1}")
        masks = {}
        for node in range(nodes):
            first, last = node * cpus // nodes, (node + 1) * cpus // nodes - 1
            self._write(system / f"node/node{node}/cpulist", f"{first}-{last}")
            masks[node] = f"{(2 << last) - (1 << first):x}"
            self._write(system / f"node/node{node}/cpumap", masks[node])
        for cpu in range(cpus):
            package, core = cpu * nodes // cpus, cpu // 2
            threads = f"{3 << core * 2:x}"
            processor = system / f"cpu/cpu{cpu}"
            for name, text in {
                "core_id": str(core),
                "physical_package_id": str(package),
                "thread_siblings": threads,
                "core_siblings": masks[package],
            }.items():
                self._write(processor / "topology" / name, text)
            for index, (level, kind) in enumerate(((1, "Data"), (1, "Instruction"), (2, "Unified"), (3, "Unified"))):
                cache = {"level": str(level), "type": f"{kind}\n", "id": str(package if level == 3 else core)}
                cache["shared_cpu_map"] = masks[package] if level == 3 else threads
                for name, text in cache.items():
                    self._write(processor / f"cache/index{index}" / name, text)
        self._write(self.proc / "cpuinfo", "vendor_id : GenuineIntel\nmodel name : fake\nflags :\n")
        self._write(self.proc / "cmdline", "")
        settings = {self.proc / "sys/vm/min_free_kbytes": "67584", self.proc / "sys/vm/watermark_scale_factor": "10"}
        if anolis:
            kidled = self.sys / "kernel/mm/kidled"
            settings |= {kidled / "scan_period_in_seconds": "120", kidled / "use_hierarchy": "0"}
            settings[self.sys / "kernel/mm/memcg_reaper/reap_background"] = "0"
            settings[self.sys / "kernel/debug/sched_features"] = "NO_ID_ABSOLUTE_EXPEL ID_EXPELLER_SHARE_CORE"
        for file, text in settings.items():
            self._write(file, text)
        self.group("")
        for kind in ("", "burstable", "besteffort"):
            self.group(self.of_class(kind))
        self.refresh()

    def group(self, folder: str) -> str:
        """Make a control group, and those above it that are missing."""
        above = folder.rpartition("/")[0]
        if above and above not in self._used:
            self.group(above)
        every = f"0-{self.cpus - 1}"
        if self.v2:
            base = self.cgroup / folder
            for name, text in {
                "cpu.weight": "100",
                "cpu.max": f"max {_PERIOD}",
                "cpuset.cpus": every,
                "memory.max": "max",
                **_V2,
            }.items():
                self._write(base / name, text)
            if not (base / "cpuset.cpus.effective").is_symlink():
                (base / "cpuset.cpus.effective").symlink_to("cpuset.cpus")
            if self._anolis:
                self._write(base / "cpu.bvt_warp_ns", "0")
        else:
            for subsystem in _SUBSYSTEMS:
                files = {**_V1[subsystem], **({"cpuset.cpus": every} if subsystem == "cpuset" else {})}
                files |= _ANOLIS.get(subsystem, {}) if self._anolis else {}
                for name, text in files.items():
                    self._write(self.cgroup / subsystem / folder / name, text)
        self._used.setdefault(folder, (0.0, 0))
        self._account(folder)
        return folder

    def pod(self, kind: str, uid: str, *containers: str) -> str:
        """The groups of a pod of the class `burstable`, `besteffort` or "" (guaranteed), and of its containers."""
        above = self.of_class(kind)
        name = f"pod{uid}"
        if self._systemd:
            name = f"{above.rpartition('/')[2].removesuffix('.slice')}-pod{uid.replace('-', '_')}.slice"
        folder = self.group(f"{above}/{name}")
        for each in containers:
            self.group(self.container(folder, each))
        return folder

    def of_class(self, kind: str) -> str:
        """The group of all pods of a class, as for `pod`."""
        if self._systemd:
            return f"kubepods.slice/kubepods-{kind}.slice" if kind else "kubepods.slice"
        return f"kubepods/{kind}" if kind else "kubepods"

    def container(self, pod: str, name: str) -> str:
        """The group of a container of a pod, which is given by its group."""
        return f"{pod}/cri-containerd-{name}.scope" if self._systemd else f"{pod}/{name}"

    def remove(self, folder: str) -> None:
        """The group is gone, with those below it."""
        for base in (self.cgroup,) if self.v2 else (self.cgroup / subsystem for subsystem in _SUBSYSTEMS):
            for path in sorted((base / folder).rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            (base / folder).rmdir()
        self._used = {name: used for name, used in self._used.items() if not f"{name}/".startswith(f"{folder}/")}

    def use(self, folder: str, seconds: float, memory: int | None = None) -> None:
        """Add CPU time to a group and those above it, and set its memory in bytes."""
        self.busy += seconds
        parts = folder.split("/")
        for end in range(1, len(parts) + 1):
            name = "/".join(parts[:end])
            before = self._used.get(name, (0.0, 0))
            own = memory if memory is not None and name == folder else before[1]
            self._used[name] = (before[0] + seconds, own)
            self._account(name)

    def throttle(self, folder: str, periods: int, throttled: int) -> None:
        """More periods of a group's quota, and how many of them it was throttled in."""
        before = self._throttled.get(folder, (0, 0))
        self._throttled[folder] = (before[0] + periods, before[1] + throttled)
        self._account(folder)

    def read(self, folder: str, name: str, subsystem: str = "cpu") -> str:
        """A file of a group."""
        base = self.cgroup / folder if self.v2 else self.cgroup / subsystem / folder
        return (base / name).read_text().strip()

    def refresh(self) -> None:
        """Write what /proc shows by now."""
        ticks = int(self.busy * TICKS)
        each = (f"cpu{cpu} {ticks // self.cpus} 0 0 0 0 0 0 0 0 0\n" for cpu in range(self.cpus))
        self._write(self.proc / "stat", f"cpu  {ticks} 0 0 0 0 0 0 0 0 0\n{''.join(each)}")
        total, free = self.memory_total // 1024, (self.memory_total - self.memory_used) // 1024
        cached = self.page_cache // 1024
        rows = {"MemTotal": total, "MemFree": free - cached, "MemAvailable": free}
        self._write(self.proc / "meminfo", "".join(f"{name}: {size} kB\n" for name, size in rows.items()))
        rows["MemUsed"] = total - rows["MemFree"]
        del rows["MemAvailable"]
        for node in range(self._nodes):
            lines = (f"Node {node} {name}: {size // self._nodes} kB\n" for name, size in rows.items())
            self._write(self.sys / f"devices/system/node/node{node}/meminfo", "".join(lines))

    def mount_resctrl(self, *, caches: int = 1, cbm: str = "ff", vendor: str = "GenuineIntel") -> None:
        """The CPUs have cache ways and bandwidth to be divided."""
        every = {
            kind: ";".join(f"{cache}={value}" for cache in range(caches))
            for kind, value in (("L3", cbm), ("MB", "100"))
        }
        self._write(self.resctrl / "schemata", "".join(f"{kind}:{values}\n" for kind, values in every.items()))
        self._write(self.resctrl / "info/L3/cbm_mask", cbm)
        self._write(self.proc / "cpuinfo", f"vendor_id : {vendor}\nflags : cat_l3 mba\n")

    def cache_use(self, group: str, cache: int, **counters: str) -> None:
        """What the kernel counts for a group of a cache: counters with their text, as `llc_occupancy="4096"`."""
        for name, value in counters.items():
            self._write(self.resctrl / group / f"mon_data/mon_L3_{cache:02}" / name, f"{value}\n")

    def disk(self, name: str, numbers: str) -> None:
        """A disk with its numbers, as in `8:16`."""
        self._write(self.sys / "class/block" / name / "dev", numbers)

    def partition(self, disk: str, name: str, numbers: str) -> None:
        """A partition of a disk."""
        base = self.sys / "class/block"
        for file, text in (("dev", numbers), ("partition", "1")):
            self._write(base / disk / name / file, text)
        (base / name).symlink_to(f"{disk}/{name}")

    def process(self, folder: str, number: int) -> Path:
        """A process in a group; its OOM score is in the file that is returned."""
        base = self.cgroup / folder if self.v2 else self.cgroup / "cpu" / folder
        self._write(base / "cgroup.procs", str(number))
        score = self.proc / str(number) / "oom_score_adj"
        self._write(score, "0")
        return score

    def press(self, folder: str, kind: str, **avg10: float) -> None:
        """Pressure of a group: of `cpu`, `memory` or `io`, in percent by degree."""
        base = self.cgroup / folder if self.v2 else self.cgroup / "cpuacct" / folder
        lines = (f"{degree} avg10={value:.2f} avg60=0.00 avg300=0.00 total=0\n" for degree, value in avg10.items())
        self._write(base / f"{kind}.pressure", "".join(lines))

    def idle_pages(self, cold: int) -> None:
        """Kidled's statistics of the node: `cold` bytes of inactive files that were not used for 60 scan periods."""
        self._write(self.cgroup / "memory" / _IDLE_PAGES, _idle_pages(cold))

    def _account(self, folder: str) -> None:
        seconds, memory = self._used.get(folder, (0.0, 0))
        periods, throttled = self._throttled.get(folder, (0, 0))
        waited = "throttled_usec" if self.v2 else "throttled_time"
        stat = f"nr_periods {periods}\nnr_throttled {throttled}\n{waited} 0\n"
        rows = {"active_anon": memory, **dict.fromkeys(("inactive_anon", "unevictable", *_FILES), 0)}
        if self.v2:
            base = self.cgroup / folder
            self._write(base / "cpu.stat", f"usage_usec {int(seconds * 1e6)}\n{stat}")
            self._write(base / "memory.stat", "".join(f"{name} {size}\n" for name, size in rows.items()))
            self._write(base / "memory.current", str(memory))
            self._write(base / "memory.numa_stat", self._by_node("anon ", memory) + self._by_node("file ", 0))
            return
        self._write(self.cgroup / "cpuacct" / folder / "cpuacct.usage", str(int(seconds * 1e9)))
        self._write(self.cgroup / "cpu" / folder / "cpu.stat", stat)
        rows |= {"cache": 0, "rss": memory}
        text = "".join(f"total_{name} {size}\n" for name, size in rows.items())
        self._write(self.cgroup / "memory" / folder / "memory.stat", text)
        self._write(self.cgroup / "memory" / folder / "memory.usage_in_bytes", str(memory))
        pages = memory // _PAGE
        text = "".join(self._by_node(f"{name}={pages} ", pages) for name in ("total", "anon", "hierarchical_anon"))
        self._write(self.cgroup / "memory" / folder / "memory.numa_stat", text)

    def _by_node(self, name: str, amount: int) -> str:
        """A row with equal parts of all NUMA nodes."""
        return name + " ".join(f"N{node}={amount // self._nodes}" for node in range(self._nodes)) + "\n"

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
