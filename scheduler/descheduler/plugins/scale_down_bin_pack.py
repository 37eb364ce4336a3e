"""ScaleDownBinPack: ranks pods so that a workload that is scaled down leaves whole nodes empty (RSV-R96).

The ranks are written as pod-deletion-cost, which the controllers of Kubernetes respect, or the first pods are evicted.
Follows Koordinator `pkg/descheduler/framework/plugins/scaledownbinpack`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.migration import DELETION_COST
from seatrial.scheduler.api.quantity import Amounts, amounts
from seatrial.scheduler.client.rest import pod_path
from seatrial.scheduler.descheduler.args import ArgsError
from seatrial.scheduler.descheduler.framework import Balance, Handle
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.node_filters import BalanceArgs
from seatrial.scheduler.descheduler.state import ClusterState

CALCULATE_ONLY, EVICT_DIRECTLY = "CalculateOnly", "EvictDirectly"
LAST = (1 << 31) - 1  # deletion cost of pods that should stay
DEFAULT_WEIGHTS = {"cpu": 1.0, "memory": 1.0}


class ScaleDownBinPackArgs(BalanceArgs, frozen=True):
    """Arguments of ScaleDownBinPack."""

    empty_is_default: ClassVar[frozenset[str]] = frozenset({"strategy"})
    strategy: str = CALCULATE_ONLY
    max_pods_to_evict: int | None = None
    resources: tuple[str, ...] = ()
    resource_weights: dict[str, float] = {}  # noqa: RUF012 msgspec copies it for each instance

    @property
    def weights(self) -> dict[str, float]:
        return (dict.fromkeys(self.resources, 1.0) or DEFAULT_WEIGHTS) | self.resource_weights

    def check(self) -> None:
        super().check()
        if self.strategy not in {CALCULATE_ONLY, EVICT_DIRECTLY}:
            raise ArgsError(f"strategy: expected {CALCULATE_ONLY} or {EVICT_DIRECTLY}, found {self.strategy!r}")
        if self.strategy == EVICT_DIRECTLY and (self.max_pods_to_evict or 0) <= 0:
            raise ArgsError(
                f"maxPodsToEvict: expected more than 0 with {EVICT_DIRECTLY}, found {self.max_pods_to_evict}"
            )
        for name, weight in self.resource_weights.items():
            if not 0 < weight < inf:  # nor is .nan
                raise ArgsError(f"resourceWeights.{name}: expected a finite number above 0, found {weight:g}")


@dataclass(slots=True)
class NodePods:
    """The pods of one node: those that may be scaled down, targets that may not, and all others."""

    node: Node
    eligible: list[Pod] = field(default_factory=list)
    skipped: list[Pod] = field(default_factory=list)
    others: list[Pod] = field(default_factory=list)


class ScaleDownBinPack(Balance):
    """The plugin ScaleDownBinPack."""

    name = "ScaleDownBinPack"
    args = ScaleDownBinPackArgs

    def __init__(self, args: ScaleDownBinPackArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        args = self._args
        if args.paused:
            return
        node_pods = [self._sorted_out(handle, node) for node in args.nodes(nodes)]
        candidates = [candidate for candidate in node_pods if candidate.eligible]
        ranked = rank(handle.state, candidates, args.weights)
        if args.strategy == EVICT_DIRECTLY:
            left = args.max_pods_to_evict or 0
            for pod in ranked:
                if not left:
                    return
                left -= handle.evict(pod, self.name, "scale-down binpack")
            return
        costs = [*enumerate(ranked), *((LAST, pod) for candidate in candidates for pod in candidate.skipped)]
        for cost, pod in costs:
            if pod.metadata.annotations.get(DELETION_COST) != str(cost):
                metadata = {"uid": pod.metadata.uid, "annotations": {DELETION_COST: str(cost)}}
                handle.patch(pod_path(pod), {"metadata": metadata})

    def _sorted_out(self, handle: Handle, node: Node) -> NodePods:
        node_pods = NodePods(node)
        for pod in handle.pods_on(node.name):
            if self._args.may_evict(handle, pod):
                node_pods.eligible.append(pod)
            elif self._args.is_target(pod):
                node_pods.skipped.append(pod)
            else:
                node_pods.others.append(pod)
        return node_pods


def rank(state: ClusterState, nodes: Sequence[NodePods], weights: Mapping[str, float]) -> list[Pod]:
    """All eligible pods, those to scale down first at the front."""

    def by_node(entry: NodePods) -> tuple[float, int, str]:
        stays = _share(state, [*entry.others, *entry.skipped], entry.node, weights)
        goes = _share(state, entry.eligible, entry.node, weights)
        score = stays / goes if goes > 0 else inf if stays > 0 else 0.0
        return score, len(entry.eligible), entry.node.name

    def by_pod(pod: Pod, node: Node) -> tuple[float, float, str, str]:
        since = read_time(pod.metadata.creation_timestamp) or 0.0
        return -_share(state, [pod], node, weights), -since, pod.metadata.namespace, pod.metadata.name

    ranked: list[Pod] = []
    for entry in sorted(nodes, key=by_node):
        ranked += sorted(entry.eligible, key=lambda pod: by_pod(pod, entry.node))
    return ranked


def _share(state: ClusterState, pods: Sequence[Pod], node: Node, weights: Mapping[str, float]) -> float:
    """The weighted part of the node's allocatable amounts that the pods request."""
    allocatable = amounts(node.status.allocatable)
    total: Amounts = {}
    for pod in pods:
        for name, value in state.requests(pod).items():
            total[name] = total.get(name, 0) + value
    return sum(
        weight * total.get(name, 0) / allocatable[name]
        for name, weight in weights.items()
        if allocatable.get(name, 0) > 0
    )
