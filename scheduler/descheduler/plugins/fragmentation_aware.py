"""FragmentationAware: evicts the pod without which the resources of its node are used more evenly (RSV-R95).

Follows Koordinator `pkg/descheduler/framework/plugins/fragmentationaware`.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import ClassVar

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.quantity import amounts
from seatrial.scheduler.descheduler.args import ArgsError
from seatrial.scheduler.descheduler.framework import Balance, Handle
from seatrial.scheduler.descheduler.node_fit import fits_elsewhere
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.node_filters import BalanceArgs


class FragmentationAwareArgs(BalanceArgs, frozen=True):
    """Arguments of FragmentationAware."""

    empty_is_default: ClassVar[frozenset[str]] = frozenset({"resources"})
    dry_run: bool = False
    node_fit: bool = True
    resources: tuple[str, ...] = ("cpu", "memory")
    imbalance_threshold: float = 0.15
    min_improvement_threshold: float = 0.02

    def check(self) -> None:
        super().check()
        if len(set(self.resources)) < len(self.resources):
            raise ArgsError(f"resources: expected different names, found {', '.join(self.resources)}")
        for field, value in (
            ("imbalanceThreshold", self.imbalance_threshold),
            ("minImprovementThreshold", self.min_improvement_threshold),
        ):
            if not value >= 0:  # nor is .nan
                raise ArgsError(f"{field}: expected 0 or more, found {value:g}")


class FragmentationAware(Balance):
    """The plugin FragmentationAware."""

    name = "FragmentationAware"
    args = FragmentationAwareArgs

    def __init__(self, args: FragmentationAwareArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        args = self._args
        if args.paused:
            return
        chosen = args.nodes(nodes)
        for node in chosen:
            allocatable, requested = amounts(node.status.allocatable), handle.state.requested_on(node.name)
            before = imbalance(requested, allocatable, args.resources)
            if before <= args.imbalance_threshold:
                continue
            best: tuple[float, float, Pod] | None = None
            for pod in sorted(handle.pods_on(node.name), key=lambda pod: pod.key):
                with handle.clock.faults.guard(self.name, pod.key):
                    own = handle.state.requests(pod)
                    without = {name: value - own.get(name, 0) for name, value in requested.items()}
                    after = imbalance(without, allocatable, args.resources)
                    gain = before - after
                    if gain <= args.min_improvement_threshold or (best is not None and gain <= best[0]):
                        continue
                    if args.may_evict(handle, pod) and (not args.node_fit or fits_elsewhere(handle.state, pod, chosen)):
                        best = (gain, after, pod)
            if best is not None and not args.dry_run:
                gain, after, pod = best
                reason = f"fragmentation reduction: stdBefore={before:.4f} stdAfter={after:.4f} gain={gain:.4f}"
                handle.evict(pod, self.name, reason)


def imbalance(requested: Mapping[str, int], allocatable: Mapping[str, int], resources: Sequence[str]) -> float:
    """The population standard deviation of the requested shares; resources that the node lacks are left out."""
    shares = [requested.get(name, 0) / allocatable[name] for name in resources if allocatable.get(name)]
    if not shares:
        return 0.0
    mean = sum(shares) / len(shares)
    return sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
