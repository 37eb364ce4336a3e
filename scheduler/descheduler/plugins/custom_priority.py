"""CustomPriority: moves pods from nodes of one priority level to nodes of later levels (RSV-R94).

Follows Koordinator `pkg/descheduler/framework/plugins/custompriority`. Deviations: with mode BestEffort, too, requests
of pods that were moved earlier in the round count on the nodes that they were fitted to; in a dry run no node is
cordoned.
"""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.quantity import CPU, MEMORY, PODS, Amounts
from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.descheduler.args import ArgsError, check_selector
from seatrial.scheduler.descheduler.framework import Balance, Handle
from seatrial.scheduler.descheduler.node_fit import misfits, room_for
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.node_filters import BalanceArgs
from seatrial.scheduler.pods.selectors import selector_matches

BEST_EFFORT, DRAIN_NODE = "BestEffort", "DrainNode"
MAX_MISSES = 5  # pods in a row that fit nowhere, before a node is given up

Planned = dict[str, Amounts]  # requests that will come, by node


class PriorityLevel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`keepThreshold` and `rejectThreshold` have no effect, as in Koordinator."""

    name: str = ""
    node_selector: LabelSelector | None = None
    keep_threshold: dict[str, float] | None = None
    reject_threshold: dict[str, float] | None = None


class CustomPriorityArgs(BalanceArgs, frozen=True):
    """Arguments of CustomPriority."""

    empty_is_default: ClassVar[frozenset[str]] = frozenset({"mode"})
    dry_run: bool = False
    node_fit: bool = True
    eviction_order: tuple[PriorityLevel, ...] = ()
    mode: str = BEST_EFFORT
    auto_cordon: bool = False

    def check(self) -> None:
        super().check()
        if len(self.eviction_order) < 2:
            raise ArgsError("CustomPriority requires at least 2 resource priority levels")
        seen = set()
        for number, level in enumerate(self.eviction_order):
            if not level.name:
                raise ArgsError(f"evictionOrder[{number}].name: priority name cannot be empty")
            if level.name in seen:
                raise ArgsError(f"duplicate priority name: {level.name}")
            seen.add(level.name)
            if level.node_selector is None:
                raise ArgsError(f"priority {level.name} must have a nodeSelector")
            check_selector(f"evictionOrder[{number}].nodeSelector", level.node_selector)
            for field, percents in (
                ("keepThreshold", level.keep_threshold),
                ("rejectThreshold", level.reject_threshold),
            ):
                for name, value in (percents or {}).items():
                    if not 0 <= value <= 100:
                        raise ArgsError(
                            f"evictionOrder[{number}].{field}.{name}: expected a percentage of 0 to 100,"
                            f" found {value:g}"
                        )
        if self.mode not in {BEST_EFFORT, DRAIN_NODE}:
            raise ArgsError(f"mode: expected {BEST_EFFORT} or {DRAIN_NODE}, found {self.mode!r}")


class CustomPriority(Balance):
    """The plugin CustomPriority."""

    name = "CustomPriority"
    args = CustomPriorityArgs

    def __init__(self, args: CustomPriorityArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        if self._args.paused:
            return
        levels = self._levels(self._args.nodes(nodes))
        planned: Planned = {}
        for number, (name, sources) in enumerate(levels[:-1]):
            targets = [node for _, later in levels[number + 1 :] for node in later]
            for source in sources:
                if self._args.mode == DRAIN_NODE:
                    self._drain(handle, name, source, targets, planned)
                else:
                    self._move_some(handle, name, source, targets, planned)

    def _levels(self, nodes: Iterable[Node]) -> list[tuple[str, list[Node]]]:
        """The levels that have nodes; a node belongs to the first level whose selector matches."""
        sources: dict[str, list[Node]] = {level.name: [] for level in self._args.eviction_order}
        for node in nodes:
            for level in self._args.eviction_order:
                if level.node_selector is not None and selector_matches(level.node_selector, node.metadata.labels):
                    sources[level.name].append(node)
                    break
        return [(name, members) for name, members in sources.items() if members]

    def _candidates(self, handle: Handle, node: Node) -> list[Pod]:
        """The pods that may go, small ones first."""

        def size(pod: Pod) -> tuple[int, int, str]:
            requests = handle.state.requests(pod)
            return requests.get(CPU, 0), requests.get(MEMORY, 0), pod.key

        return sorted((pod for pod in handle.pods_on(node.name) if self._args.may_evict(handle, pod)), key=size)

    def _move_some(self, handle: Handle, level: str, source: Node, targets: Sequence[Node], planned: Planned) -> None:
        misses = 0
        for pod in self._candidates(handle, source):
            with handle.clock.faults.guard(self.name, pod.key):
                target = self._target(handle, pod, targets, planned)
                if target is None and self._args.node_fit:
                    misses += 1
                    if misses >= MAX_MISSES:
                        return
                    continue
                misses = 0
                reason = f"evicting from {level} priority resource to lower priority resource"
                if (self._args.dry_run or handle.evict(pod, self.name, reason)) and target is not None:
                    _plan(handle, pod, target, planned)

    def _drain(self, handle: Handle, level: str, source: Node, targets: Sequence[Node], planned: Planned) -> None:
        pods = self._candidates(handle, source)
        attempt = {name: dict(amounts) for name, amounts in planned.items()}
        for pod in pods:
            target = self._target(handle, pod, targets, attempt)
            if target is None:
                return
            _plan(handle, pod, target, attempt)
        if not pods:
            return
        planned.update(attempt)
        if self._args.dry_run:
            return
        path, same = f"/api/v1/nodes/{source.name}", {"metadata": {"uid": source.metadata.uid}}
        if self._args.auto_cordon:
            handle.patch(path, {**same, "spec": {"unschedulable": True}})
        for pod in pods:
            if not handle.evict(pod, self.name, f"drain node {source.name} (sourcePriority={level})"):
                if self._args.auto_cordon:
                    handle.patch(path, {**same, "spec": {"unschedulable": None}})
                return

    def _target(self, handle: Handle, pod: Pod, targets: Sequence[Node], planned: Planned) -> Node | None:
        """The first node that takes the pod; without nodeFit only its room counts."""
        for node in targets:
            coming = planned.get(node.name)
            if self._args.node_fit:
                if not misfits(handle.state, pod, node, coming):
                    return node
            elif room_for(handle.state, pod, node, coming):
                return node
        return None


def _plan(handle: Handle, pod: Pod, target: Node, planned: Planned) -> None:
    amounts = planned.setdefault(target.name, {})
    for name, value in {**handle.state.requests(pod), PODS: 1}.items():
        amounts[name] = amounts.get(name, 0) + value
