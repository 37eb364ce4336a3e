"""Reports the use of a node's cards by pods as NodeMetric: koordlet's device metrics.

Simulated pods use the CPU and memory that their annotation `seatrial.dev/usage` gives, as in {"cpu": "2", "memory":
"4Gi"}; a pod without it uses none, and is reported only if it has a card.

Nothing is written for a node until its NodeMetric exists (Koordinator's manager creates it), then once an interval. As
in koordlet, only NVIDIA cards are reported, a card's use is the sum over its processes, and a card that does not answer
is left out. The use of simulated pods is in their annotation `seatrial.dev/device-usage`, for each card that they hold;
real cards are read through their provider. CPU and memory of the node are not measured.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from seatrial.harness.devices.provider import Device, DeviceProvider, ProviderError, Share
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.follow import Follower, HeadMeta
from seatrial.harness.nodes.pods import BoundPod
from seatrial.harness.nodes.writer import Writer
from seatrial.harness.quantities import Amounts, QuantityError, amounts, quantities, units
from seatrial.scheduler.api import device as words
from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL, QOS_LABEL
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.api.wire import Wire, decoder

log = logging.getLogger(__name__)

Manifest = dict[str, Any]

NODE_METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
USAGE_ANNOTATION = "seatrial.dev/device-usage"
RESOURCES_ANNOTATION = "seatrial.dev/usage"
INTERVAL, MIN_INTERVAL = 60.0, 30.0  # seconds; Koordinator's default and minimum
SILENT = frozenset({"GpuIsLost", "Xid79"})  # health codes of cards that do not report their use


@dataclass(frozen=True, slots=True)
class CardUse:
    """One pod's use of one card."""

    uuid: str
    memory: int  # bytes
    core: float  # percent of time with a kernel


@dataclass(frozen=True, slots=True)
class PodUse:
    """One pod's use of all its cards."""

    namespace: str
    name: str
    cards: tuple[CardUse, ...]
    resources: Amounts | None = None  # cpu and memory; None: not known
    priority: str = ""
    qos: str = ""


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The devices of a node and their use by pods."""

    devices: tuple[Device, ...]
    pods: tuple[PodUse, ...] = ()


def metric_status(use: NodeUse, *, now: str) -> Manifest:
    """The status of a NodeMetric. Cards by minor, pods by namespace and name.

    Pods without a card are left out; use that belongs to no pod (empty name) counts for the node only.
    """
    cards = {device.uuid: device for device in sorted(_measured(use.devices), key=lambda one: one.minor)}
    idle = [CardUse(uuid, 0, 0.0) for uuid in cards]
    everything = [card for pod in use.pods for card in pod.cards]
    pods = [
        _pod_metric(cards, pod)
        for pod in sorted(use.pods, key=lambda pod: (pod.namespace, pod.name))
        if pod.name and (pod.resources is not None or any(card.uuid in cards for card in pod.cards))
    ]
    usage: Manifest = {"devices": _entries(cards, [*idle, *everything])}
    total: Amounts = {}
    for pod in use.pods:
        for name, value in (pod.resources or {}).items():
            total[name] = total.get(name, 0) + value
    if total:
        usage["resources"] = quantities(total)
    return {"updateTime": now, "nodeMetric": {"nodeUsage": usage}, "podsMetric": pods}


def _pod_metric(cards: Mapping[str, Device], pod: PodUse) -> Manifest:
    usage: Manifest = {"devices": _entries(cards, pod.cards)}
    if pod.resources is not None:
        usage["resources"] = quantities(pod.resources)
    found: Manifest = {"namespace": pod.namespace, "name": pod.name, "podUsage": usage}
    if pod.priority:
        found["priority"] = pod.priority
    if pod.qos:
        found["qos"] = pod.qos
    return found


def scripted_use(pod: BoundPod, shares: Sequence[Share], script: str | None = None) -> PodUse:
    """A simulated pod's use: what its annotations say, of each NVIDIA card it holds and of CPU and memory.

    `script` is the present value of `seatrial.dev/usage`, if it was changed after the pod had started.

    Raises:
        UsageError: an annotation is not of the form {"core": percent, "memory": quantity}, or of {"cpu", "memory"}.
    """
    text = pod.metadata.annotations.get(USAGE_ANNOTATION, "")
    memory, core = _script(pod.key, text) if text else (0, 0.0)
    cards = {share.device.uuid: share.device for share in shares if VENDORS[share.device.vendor].measured}
    found = tuple(CardUse(card.uuid, min(memory, card.memory), core) for card in cards.values())
    meta = pod.metadata
    written = meta.annotations.get(RESOURCES_ANNOTATION, "") if script is None else script
    resources = _resources(pod.key, written) if written else None
    labels = meta.labels
    return PodUse(
        meta.namespace, meta.name, found, resources, labels.get(PRIORITY_CLASS_LABEL, ""), labels.get(QOS_LABEL, "")
    )


def measured_use(provider: DeviceProvider, pod_of: Callable[[int], tuple[str, str] | None]) -> NodeUse:
    """The use of processes that a provider reports, by pod. `pod_of` returns namespace and name by pid, None for
    others.

    As in koordlet a process counts only where both its memory and its cores are known, and a card that refuses one
    question is left out of this round.
    """
    devices: list[Device] = []
    found: dict[tuple[str, str], list[CardUse]] = {}
    for device in provider.devices():
        if device.kind != "gpu" or device.health.code in SILENT:
            continue
        try:
            processes = provider.processes(device.uuid)
        except ProviderError as error:
            log.info("usage card-left-out uuid=%s why=%s", device.uuid, error)
            continue
        devices.append(device)
        for process in processes:
            if process.memory is not None and process.core is not None:
                use = CardUse(device.uuid, process.memory, process.core)
                found.setdefault(pod_of(process.pid) or ("", ""), []).append(use)
    pods = tuple(PodUse(namespace, name, tuple(uses)) for (namespace, name), uses in found.items())
    return NodeUse(tuple(devices), pods)


class _Policy(Wire, frozen=True):
    report_interval_seconds: int | None = None


class _Spec(Wire, frozen=True):
    metric_collect_policy: _Policy = _Policy()


class _NodeMetric(Wire, frozen=True):
    spec: _Spec = _Spec()


_decode = decoder(_NodeMetric)


class _Report:
    """The reports of one node."""

    __slots__ = ("interval", "timer", "uid")

    def __init__(self, uid: str, interval: float) -> None:
        self.uid, self.interval = uid, interval
        self.timer: Timer | None = None


class UsageReports:
    """Follows NodeMetric objects and keeps the status of each one whose node is here."""

    def __init__(
        self, transport: Transport, clock: Clock, writer: Writer, look: Callable[[str], NodeUse | None]
    ) -> None:
        """`look` says what a node does now; None if it is not one of ours, or says nothing at the moment."""
        self._clock, self._writer, self._look = clock, writer, look
        self._reports: dict[str, _Report] = {}
        self._follow = Follower(transport, clock, NODE_METRICS, {}, on_set=self._set, on_gone=self._gone)

    def start(self) -> None:
        """Begin to watch."""
        self._follow.start()

    def stop(self) -> None:
        """No more reports."""
        self._follow.stop()
        for report in self._reports.values():
            _cancel(report)
        self._reports.clear()

    def _set(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        interval = interval_of(_decode(raw).spec.metric_collect_policy.report_interval_seconds)
        known = self._reports.get(head.name)
        if known is not None and (known.uid, known.interval) == (head.uid, interval):
            return  # our own report, or a change of a field that is not read here
        if known is not None:
            _cancel(known)
        report = self._reports[head.name] = _Report(head.uid, interval)
        self._plan(head.name, report)

    def _gone(self, head: HeadMeta) -> None:
        known = self._reports.get(head.name)
        if known is not None and known.uid == head.uid:
            _cancel(self._reports.pop(head.name))

    def _plan(self, node: str, report: _Report) -> None:
        report.timer = self._clock.call_later(report.interval, lambda: self._send(node, report))

    def _send(self, node: str, report: _Report) -> None:
        use = self._look(node)
        if use is not None:
            status = metric_status(use, now=self._clock.timestamp())
            self._writer.merge(f"{NODE_METRICS}/{node}/status", {"status": status})
        self._plan(node, report)


def interval_of(asked: int | None) -> float:
    """Seconds between two reports, for what the spec asks."""
    return max(MIN_INTERVAL, float(asked)) if asked else INTERVAL


def _cancel(report: _Report) -> None:
    if report.timer is not None:
        report.timer.cancel()
        report.timer = None


def _measured(devices: Iterable[Device]) -> list[Device]:
    return [device for device in devices if VENDORS[device.vendor].measured and device.health.code not in SILENT]


def _entries(cards: Mapping[str, Device], uses: Iterable[CardUse]) -> list[Manifest]:
    memory: dict[str, int] = {}
    core: dict[str, float] = {}
    for use in uses:
        if use.uuid in cards:
            memory[use.uuid] = memory.get(use.uuid, 0) + use.memory
            core[use.uuid] = core.get(use.uuid, 0.0) + use.core
    return [
        {
            "type": "gpu",
            "id": uuid,
            "minor": card.minor,
            "health": card.health.ok,
            "resources": {
                words.GPU_CORE: str(round(core[uuid])),
                words.GPU_MEMORY: str(memory[uuid]),
                words.GPU_MEMORY_RATIO: str(memory[uuid] * 100 // card.memory),
            },
        }
        for uuid, card in cards.items()
        if uuid in memory
    ]


def _script(key: str, text: str) -> tuple[int, float]:
    where = f"pod {key}: annotation {USAGE_ANNOTATION}"
    try:
        found = orjson.loads(text)
        if not isinstance(found, dict) or found.keys() - {"core", "memory"}:
            raise UsageError(f'{where}: expected {{"core": percent, "memory": quantity}}, found {text[:60]!r}')
        memory, core = units(found.get("memory", 0)), float(found.get("core", 0))
    except (orjson.JSONDecodeError, QuantityError, TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error
    if memory < 0 or not 0 <= core <= 100:
        raise UsageError(f"{where}: expected core of 0 to 100 and memory of 0 and more, found {text[:60]!r}")
    return memory, core


def _resources(key: str, text: str) -> Amounts:
    where = f"pod {key}: annotation {RESOURCES_ANNOTATION}"
    try:
        found = orjson.loads(text)
        if not isinstance(found, dict) or found.keys() - {"cpu", "memory"}:
            raise UsageError(f'{where}: expected {{"cpu": quantity, "memory": quantity}}, found {text[:60]!r}')
        used = amounts(found)
    except (orjson.JSONDecodeError, QuantityError) as error:
        raise UsageError(f"{where}: {error}") from error
    if any(value < 0 for value in used.values()):
        raise UsageError(f"{where}: expected amounts of 0 and more, found {text[:60]!r}")
    return used
