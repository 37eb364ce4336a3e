"""Make room for a more important pod: which node, and whom to take from it (upstream DefaultPreemption).

A dry run removes every less important pod from a node, sees whether the pod then fits, and puts back as many as it can,
the ones under a disruption budget and the most important first. Whoever cannot be put back is a victim.
Rules R75 to R81; kubernetes pkg/scheduler/framework/preemption and plugins/defaultpreemption.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from scheduler.api.core import PREEMPT_NEVER, Pod, PodDisruptionBudget
from scheduler.api.reservation import is_reserve_pod
from scheduler.framework.failure import FitError, histogram
from scheduler.framework.handle import Handle
from scheduler.framework.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.points import Args, PostFilter, PostFilterResult
from scheduler.framework.restored import as_seen
from scheduler.framework.runner import Runner
from scheduler.framework.state import CycleState
from scheduler.framework.status import SUCCESS, Status

BY_SCHEDULER = "PreemptionByScheduler"
NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL = Status.unresolvable("Preemption is not helpful for scheduling")
NO_VICTIMS = Status.unresolvable("No preemption victims found for incoming pod")

_PRIORITY_OFFSET = 1 << 31  # keeps the sum over victims growing with their number, negative priorities or not


class DefaultPreemptionArgs(Args, frozen=True):
    """How many candidate nodes are enough."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def check(self) -> None:
        if not 0 <= self.min_candidate_nodes_percentage <= 100:
            found = self.min_candidate_nodes_percentage
            raise ValueError(f"minCandidateNodesPercentage: expected 0 to 100, found {found}")
        if self.min_candidate_nodes_absolute < 0:
            found = self.min_candidate_nodes_absolute
            raise ValueError(f"minCandidateNodesAbsolute: expected 0 or more, found {found}")
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ValueError("minCandidateNodesPercentage, minCandidateNodesAbsolute: both are 0; one must be more")


@dataclass(frozen=True, slots=True)
class _Candidate:
    node: str
    victims: tuple[PodInfo, ...]  # most important first
    violations: int

    def rank(self) -> tuple[float, ...]:
        """Smaller is better (R78)."""
        highest = max((victim.priority for victim in self.victims), default=-_PRIORITY_OFFSET)
        earliest = min((v.started for v in self.victims if v.priority == highest), default=0.0)
        return (
            self.violations,
            highest,
            sum(victim.priority + _PRIORITY_OFFSET for victim in self.victims),
            len(self.victims),
            -earliest,
        )


class DefaultPreemption(PostFilter):
    name = "DefaultPreemption"
    serves_reservations: ClassVar[bool] = False  # nobody goes for a reservation unless `enablePreemption` says so

    def __init__(self, handle: Handle, args: DefaultPreemptionArgs | None = None) -> None:
        self._handle = handle
        self._args = args or DefaultPreemptionArgs()
        self._random = random.Random(handle.seed)  # noqa: S311 spreads load over nodes, guards nothing

    def post_filter(self, state: CycleState, info: PodInfo, failure: FitError) -> PostFilterResult:
        if is_reserve_pod(info.pod) and not self.serves_reservations:
            return PostFilterResult(Status.unschedulable())
        refused = self._ineligible(info, failure)
        if refused:
            return PostFilterResult(Status.unschedulable(f"preemption: {refused}"))
        lowest = self._handle.cache.lowest_priority
        if lowest is None or lowest >= info.priority:
            return self._nobody(failure.nodes, Counter({NO_VICTIMS: failure.resolvable_count()}))
        candidates, statuses = self._dry_run(state, info, failure.resolvable_rows())
        if not candidates:
            return self._nobody(failure.nodes, statuses)
        best = min(candidates, key=_Candidate.rank)
        return PostFilterResult(SUCCESS, best.node, best.victims)

    def _ineligible(self, info: PodInfo, failure: FitError) -> str:
        if info.pod.spec.preemption_policy == PREEMPT_NEVER:
            return NEVER
        nominated = self._handle.nominator.node_of(info.uid)
        node = self._handle.cache.find(nominated) if nominated else None
        if node is None or (failure.pre_filter is None and failure.status(node.row).code.name == "UNRESOLVABLE"):
            return ""
        making_way = (pod for pod in node.pods.values() if pod.priority < info.priority and _preempted(pod.pod))
        return TERMINATING if any(making_way) else ""

    def _nobody(self, nodes: int, statuses: "Counter[Status]") -> PostFilterResult:
        rest = nodes - sum(statuses.values())
        counted = [*((status, count) for status, count in statuses.items() if count)]
        if rest:
            counted.append((NOT_HELPFUL, rest))
        text = f"preemption: 0/{nodes} nodes are available: {histogram(counted)}."
        return PostFilterResult(Status.unschedulable(text), clear_nomination=True)

    def _dry_run(
        self, state: CycleState, info: PodInfo, rows: Sequence[int]
    ) -> tuple[list[_Candidate], "Counter[Status]"]:
        enough = max(
            len(rows) * self._args.min_candidate_nodes_percentage // 100, self._args.min_candidate_nodes_absolute
        )
        names = self._handle.columns.names
        budgets = list(self._handle.budgets.values())
        candidates: list[_Candidate] = []
        statuses: Counter[Status] = Counter()
        harmless = False
        for row in self._from_somewhere(rows):
            node = self._handle.cache.find(names[row])
            if node is None:
                continue
            found = self._victims_on(state, info, node, budgets)
            if isinstance(found, Status):
                statuses[found] += 1
                continue
            candidates.append(found)
            harmless |= not found.violations
            if harmless and len(candidates) >= enough:
                break
        return candidates, statuses

    def _from_somewhere(self, rows: Sequence[int]) -> Iterator[int]:
        start = self._random.randrange(len(rows)) if rows else 0
        yield from rows[start:]
        yield from rows[:start]

    def lesser(self, info: PodInfo, node: NodeInfo) -> list[PodInfo]:
        """The pods on a node that may have to go for `info`."""
        return [pod for pod in node.pods.values() if pod.priority < info.priority]

    def _victims_on(
        self, state: CycleState, info: PodInfo, node: NodeInfo, budgets: Sequence[PodDisruptionBudget]
    ) -> "_Candidate | Status":
        state, node = as_seen(state, node)
        lesser = self.lesser(info, node)
        if not lesser:
            return NO_VICTIMS
        runner = self._handle.runner_of(info)
        trial, emptied = state.fork(), node.copy()
        for pod in lesser:
            _take(runner, trial, pod, emptied)
        status = runner.check_with_nominated(trial, info, emptied)
        if not status.ok:
            return status
        lesser.sort(key=_importance)
        violating, free = by_budget(lesser, budgets)
        victims, violations = [], 0
        for pod in (*violating, *free):
            emptied.add(pod)
            runner.returned(trial, pod, emptied)
            if not runner.check_with_nominated(trial, info, emptied).ok:
                _take(runner, trial, pod, emptied)
                victims.append(pod)
                violations += pod in violating
        victims.sort(key=_importance)
        return _Candidate(node.name, tuple(victims), violations)


def _take(runner: Runner, state: CycleState, pod: PodInfo, node: NodeInfo) -> None:
    node.remove(pod)
    runner.removed(state, pod, node)


def _importance(info: PodInfo) -> tuple[float, float]:
    """Most important first: higher priority, then earlier start (util.MoreImportantPod)."""
    return (-info.priority, info.started)


def _preempted(pod: Pod) -> bool:
    """Whether it is going because some scheduler made it go."""
    return pod.deleting and any(
        condition.type == "DisruptionTarget" and condition.status == "True" and condition.reason == BY_SCHEDULER
        for condition in pod.status.conditions
    )


def by_budget(pods: Sequence[PodInfo], budgets: Sequence[PodDisruptionBudget]) -> tuple[list[PodInfo], list[PodInfo]]:
    """Pods whose loss would break a budget, and the others; budgets are drawn down pod by pod, in order (R81)."""
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    violating: list[PodInfo] = []
    free: list[PodInfo] = []
    for info in pods:
        metadata = info.pod.metadata
        broken = False
        for index, budget in enumerate(budgets):
            if not budget.covers(metadata.namespace, metadata.labels) or metadata.name in budget.status.disrupted_pods:
                continue
            allowed[index] -= 1
            broken |= allowed[index] < 0
        (violating if broken else free).append(info)
    return violating, free
