"""Preemption inside a quota: victims are less important pods of the preemptor's quota on one node.

Rules QUOTA-R49 to QUOTA-R53.

The quota is tried first, with all possible victims gone (upstream runs only the filters there, so it may evict victims
although the quota has no room). Then pods are given back, the most important first, while both the node and the quota
have room.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.collaborators import ProfileRunner
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.defaultpreemption.dry_run import broken, importance
from seatrial.scheduler.plugins.elasticquota.cache import QuotaCache, is_non_preemptible

Choice = tuple[str, tuple[PodInfo, ...]]


class QuotaPreemption:
    """The search for one preemptor. `fits`: whether the quota has room without an amount of its use."""

    def __init__(
        self, handle: Handle, runner: ProfileRunner, cache: QuotaCache, *, fits: Callable[[Mapping[str, int]], bool]
    ) -> None:
        self._handle, self._runner, self._cache, self._fits = handle, runner, cache, fits

    def best(self, state: CycleState, info: PodInfo, quota: str) -> Choice | None:
        """The node with its victims, chosen as kube-scheduler does; None if no node helps."""
        candidates: list[tuple[tuple[float, ...], str, tuple[PodInfo, ...]]] = []
        for name, lesser in sorted(self._lesser(info, quota).items()):
            node = self._handle.cache.find(name)
            if node is None:
                continue
            state_victims = self._victims(state, info, node, lesser)
            if state_victims is not None:
                victims, violations = state_victims
                candidates.append((_rank(victims, violations), name, victims))
        if not candidates:
            return None
        _, name, victims = min(candidates, key=lambda candidate: candidate[:2])
        return name, victims

    def awaits_victims(self, info: PodInfo, quota: str) -> bool:
        """Whether a less important pod of the quota is terminating on the node that the pod is nominated to."""
        nominated = self._handle.nominator.node_of(info.uid)
        return bool(nominated) and any(other.pod.deleting for other in self._lesser(info, quota).get(nominated, ()))

    def _lesser(self, info: PodInfo, quota: str) -> dict[str, list[PodInfo]]:
        """Possible victims by node, most important first."""
        victims: dict[str, list[PodInfo]] = {}
        for account in self._cache.members.get(quota, {}).values():
            other = account.info
            if (
                other is None
                or not account.assigned
                or other.priority >= info.priority
                or is_non_preemptible(other.pod)
            ):
                continue
            victims.setdefault(other.node_name, []).append(other)
        for lesser in victims.values():
            lesser.sort(key=importance)
        return victims

    def _victims(
        self, state: CycleState, info: PodInfo, node: NodeInfo, lesser: Sequence[PodInfo]
    ) -> tuple[tuple[PodInfo, ...], int] | None:
        gone: Counter[str] = Counter()
        for pod in lesser:
            gone.update(self._cache.amounts_of(pod))
        if not self._fits(gone):
            return None
        state, seen = as_seen(state, node)
        simulated, emptied = state.fork(), seen.copy()
        for pod in lesser:
            emptied.remove(pod)
            self._runner.removed(simulated, pod, emptied)
        if not self._runner.check_with_nominated(simulated, info, emptied).ok:
            return None
        breaks = broken(lesser, tuple(self._handle.cache.budgets.values()))
        victims: list[PodInfo] = []
        violations = 0
        for place in sorted(range(len(lesser)), key=lambda place: not breaks[place]):
            pod = lesser[place]
            amounts = self._cache.amounts_of(pod)
            emptied.add(pod)
            self._runner.returned(simulated, pod, emptied)
            gone.subtract(amounts)
            if not (self._fits(gone) and self._runner.check_with_nominated(simulated, info, emptied).ok):
                emptied.remove(pod)
                self._runner.removed(simulated, pod, emptied)
                gone.update(amounts)
                victims.append(pod)
                violations += breaks[place]
        return tuple(victims), violations


def _rank(victims: Sequence[PodInfo], violations: int) -> tuple[float, ...]:
    """Smaller is better (FWK-R78): budget violations, highest priority, sum of priorities, number, latest start."""
    priorities = [pod.priority for pod in victims]
    highest = max(priorities, default=-(2**31))
    latest = min((pod.started for pod in victims if pod.priority == highest), default=0.0)
    return violations, highest, sum(priority + 2**31 for priority in priorities), len(victims), -latest
