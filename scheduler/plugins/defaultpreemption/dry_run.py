"""Dry run on one node: remove all less important pods, then put back as many as fit.

Rules FWK-R77 and FWK-R81; kubernetes pkg/scheduler/framework/plugins/defaultpreemption, `SelectVictimsOnNode`.
"""

from collections.abc import Iterable, Mapping, Sequence
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


# By place among the possible victims of a node: the pods that are evicted with this one, and their nodes (WAS-R49).
Beside = Mapping[int, Sequence[tuple[PodInfo, NodeInfo]]]

NO_UNITS: Beside = {}
NO_VICTIMS = Outcome(Status.unresolvable("No preemption victims found for incoming pod"))


def attempt(
    runner: ProfileRunner,
    state: CycleState,
    info: PodInfo,
    node: NodeInfo,
    *,
    lesser: Sequence[PodInfo],
    breaks: Sequence[int],
    beside: Beside = NO_UNITS,
) -> Outcome:
    """Dry run on `node` for `info`; `lesser` are its less important pods, most important first.

    `breaks`: for each of these pods how many budgets its removal violates; such pods are put back before the others.
    `beside`: those that go and stay with these.
    """
    if not lesser:
        return NO_VICTIMS
    state, node = as_seen(state, node)
    simulated, emptied = state.fork(), node.copy()
    copies = {node.name: emptied}  # those of other nodes are for counts over the cluster

    def remove(place: int) -> None:
        for pod, real in ((lesser[place], node), *beside.get(place, ())):
            if real.name not in copies:
                copies[real.name] = real.copy()
            seen = copies[real.name]
            seen.remove(pod)
            runner.removed(simulated, pod, seen)

    def put_back(place: int) -> None:
        for pod, real in ((lesser[place], node), *beside.get(place, ())):
            seen = copies[real.name]
            seen.add(pod)
            runner.returned(simulated, pod, seen)

    for place in range(len(lesser)):
        remove(place)
    status = runner.check_with_nominated(simulated, info, emptied)
    if not status.ok:
        return Outcome(status)
    victims: list[int] = []
    violations = 0
    for place in sorted(range(len(lesser)), key=lambda place: not breaks[place]):
        put_back(place)
        if not runner.check_with_nominated(simulated, info, emptied).ok:
            remove(place)
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
