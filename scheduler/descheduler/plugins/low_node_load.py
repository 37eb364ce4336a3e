"""LowNodeLoad: moves pods from nodes with high real usage to nodes with low usage (RSV-R83 to RSV-R93).

Follows Koordinator `pkg/descheduler/framework/plugins/loadaware`. Deviations: a pod is fitted to a target when its turn
comes, so candidates that are never evicted plan no usage; see also `node_load.node_loads`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.quantity import CPU, MEMORY, PODS, Amounts
from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.descheduler.args import Args, ArgsError, Namespaces, check_duration, check_selector
from seatrial.scheduler.descheduler.framework import Balance, Handle
from seatrial.scheduler.descheduler.node_fit import misfits
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.anomaly import AnomalyDetector
from seatrial.scheduler.descheduler.plugins.node_filters import PodSelector, check_pod_selectors
from seatrial.scheduler.descheduler.plugins.node_load import (
    BOTH_LOW,
    HIGH,
    LOW,
    PROD_HIGH,
    PROD_LOW,
    NodeLoad,
    complete,
    node_loads,
)
from seatrial.scheduler.descheduler.pod_order import eviction_order, is_prod
from seatrial.scheduler.pods.selectors import selector_matches

log = logging.getLogger(__name__)

DEFAULT_POOL = "__default_node_pool__"
SOURCES = frozenset({HIGH, PROD_HIGH})


class AnomalyCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """After how many rounds above or below the thresholds a node counts as hot, or as normal again.

    A count of 0 is not set: 5 and 3, in a node pool the counts of the top level.
    """

    timeout: str = "1m"
    consecutive_abnormalities: int = 0
    consecutive_normalities: int = 0

    def completed(self, default: "AnomalyCondition") -> "AnomalyCondition":
        return AnomalyCondition(
            self.timeout,
            self.consecutive_abnormalities or default.consecutive_abnormalities,
            self.consecutive_normalities or default.consecutive_normalities,
        )


DEFAULT_CONDITION = AnomalyCondition("1m", 5, 3)


class NodePool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Nodes with thresholds of their own, in percent."""

    name: str = ""
    node_selector: LabelSelector | None = None
    use_deviation_thresholds: bool = False
    high_thresholds: dict[str, float] | None = None
    low_thresholds: dict[str, float] | None = None
    prod_high_thresholds: dict[str, float] | None = None
    prod_low_thresholds: dict[str, float] | None = None
    resource_weights: dict[str, int] | None = None
    anomaly_condition: AnomalyCondition | None = None


class LowNodeLoadArgs(Args, frozen=True):
    """Arguments of LowNodeLoad."""

    paused: bool = False
    dry_run: bool = False
    number_of_nodes: int = 0
    node_metric_expiration_seconds: int = 180
    evictable_namespaces: Namespaces = Namespaces()
    node_selector: LabelSelector | None = None
    pod_selectors: tuple[PodSelector, ...] = ()
    node_fit: bool = True
    use_deviation_thresholds: bool = False
    high_thresholds: dict[str, float] = msgspec.field(default_factory=dict)
    low_thresholds: dict[str, float] = msgspec.field(default_factory=dict)
    prod_high_thresholds: dict[str, float] = msgspec.field(default_factory=dict)
    prod_low_thresholds: dict[str, float] = msgspec.field(default_factory=dict)
    resource_weights: dict[str, int] = msgspec.field(default_factory=dict)
    anomaly_condition: AnomalyCondition = AnomalyCondition()
    detector_cache_timeout: str = "5m"
    node_pools: tuple[NodePool, ...] = ()

    def check(self) -> None:
        self.evictable_namespaces.check("evictableNamespaces")
        if self.node_metric_expiration_seconds <= 0:
            raise ArgsError(
                f"nodeMetricExpirationSeconds: expected more than 0, found {self.node_metric_expiration_seconds}"
            )
        if self.number_of_nodes < 0:
            raise ArgsError(f"numberOfNodes: expected 0 or more, found {self.number_of_nodes}")
        check_pod_selectors(self.pod_selectors)
        check_duration("detectorCacheTimeout", self.detector_cache_timeout)
        for number, pool in enumerate(self.pools()):
            _check_pool(f"nodePools[{number - 1}]." if number else "", pool)

    def pools(self) -> list[NodePool]:
        """The default pool, then the others with what they inherit (RSV-R83)."""
        maps = (self.low_thresholds, self.high_thresholds, self.prod_low_thresholds, self.prod_high_thresholds)
        weights = dict.fromkeys((CPU, MEMORY, *(name for names in maps for name in names)), 1)
        condition = self.anomaly_condition.completed(DEFAULT_CONDITION)
        own = NodePool(
            name=DEFAULT_POOL,
            node_selector=self.node_selector,
            use_deviation_thresholds=self.use_deviation_thresholds,
            high_thresholds=self.high_thresholds,
            low_thresholds=self.low_thresholds,
            prod_high_thresholds=self.prod_high_thresholds,
            prod_low_thresholds=self.prod_low_thresholds,
            resource_weights=weights | {name: value for name, value in self.resource_weights.items() if value > 0},
            anomaly_condition=condition,
        )
        inherited = (
            "high_thresholds",
            "low_thresholds",
            "prod_high_thresholds",
            "prod_low_thresholds",
            "resource_weights",
        )
        return [own] + [
            msgspec.structs.replace(
                pool,
                **{name: getattr(own, name) for name in inherited if getattr(pool, name) is None},
                anomaly_condition=pool.anomaly_condition.completed(condition) if pool.anomaly_condition else condition,
            )
            for pool in self.node_pools
        ]


def _check_pool(where: str, pool: NodePool) -> None:
    check_selector(f"{where}nodeSelector", pool.node_selector)
    low, high = pool.low_thresholds or {}, pool.high_thresholds or {}
    prod_low, prod_high = pool.prod_low_thresholds or {}, pool.prod_high_thresholds or {}
    for field, percents in (
        ("lowThresholds", low),
        ("highThresholds", high),
        ("prodLowThresholds", prod_low),
        ("prodHighThresholds", prod_high),
    ):
        for name, value in percents.items():
            if not value >= 0:  # nor is .nan
                raise ArgsError(f"{where}{field}.{name}: expected a percentage of 0 and more, found {value:g}")
    for smaller, larger, words in (
        (low, high, ("lowThresholds", "highThresholds")),
        (prod_low, prod_high, ("prodLowThresholds", "prodHighThresholds")),
        (prod_high, high, ("prodHighThresholds", "highThresholds")),
    ):
        for name in smaller.keys() & larger.keys():
            if smaller[name] > larger[name]:
                raise ArgsError(
                    f"{where}{words[0]}.{name}: expected at most {words[1]}.{name} ({larger[name]:g}),"
                    f" found {smaller[name]:g}"
                )
    condition = pool.anomaly_condition
    if condition is not None:
        check_duration(f"{where}anomalyCondition.timeout", condition.timeout)
        if condition.consecutive_abnormalities <= 0 or condition.consecutive_normalities <= 0:
            raise ArgsError(
                f"{where}anomalyCondition: expected counts of 0 (not set) and more, found"
                f" {condition.consecutive_abnormalities} and {condition.consecutive_normalities}"
            )


@dataclass(slots=True)
class _Pass:
    """Evictions for total usage, or for the usage of prod pods."""

    prod: bool
    sources: list[NodeLoad]
    targets: list[NodeLoad]
    room: Amounts
    _next: int = 0  # the target that took the last pod; those before it are mostly full

    def target(self, takes_it: Callable[[NodeLoad], bool]) -> NodeLoad | None:
        """The next target that takes a pod."""
        count = len(self.targets)
        for offset in range(count):
            index = (self._next + offset) % count
            if takes_it(self.targets[index]):
                self._next = index
                return self.targets[index]
        return None


class LowNodeLoad(Balance):
    """The plugin LowNodeLoad."""

    name = "LowNodeLoad"
    args = LowNodeLoadArgs

    def __init__(self, args: LowNodeLoadArgs) -> None:
        self._args = args
        self._pools = args.pools()
        self._detectors: dict[tuple[str, str], AnomalyDetector] = {}
        self._keep = check_duration("detectorCacheTimeout", args.detector_cache_timeout)

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        if self._args.paused:
            return
        now = handle.clock.monotonic()
        self._detectors = {
            key: detector for key, detector in self._detectors.items() if now - detector.seen <= self._keep
        }
        processed: set[str] = set()
        for pool in self._pools:
            if pool.node_selector is not None:
                selector = pool.node_selector
                chosen = [
                    node
                    for node in nodes
                    if node.name not in processed and selector_matches(selector, node.metadata.labels)
                ]
            else:
                chosen = list(nodes)
            processed |= self._balance(handle, pool, chosen)

    def _balance(self, handle: Handle, pool: NodePool, nodes: Sequence[Node]) -> set[str]:
        """Balance one pool; the names of its sources if it came to evictions."""
        thresholds = complete(
            pool.low_thresholds or {},
            pool.high_thresholds or {},
            pool.prod_low_thresholds or {},
            pool.prod_high_thresholds or {},
            deviation=pool.use_deviation_thresholds,
        )
        loads = node_loads(
            handle.state, nodes, thresholds, expires=self._args.node_metric_expiration_seconds, now=handle.clock.now()
        )
        by_kind: dict[str, list[NodeLoad]] = {}
        for load in loads:
            by_kind.setdefault(load.kind, []).append(load)
        sources = self._hot_for_long(handle, pool, by_kind)
        low, both = by_kind.get(LOW, []), by_kind.get(BOTH_LOW, [])
        prod_low = by_kind.get(PROD_LOW, [])
        count = len(low) + len(both) + len(prod_low)
        log.debug(
            "low-node-load pool=%s nodes=%s", pool.name, {kind: len(results) for kind, results in by_kind.items()}
        )
        if not sources or not count or count <= self._args.number_of_nodes or count == len(nodes):
            return set()
        weights = pool.resource_weights or {}
        names = list(thresholds.low)
        hot = sorted(
            (load for load in sources if load.kind == HIGH), key=lambda load: (-load.score(weights), load.node.name)
        )
        prod_hot = [load for load in sources if load.kind == PROD_HIGH]
        room = _room([*low, *both], names, prod=False)
        for key, value in _in_transit(handle, names).items():
            if key in room:
                room[key] -= value
        self._evict_from(handle, pool, weights, _Pass(False, hot, [*low, *both], room))
        prod_room = _room(prod_low, names, prod=True)
        left, of_prod = _room(both, names, prod=False), _room(both, names, prod=True)
        for name in left.keys() & of_prod.keys():
            prod_room[name] = prod_room.get(name, 0) + min(left[name], of_prod[name])
        prod_hot.sort(key=lambda load: (-load.score(weights), load.node.name))
        self._evict_from(handle, pool, weights, _Pass(True, prod_hot, [*both, *prod_low], prod_room))
        return {load.node.name for load in hot}

    def _hot_for_long(self, handle: Handle, pool: NodePool, by_kind: Mapping[str, list[NodeLoad]]) -> list[NodeLoad]:
        """Sources that are anomalous; detectors of other nodes are brought up to date (RSV-R88)."""
        condition = pool.anomaly_condition
        sources = [load for kind in (HIGH, PROD_HIGH) for load in by_kind.get(kind, ())]
        if condition is None or condition.consecutive_abnormalities <= 1:
            return sources
        now = handle.clock.monotonic()
        for kind, loads in by_kind.items():
            if kind in SOURCES:
                continue
            for load in loads:
                detector = self._detectors.get((pool.name, load.node.name))
                if detector is not None and kind in {LOW, BOTH_LOW}:
                    detector.reset()
                elif detector is not None:
                    detector.mark(now, abnormal=False)
        return [load for load in sources if self._detector(pool, condition, load).mark(now, abnormal=True)]

    def _detector(self, pool: NodePool, condition: AnomalyCondition, load: NodeLoad) -> AnomalyDetector:
        key = (pool.name, load.node.name)
        if key not in self._detectors:
            self._detectors[key] = AnomalyDetector(
                condition.consecutive_abnormalities,
                condition.consecutive_normalities,
                check_duration("anomalyCondition.timeout", condition.timeout),
            )
        return self._detectors[key]

    # -- evictions ----------------------------------------------------------------------------------------------------

    def _evict_from(self, handle: Handle, pool: NodePool, weights: Mapping[str, int], eviction_pass: _Pass) -> None:
        if not eviction_pass.targets:
            return
        for load in eviction_pass.sources:
            over = load.over(prod=eviction_pass.prod)
            candidates = [pod for pod in load.pods if self._is_candidate(load, pod, prod=eviction_pass.prod)]
            score = partial(usage_score, load, over=over, weights=weights, prod=eviction_pass.prod)
            order = eviction_order(score)
            candidates.sort(key=lambda pod: (order(pod), pod.key))
            for pod in candidates:
                if not load.over(prod=eviction_pass.prod):
                    self._detectors.pop((pool.name, load.node.name), None)
                    break
                if any(value <= 0 for value in eviction_pass.room.values()):
                    break
                with handle.clock.faults.guard(self.name, pod.key):
                    if handle.may_evict(pod):
                        self._move(handle, load, pod, eviction_pass)

    def _is_candidate(self, load: NodeLoad, pod: Pod, *, prod: bool) -> bool:
        args = self._args
        if prod and not is_prod(pod):
            return False
        if args.node_fit and pod.key not in load.metrics:
            return False
        if not args.evictable_namespaces.allows(pod.metadata.namespace):
            return False
        selectors = [entry.selector for entry in args.pod_selectors if entry.selector is not None]
        return not selectors or any(selector_matches(selector, pod.metadata.labels) for selector in selectors)

    def _move(self, handle: Handle, load: NodeLoad, pod: Pod, eviction_pass: _Pass) -> None:
        """Evict the pod if a target can take it."""
        used = load.metrics.get(pod.key, {})
        target = None
        if self._args.node_fit:
            target = eviction_pass.target(lambda each: takes(handle, each, pod, used, prod=eviction_pass.prod))
            if target is None:
                return
        reason = overutilized(load, prod=eviction_pass.prod)
        if self._args.dry_run:
            log.info("low-node-load dry-run pod=%s node=%s reason=%s", pod.key, load.node.name, reason)
        elif not handle.evict(pod, self.name, reason):
            return
        for name in load.low:
            value = 1 if name == PODS else used.get(name, 0)
            if name in eviction_pass.room:
                eviction_pass.room[name] -= value
            (load.prod_usage if eviction_pass.prod else load.usage)[name] -= value
            if target is not None:
                target.usage[name] = target.usage.get(name, 0) + value
                if eviction_pass.prod:
                    target.prod_usage[name] = target.prod_usage.get(name, 0) + value
        if eviction_pass.prod:
            for name in load.low:
                load.usage[name] -= 1 if name == PODS else used.get(name, 0)


def takes(handle: Handle, target: NodeLoad, pod: Pod, used: Amounts, *, prod: bool) -> bool:
    """Whether the pod fits the target by requests, and keeps it at or below its high thresholds."""
    for name, bound in target.high.items():
        more = 1 if name == PODS else used.get(name, 0)
        if more and target.usage.get(name, 0) + more > bound:
            return False
        if prod and more and target.prod_usage.get(name, 0) + more > target.prod_high[name]:
            return False
    return not misfits(handle.state, pod, target.node)


def usage_score(load: NodeLoad, pod: Pod, over: Sequence[str], weights: Mapping[str, int], *, prod: bool) -> float:
    """How well the pod's usage covers what the node uses too much; higher goes first (RSV-R91)."""
    used = load.metrics.get(pod.key)
    if used is None:
        return -1.0
    usage, bound = (load.prod_usage, load.prod_high) if prod else (load.usage, load.high)
    total = score = 0.0
    for name in over:
        excess, weight = usage[name] - bound[name], weights.get(name, 0)
        if excess <= 0 or not weight:
            continue
        ratio = (1 if name == PODS else used.get(name, 0)) / excess
        score += weight * (ratio if ratio < 1 else 1 / ratio + 1)
        total += weight
    return score / total if total else 0.0


def overutilized(load: NodeLoad, *, prod: bool) -> str:
    """The reason for evictions (RSV-R93)."""
    usage, bound = (load.prod_usage, load.prod_high) if prod else (load.usage, load.high)
    parts = []
    for name in sorted(load.over(prod=prod)):
        capacity = load.capacity.get(name, 0) or 1
        parts.append(
            f"{'prod' if prod else 'node'} {name} usage({100 * usage[name] / capacity:.2f}%)"
            f">threshold({100 * bound[name] / capacity:.2f}%)"
        )
    return "node is overutilized, " + ", ".join(parts)


def _room(loads: Sequence[NodeLoad], names: Sequence[str], *, prod: bool) -> Amounts:
    room: Amounts = {}
    for load in loads:
        usage, bound = (load.prod_usage, load.prod_high) if prod else (load.usage, load.high)
        for name in names:
            if load.capacity.get(name):  # a resource that no target has limits nothing
                room[name] = room.get(name, 0) + bound[name] - usage.get(name, 0)
    return room


def _in_transit(handle: Handle, names: Sequence[str]) -> Amounts:
    """Usage of pods that are being migrated and have no place yet."""
    amounts: Amounts = {}
    for job in handle.state.open_jobs():
        pod = handle.state.pod_named(job.pod_key)
        if pod is None or job.status.node_name:
            continue
        usage = handle.state.usage.get(pod.spec.node_name)
        used = usage.pods.get(pod.key, {}) if usage else {}
        for name in names:
            amounts[name] = amounts.get(name, 0) + (1 if name == PODS else used.get(name, 0))
    return amounts
