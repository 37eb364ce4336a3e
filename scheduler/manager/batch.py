"""Batch resources of a node and of its NUMA nodes (NR-4 to NR-15).

Follows Koordinator's pkg/slo-controller/noderesource/plugins/batchresource. Messages are Koordinator's.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from seatrial.scheduler.api.quantity import Quantity, amount
from seatrial.scheduler.api.slo import BATCH_CPU, BATCH_MEMORY
from seatrial.scheduler.manager.loads import (
    ZERO,
    HighPriority,
    NodeAmounts,
    NodeReport,
    Pair,
    PodLoad,
    high_priority_of_zones,
    system_usage,
)
from seatrial.scheduler.manager.strategy import MAX_USAGE_REQUEST, REQUEST, ColocationStrategy
from seatrial.scheduler.pods.priority import BATCH


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of the formula for a node or a NUMA node."""

    capacity: Pair
    reserved: Pair
    system: Pair
    pods: HighPriority


def batch_of_node(
    strategy: ColocationStrategy, amounts: NodeAmounts, sums: HighPriority, report: NodeReport
) -> tuple[Pair, str]:
    """What batch pods may have, and how it was calculated; `sums` are those of the node's pods."""
    terms = Terms(amounts.capacity, amounts.reserved, system_usage(report, above=BATCH), sums)
    return calculated(strategy, terms)


def batch_of_zones(
    strategy: ColocationStrategy,
    amounts: NodeAmounts,
    zones: Sequence[Pair],
    pods: Collection[PodLoad],
    report: NodeReport,
) -> list[Pair]:
    """The same for each NUMA node, of which `zones` are the allocatable amounts (NR-13, NR-14)."""
    count = len(zones)
    system, reserved = system_usage(report, above=BATCH).divided(count), amounts.reserved.divided(count)
    sums = high_priority_of_zones(pods, report, count)
    return [
        calculated(strategy, Terms(capacity, reserved, system, sums[number]))[0]
        for number, capacity in enumerate(zones)
    ]


def calculated(strategy: ColocationStrategy, terms: Terms) -> tuple[Pair, str]:
    """The formula (NR-9, NR-10), and its text (D3-2)."""
    cap = terms.capacity
    margin = cap.percent(100 - strategy.cpu_reclaim_threshold_percent, 100 - strategy.memory_reclaim_threshold_percent)
    taken = terms.system.larger(terms.reserved)
    left = cap.minus(margin)
    by_policy = {
        "usage": (left.minus(taken).minus(terms.pods.used).larger(ZERO), taken, terms.pods.used),
        REQUEST: (
            left.minus(terms.reserved).minus(terms.pods.request).larger(ZERO),
            terms.reserved,
            terms.pods.request,
        ),
        MAX_USAGE_REQUEST: (left.minus(taken).minus(terms.pods.larger).larger(ZERO), taken, terms.pods.larger),
    }
    of_cpu = MAX_USAGE_REQUEST if strategy.cpu_calculate_policy == MAX_USAGE_REQUEST else "usage"
    of_memory = strategy.memory_calculate_policy if strategy.memory_calculate_policy in by_policy else "usage"
    (cpu, *cpu_terms), (memory, *memory_terms) = by_policy[of_cpu], by_policy[of_memory]
    pair = Pair(cpu.cpu, memory.memory)
    texts = [
        (
            f"batchAllocatable[CPU(Milli-Core)]:{pair.cpu} = nodeCapacity:{cap.cpu} - nodeSafetyMargin:{margin.cpu} - "
            f"{_CPU_WORDS[of_cpu][0]}:{cpu_terms[0].cpu} - {_CPU_WORDS[of_cpu][1]}:{cpu_terms[1].cpu}"
        ),
        (
            f"batchAllocatable[Mem(GB)]:{_giga(pair.memory)} = nodeCapacity:{_giga(cap.memory)} - "
            f"nodeSafetyMargin:{_giga(margin.memory)} - {_MEMORY_WORDS[of_memory][0]}:{_giga(memory_terms[0].memory)}"
            f" - {_MEMORY_WORDS[of_memory][1]}:{_giga(memory_terms[1].memory)}"
        ),
    ]
    limits = strategy.batch_cpu_threshold_percent, strategy.batch_memory_threshold_percent
    if limits[0] is not None:
        pair = pair._replace(cpu=min(pair.cpu, cap.percent(limits[0], 0).cpu))
        texts[0] = _capped(texts[0], pair.cpu, cap.cpu, limits[0])
    if limits[1] is not None:
        pair = pair._replace(memory=min(pair.memory, cap.percent(0, limits[1]).memory))
        texts[1] = _capped(texts[1], _giga(pair.memory), _giga(cap.memory), limits[1])
    return pair, "\n".join(texts)


_CPU_WORDS = {
    "usage": ("systemUsageOrNodeReserved", "podHPUsed"),
    MAX_USAGE_REQUEST: ("systemUsageOrNodeReserved", "podHPMaxUsedRequest"),
}
_MEMORY_WORDS = {
    "usage": ("systemUsage", "podHPUsed"),
    REQUEST: ("nodeReserved", "podHPRequest"),
    MAX_USAGE_REQUEST: ("systemUsage", "podHPMaxUsedRequest"),
}


def _capped(formula: str, value: int, capacity: int, percent: int) -> str:
    head, terms = formula.split(" = ", 1)
    return (
        f"{head.rpartition(':')[0]}:{value} = min(nodeCapacity:{capacity} * thresholdRatio:{percent / 100:g}, {terms})"
    )


def _giga(size: int) -> int:
    return -(-size // 10**9)


def amplified(cpu: int, ratio: float) -> int:
    """Batch CPU with the node's CPU normalization ratio, rounded up (NR-12)."""
    return -(-round(cpu * 1000 * ratio) // 1000) if ratio > 1 else cpu


def remainder(batch: Pair, third_parties: Iterable[Mapping[str, Quantity]]) -> Pair:
    """What is left for Kubernetes beside the allocations of others, such as Hadoop YARN (NR-12).

    Raises:
        QuantityError: an allocation is not a quantity.
    """
    for resources in third_parties:
        batch = batch.minus(Pair(*(amount(name, resources.get(name, 0)) for name in (BATCH_CPU, BATCH_MEMORY))))
    return batch.larger(ZERO)
