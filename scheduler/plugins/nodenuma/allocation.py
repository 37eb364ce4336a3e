"""Allocation of CPUs and of NUMA nodes' amounts, given the NUMA nodes the pod is held to (NUMA-R33 to NUMA-R39)."""

from collections.abc import Mapping
from dataclasses import dataclass

from seatrial.scheduler.api.numa import FULL_PCPUS
from seatrial.scheduler.api.quantity import CPU, Amounts
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.nodenuma.accumulator import NOT_ENOUGH, CpuPreference, Cpus, kept, take, usable
from seatrial.scheduler.plugins.nodenuma.options import ZoneAmounts
from seatrial.scheduler.plugins.nodenuma.states import NumaAllocation, NumaState
from seatrial.scheduler.plugins.numahints import Mask

NO_ZONES = Status.unresolvable("insufficient resources on NUMA Node")
WHOLE = 1000  # milli-CPU


@dataclass(frozen=True, slots=True)
class Need:
    """A pod's request on a node; `preference` is None unless its CPUs are bound there."""

    requests: tuple[tuple[str, int], ...]
    preference: CpuPreference | None

    @property
    def cpus(self) -> int:
        return dict(self.requests).get(CPU, 0) // WHOLE


def allocate(state: NumaState, need: Need, mask: Mask | None) -> NumaAllocation | Status:
    """The pod's part of these NUMA nodes (None: of any), or the reason for none."""
    zones: ZoneAmounts = ()
    if mask is not None:
        split = divide(state, need, mask)
        if isinstance(split, Status):
            return split
        zones = tuple((node, tuple(sorted(amounts.items()))) for node, amounts in sorted(split.items()) if amounts)
    if need.preference is None:
        return NumaAllocation(zones=zones)
    cpus = choose(state, need, dict(zones) if mask is not None else None)
    if isinstance(cpus, Status):
        return cpus
    return NumaAllocation(frozenset(cpus), need.preference.exclusive, zones)


def divide(state: NumaState, need: Need, mask: Mask) -> dict[int, Amounts] | Status:
    """Divide the request over the NUMA nodes of the mask, as evenly as their free amounts allow (NUMA-R34)."""
    if not state.totals:
        return NO_ZONES
    nodes = sorted(mask & state.totals.keys())
    known = {name for amounts in state.totals.values() for name in amounts}
    offered = offers(state, need)
    split: dict[int, Amounts] = {node: {} for node in nodes}
    short: list[str] = []
    for name, amount in need.requests:
        if name not in known:
            continue
        unit = _unit(state, need, name)
        left = amount
        for turn, node in enumerate(sorted(nodes, key=lambda entry: (offered[entry].get(name, 0), entry))):
            value = min(offered[node].get(name, 0), left // (len(nodes) - turn)) // unit * unit
            if value:
                split[node][name] = value
                left -= value
        if left:
            short.append(f"Insufficient NUMA {name}")
    return Status.unschedulable(*short) if short else split


def offers(state: NumaState, need: Need) -> Mapping[int, Amounts]:
    """Free amounts of each NUMA node for such a pod; bound CPUs count as real free CPUs (NUMA-R38, NUMA-R48)."""
    if need.preference is None:
        return state.available
    ratio = state.options.ratio(CPU)
    by_node: dict[int, int] = {}
    for number in usable(state.topology, state.free, need.preference):
        node = state.topology.cpus[number].node
        by_node[node] = by_node.get(node, 0) + WHOLE
    return {
        node: {
            **amounts,
            CPU: min(int(amounts.get(CPU, 0) / ratio) if ratio > 1 else amounts.get(CPU, 0), by_node.get(node, 0)),
        }
        for node, amounts in state.available.items()
    }


def _unit(state: NumaState, need: Need, name: str) -> int:
    if name != CPU or need.preference is None:
        return 1
    return (
        WHOLE * max(state.topology.per_core, 1)
        if need.preference.required and need.preference.policy == FULL_PCPUS
        else WHOLE
    )


def choose(
    state: NumaState, need: Need, zones: Mapping[int, tuple[tuple[str, int], ...]] | None
) -> tuple[int, ...] | Status:
    """Choose the CPUs: each NUMA node's share from that node, or all from the whole machine (NUMA-R33)."""
    preference = need.preference
    assert preference is not None
    free = usable(state.topology, state.free, preference)
    if zones is None:
        result = take(state.topology, free, state.marks, need.cpus, preference)
        return result if isinstance(result, Status) else kept(state.topology, result, preference) or result
    taken: list[int] = []
    for node, amounts in sorted(zones.items()):
        here: Cpus = frozenset(number for number in free if state.topology.cpus[number].node == node)
        count = min(len(here), dict(amounts).get(CPU, 0) // WHOLE)
        result = take(state.topology, here, state.marks, count, preference)
        if isinstance(result, Status):
            return result
        taken += result
    if len(taken) != need.cpus:
        return NOT_ENOUGH
    return kept(state.topology, taken, preference) or tuple(sorted(taken))
