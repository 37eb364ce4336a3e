"""The use of CPU and memory of each NUMA node, from files of the kernel (KM-1, KM-2, KM-8).

The harness reads them with functions of its own, because it judges what an agent reports.
"""

from pathlib import Path

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.numa import parse_cpuset

_KIB = 1024
_BUSY = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq
_NODES = "devices/system/node"
_NOT_USED = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
_ROWS = {"anon": 1, "file": 1, "hierarchical_anon": 4096, "hierarchical_file": 4096}
"""Rows of memory.numa_stat with the bytes of their unit: of version 2, and of version 1, which counts pages."""


def node_usages(sys: Path, stat: str, ticks: int) -> dict[int, tuple[float, float]]:
    """CPU seconds and bytes in use of each NUMA node. `stat`: the text of /proc/stat; `ticks` of it in a second.

    A NUMA node whose files cannot be read is left out.
    """
    seconds = {}
    for line in stat.splitlines():
        name, _, rest = line.partition(" ")
        number, fields = integer(name.removeprefix("cpu"), 0), [integer(field) or 0 for field in rest.split()]
        if number is not None and name.startswith("cpu") and len(fields) > _BUSY[-1]:
            seconds[number] = sum(fields[place] for place in _BUSY) / ticks
    nodes = {}
    for folder in (sys / _NODES).glob("node[0-9]*"):
        try:
            cpus = parse_cpuset((folder / "cpulist").read_text(encoding="ascii").strip())
            memory = _memory((folder / "meminfo").read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        number = integer(folder.name.removeprefix("node"), 0)
        if number is not None and memory is not None:
            nodes[number] = sum(seconds.get(cpu, 0.0) for cpu in cpus), memory
    return nodes


def _memory(text: str) -> float | None:
    """Bytes in use, from lines as `Node 0 MemTotal:  1000 kB`; None without a total."""
    rows = {}
    for line in text.splitlines():
        name, _, amount = line.partition(":")
        rows[name.rpartition(" ")[2]] = (integer(amount.strip().removesuffix(" kB"), 0) or 0) * _KIB
    total = rows.get("MemTotal")
    return None if total is None else float(total - sum(rows.get(name, 0) for name in _NOT_USED))


def group_bytes(numa_stat: str) -> dict[int, float]:
    """Bytes of a control group on each NUMA node, by the text of its `memory.numa_stat`; what is no row is left out."""
    sizes: dict[int, float] = {}
    for line in numa_stat.splitlines():
        first, *fields = line.split() or [""]
        name, of_version_1, _ = first.partition("=")
        if name not in _ROWS or (_ROWS[name] > 1) != bool(of_version_1):
            continue
        for field in fields:
            number, _, amount = field.removeprefix("N").partition("=")
            node, count = integer(number, 0), integer(amount, 0)
            if node is not None and count is not None:
                sizes[node] = sizes.get(node, 0.0) + count * _ROWS[name]
    return sizes
