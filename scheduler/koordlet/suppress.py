"""Suppression of best-effort pods: how many CPUs they may use, and which (CS-2 to CS-7).

Follows Koordinator's pkg/koordlet/qosmanager/plugins/cpusuppress.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from seatrial.scheduler.koordlet.cgroups import NO_LIMIT, PERIOD
from seatrial.scheduler.koordlet.machine import Cpu

LEAST_CPUS, LEAST_QUOTA = 2, 2000  # CPUs, microseconds
_GROWTH = 0.1  # of the node, in one round
_SMALL = 0.01  # of the node: smaller changes of the quota are not written


class Usage(NamedTuple):
    """Cores that a pod or program uses; `best_effort`: it is to be suppressed itself."""

    cores: float
    best_effort: bool


def allowed_cores(  # noqa: PLR0917 the terms of the formula
    capacity: float,
    percent: int,
    least_percent: int | None,
    node: float,
    pods: Iterable[Usage],
    applications: Iterable[Usage],
    reserved: float = 0.0,
) -> float:
    """Cores that best-effort pods may use together: the threshold less what the others and the system use."""
    pods, applications = list(pods), list(applications)
    others = sum(each.cores for each in (*pods, *applications) if not each.best_effort)
    known = sum(each.cores for each in (*pods, *applications))
    system = max(node - known, 0.0, reserved)
    allowed = capacity * percent / 100 - others - system
    return max(allowed, capacity * (least_percent or 0) / 100)


def wanted_cpus(cores: float, before: int, total: int) -> int:
    """The number of CPUs for these cores: it grows slowly and shrinks at once (CS-3)."""
    # Sums of measured values end in …0001, for which one more CPU would be taken.
    target = max(math.ceil(round(cores, 6)), LEAST_CPUS)
    return min(target, before + math.ceil(total * _GROWTH)) if target > before else target


def chosen(
    cpus: Sequence[Cpu], count: int, *, exclusive: frozenset[int], shared_with: frozenset[int], reserved: frozenset[int]
) -> frozenset[int]:
    """CPUs for best-effort pods (CS-4); empty if there are too few.

    Args:
        exclusive: CPUs of LSE pods.
        shared_with: CPUs of LSR pods, of which best-effort pods get their part.
        reserved: CPUs that no pod gets.
    """
    left = [cpu for cpu in cpus if cpu.id not in exclusive | reserved]
    lent, free = ([cpu for cpu in left if (cpu.id in shared_with) is own] for own in (True, False))
    if len(left) < count:
        return frozenset()
    of_lent = count * len(lent) // len(left)
    return frozenset((*packed(lent, of_lent), *packed(free, count - of_lent)))


def packed(cpus: Sequence[Cpu], count: int) -> list[int]:
    """The first CPUs by whole cores in turns of NUMA nodes, then single threads (CS-5); none if too few."""
    if len(cpus) < count or count <= 0:
        return []
    by_place: dict[tuple[int, int], list[Cpu]] = {}
    for cpu in sorted(cpus, key=lambda cpu: (cpu.core, cpu.id)):
        by_place.setdefault((cpu.node, cpu.socket), []).append(cpu)
    buckets = sorted(by_place.values(), key=lambda bucket: (-len(bucket), min(cpu.id for cpu in bucket)))
    ids: list[int] = []
    place = missed = 0
    while count - len(ids) > 1 and missed < len(buckets):
        pair = _pair(buckets[place])
        missed = 0 if pair else missed + 1
        for cpu in pair:
            buckets[place].remove(cpu)
            ids.append(cpu.id)
        place = (place + 1) % len(buckets)
    while len(ids) < count:
        if buckets[place]:
            ids.append(buckets[place].pop(0).id)
        place = (place + 1) % len(buckets)
    return ids


def _pair(bucket: Sequence[Cpu]) -> tuple[Cpu, ...]:
    """The first two threads of one core; () if there are none."""
    return next(((a, b) for a, b in itertools.pairwise(bucket) if a.core == b.core), ())


def next_quota(cores: float, before: int, capacity: int) -> int:
    """The quota of all best-effort pods in microseconds; `before` if the change is small (CS-7)."""
    quota = max(int(cores * PERIOD), LEAST_QUOTA)
    if before == NO_LIMIT:
        return quota
    if abs(quota - before) < capacity * PERIOD * _SMALL and quota != LEAST_QUOTA:
        return before
    return min(quota, before + int(capacity * PERIOD * _GROWTH))
