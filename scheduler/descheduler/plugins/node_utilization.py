"""LowNodeUtilization and HighNodeUtilization: balance or compact nodes by requests (RSV-R97).

Follow descheduler: pkg/framework/plugins/nodeutilization. Usage by metrics (`metricsUtilization`) is not built;
LowNodeLoad does that.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.quantity import Amounts, amounts
from seatrial.scheduler.descheduler.args import Args, ArgsError, Namespaces
from seatrial.scheduler.descheduler.framework import Balance, Handle
from seatrial.scheduler.descheduler.node_fit import misfits
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.pod_order import kubernetes_qos

BASIC = ("cpu", "memory", "pods")
ONLY_THRESHOLDING = "OnlyThresholdingResources"
_QOS = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


class EvictionLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    node: int | None = None


class UtilizationArgs(Args, frozen=True):
    thresholds: dict[str, float] = {}  # noqa: RUF012 msgspec copies it for each instance
    number_of_nodes: int = 0
    evictable_namespaces: Namespaces | None = None

    def check(self) -> None:
        if not self.thresholds:
            raise ArgsError("thresholds: expected at least one resource, found none")
        check_percents("thresholds", self.thresholds)
        if self.number_of_nodes < 0:
            raise ArgsError(f"numberOfNodes: expected 0 or more, found {self.number_of_nodes}")
        if self.evictable_namespaces is not None and self.evictable_namespaces.include:
            raise ArgsError("evictableNamespaces: only Exclude namespaces can be set")

    def allows(self, pod: Pod) -> bool:
        return self.evictable_namespaces is None or self.evictable_namespaces.allows(pod.metadata.namespace)


class LowNodeUtilizationArgs(UtilizationArgs, frozen=True):
    target_thresholds: dict[str, float] = {}  # noqa: RUF012 msgspec copies it for each instance
    use_deviation_thresholds: bool = False
    eviction_limits: EvictionLimits | None = None

    def check(self) -> None:
        super().check()
        check_percents("targetThresholds", self.target_thresholds)
        if self.thresholds.keys() != self.target_thresholds.keys():
            raise ArgsError(
                f"targetThresholds: expected the resources of thresholds ({', '.join(sorted(self.thresholds))}),"
                f" found {', '.join(sorted(self.target_thresholds)) or 'none'}"
            )
        for name, low in self.thresholds.items():
            if low > self.target_thresholds[name] and not self.use_deviation_thresholds:
                raise ArgsError(
                    f"thresholds.{name}: expected at most targetThresholds.{name}"
                    f" ({self.target_thresholds[name]:g}), found {low:g}"
                )


class HighNodeUtilizationArgs(UtilizationArgs, frozen=True):
    eviction_modes: tuple[str, ...] = ()

    def check(self) -> None:
        super().check()
        for mode in self.eviction_modes:
            if mode != ONLY_THRESHOLDING:
                raise ArgsError(f"evictionModes: expected {ONLY_THRESHOLDING}, found {mode!r}")


def check_percents(field: str, percents: Mapping[str, float]) -> None:
    for name, value in percents.items():
        if not 0 <= value <= 100:
            raise ArgsError(f"{field}.{name}: expected a percentage of 0 to 100, found {value:g}")


@dataclass(slots=True)
class _Requested:
    """One node; `usage` changes as evictions are planned."""

    node: Node
    capacity: Amounts
    usage: Amounts
    low: Amounts
    high: Amounts

    @property
    def is_low(self) -> bool:
        return all(self.usage.get(name, 0) <= bound for name, bound in self.low.items())

    @property
    def is_high(self) -> bool:
        return any(self.usage.get(name, 0) > bound for name, bound in self.high.items())

    @property
    def weight(self) -> float:
        """The sum of the shares in use."""
        return sum(self.usage.get(name, 0) / self.capacity[name] for name in self.low if self.capacity.get(name))


def _measured(
    handle: Handle, nodes: Sequence[Node], low: Mapping[str, float], high: Mapping[str, float], *, deviation: bool
) -> list[_Requested]:
    """Nodes with their bounds; a basic resource without a threshold limits nothing."""
    names = sorted({*low, *BASIC})
    found = []
    for node in nodes:
        capacity = amounts(node.status.allocatable)
        found.append(_Requested(node, capacity, dict(handle.state.requested_on(node.name)), {}, {}))
    for name in names:
        lower, upper = low.get(name), high.get(name)
        if lower is not None and upper is not None and deviation:
            shares = [
                100.0 * load.usage.get(name, 0) / load.capacity[name] for load in found if load.capacity.get(name)
            ]
            mean = sum(shares) / len(shares) if shares else 0.0
            lower, upper = max(0.0, mean - lower), min(100.0, mean + upper)
        for load in found:
            capacity_of = load.capacity.get(name, 0)
            load.low[name] = int((100.0 if lower is None else lower) * 0.01 * capacity_of)
            load.high[name] = int((100.0 if upper is None else upper) * 0.01 * capacity_of)
    return found


class LowNodeUtilization(Balance):
    """Moves pods from nodes above the target thresholds while nodes below the lower ones have room."""

    name = "LowNodeUtilization"
    args = LowNodeUtilizationArgs

    def __init__(self, args: LowNodeUtilizationArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        args = self._args
        found = _measured(
            handle, nodes, args.thresholds, args.target_thresholds, deviation=args.use_deviation_thresholds
        )
        targets = [load for load in found if load.is_low and not load.node.spec.unschedulable]
        sources = [load for load in found if load.is_high and not load.is_low]
        if not sources or not targets or len(targets) <= args.number_of_nodes or len(targets) == len(found):
            return
        names = [name for name in found[0].low if name in args.thresholds]
        room = {name: sum(load.high[name] - load.usage.get(name, 0) for load in targets) for name in names}
        limit = args.eviction_limits.node if args.eviction_limits is not None else None
        for source in sorted(sources, key=lambda load: (-load.weight, load.node.name)):
            _evict(self.name, handle, args, source, targets, room, lambda load: load.is_high, limit=limit)


class HighNodeUtilization(Balance):
    """Empties nodes below the thresholds into the others, so that an autoscaler can take them away."""

    name = "HighNodeUtilization"
    args = HighNodeUtilizationArgs

    def __init__(self, args: HighNodeUtilizationArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        args = self._args
        found = _measured(handle, nodes, args.thresholds, {}, deviation=False)
        sources = [load for load in found if load.is_low]
        targets = [load for load in found if not load.is_low and not load.node.spec.unschedulable]
        if not sources or not targets or len(sources) <= args.number_of_nodes or len(sources) == len(found):
            return
        names = list(found[0].low)
        room = {name: sum(load.capacity.get(name, 0) - load.usage.get(name, 0) for load in targets) for name in names}
        only = args.thresholds.keys() if ONLY_THRESHOLDING in args.eviction_modes else None
        for source in sorted(sources, key=lambda load: (load.weight, load.node.name)):
            _evict(self.name, handle, args, source, targets, room, lambda _: True, only=only)


def _evict(  # noqa: PLR0917 the parts of one pass
    name: str,
    handle: Handle,
    args: UtilizationArgs,
    source: _Requested,
    targets: Sequence[_Requested],
    room: Amounts,
    goes_on: Callable[[_Requested], bool],
    *,
    limit: int | None = None,
    only: Collection[str] | None = None,
) -> None:
    """Evict from one node, pods of low priority first, while the source needs it and the targets have room."""
    state, gone = handle.state, 0
    pods = sorted(
        handle.pods_on(source.node.name), key=lambda pod: (pod.spec.priority, _QOS[kubernetes_qos(pod)], pod.key)
    )
    for pod in pods:
        if not goes_on(source) or any(value <= 0 for value in room.values()) or (limit is not None and gone >= limit):
            return
        requests = {**state.requests(pod), "pods": 1}
        if only is not None and not any(requests.get(wanted) for wanted in only if wanted != "pods"):
            continue
        if not args.allows(pod) or not handle.may_evict(pod):
            continue
        target = next((load for load in targets if not misfits(state, pod, load.node, _planned(handle, load))), None)
        if target is None or not handle.evict(pod, name, f"node {source.node.name} by requests"):
            continue
        gone += 1
        for resource, value in requests.items():
            source.usage[resource] = source.usage.get(resource, 0) - value
            target.usage[resource] = target.usage.get(resource, 0) + value
            if resource in room:
                room[resource] -= value


def _planned(handle: Handle, target: _Requested) -> Amounts:
    """The requests that this round has planned for the target."""
    known = handle.state.requested_on(target.node.name)
    return {name: value - known.get(name, 0) for name, value in target.usage.items()}
