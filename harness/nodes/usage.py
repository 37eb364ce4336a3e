"""Reports the use of nodes by pods as NodeMetric: koordlet's metrics of CPU, memory and devices.

Nothing is written for a node until its NodeMetric exists (Koordinator's manager creates it), then once an interval.
CPU and memory of simulated nodes come from `usage_model`, those of this machine from its cgroup files (`local_load`).

As in koordlet, only NVIDIA cards are reported, a card's use is the sum over its processes, and a card that does not
answer is left out. The use of simulated pods is in their annotation `seatrial.dev/device-usage`, for each card that
they hold; real cards are read through their provider.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from seatrial.harness.apiserver.quantities import Amounts, QuantityError, quantities, units
from seatrial.harness.devices.provider import Device, DeviceProvider, ProviderError, Share
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.follow import Follower, HeadMeta
from seatrial.harness.nodes.numa_usage import NumaUse
from seatrial.harness.nodes.pods import BoundPod
from seatrial.harness.nodes.usage_model import USAGE, Load
from seatrial.harness.nodes.usage_samples import Samples, aggregates, reported
from seatrial.harness.nodes.writer import Writer
from seatrial.scheduler.api import device as words
from seatrial.scheduler.api.clock import Clock, Timer, rfc3339
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL, PROD, QOS_LABEL
from seatrial.scheduler.api.slo import CollectPolicy, NodeMetric
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.api.wire import decoder

log = logging.getLogger(__name__)

Manifest = dict[str, Any]

NODE_METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
USAGE_ANNOTATION = "seatrial.dev/device-usage"
RESOURCES_ANNOTATION = USAGE
DEFAULT_POLICY = CollectPolicy()
_BANDS = ((PROD, 9000), ("koord-mid", 7000), ("koord-batch", 5000), ("koord-free", 3000))  # name, lowest priority
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
    samples: Samples | None = None  # of cpu and memory; None: not measured
    priority: str = ""
    qos: str = ""


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The devices of a node, their use by pods, and the use of CPU and memory."""

    devices: tuple[Device, ...]
    pods: tuple[PodUse, ...] = ()
    load: Load | None = None  # None: CPU and memory are not measured
    taken: float | None = None  # seconds since 1970 where it is not from now: the agent does not measure any more
    garbage: bool = False  # the agent writes nonsense
    numa: tuple[NumaUse, ...] = ()


def metric_status(use: NodeUse, *, now: float, policy: CollectPolicy = DEFAULT_POLICY) -> Manifest:
    """The status of a NodeMetric at `now`, seconds since 1970. Cards by minor, pods by namespace and name.

    Pods without a card and without measured CPU and memory are left out; cards' use that belongs to no pod (empty name)
    counts for the node only.
    """
    moment = now if use.taken is None else use.taken
    cards = {device.uuid: device for device in sorted(_measured(use.devices), key=lambda device: device.minor)}
    idle = [CardUse(uuid, 0, 0.0) for uuid in cards]
    everything = [card for pod in use.pods for card in pod.cards]
    pods = []
    for pod in sorted(use.pods, key=lambda pod: (pod.namespace, pod.name)):
        amounts = reported(pod.samples, policy, moment) if pod.samples is not None else None
        if pod.name and (amounts is not None or any(card.uuid in cards for card in pod.cards)):
            pods.append(_pod_metric(cards, pod, _spoilt(use, amounts)))
    usage: Manifest = {"devices": _entries(cards, [*idle, *everything])}
    node: Manifest = {"nodeUsage": usage}
    status: Manifest = {"updateTime": rfc3339(moment), "nodeMetric": node, "podsMetric": pods}
    load = use.load
    counts = reported(load.node, policy, moment) if load is not None else None
    if load is not None and counts is not None:
        usage["resources"] = quantities(_spoilt(use, counts) or {})
        node["aggregatedNodeUsages"] = aggregates(load.node, policy, moment)
        system = reported(load.system, policy, moment) if load.system is not None else None
        if load.system is not None and system is not None:
            node["systemUsage"] = {"resources": quantities(_spoilt(use, system) or {})}
            node["aggregatedSystemUsages"] = aggregates(load.system, policy, moment)
        if use.numa:
            node["numaUsages"] = [_numa_metric(each, policy, moment) for each in use.numa]
        status["prodReclaimableMetric"] = {"resource": {}}  # as koordlet's without its predictor (QOS-RP-4)
        status["hostApplicationMetric"] = [
            {"name": host.name, "usage": {"resources": quantities(amounts)}, "priority": host.priority, "qos": host.qos}
            for host in load.applications
            if (amounts := reported(host.samples, policy, moment)) is not None
        ]
    return status


def _numa_metric(use: NumaUse, policy: CollectPolicy, moment: float) -> Manifest:
    manifest: Manifest = {"numaNodeID": use.number}
    for name, samples in (("nodeUsage", use.node), ("systemUsage", use.system)):
        amounts = reported(samples, policy, moment) if samples is not None else None
        if amounts is not None:
            manifest[name] = {"resources": quantities(amounts)}
    return manifest


def _spoilt(use: NodeUse, amounts: Amounts | None) -> Amounts | None:
    """Negative amounts if the agent writes nonsense: they pass the API server's schema."""
    return {name: -1 - value for name, value in amounts.items()} if use.garbage and amounts is not None else amounts


def _pod_metric(cards: Mapping[str, Device], pod: PodUse, amounts: Amounts | None) -> Manifest:
    usage: Manifest = {"devices": _entries(cards, pod.cards)}
    if amounts is not None:
        usage["resources"] = quantities(amounts)
    manifest: Manifest = {"namespace": pod.namespace, "name": pod.name, "podUsage": usage}
    if pod.priority:
        manifest["priority"] = pod.priority
    if pod.qos:
        manifest["qos"] = pod.qos
    return manifest


def scripted_use(pod: BoundPod, shares: Sequence[Share], samples: Samples | None = None) -> PodUse:
    """A simulated pod's use: of each NVIDIA card it holds, the use in its annotation, and `samples` of CPU and memory.

    Raises:
        UsageError: the annotation is not of the form {"core": percent, "memory": quantity}.
    """
    text = pod.metadata.annotations.get(USAGE_ANNOTATION, "")
    memory, core = _script(pod.key, text) if text else (0, 0.0)
    cards = {share.device.uuid: share.device for share in shares if VENDORS[share.device.vendor].measured}
    card_uses = tuple(CardUse(card.uuid, min(memory, card.memory), core) for card in cards.values())
    meta = pod.metadata
    priority, qos = reported_classes(meta.labels, pod.priority) if samples is not None else ("", "")
    return PodUse(meta.namespace, meta.name, card_uses, samples, priority, qos)


def reported_classes(labels: Mapping[str, str], priority: int) -> tuple[str, str]:
    """Priority class and QoS class of a pod as a NodeMetric has them (QOS-RP-3).

    The class is that of the label, else the band of the priority, else batch for QoS BE and prod for others. Without a
    label the QoS class is that of the priority class.
    """
    qos = labels.get(QOS_LABEL, "")
    named = labels.get(PRIORITY_CLASS_LABEL, "")
    named = named or next((name for name, low in _BANDS if low <= priority <= low + 999), "")
    named = named or ("koord-batch" if qos == "BE" else PROD)
    return named, qos or ("BE" if named in {"koord-batch", "koord-free"} else "LS")


def measured_use(provider: DeviceProvider, pod_of: Callable[[int], tuple[str, str] | None]) -> NodeUse:
    """The use of processes that a provider reports, by pod. `pod_of` returns namespace and name by pid, None for
    others.

    As in koordlet a process counts only where both its memory and its cores are known, and a card that refuses one
    question is left out of this round.
    """
    devices: list[Device] = []
    card_uses: dict[tuple[str, str], list[CardUse]] = {}
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
                card_uses.setdefault(pod_of(process.pid) or ("", ""), []).append(use)
    pods = tuple(PodUse(namespace, name, tuple(uses)) for (namespace, name), uses in card_uses.items())
    return NodeUse(tuple(devices), pods)


_decode = decoder(NodeMetric)


class _Report:
    """The reports of one node."""

    __slots__ = ("interval", "policy", "timer", "uid")

    def __init__(self, uid: str, interval: float, policy: CollectPolicy) -> None:
        self.uid, self.interval, self.policy = uid, interval, policy
        self.timer: Timer | None = None


class UsageReports:
    """Follows NodeMetric objects and keeps the status of each one whose node is here."""

    def __init__(
        self, transport: Transport, clock: Clock, writer: Writer, look: Callable[[str, CollectPolicy], NodeUse | None]
    ) -> None:
        """`look` returns what a node does, as far back as the policy needs; None if it is not ours or is silent."""
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
        policy = _decode(raw).spec.metric_collect_policy or DEFAULT_POLICY
        interval = interval_of(policy.report_interval_seconds)
        known = self._reports.get(head.name)
        if known is not None and (known.uid, known.interval) == (head.uid, interval):
            known.policy = policy
            return  # our own report, or a change that counts from the next report on
        if known is not None:
            _cancel(known)
        report = self._reports[head.name] = _Report(head.uid, interval, policy)
        self._plan(head.name, report)

    def _gone(self, head: HeadMeta) -> None:
        known = self._reports.get(head.name)
        if known is not None and known.uid == head.uid:
            _cancel(self._reports.pop(head.name))

    def _plan(self, node: str, report: _Report) -> None:
        report.timer = self._clock.call_later(report.interval, lambda: self._send(node, report))

    def _send(self, node: str, report: _Report) -> None:
        self._plan(node, report)
        use = self._look(node, report.policy)
        if use is not None:
            status = metric_status(use, now=self._clock.now(), policy=report.policy)
            self._writer.merge(f"{NODE_METRICS}/{node}/status", {"status": status})


def interval_of(amount: int | None) -> float:
    """Seconds between two reports, for what the spec asks."""
    return max(MIN_INTERVAL, float(amount)) if amount else INTERVAL


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
        document = orjson.loads(text)
        if not isinstance(document, dict) or document.keys() - {"core", "memory"}:
            raise UsageError(f'{where}: expected {{"core": percent, "memory": quantity}}, found {text[:60]!r}')
        memory, core = units(document.get("memory", 0)), float(document.get("core", 0))
    except (orjson.JSONDecodeError, QuantityError, TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error
    if memory < 0 or not 0 <= core <= 100:
        raise UsageError(f"{where}: expected core of 0 to 100 and memory of 0 and more, found {text[:60]!r}")
    return memory, core
