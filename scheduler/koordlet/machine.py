"""What /proc and /sys say about the node: CPU time, memory, CPUs (KM-1, KM-2)."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.numa import CpusetError, parse_cpuset
from seatrial.scheduler.koordlet.numa_usage import node_usages

TICKS = os.sysconf("SC_CLK_TCK")
_COUNTED = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq


class MachineError(Exception):
    """A file of /proc or /sys cannot be read, or is not of its form."""


class Memory(NamedTuple):
    """Bytes of the node."""

    total: int
    free: int
    available: int


class Cpu(NamedTuple):
    """A logical CPU and where it is."""

    id: int
    core: int
    socket: int
    node: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Reads below these roots."""

    proc: Path
    sys: Path

    def usages(self) -> tuple[float, dict[int, tuple[float, float]]]:
        """CPU time of all CPUs since the start, without idle and waiting for I/O; CPU seconds and bytes in use of each
        NUMA node (KM-1, KM-2).

        Raises:
            MachineError: /proc/stat cannot be read.
        """
        stat = _read(self.proc / "stat")
        fields = stat.partition("\n")[0].split()
        numbers = [integer(field) for field in fields[1:]]
        if fields[:1] != ["cpu"] or len(numbers) <= _COUNTED[-1] or None in numbers:
            raise MachineError(f"{self.proc / 'stat'}: expected a line of CPU times, found {' '.join(fields)[:60]!r}")
        return sum(numbers[place] or 0 for place in _COUNTED) / TICKS, node_usages(self.sys, stat, TICKS)

    def memory(self) -> Memory:
        """Memory of the node.

        Raises:
            MachineError: /proc/meminfo cannot be read.
        """
        path = self.proc / "meminfo"
        rows = {}
        for line in _read(path).splitlines():
            name, _, rest = line.partition(":")
            kib = integer(rest.strip().removesuffix(" kB"), 0)
            if kib is not None:
                rows[name] = kib * 1024
        try:
            return Memory(rows["MemTotal"], rows["MemFree"], rows["MemAvailable"])
        except KeyError as error:
            raise MachineError(f"{path}: expected a row {error.args[0]}, found none") from error

    def cpus(self) -> list[Cpu]:
        """The CPUs that are online.

        Raises:
            MachineError: /sys/devices/system does not say.
        """
        base = self.sys / "devices/system"
        path = base / "cpu/online"
        try:
            online = sorted(parse_cpuset(_read(path).strip()))
        except CpusetError as error:
            raise MachineError(f"{path}: {error}") from error
        nodes = {}
        for folder in sorted((base / "node").glob("node[0-9]*")):
            for cpu in parse_cpuset(_read(folder / "cpulist").strip()):
                nodes[cpu] = integer(folder.name.removeprefix("node")) or 0
        cpus = []
        for cpu in online:
            topology = base / f"cpu/cpu{cpu}/topology"
            core, socket = (integer(_read(topology / name).strip()) for name in ("core_id", "physical_package_id"))
            cpus.append(Cpu(cpu, core or 0, max(socket or 0, 0), nodes.get(cpu, 0)))
        return cpus


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise MachineError(f"{path}: {error.strerror}") from error
