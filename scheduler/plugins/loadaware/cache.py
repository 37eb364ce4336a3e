"""Loads of all nodes for one configuration of LoadAwareScheduling, as columns over nodes.

A NodeMetric, a pod that comes or goes, and a change of the node's annotations write one row. Only the expiry of a
report depends on time: a timer marks the rows whose report is too old.
"""

import heapq
from collections.abc import Mapping

import msgspec
import numpy as np

from seatrial.scheduler.api.clock import Timer
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.numa import PROD
from seatrial.scheduler.api.quantity import Quantity, QuantityError, amount
from seatrial.scheduler.api.reservation import is_reserve_pod
from seatrial.scheduler.api.slo import NODE_METRICS_PATH, RAW_ALLOCATABLE, USAGE_THRESHOLDS, NodeMetric
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.collaborators import Watch
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.loadaware.args import LoadAwareSchedulingArgs
from seatrial.scheduler.plugins.loadaware.estimator import Estimator, Vector, moment_of
from seatrial.scheduler.plugins.loadaware.load import AssignedPod, NodeLoad, Report, read_report
from seatrial.scheduler.plugins.loadaware.thresholds import Aggregation, ThresholdRules, Thresholds
from seatrial.scheduler.pods.priority import class_with_default
from seatrial.scheduler.pods.requests import pod_limits

PASS, JUDGE, EXPIRED = 0, 1, 2  # verdicts: every pod passes; usage decides; pods that are limited are rejected
FILTER, FILTER_PROD, SCORE = 0, 1, 2  # first axis of the column `used`
WAKE_PAUSE = 1.0  # seconds during which reports that can help waiting pods are collected
PLUGIN = "LoadAwareScheduling"


class LoadRow:
    """What the columns have of one node."""

    __slots__ = ("limits", "raw", "scored", "token", "used", "verdict")

    def __init__(
        self, used: tuple[Vector, Vector, Vector], limits: Thresholds, raw: Vector, *, verdict: int, scored: bool
    ) -> None:
        """`raw`: capacity that replaces the allocatable amount, -1 where nothing does."""
        self.used, self.limits, self.raw, self.verdict, self.scored = used, limits, raw, verdict, scored
        self.token = (used, limits, raw, verdict, scored)  # nodes with equal tokens and capacity get equal results


class _Node:
    """One node that is known by its object, its NodeMetric or a pod."""

    __slots__ = ("expired", "limits", "load", "raw", "row")

    def __init__(self, load: NodeLoad, limits: Thresholds, nothing: Vector, row: LoadRow) -> None:
        self.load, self.limits, self.raw, self.row = load, limits, nothing, row
        self.expired = False


class LoadCaches:
    """The caches of all profiles, by their arguments."""

    def __init__(self, handle: Handle) -> None:
        self.all: dict[bytes, LoadCache] = {}
        handle.watch(Watch(NODE_METRICS_PATH, NodeMetric, self.set_metric, self.remove_metric))

    def set_metric(self, metric: NodeMetric) -> None:
        for cache in self.all.values():
            cache.set_metric(metric)

    def remove_metric(self, metric: NodeMetric) -> None:
        for cache in self.all.values():
            cache.remove_metric(metric.metadata.name)


class LoadCache(Listener):
    """Loads of all nodes."""

    follows_conditions = True

    def __init__(self, handle: Handle, args: LoadAwareSchedulingArgs, number: int) -> None:
        """`number`: of this cache, for the names of its columns."""
        self.names = args.names
        self._handle, self._args, self._number = handle, args, number
        self._clock = handle.clock
        self._width = len(self.names)
        self._zero: Vector = (0,) * self._width
        self._no_raw: Vector = (-1,) * self._width
        self._estimator = Estimator(args)
        self.rules = ThresholdRules(args)
        score = args.aggregated
        self._score_aggregation: Aggregation | None = None
        if score is not None and score.score_aggregation_type:
            seconds = go_duration(score.score_aggregated_duration or "0") or 0.0
            self._score_aggregation = Aggregation(score.score_aggregation_type, seconds)
        self._kinds = frozenset(
            item.kind for item in (self._score_aggregation, self.rules.default.aggregation) if item is not None
        )
        self._unknown = LoadRow(
            (self._zero, self._zero, self._zero), self.rules.default, self._no_raw, verdict=PASS, scored=False
        )
        self._nodes: dict[str, _Node] = {}
        self._metrics: dict[str, NodeMetric] = {}
        self._expiries: list[tuple[float, str]] = []
        self._timer: Timer | None = None
        self._alarm = float("inf")
        self._wake_planned = False
        self.updates = self.refused = 0
        columns = handle.columns
        empty = np.zeros(self._width, np.int64)
        columns.add_column(self.column("used"), np.zeros((3, self._width), np.int64))
        columns.add_column(self.column("limits"), np.zeros((2, self._width), np.int64))
        columns.add_column(self.column("raw"), empty - 1)
        columns.add_column(self.column("verdict"), np.zeros((), np.int64))
        columns.add_column(self.column("scored"), np.zeros((), np.bool_))

    @staticmethod
    def of(handle: Handle, args: LoadAwareSchedulingArgs) -> "LoadCache":
        """The cache for these arguments; profiles with equal arguments share one."""
        caches = handle.shared(LoadCaches, lambda: LoadCaches(handle))
        key = msgspec.json.encode(args)
        load_cache = caches.all.get(key)
        if load_cache is None:
            load_cache = caches.all[key] = LoadCache(handle, args, len(caches.all))
            handle.cache.classes.distinguish(distinctions)
            handle.cache.listen(load_cache)
        return load_cache

    def column(self, name: str) -> str:
        """The name of one of this cache's columns."""
        return f"{PLUGIN}/{self._number}/{name}"

    def row(self, name: str) -> LoadRow:
        """The node's row; that of an unknown node if nothing is known."""
        node = self._nodes.get(name)
        return node.row if node is not None else self._unknown

    def load(self, name: str) -> NodeLoad | None:
        """What is known of the load of a node; None if the node is not known."""
        node = self._nodes.get(name)
        return node.load if node is not None else None

    def counts(self) -> dict[str, int]:
        """Nodes by the state of their NodeMetric: current, expired, empty (no usage in it) or missing."""
        counts = dict.fromkeys(("current", "expired", "empty", "missing"), 0)
        for name in self._handle.columns.rows:
            node = self._nodes.get(name)
            report = node.load.report if node is not None else None
            if node is None or report is None:
                counts["missing"] += 1
            elif node.expired:
                counts["expired"] += 1
            else:
                counts["current" if report.usage is not None else "empty"] += 1
        return counts

    # -- NodeMetrics --------------------------------------------------------------------------------------------------

    def set_metric(self, metric: NodeMetric) -> None:
        """Take in a NodeMetric. One that cannot be read is ignored: the report before it stays until it expires."""
        name = metric.metadata.name
        self.updates += 1
        try:
            report = read_report(metric, self.names, self._kinds)
        except ValueError as error:
            self.refused += 1
            self._handle.complain(f"NodeMetric {name}: {error}")
            return
        self._metrics[name] = metric
        self._set_report(name, report)

    def remove_metric(self, name: str) -> None:
        self._metrics.pop(name, None)
        if name in self._nodes:
            self._set_report(name, None)
            self.node_gone(name)

    def _set_report(self, name: str, report: Report | None) -> None:
        node = self._node(name)
        node.load.set_report(report)
        node.expired = False
        if report is not None:
            expires = report.updated + self._args.node_metric_expiration_seconds
            node.expired = self._clock.now() >= expires
            if not node.expired:
                self._expect(expires, name)
        self._changed(name, node)

    def _expect(self, expires: float, name: str) -> None:
        heapq.heappush(self._expiries, (expires, name))
        if expires < self._alarm:
            self._set_alarm(expires)

    def _set_alarm(self, expires: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._alarm = expires
        self._timer = self._clock.call_later(max(expires - self._clock.now(), 0.001), self._ring)

    def _ring(self) -> None:
        """Mark the reports that are too old now."""
        self._timer, self._alarm = None, float("inf")
        now = self._clock.now()
        while self._expiries and self._expiries[0][0] <= now:
            _, name = heapq.heappop(self._expiries)
            node = self._nodes.get(name)
            report = node.load.report if node is not None else None
            if node is None or report is None or node.expired:
                continue
            if now - report.updated >= self._args.node_metric_expiration_seconds:
                node.expired = True
                with self._clock.faults.guard("LoadCache._ring", name):
                    self._changed(name, node)
        if self._expiries:
            self._set_alarm(self._expiries[0][0])

    # -- events of the cache of pods and nodes ------------------------------------------------------------------------

    def node_set(self, node: Node, before: Node | None) -> None:
        current_node = self._node(node.name)
        annotations = node.metadata.annotations
        current_node.limits, wrong = self.rules.of(annotations.get(USAGE_THRESHOLDS, ""))
        aggregation = current_node.limits.aggregation
        if aggregation is not None and aggregation.kind not in self._kinds:
            self._read_more(aggregation.kind)
        if wrong:
            self._handle.complain(f"node {node.name}: annotation {USAGE_THRESHOLDS}: {wrong}")
        try:
            current_node.raw = self._raw(annotations.get(RAW_ALLOCATABLE, ""))
        except (msgspec.DecodeError, QuantityError) as error:
            current_node.raw = self._no_raw
            self._handle.complain(f"node {node.name}: annotation {RAW_ALLOCATABLE}: {error}")
        self._write(node.name, current_node)

    def node_gone(self, name: str) -> None:
        """Forget a node that has neither object nor pods nor report."""
        node = self._nodes.get(name)
        if (
            node is not None
            and node.load.report is None
            and not node.load.pods
            and self._handle.cache.find(name) is None
        ):
            del self._nodes[name]

    def pod_placed(self, info: PodInfo) -> None:
        pod = info.pod
        if is_reserve_pod(pod):
            return
        moment = moment_of(pod, "PodScheduled")
        assigned = self._clock.now() if moment is None else moment
        prod, estimate = self.facts(info.pod_class)
        assigned_pod = AssignedPod(pod.metadata.key, prod, estimate, assigned, self._estimator.deadline(pod, assigned))
        node = self._node(info.node_name)
        node.load.add(info.uid, assigned_pod)
        if node.load.report is not None:
            self._write(info.node_name, node)

    def pod_gone(self, info: PodInfo) -> None:
        node = self._nodes.get(info.node_name)
        if node is None:
            return
        node.load.remove(info.uid)
        if node.load.report is not None:
            self._write(info.node_name, node)
        else:
            self.node_gone(info.node_name)

    def pod_conditions(self, info: PodInfo) -> None:
        """The moments of PodScheduled and Initialized decide until when the estimate counts."""
        node = self._nodes.get(info.node_name)
        known = node.load.pods.get(info.uid) if node is not None else None
        if node is None or known is None:
            return
        moment = moment_of(info.pod, "PodScheduled")
        assigned = known.assigned if moment is None else moment
        deadline = self._estimator.deadline(info.pod, assigned)
        if (assigned, deadline) != (known.assigned, known.deadline):
            node.load.add(info.uid, AssignedPod(known.key, known.prod, known.estimate, assigned, deadline))
            if node.load.report is not None:
                self._changed(info.node_name, node)

    def facts(self, pod_class: EquivalenceClass) -> tuple[bool, Vector]:
        """Whether pods of the class are prod pods, and their estimate."""
        key = self.column("facts")
        fact: tuple[bool, Vector] | None = pod_class.facts.get(key)  # type: ignore[assignment]
        if fact is None:
            pod = pod_class.example
            priority_class = class_with_default(pod.metadata.labels, pod.spec)
            try:
                estimate = self._estimator.of(pod, priority_class)
            except QuantityError:
                estimate = self._zero  # such a pod is not scheduled, and counts with nothing
            fact = pod_class.facts[key] = (priority_class == PROD, estimate)
        return fact

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _node(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            load = NodeLoad(self._width, include_system=self._args.prod_usage_include_sys)
            node = self._nodes[name] = _Node(load, self.rules.default, self._no_raw, self._unknown)
        return node

    def _read_more(self, kind: str) -> None:
        """Read an aggregation type that no node needed before from the present NodeMetrics."""
        self._kinds |= {kind}
        for name, metric in self._metrics.items():
            node = self._nodes[name]
            node.load.set_report(read_report(metric, self.names, self._kinds))
            self._changed(name, node)

    def _raw(self, annotation: str) -> Vector:
        if not annotation:
            return self._no_raw
        listed: Mapping[str, Quantity] = decode_as(annotation, dict[str, str | int | float])
        return tuple(amount(name, listed[name]) if name in listed else -1 for name in self.names)

    def _row_of(self, node: _Node) -> LoadRow:
        load, args = node.load, self._args
        report = load.report
        if report is None:
            verdict = PASS
        elif node.expired and args.filter_expired_node_metrics:
            verdict = PASS if args.enable_schedule_when_node_metrics_expired else EXPIRED
        else:
            verdict = JUDGE if report.usage is not None else PASS
        scored = report is not None and report.usage is not None and not node.expired
        used = (load.usage(node.limits.aggregation), load.usage_of_prod(), load.usage(self._score_aggregation))
        return LoadRow(used, node.limits, node.raw, verdict=verdict, scored=scored)

    def _write(self, name: str, node: _Node) -> None:
        """Write the node's row; the caller sees to it that the change is logged."""
        row = node.row = self._row_of(node)
        columns = self._handle.columns
        number = columns.rows.get(name)
        if number is None:
            return
        columns.column(self.column("used"))[..., number] = row.used
        columns.column(self.column("limits"))[..., number] = row.limits.usage, row.limits.prod or self._zero
        columns.column(self.column("raw"))[:, number] = row.raw
        columns.column(self.column("verdict"))[number] = row.verdict
        columns.column(self.column("scored"))[number] = row.scored

    def _changed(self, name: str, node: _Node) -> None:
        """Write the row and log it; have waiting pods tried again if the node may fit more pods than before."""
        before = node.row
        self._write(name, node)
        after = node.row
        columns = self._handle.columns
        number = columns.rows.get(name)
        if number is None or before.token == after.token:
            return
        columns.touch(number)
        if before.verdict != PASS and (after.verdict < before.verdict or _eased(before, after)):
            self._plan_wake()

    def _plan_wake(self) -> None:
        if not self._wake_planned:
            self._wake_planned = True
            self._clock.call_later(WAKE_PAUSE, self._wake)

    def _wake(self) -> None:
        self._wake_planned = False
        self._handle.request_wake()
        self._handle.request_cycle()


def _eased(before: LoadRow, after: LoadRow) -> bool:
    return any(
        new < old
        for olds, news in zip(before.used, after.used, strict=True)
        for old, new in zip(olds, news, strict=True)
    )


def distinctions(pod: Pod) -> tuple[object, ...]:
    """What of a pod's spec, besides its requests, decides about its estimate: priority class and limits."""
    spec = pod.spec
    try:
        limits = sorted(pod_limits(spec).items())
    except QuantityError:
        limits = []
    return class_with_default(pod.metadata.labels, spec), limits
