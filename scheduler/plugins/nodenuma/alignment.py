"""Alignment of a pod on a node: the NUMA nodes it is held to, its CPUs (NUMA-R7 to NUMA-R11, NUMA-R40, NUMA-R41).

Unlike upstream, this runs before a node is chosen even where nothing is required, so that no pod is sent to a node
where Reserve would refuse it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from seatrial.scheduler.api.numa import RESTRICTED
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.nodenuma.allocation import Need, allocate
from seatrial.scheduler.plugins.nodenuma.demand import Demand
from seatrial.scheduler.plugins.nodenuma.hints import hints
from seatrial.scheduler.plugins.nodenuma.merging import Lists, merge, widened, with_preferences
from seatrial.scheduler.plugins.nodenuma.scoring import Scorer
from seatrial.scheduler.plugins.nodenuma.states import SHARED, SINGLE, NumaAllocation, NumaState
from seatrial.scheduler.plugins.numahints import Hints, Mask

MISSING = Status.unresolvable("node(s) missing NUMA resources")


@dataclass(frozen=True, slots=True)
class Rules:
    """The profile's rules for all nodes."""

    default_policy: str
    scorer: Scorer  # between nodes
    numa_scorer: Scorer  # between NUMA nodes
    label_first: bool = False

    def most(self, strategy: str) -> bool:
        """Whether NUMA nodes are filled one after the other (NUMA-R26)."""
        return (strategy or self.numa_scorer.strategy) == "MostAllocated"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A pod's part of a node; `allocation` is empty for pods that are neither bound nor aligned."""

    need: Need
    mask: Mask | None
    allocation: NumaAllocation


@dataclass(frozen=True, slots=True)
class Devices:
    """The other provider's answers about the same node."""

    hints: Callable[[], Hints | Status]
    fits: Callable[[Mask], Status]


def align(state: NumaState, demand: Demand, rules: Rules, devices: Devices | None) -> Outcome | Status:
    """Choose the NUMA nodes of the pod's CPUs, memory and devices, and allocate the CPUs."""
    options = state.options
    policy = demand.policy_on(options.policy(label_first=rules.label_first))
    if isinstance(policy, Status):
        return policy
    need = demand.need_on(options, state.topology.per_core, most=rules.most(options.strategy))
    if isinstance(need, Status):
        return need
    mask: Mask | None = None
    if policy:
        state_mask = _mask(state, demand, need, policy, rules.numa_scorer, devices)
        if isinstance(state_mask, Status):
            return state_mask
        mask = state_mask[0]
    allocation = allocate(state, need, mask)
    if isinstance(allocation, Status):
        return allocation
    if mask is not None and devices is not None:
        status = devices.fits(mask)
        if not status.ok:
            return status
    return Outcome(need, mask, allocation)


def _mask(  # noqa: PLR0917 all of them make the answer
    state: NumaState, demand: Demand, need: Need, policy: str, scorer: Scorer, devices: Devices | None
) -> tuple[Mask | None] | Status:
    """The NUMA nodes that all providers agree on, or what the policy makes of their disagreement."""
    ids = list(state.totals)
    if not ids:
        return MISSING
    lists: Lists = hints(state, need, policy, scorer)
    if devices is not None:
        theirs = devices.hints()
        if isinstance(theirs, Status):
            return Status.unschedulable(*theirs.reasons)
        # Upstream's devices prefer only their smallest sets under Restricted. This refuses pods that need more CPUs
        # than one NUMA node has, and a card that is on that node.
        theirs = with_preferences(widened(theirs, ids), all_preferred=policy == RESTRICTED)
        lists = {**lists, **theirs}
    statuses = state.statuses if demand.excludes(policy) else {}

    def barred(mask: Mask) -> bool:
        if len(mask) == 1:
            return any(statuses.get(node) == SHARED for node in mask)
        return any(statuses.get(node) == SINGLE for node in mask)

    merged = merge(policy, ids, lists, barred)
    return merged if isinstance(merged, Status) else (merged.mask,)
