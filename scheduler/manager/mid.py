"""Mid resources of a node: what prod pods have requested and do not use, or a fixed share (NR-16 to NR-18).

Follows Koordinator's pkg/slo-controller/noderesource/plugins/midresource. Messages are Koordinator's.
"""

from seatrial.scheduler.manager.loads import ZERO, HighPriority, NodeAmounts, NodeReport, Pair, system_usage
from seatrial.scheduler.manager.strategy import STATIC, ColocationStrategy
from seatrial.scheduler.pods.priority import MID


def mid_of_node(
    strategy: ColocationStrategy, amounts: NodeAmounts, sums: HighPriority, report: NodeReport
) -> tuple[Pair, str]:
    """What mid pods may have, and how it was calculated (D3-3); `sums` are those of the node's pods."""
    cap = amounts.capacity
    limits = strategy.mid_cpu_threshold_percent, strategy.mid_memory_threshold_percent
    limit = cap.percent(*limits)
    if strategy.mid_reclaim_mode == STATIC:
        shares = strategy.mid_static_cpu_reserved_percent, strategy.mid_static_memory_reserved_percent
        pair = cap.percent(*shares).smaller(limit)
        terms = [
            f"min(nodeCapacity:{{0}} * staticReservedPercent:{share / 100:g}, nodeCapacity:{{0}} * "
            f"thresholdRatio:{percent / 100:g})"
            for share, percent in zip(shares, limits, strict=True)
        ]
        return pair, _text(pair, [term.format(value) for term, value in zip(terms, _shown(cap), strict=True)])
    reclaimable = (report.reclaimable or ZERO).larger(ZERO)
    unused = cap.minus(report.node).larger(ZERO) if report.node is not None else ZERO
    unallocated = unallocated_of(amounts, sums, report)
    ratio = strategy.mid_unallocated_percent
    pair = reclaimable.smaller(unused).plus(unallocated.percent(ratio, ratio)).smaller(limit)
    shown = zip(*(_shown(each) for each in (reclaimable, unused, unallocated, cap)), limits, strict=True)
    return pair, _text(
        pair,
        [
            f"min(min(ProdReclaimable:{a}, NodeUnused:{b}) + Unallocated:{c} * midUnallocatedRatio:{ratio / 100:g}, "
            f"NodeCapacity:{d} * thresholdRatio:{percent / 100:g})"
            for a, b, c, d, percent in shown
        ],
    )


def unallocated_of(amounts: NodeAmounts, sums: HighPriority, report: NodeReport) -> Pair:
    """Capacity that is neither used by the system, nor reserved, nor requested by prod pods."""
    taken = system_usage(report, above=MID).larger(amounts.reserved)
    return amounts.capacity.minus(taken).minus(sums.prod_request).larger(ZERO)


def _shown(value: Pair) -> tuple[int, int]:
    return value.cpu, -(-value.memory // 10**9)


def _text(pair: Pair, formulas: list[str]) -> str:
    cpu, memory = _shown(pair)
    return f"midAllocatable[CPU(milli-core)]:{cpu} = {formulas[0]}\nmidAllocatable[Memory(GB)]:{memory} = {formulas[1]}"
