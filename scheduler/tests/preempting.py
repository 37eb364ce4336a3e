"""The slow reference for preemption: every node tried by itself on a copy, nothing kept, as upstream writes it down."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.scheduler.api.core import PodDisruptionBudget
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.engine.runner import Runner
from seatrial.scheduler.framework.fit_error import histogram
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Code, Status
from seatrial.scheduler.plugins.defaultpreemption.plugin import DefaultPreemption
from seatrial.scheduler.pods.preempted import BY_SCHEDULER
from seatrial.scheduler.pods.selectors import budget_covers
from seatrial.scheduler.tests.oracle import counting_anew, statuses

NOBODY = Status.unresolvable("No preemption victims found for incoming pod")
HOPELESS = Status.unresolvable("Preemption is not helpful for scheduling")


@dataclass(frozen=True)
class PreemptionResult:
    """Who should go from which node for a pod, or the reason why none will."""

    node: str = ""
    victims: tuple[str, ...] = ()  # uids, in the order in which they are told
    message: str = ""


@dataclass(frozen=True)
class _Trial:
    node: str
    victims: list[PodInfo]
    violations: int


def make_way(core: Core, runner: Runner, info: PodInfo) -> PreemptionResult:
    """What DefaultPreemption should come to for a pod that fits nowhere."""
    with counting_anew(core):
        return _make_way(core, runner, info)


def _make_way(core: Core, runner: Runner, info: PodInfo) -> PreemptionResult:
    plugin = next(candidate for candidate in runner.profile.post_filter if isinstance(candidate, DefaultPreemption))
    state, results = statuses(core, runner, info)
    if not results:
        return PreemptionResult()  # there is nothing to say beyond that
    if info.pod.spec.preemption_policy == "Never":
        return PreemptionResult(message="preemption: not eligible due to preemptionPolicy=Never.")
    own = core.handle.nominator.node_of(info.uid)
    for node, status in results:
        if node.name == own and status.code is Code.UNSCHEDULABLE and _making_way(info, node):
            return PreemptionResult(message="preemption: not eligible due to a terminating pod on the nominated node.")
    helpful = [node for node, status in results if status.code is Code.UNSCHEDULABLE]
    start = copy.deepcopy(plugin._random).randrange(len(helpful)) if helpful else 0
    args = plugin._args
    enough = max(len(helpful) * args.min_candidate_nodes_percentage // 100, args.min_candidate_nodes_absolute)
    trials, refused = list[_Trial](), [HOPELESS] * (len(results) - len(helpful))
    for node in helpful[start:] + helpful[:start]:
        trial = _try(core, runner, state, info, node)
        if isinstance(trial, Status):
            refused.append(trial)
            continue
        trials.append(trial)
        if len(trials) >= enough and any(not dry_run.violations for dry_run in trials):
            break
    if not trials:
        reasons = histogram((status, 1) for status in refused)
        return PreemptionResult(message=f"preemption: 0/{len(results)} nodes are available: {reasons}.")
    best = min(trials, key=_rank)
    return PreemptionResult(best.node, tuple(victim.uid for victim in best.victims))


def _making_way(info: PodInfo, node: NodeInfo) -> bool:
    return any(
        other.priority < info.priority
        and other.pod.deleting
        and any(
            condition.type == "DisruptionTarget" and condition.reason == BY_SCHEDULER
            for condition in other.pod.status.conditions
        )
        for other in node.pods.values()
    )


def _try(core: Core, runner: Runner, state: CycleState, info: PodInfo, node: NodeInfo) -> _Trial | Status:
    lesser = sorted((pod for pod in node.pods.values() if pod.priority < info.priority), key=_importance)
    if not lesser:
        return NOBODY
    trial, there = state.fork(), node.copy()

    def take(pod: PodInfo) -> None:
        there.remove(pod)
        runner.removed(trial, pod, there)

    for pod in lesser:
        take(pod)
    status = runner.check_with_nominated(trial, info, there)
    if not status.ok:
        return status
    guarded = _guarded(lesser, list(core.cache.budgets.values()))
    victims = list[PodInfo]()
    for pod in [*guarded, *(pod for pod in lesser if pod not in guarded)]:
        there.add(pod)
        runner.returned(trial, pod, there)
        if not runner.check_with_nominated(trial, info, there).ok:
            take(pod)
            victims.append(pod)
    violations = sum(pod in guarded for pod in victims)
    return _Trial(node.name, sorted(victims, key=_importance), violations)


def _guarded(pods: Sequence[PodInfo], budgets: Sequence[PodDisruptionBudget]) -> list[PodInfo]:
    left = {budget.metadata.key: budget.status.disruptions_allowed for budget in budgets}
    guarded = list[PodInfo]()
    for pod in pods:
        metadata = pod.pod.metadata
        mine = [
            budget.metadata.key
            for budget in budgets
            if budget_covers(budget, metadata.namespace, metadata.labels)
            and metadata.name not in budget.status.disrupted_pods
        ]
        for key in mine:
            left[key] -= 1
        if any(left[key] < 0 for key in mine):
            guarded.append(pod)
    return guarded


def _importance(pod: PodInfo) -> tuple[float, float]:
    return -pod.priority, pod.started


def _rank(trial: _Trial) -> tuple[float, ...]:
    victims = trial.victims
    highest = max((victim.priority for victim in victims), default=-(1 << 31))
    earliest = min((victim.started for victim in victims if victim.priority == highest), default=0.0)
    weight = sum(victim.priority + (1 << 31) for victim in victims)
    return trial.violations, highest, weight, len(victims), -earliest
