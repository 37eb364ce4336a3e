"""The CPUs of a machine with their cores, NUMA nodes and sockets (NUMA-R16)."""

from collections.abc import Iterable
from typing import NamedTuple

Core = tuple[int, int]  # socket and core id: core ids repeat across sockets


class Cpu(NamedTuple):
    """One logical CPU."""

    id: int
    core: Core
    socket: int
    node: int


class Topology:
    """All CPUs of a machine; the averages are exact for symmetric machines.

    Equal machines share one object, so that results can be keyed by it.
    """

    __slots__ = ("cores", "cpus", "ids", "nodes", "per_core", "per_node", "per_socket", "sockets")

    def __init__(self, cpus: Iterable[Cpu]) -> None:
        self.cpus = {cpu.id: cpu for cpu in sorted(cpus)}
        self.ids = frozenset(self.cpus)
        self.cores: dict[Core, list[int]] = {}
        self.nodes: dict[int, list[int]] = {}
        self.sockets: dict[int, list[int]] = {}
        for cpu in self.cpus.values():
            self.cores.setdefault(cpu.core, []).append(cpu.id)
            self.nodes.setdefault(cpu.node, []).append(cpu.id)
            self.sockets.setdefault(cpu.socket, []).append(cpu.id)
        count = len(self.cpus)
        self.per_core = count // len(self.cores) if self.cores else 0
        self.per_node = count // len(self.nodes) if self.nodes else 0
        self.per_socket = count // len(self.sockets) if self.sockets else 0

    @property
    def valid(self) -> bool:
        return bool(self.cpus)


def uniform(sockets: int, nodes: int, cores: int, threads: int) -> Topology:
    """A machine with consecutively numbered CPUs: sockets, NUMA nodes per socket, cores per node, CPUs per core."""
    cpus = []
    for number in range(sockets * nodes * cores * threads):
        core = number // threads
        node = core // cores
        cpus.append(Cpu(number, (node // nodes, core), node // nodes, node))
    return Topology(cpus)
