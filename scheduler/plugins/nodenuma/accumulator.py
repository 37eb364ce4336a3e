"""Choice of a pod's CPUs among the free ones (NUMA-R23 to NUMA-R32).

Upstream: nodenumaresource/cpu_accumulator.go. Exclusivity is a preference: every pass that respects it is repeated
without it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from seatrial.scheduler.api.numa import FULL_PCPUS, NUMA_NODE_LEVEL, PCPU_LEVEL, SPREAD_BY_PCPUS
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.nodenuma.topology import Core, Topology

NOT_ENOUGH = Status.unschedulable("not enough cpus available to satisfy request")
NOT_FOUND = Status.unschedulable("failed to allocate cpus")
Cpus = frozenset[int]


class Mark(NamedTuple):
    """The pods that hold one CPU."""

    pods: int  # number of pods that hold it
    exclusive: str  # exclusive policy of the last pod


@dataclass(frozen=True, slots=True)
class CpuPreference:
    """A pod's requirements on its CPUs, and the node's strategy for NUMA nodes."""

    policy: str = ""  # FullPCPUs, or another policy
    exclusive: str = ""
    required: bool = False  # the policy must hold for every CPU
    most: bool = False  # numa-allocate-strategy MostAllocated
    max_count: int = 1  # maximum number of pods on one CPU
    first: Cpus = frozenset()  # CPUs that a reservation returns for this pod: taken first (NUMA-R31)


@dataclass(slots=True)
class _Taking:
    topology: Topology
    free: set[int]
    marks: Mapping[int, Mark]
    needed: int
    preference: CpuPreference
    taken: list[int] = field(default_factory=list)
    exclusive_cores: set[Core] = field(default_factory=set)
    exclusive_nodes: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for number, mark in self.marks.items():
            self._note(number, mark.exclusive)

    def _note(self, number: int, exclusive: str) -> None:
        cpu = self.topology.cpus.get(number)
        if cpu is None:
            return
        if exclusive == PCPU_LEVEL:
            self.exclusive_cores.add(cpu.core)
        elif exclusive == NUMA_NODE_LEVEL:
            self.exclusive_nodes.add(cpu.node)

    def take(self, cpus: Iterable[int]) -> None:
        for number in cpus:
            self.taken.append(number)
            self.free.discard(number)
            self.needed -= 1
            self._note(number, self.preference.exclusive)

    def count(self, number: int) -> int:
        mark = self.marks.get(number)
        return mark.pods if mark is not None and self.preference.max_count > 1 else 0

    def barred(self, number: int, *, node_level: bool = True) -> bool:
        """Whether exclusivity forbids the CPU because of another pod (NUMA-R30)."""
        cpu = self.topology.cpus[number]
        if self.preference.exclusive == PCPU_LEVEL:
            return cpu.core in self.exclusive_cores
        return node_level and self.preference.exclusive == NUMA_NODE_LEVEL and cpu.node in self.exclusive_nodes

    def strategy(self, available: int) -> int:
        return available if self.preference.most else -available

    def spread(self, cpus: list[int]) -> list[int]:
        """CPUs in rounds, each with the next CPU of every core (NUMA-R29)."""
        if len(cpus) <= self.topology.per_core:
            return cpus
        by_core: dict[Core, list[int]] = {}
        for number in cpus:
            by_core.setdefault(self.topology.cpus[number].core, []).append(number)
        longest = max(map(len, by_core.values()))
        return [group[turn] for turn in range(longest) for group in by_core.values() if turn < len(group)]

    # -- whole cores --------------------------------------------------------------------------------------------------

    def free_cores(self, *, exclusive: bool) -> list[list[int]]:
        """CPUs of cores that are completely free, unshared ones first."""
        cores = []
        for core, cpus in self.topology.cores.items():
            if all(number in self.free and not (exclusive and self.barred(number)) for number in cpus):
                cores.append((-len(cpus), sum(map(self.count, cpus)), core, cpus))
        return [cpus for *_, cpus in sorted(cores)]

    def full_in_node(self, *, exclusive: bool) -> list[list[int]]:
        """CPUs of free cores by NUMA node, in node order."""
        groups: dict[int, list[int]] = {}
        for cpus in self.free_cores(exclusive=exclusive):
            groups.setdefault(self.topology.cpus[cpus[0]].node, []).extend(cpus)
        return self._in_node_order(groups, {node: len(cpus) for node, cpus in groups.items()})

    def full_in_socket(self) -> list[list[int]]:
        groups: dict[int, list[int]] = {}
        for cpus in self.free_cores(exclusive=False):
            groups.setdefault(self.topology.cpus[cpus[0]].socket, []).extend(cpus)
        return [
            groups[socket] for socket in sorted(groups, key=lambda entry: (self.strategy(len(groups[entry])), entry))
        ]

    def _in_node_order(self, groups: dict[int, list[int]], available: Mapping[int, int]) -> list[list[int]]:
        free_on: dict[int, int] = {}
        for number in self.free:
            socket = self.topology.cpus[number].socket
            free_on[socket] = free_on.get(socket, 0) + 1

        def order(node: int) -> tuple[int, int, int]:
            socket = self.topology.cpus[groups[node][0]].socket
            return self.strategy(available[node]), self.strategy(free_on[socket]), node

        return [groups[node] for node in sorted(groups, key=order)]

    def take_full(self) -> bool:
        """Take whole cores, close to each other (NUMA-R24). Returns whether the request is complete."""
        if self.needed <= self.topology.per_node:
            for exclusive in (True, False):
                for cpus in self.full_in_node(exclusive=exclusive):
                    if len(cpus) >= self.needed:
                        self.take(cpus[: self.needed])
                        return True
        if self.needed <= self.topology.per_socket:
            for cpus in self.full_in_socket():
                if len(cpus) >= self.needed:
                    self.take(cpus[: self.needed])
                    return True
        left_over = []
        for cpus in sorted(self.full_in_socket(), key=len, reverse=True):
            if self.needed >= len(cpus):
                self.take(cpus)
            else:
                left_over.append(cpus)
        per_core = self.topology.per_core
        for cpus in sorted(left_over, key=len):
            for start in range(0, len(cpus), per_core):
                if self.needed < per_core:
                    break
                self.take(cpus[start : start + per_core])
        return self.needed < 1

    # -- single CPUs --------------------------------------------------------------------------------------------------

    def _ascending(self) -> list[int]:
        return sorted(self.free, key=lambda number: (self.count(number), number))

    def thinned(self, cpus: list[int]) -> list[int]:
        """The first CPU of each core."""
        seen: dict[Core, int] = {}
        for number in cpus:
            seen.setdefault(self.topology.cpus[number].core, number)
        return list(seen.values())

    def loose_in_node(self, *, exclusive: bool) -> list[list[int]]:
        groups: dict[int, list[int]] = {}
        for number in self._ascending():
            if not (exclusive and self.barred(number)):
                groups.setdefault(self.topology.cpus[number].node, []).append(number)
        available = {node: len(cpus) for node, cpus in groups.items()}
        if exclusive:
            groups = {node: self.thinned(cpus) for node, cpus in groups.items()}
        return self._in_node_order(groups, available)

    def loose_in_socket(self, *, exclusive: bool) -> list[list[int]]:
        groups: dict[int, list[int]] = {}
        for number in self._ascending():
            if not (exclusive and self.barred(number, node_level=False)):
                groups.setdefault(self.topology.cpus[number].socket, []).append(number)
        if exclusive:
            groups = {socket: self.thinned(cpus) for socket, cpus in groups.items()}
        return [
            groups[socket] for socket in sorted(groups, key=lambda entry: (self.strategy(len(groups[entry])), entry))
        ]

    def take_spread(self) -> bool:
        """Take CPUs of different cores, close to each other (NUMA-R27). Returns whether the request is complete."""
        for limit, groups in (
            (self.topology.per_node, self.loose_in_node),
            (self.topology.per_socket, self.loose_in_socket),
        ):
            for exclusive in (True, False) if self.needed <= limit else ():
                for cpus in groups(exclusive=exclusive):
                    if len(cpus) >= self.needed:
                        self.take(self.spread(cpus)[: self.needed])
                        return True
        return False

    def take_rest(self) -> bool:
        """Take the remaining CPUs from any core (NUMA-R28)."""
        for exclusive in (True, False):
            self.take(self.spread(self._scattered(exclusive=exclusive))[: self.needed])
            if self.needed < 1:
                return True
        return False

    def _scattered(self, *, exclusive: bool) -> list[int]:
        cores: dict[Core, list[int]] = {}
        on_socket: dict[int, int] = {}
        on_node: dict[int, int] = {}
        taken_on: dict[int, int] = {}
        for number in self.taken:
            socket = self.topology.cpus[number].socket
            taken_on[socket] = taken_on.get(socket, 0) + 1
        for number in self._ascending():
            if exclusive and self.barred(number):
                continue
            cpu = self.topology.cpus[number]
            cores.setdefault(cpu.core, []).append(number)
            on_socket[cpu.socket] = on_socket.get(cpu.socket, 0) + 1
            on_node[cpu.node] = on_node.get(cpu.node, 0) + 1

        def order(core: Core) -> tuple[int, int, int, int, int, int, Core]:
            cpus = cores[core]
            cpu = self.topology.cpus[cpus[0]]
            return (
                -taken_on.get(cpu.socket, 0),
                self.strategy(on_socket[cpu.socket]),
                self.strategy(on_node[cpu.node]),
                len(cpus),
                cpu.socket,
                sum(map(self.count, cpus)),
                core,
            )

        return [number for core in sorted(cores, key=order) for number in cores[core]]


def take(
    topology: Topology, free: Iterable[int], marks: Mapping[int, Mark], needed: int, preference: CpuPreference
) -> tuple[int, ...] | Status:
    """Choose `needed` of the free CPUs, ascending, or give the reason; `marks` describe CPUs that pods hold."""
    left = set(free)
    if needed < 1:
        return ()
    if needed > len(left):
        return NOT_ENOUGH
    first = preference.first & left
    if first and first != left:
        have = take(topology, first, marks, min(needed, len(first)), preference)
        rest = have if isinstance(have, Status) else take(topology, left - first, marks, needed - len(have), preference)
        return rest if isinstance(have, Status) or isinstance(rest, Status) else tuple(sorted((*have, *rest)))
    taking = _Taking(topology, left, marks, needed, preference)
    full = preference.policy == FULL_PCPUS
    done = (full or topology.per_core == 1) and taking.take_full()
    done = done or (not full and taking.take_spread())
    if not (done or taking.take_rest()):
        return NOT_FOUND
    return tuple(sorted(taking.taken))


def usable(topology: Topology, free: Cpus, preference: CpuPreference) -> Cpus:
    """The free CPUs that a required policy allows (NUMA-R32)."""
    if not preference.required:
        return free
    if preference.policy == FULL_PCPUS:
        return frozenset(number for cpus in topology.cores.values() if free.issuperset(cpus) for number in cpus)
    if preference.policy == SPREAD_BY_PCPUS:
        firsts = (next((number for number in cpus if number in free), None) for cpus in topology.cores.values())
        return frozenset(number for number in firsts if number is not None)
    return free


def kept(topology: Topology, cpus: Iterable[int], preference: CpuPreference) -> Status | None:
    """Why the chosen CPUs violate a required policy (NUMA-R32); None if they do not."""
    if not preference.required:
        return None
    by_core: dict[Core, int] = {}
    for number in cpus:
        core = topology.cpus[number].core
        by_core[core] = by_core.get(core, 0) + 1
    if preference.policy == FULL_PCPUS:
        broken = any(count != len(topology.cores[core]) for core, count in by_core.items())
    else:
        broken = preference.policy == SPREAD_BY_PCPUS and any(count > 1 for count in by_core.values())
    return (
        Status.unschedulable(f"insufficient CPUs to satisfy required cpu bind policy {preference.policy}")
        if broken
        else None
    )
