"""What nodes offer to batch and mid pods, and when it is written (NR-1 to NR-3, NR-12, NR-15).

Follows Koordinator's pkg/slo-controller/noderesource. Like upstream's, it calculates when a usage report comes, not
when a pod does.
"""

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seatrial.scheduler.api.clock import Clock, from_rfc3339
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.integers import finite
from seatrial.scheduler.api.numa import NodeResourceTopology, Zone
from seatrial.scheduler.api.quantity import CPU, MEMORY, Quantity, QuantityError, amount, binary, canonical, text
from seatrial.scheduler.api.slo import (
    BATCH_CPU,
    BATCH_MEMORY,
    MID_CPU,
    MID_MEMORY,
    ORIGIN_ALLOCATABLE,
    THIRD_PARTY_ALLOCATIONS,
    ThirdPartyAllocations,
)
from seatrial.scheduler.api.wire import decode_as, to_json
from seatrial.scheduler.manager.batch import amplified, batch_of_node, batch_of_zones, remainder
from seatrial.scheduler.manager.loads import (
    ZERO,
    Pair,
    PodLoad,
    high_priority,
    node_amounts,
    node_report,
    pair,
    pod_load,
)
from seatrial.scheduler.manager.mid import mid_of_node
from seatrial.scheduler.manager.sections import Settings
from seatrial.scheduler.manager.strategy import ColocationStrategy
from seatrial.scheduler.manager.usage_report import UsageReport
from seatrial.scheduler.pods.priority import BATCH

DISABLED = "node colocation is disabled in Config, reason: DisableInConfig"
DEGRADED = (
    "degrade node resource because of abnormal nodeMetric, reason: degradedByBatchResource",
    "degrade node Mid resource because of abnormal nodeMetric, reason: degradedByMidResource",
)
NAMES = (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node offers, and why. `batch`, `mid` None: nothing, the names are removed; `zones` by place in the
    NodeResourceTopology."""

    why: str
    batch: Pair | None = None
    mid: Pair | None = None
    zones: Mapping[int, Pair] | None = None

    def amounts(self, third_parties: ThirdPartyAllocations) -> dict[str, int | None]:
        """The amounts by name, those of third parties subtracted; None: to be removed.

        Raises:
            QuantityError: an allocation of a third party is not a quantity.
        """
        batch: tuple[int | None, ...] = (None, None)
        if self.batch is not None:
            theirs = (each.resources for each in third_parties.allocations if each.priority == BATCH)
            batch = remainder(self.batch, theirs)
        return dict(zip(NAMES, (*batch, *(self.mid or (None, None))), strict=True))


class NodeResources:
    """Knows the pods of each node, and when its status and its zones were written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods: dict[str, dict[str, PodLoad]] = {}  # by node and uid
        # By node, with that from which it was calculated: a node is looked at more often than its report comes.
        self._offers: dict[str, tuple[float, tuple[object, ...], Offer]] = {}
        self._written: dict[tuple[str, str], float] = {}  # by node and kind

    def set_pod(self, pod: Pod) -> None:
        """Take in a pod that is bound to a node.

        Raises:
            QuantityError: a request is not a quantity.
        """
        load = pod_load(pod)
        pods = self._pods.setdefault(pod.spec.node_name, {})
        self._offers.pop(pod.spec.node_name, None)
        if load is None:
            pods.pop(pod.metadata.uid, None)
        else:
            pods[pod.metadata.uid] = load

    def pod_gone(self, pod: Pod) -> None:
        pods = self._pods.get(pod.spec.node_name, {})
        self._offers.pop(pod.spec.node_name, None)
        pods.pop(pod.metadata.uid, None)
        if not pods:
            self._pods.pop(pod.spec.node_name, None)

    def node_gone(self, name: str) -> None:
        for kind in ("Node", "NodeResourceTopology"):
            self._written.pop((name, kind), None)
        self._offers.pop(name, None)

    def written(self, name: str, kind: str) -> None:
        """A write of the node's status or topology has succeeded."""
        self._written[name, kind] = self._clock.now()

    def offer(
        self,
        node: Node,
        strategy: ColocationStrategy,
        metric: UsageReport | None,
        topology: NodeResourceTopology | None,
        ratio: float,
    ) -> Offer:
        """What the node offers now; `ratio`: its CPU normalization ratio.

        Raises:
            QuantityError, TimeError: a value of the node or of its report cannot be read.
        """
        if not strategy.enable:
            return Offer(DISABLED)
        updated = metric.status.update_time if metric is not None else None
        late = 60 * strategy.degrade_time_minutes
        if metric is None or updated is None or self._clock.now() > from_rfc3339(updated) + late:
            return Offer("\n".join(DEGRADED))
        known, terms = self._offers.get(node.name), (node, strategy, metric, topology)
        if known is None or known[0] != ratio or any(map(operator.is_not, known[1], terms)):
            known = self._offers[node.name] = ratio, terms, self._calculated(*terms, ratio)
        return known[2]

    def _calculated(
        self,
        node: Node,
        strategy: ColocationStrategy,
        metric: UsageReport,
        topology: NodeResourceTopology | None,
        ratio: float,
    ) -> Offer:
        pods = self._pods.get(node.name, {}).values()
        amounts, report = node_amounts(node), node_report(metric)
        sums = high_priority(pods, report)
        batch, batch_text = batch_of_node(strategy, amounts, sums, report)
        mid, mid_text = mid_of_node(strategy, amounts, sums, report)
        zones = _zones(topology)
        of_zones = batch_of_zones(strategy, amounts, list(zones.values()), pods, report) if zones else ()
        by_zone = zip(zones, of_zones, strict=True)
        return Offer(
            f"{batch_text}\n{mid_text}",
            batch._replace(cpu=amplified(batch.cpu, ratio)),
            mid,
            {place: each._replace(cpu=amplified(each.cpu, ratio)) for place, each in by_zone},
        )

    def status_change(self, node: Node, strategy: ColocationStrategy, amounts: Mapping[str, int | None]) -> Settings:
        """The patch of the node's status; empty if nothing is to be written."""
        if not self._due(node.name, "Node", strategy, [(node.status.allocatable, amounts)]):
            return {}
        change = {name: None if value is None else text(name, value) for name, value in amounts.items()}
        return {"status": {"capacity": change, "allocatable": change}}

    def annotation_change(self, node: Node, offer: Offer) -> dict[str, str | None]:
        """The annotation with the batch resources before those of third parties (YN-2), if it is to be written."""
        before = node.metadata.annotations.get(ORIGIN_ALLOCATABLE)
        if offer.batch is None and before is None:
            return {}
        cpu, memory = offer.batch or ZERO
        resources = {BATCH_CPU: canonical(str(cpu)), BATCH_MEMORY: binary(memory)}
        after = to_json({"resources": resources}).decode()
        return {} if after == before else {ORIGIN_ALLOCATABLE: after}

    def zone_change(
        self, topology: NodeResourceTopology, strategy: ColocationStrategy, offer: Offer
    ) -> list[dict[str, Any]]:
        """The JSON patch of the node's topology; empty if nothing is to be written."""
        zones = offer.zones
        if zones is None:  # what was offered is taken back
            zones = {place: ZERO for place, zone in enumerate(topology.zones) if BATCH_CPU in _allocatable(zone)}
        pairs: list[tuple[Mapping[str, Quantity], Mapping[str, int | None]]] = [
            (_allocatable(topology.zones[place]), {BATCH_CPU: batch.cpu, BATCH_MEMORY: batch.memory})
            for place, batch in zones.items()
        ]
        if not self._due(topology.metadata.name, "NodeResourceTopology", strategy, pairs):
            return []
        return [step for place, batch in zones.items() for step in _steps(topology.zones[place], place, batch)]

    def _due(
        self,
        name: str,
        kind: str,
        strategy: ColocationStrategy,
        pairs: list[tuple[Mapping[str, Quantity], Mapping[str, int | None]]],
    ) -> bool:
        """Whether something differs enough, or at all if the last write is long ago (NR-3)."""
        old = (
            self._clock.now() - self._written.get((name, kind), float("-inf")) >= strategy.update_time_threshold_seconds
        )
        threshold = 0.0 if old else strategy.resource_diff_threshold
        return any(_differs(before, after, threshold) for before, after in pairs)


def allocations_of(node: Node) -> ThirdPartyAllocations:
    """What third parties have given away on a node.

    Raises:
        msgspec.MsgspecError: the annotation is not of its form.
    """
    written = node.metadata.annotations.get(THIRD_PARTY_ALLOCATIONS, "")
    return decode_as(written, ThirdPartyAllocations) if written else ThirdPartyAllocations()


def offers_something(node: Node, topology: NodeResourceTopology | None) -> bool:
    """Whether there are batch or mid resources to be taken back."""
    zones = topology.zones if topology is not None else ()
    return any(name in node.status.allocatable for name in NAMES) or any(BATCH_CPU in _allocatable(z) for z in zones)


def normalization(annotation: str | None) -> float:
    """The ratio in an annotation; 1 if there is none."""
    return finite(annotation or "") or 1.0


def _differs(before: Mapping[str, Quantity], after: Mapping[str, int | None], threshold: float) -> bool:
    for name, value in after.items():
        try:
            old = amount(name, before[name]) if name in before else None
        except QuantityError:
            return True
        if old is None or value is None:
            if old is not value:
                return True
        elif abs(value - old) > old * threshold:
            return True
    return False


def _allocatable(zone: Zone) -> dict[str, Quantity]:
    return {resource.name: resource.allocatable for resource in zone.resources}


def _zones(topology: NodeResourceTopology | None) -> dict[int, Pair]:
    """Allocatable CPU and memory of the NUMA nodes by place; empty unless all of them have both (NR-13)."""
    if topology is None:
        return {}
    quantities = {
        place: _allocatable(zone) for place, zone in enumerate(topology.zones) if zone.name.startswith("node-")
    }
    if not all(CPU in resources and MEMORY in resources for resources in quantities.values()):
        return {}
    try:
        return {place: pair(resources) for place, resources in quantities.items()}
    except QuantityError:
        return {}  # the amounts of the node do not depend on its zones


def _steps(zone: Zone, place: int, batch: Pair) -> Iterator[dict[str, Any]]:
    yield {"op": "test", "path": f"/zones/{place}/name", "value": zone.name}
    names = [resource.name for resource in zone.resources]
    for name, value in ((BATCH_CPU, batch.cpu), (BATCH_MEMORY, batch.memory)):
        resource = {"name": name, **dict.fromkeys(("capacity", "allocatable", "available"), text(name, value))}
        known = name in names
        path = f"/zones/{place}/resources/{names.index(name) if known else '-'}"
        if known:
            yield {"op": "test", "path": f"{path}/name", "value": name}
        yield {"op": "replace" if known else "add", "path": path, "value": resource}
