"""DefaultPreemption: choose a node for a more important pod, and the victims on it (upstream DefaultPreemption).

A dry run removes every less important pod from a node, checks whether the pod fits then, and puts back as many pods as
possible: first those under a disruption budget, then the most important. Pods that cannot be put back are victims.
Rules FWK-R75 to FWK-R81; kubernetes pkg/scheduler/framework/preemption and plugins/defaultpreemption.
"""

import random
from collections import Counter, OrderedDict
from typing import ClassVar

import numpy as np

from seatrial.scheduler.api.core import PREEMPT_NEVER, Pod
from seatrial.scheduler.api.reservation import is_reserve_pod
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.columns import Rows
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.accelerations import DryRunBatch
from seatrial.scheduler.framework.collaborators import ProfileRunner
from seatrial.scheduler.framework.extension_points import PostFilter
from seatrial.scheduler.framework.fit_error import FitError, histogram
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import SKIPPED, CycleState
from seatrial.scheduler.framework.status import SUCCESS, PostFilterResult, Status
from seatrial.scheduler.plugins.defaultpreemption.args import DefaultPreemptionArgs
from seatrial.scheduler.plugins.defaultpreemption.dry_run import NO_VICTIMS
from seatrial.scheduler.plugins.defaultpreemption.fingerprints import NodeFingerprints
from seatrial.scheduler.plugins.defaultpreemption.outcomes import NominatedPods, Outcomes, stop
from seatrial.scheduler.pods.preempted import preempted

NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL = Status.unresolvable("Preemption is not helpful for scheduling")

FEWEST = 16  # size of the last chunks of nodes, where one more candidate may be enough
MAX_FINGERPRINTS = 8  # least recently used first out; each is for another priority
KEPT_ROWS = 5_000_000  # classes times nodes, 56 bytes each; least recently used first out
FEWEST_KEPT = 8


class DefaultPreemption(PostFilter, Listener):
    """The PostFilter extension point."""

    name = "DefaultPreemption"
    serves_reservations: ClassVar[bool] = False  # a reservation preempts only with `enablePreemption`

    def __init__(self, handle: Handle, args: DefaultPreemptionArgs | None = None) -> None:
        self._handle = handle
        self._args = args or DefaultPreemptionArgs()
        self._random = random.Random(handle.seed)  # noqa: S311 spreads load over nodes, guards nothing
        self._fingerprints: OrderedDict[int, NodeFingerprints] = OrderedDict()  # by highest victim priority
        self._kept: OrderedDict[tuple[int, int], Outcomes] = OrderedDict()  # by class and highest victim priority
        handle.cache.listen(self)

    def post_filter(self, state: CycleState, info: PodInfo, failure: FitError) -> PostFilterResult:
        if is_reserve_pod(info.pod) and not self.serves_reservations:
            return PostFilterResult(Status.unschedulable())
        refused = self._ineligible(info, failure)
        if refused:
            return PostFilterResult(Status.unschedulable(f"preemption: {refused}"))
        lowest = self._handle.cache.lowest_priority
        if lowest is None or lowest >= info.priority:
            return self._nobody(failure.nodes, Counter({NO_VICTIMS.status: failure.resolvable_count()}))
        best, statuses = self._dry_run(state, info, failure.resolvable_rows())
        if best is None:
            return self._nobody(failure.nodes, statuses)
        return PostFilterResult(SUCCESS, *best)

    def spares(self, pod: Pod) -> bool:
        """Whether a pod is never a victim, whatever its priority."""
        return False

    def _ineligible(self, info: PodInfo, failure: FitError) -> str:
        if info.pod.spec.preemption_policy == PREEMPT_NEVER:
            return NEVER
        nominated = self._handle.nominator.node_of(info.uid)
        node = self._handle.cache.find(nominated) if nominated else None
        if node is None or (failure.pre_filter is None and failure.status(node.row).code.name == "UNRESOLVABLE"):
            return ""
        making_way = (pod for pod in node.pods.values() if pod.priority < info.priority and preempted(pod.pod))
        return TERMINATING if any(making_way) else ""

    def _nobody(self, nodes: int, statuses: "Counter[Status]") -> PostFilterResult:
        rest = nodes - sum(statuses.values())
        counted = [*((status, count) for status, count in statuses.items() if count)]
        if rest:
            counted.append((NOT_HELPFUL, rest))
        text = f"preemption: 0/{nodes} nodes are available: {histogram(counted)}."
        return PostFilterResult(Status.unschedulable(text), clear_nomination=True)

    def _dry_run(
        self, state: CycleState, info: PodInfo, rows: Rows
    ) -> "tuple[tuple[str, tuple[PodInfo, ...]] | None, Counter[Status]]":
        """Try nodes until there are enough candidates: the best one with its victims, or why each node fails."""
        enough = max(
            len(rows) * self._args.min_candidate_nodes_percentage // 100, self._args.min_candidate_nodes_absolute
        )
        start = self._random.randrange(len(rows)) if len(rows) else 0
        order = np.concatenate((rows[start:], rows[:start]))
        outcomes, nominated = self._outcomes(state, info), self._nominated_pods(info)
        parts: list[Rows] = []
        position = value = 0
        harmless = False
        while position < len(order):
            window = order[position : position + max(enough - value, FEWEST)]
            violations = outcomes.judge(window, state, info, nominated)
            candidates = violations >= 0
            end = stop(candidates, violations, value, enough, harmless=harmless)
            parts.append(window[:end][candidates[:end]])
            value += len(parts[-1])
            harmless |= bool((violations[:end] == 0).any())
            if value >= enough and harmless:
                break
            position += len(window)
        if not value:
            return None, outcomes.statuses(order, state, info)
        row = outcomes.best(np.concatenate(parts))
        return (self._handle.columns.names[row], outcomes.victims(row)), Counter()

    def _outcomes(self, state: CycleState, info: PodInfo) -> Outcomes:
        """The known results for such a pod; none if more than one node decides."""
        runner = self._handle.runner_of(info)
        results = runner.class_scores(info.pod_class)
        fingerprints = self._fingerprints_for(info, runner)
        fingerprints.refresh()
        if not all(plugin.name in state[SKIPPED] for plugin in results.cluster_filters):
            outcomes = Outcomes(runner, results, fingerprints, alone=False)
        else:
            key = info.pod_class.id, fingerprints.highest
            kept = self._kept.get(key)
            if kept is None or kept.results is not results or kept.fingerprints is not fingerprints:
                kept = self._kept[key] = Outcomes(runner, results, fingerprints, alone=True)
            self._kept.move_to_end(key)
            if len(self._kept) * self._handle.columns.capacity > KEPT_ROWS and len(self._kept) > FEWEST_KEPT:
                self._kept.popitem(last=False)
            outcomes = kept
        outcomes.refresh()
        return outcomes

    def _fingerprints_for(self, info: PodInfo, runner: ProfileRunner) -> NodeFingerprints:
        """The fingerprints for the highest priority of a possible victim: it determines which pods may be victims."""
        highest = max(value for value in self._handle.cache.priorities if value < info.priority)
        fingerprint = self._fingerprints.get(highest)
        if fingerprint is None:
            filters = [plugin for plugin in runner.filters if isinstance(plugin, DryRunBatch)]
            fingerprint = self._fingerprints[highest] = NodeFingerprints(self._handle, filters, highest, self.spares)
            if len(self._fingerprints) > MAX_FINGERPRINTS:
                self._fingerprints.popitem(last=False)
        self._fingerprints.move_to_end(highest)
        return fingerprint

    def _nominated_pods(self, info: PodInfo) -> NominatedPods:
        """Pods nominated to nodes that count for `info` (FWK-R16)."""
        nominated: dict[int, list[PodInfo]] = {}
        for name in self._handle.nominator.nodes():
            node = self._handle.cache.find(name)
            if node is None:
                continue
            for other in self._handle.nominator.on(name):
                if other.uid != info.uid and other.priority >= info.priority and other.uid not in node.pods:
                    nominated.setdefault(node.row, []).append(other)
        return nominated

    # -- events of the cache ------------------------------------------------------------------------------------------

    def is_relevant(self, pod_class: EquivalenceClass) -> bool:
        return False

    def pod_placed(self, info: PodInfo) -> None:
        """The columns' log has it."""

    def pod_gone(self, info: PodInfo) -> None:
        """The columns' log has it."""

    def pod_changed(self, info: PodInfo, before: Pod) -> None:
        """Labels determine which budgets cover the pod."""
        self._forget(info)

    def pod_started(self, info: PodInfo) -> None:
        """Among pods of one priority the start time decides which is the victim."""
        self._forget(info)

    def _forget(self, info: PodInfo) -> None:
        row = self._handle.columns.rows.get(info.node_name)
        if row is not None:
            for fingerprints in self._fingerprints.values():
                fingerprints.forget(row)
