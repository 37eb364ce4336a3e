"""Dry run on one node: remove all less important pods, then put back as many as fit.

Rules FWK-R77 and FWK-R81; kubernetes pkg/scheduler/framework/plugins/defaultpreemption, `SelectVictimsOnNode`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seatrial.scheduler.api.core import PodDisruptionBudget
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.collaborators import ProfileRunner
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.pods.selectors import budget_covers


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a dry run; pods are given by their index in the list tried, so that equal nodes can share it."""

    status: Status  # SUCCESS: the node is a candidate
    victims: tuple[int, ...] = ()  # pods that could not be put back, in the order of the attempts
    violations: int = 0  # number of victims that a budget protects


NO_VICTIMS = Outcome(Status.unresolvable("No preemption victims found for incoming pod"))


def attempt(
    runner: ProfileRunner,
    state: CycleState,
    info: PodInfo,
    node: NodeInfo,
    *,
    lesser: Sequence[PodInfo],
    breaks: Sequence[bool],
) -> Outcome:
    """Dry run on `node` for `info`; `lesser` are its less important pods, most important first.

    `breaks`: for each of these pods whether its removal violates a budget; such pods are put back before the others.
    """
    if not lesser:
        return NO_VICTIMS
    state, node = as_seen(state, node)
    simulated, emptied = state.fork(), node.copy()
    for pod in lesser:
        emptied.remove(pod)
        runner.removed(simulated, pod, emptied)
    status = runner.check_with_nominated(simulated, info, emptied)
    if not status.ok:
        return Outcome(status)
    victims: list[int] = []
    violations = 0
    for place in sorted(range(len(lesser)), key=lambda place: not breaks[place]):
        pod = lesser[place]
        emptied.add(pod)
        runner.returned(simulated, pod, emptied)
        if not runner.check_with_nominated(simulated, info, emptied).ok:
            emptied.remove(pod)
            runner.removed(simulated, pod, emptied)
            victims.append(place)
            violations += breaks[place]
    return Outcome(SUCCESS, tuple(victims), violations)


def importance(info: PodInfo) -> tuple[float, float]:
    """Most important first: higher priority, then earlier start (util.MoreImportantPod)."""
    return (-info.pod.spec.priority, info.started)


def broken(pods: Iterable[PodInfo], budgets: Sequence[PodDisruptionBudget]) -> tuple[bool, ...]:
    """For each pod whether its removal violates a budget; budgets are counted down in the order of pods (FWK-R81)."""
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    breaks: list[bool] = []
    for info in pods:
        metadata = info.pod.metadata
        bad = False
        for index, budget in enumerate(budgets):
            if (
                not budget_covers(budget, metadata.namespace, metadata.labels)
                or metadata.name in budget.status.disrupted_pods
            ):
                continue
            allowed[index] -= 1
            bad |= allowed[index] < 0
        breaks.append(bad)
    return tuple(breaks)
