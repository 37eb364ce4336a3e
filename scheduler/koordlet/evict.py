"""Eviction of pods that suppress alone does not help: how much is to be released, and by which pods (EV-2 to EV-9).

Follows Koordinator's pkg/koordlet/qosmanager/plugins/cpuevict and memoryevict; messages are Koordinator's. Amounts of
CPU are thousandths of a core, of memory bytes.
"""

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

import msgspec

from seatrial.scheduler.api.slo import BATCH_CPU
from seatrial.scheduler.api.wire import decode_as

EVICTION_POLICY = "koordinator.sh/eviction-policy"  # annotation of pods
EVICTION_ENABLED = "koordinator.sh/eviction-enabled"  # label of pods
EVICTION_PRIORITY = "koordinator.sh/eviction-priority"  # annotation of pods
SUB_PRIORITY = "koordinator.sh/priority"  # label of pods
BE_CPU, CPU_ALLOCATABLE, CPU_USAGE = "BECPUEvict", "CPUAllocatableEvict", "CPUEvict"
BE_MEMORY, MEMORY_ALLOCATABLE, MEMORY_USAGE = "BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict"
USED, REQUESTED = "podUsed", "podResourceRequest"  # accounts: what an eviction is to release
MOST_ALLOCATABLE_PRIORITY = 7999  # that of koord-mid: requests of prod pods evict nobody
USAGE_PERCENT = 90  # of the limit, from which best-effort pods are said to want more
_MOST_LOWER, _MOST_UPPER = 60, 100
_TINY = 1000  # thousandths: below one core the usage does not matter
_DEFAULT_STEP = 2  # percent between threshold and lower line


class Window(NamedTuple):
    """What best-effort pods used, requested and could use, in thousandths of a core."""

    used: float
    request: float
    limit: float


def satisfaction_error(lower: int, upper: int) -> str:
    """The objection to the two lines of BECPUEvict; "" if they are valid (D4-2)."""
    if not 0 < lower <= _MOST_LOWER:
        return f"CPUEvictBESatisfactionLowerPercent({lower}) is not valid! must (0,60]"
    if not 0 < upper < _MOST_UPPER:
        return f"CPUEvictBESatisfactionUpperPercent({upper}) is not valid,must (0,100)"
    if upper < lower:
        return f"CPUEvictBESatisfactionUpperPercent({upper}) < CPUEvictBESatisfactionLowerPercent({lower})"
    return ""


def satisfaction_release(average: Window, current: Window, lower: int, upper: int, usage: int = USAGE_PERCENT) -> int:
    """Requests to be released, because best-effort pods get less than `lower` percent of what they request (EV-3,
    EV-4)."""
    released = _release(average, lower, upper, usage)
    now = _release(current, lower, upper, usage)
    if released <= 0 or now <= 0:
        return 0
    same = (average.request, average.limit) == (current.request, current.limit)
    return released if same else min(released, now)


def _release(window: Window, lower: int, upper: int, usage: int) -> int:
    used, request, limit = window
    if limit <= 0 or request <= 0:
        return 0
    if (limit >= _TINY and used / limit < usage / 100) or limit / request > lower / 100:
        return 0
    return int(request * (upper / 100 - limit / request))


def usage_release(capacity: int, used: int, threshold: int, lower: int | None = None) -> int:
    """What is to be released because the node uses `threshold` percent or more (EV-5, EV-6)."""
    percent = used * 100 // capacity if capacity > 0 else 0
    line = threshold - _DEFAULT_STEP if lower is None else lower
    if percent < threshold:
        return 0
    return capacity * (percent - line) // 100


def allocatable_release(requested: int, allocatable: int | None, threshold: int, lower: int) -> int:
    """Requests to be released because they are more than `threshold` percent of what the node offers (EV-7)."""
    if not allocatable:
        return requested
    if requested * 100 <= allocatable * threshold:
        return 0
    return max(requested - allocatable * lower // 100, 0)


class Victim(NamedTuple):
    """A pod that may be evicted, and what its end releases.

    `priority`: where it is 0, that of its class. `used` None: not known. `request`: of `resource`, by which its class
    requests CPU or memory. `eviction_priority`, `sub_priority`: by annotation and label.
    """

    uid: str
    name: str
    priority: int
    used: float | None
    request: int
    resource: str = BATCH_CPU
    eviction_priority: int = 0
    sub_priority: int = 0

    def released(self, account: str, resource: str) -> float:
        """What its end releases of a resource, in one of the two accounts (EV-10)."""
        if account == REQUESTED:
            return self.request if resource == self.resource else 0
        return self.used or 0


def by_cpu(victims: Iterable[Victim]) -> list[Victim]:
    """The order of BECPUEvict: priority, then the largest part of its request used (EV-8)."""

    def key(victim: Victim) -> tuple[object, ...]:
        part = victim.used / victim.request if victim.used is not None and victim.request else None
        return victim.priority, part is None, -(part or 0.0), victim.name

    return sorted(victims, key=key)


def by_memory(victims: Iterable[Victim]) -> list[Victim]:
    """The order of BEMemoryEvict: priority, then usage and name descending; a pod without a sample is last (EV-8)."""
    ordered = sorted(victims, key=lambda victim: victim.name, reverse=True)
    return sorted(ordered, key=lambda victim: (victim.priority, victim.used is None, -(victim.used or 0)))


def by_priority(victims: Iterable[Victim], threshold: int, account: str) -> list[Victim]:
    """The order by which pods of all classes are evicted: the priorities, then the largest amount (EV-8).

    `threshold`: pods of higher priority stay, and so do pods without a sample.
    """

    def key(victim: Victim) -> tuple[object, ...]:
        priorities = victim.eviction_priority, victim.priority, victim.sub_priority
        return *priorities, -victim.released(account, victim.resource), victim.name

    return sorted((each for each in victims if each.used is not None and each.priority <= threshold), key=key)


class Shortage(NamedTuple):
    """Amounts that a feature wants released in one account, by resource, and the pods for it in their order."""

    feature: str
    account: str
    amounts: Mapping[str, float]
    victims: list[Victim]


def chosen(shortages: Iterable[Shortage], leaving: Iterable[Victim], refused: Container[str]) -> list[tuple[str, str]]:
    """The feature and the uid for each pod that is to be evicted; pods that are `leaving` count as released (EV-10).

    Koordinator also evicts pods of a class that is not short, if they come before those that are; here they stay.
    `refused`: uids of pods whose eviction was refused a moment ago: the next ones are taken.
    """
    gone = {victim.uid: victim for victim in leaving}
    features = []
    for feature, account, amounts, victims in shortages:
        for victim in victims:
            short = {
                resource
                for resource, amount in amounts.items()
                if amount > sum(each.released(account, resource) for each in gone.values())
            }
            if not short:
                break
            if victim.uid in gone or victim.uid in refused or (account == REQUESTED and victim.resource not in short):
                continue
            gone[victim.uid] = victim
            features.append((feature, victim.uid))
    return features


def lines_error(threshold: int, lower: int | None) -> str:
    """The objection to a threshold and its lower line; "" if they are valid (D4-3)."""
    if lower is not None and lower >= threshold:
        return f"lower percent({lower}) should less than threshold percent({threshold})"
    return ""


def may_evict(annotations: Mapping[str, str], feature: str) -> bool:
    """Whether the pod lets this feature evict it (EV-9)."""
    text = annotations.get(EVICTION_POLICY)
    if text is None:
        return True
    try:
        return feature in decode_as(text, list[str])
    except msgspec.MsgspecError:
        return False
