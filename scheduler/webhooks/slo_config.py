"""Validation of the ConfigMap slo-controller-config, and of labels by which nodes get settings (N-3 to N-7).

Follows Koordinator's pkg/webhook/cm/plugins/sloconfig and pkg/webhook/node/plugins. Other than there, settings of QoS
without `system-config` are valid: their bandwidth is compared with none.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import msgspec

from seatrial.scheduler.api.quantity import QuantityError, exact
from seatrial.scheduler.api.slo import (
    CONFIG_COLOCATION,
    CONFIG_NAME,
    CONFIG_NAMESPACE,
    CONFIG_QOS,
    CONFIG_STRATEGIES,
    CONFIG_SYSTEM,
)
from seatrial.scheduler.api.wire import LabelSelector, decode_as
from seatrial.scheduler.pods.selectors import selector_matches

log = logging.getLogger(__name__)

KEYS = (CONFIG_COLOCATION, *CONFIG_STRATEGIES)  # the others are not validated
PARSE_FAILED, INVALID = "ParseConfigFail", "ConfigParamInvalid"
OVERLAP, CONFLICT = "NodeStrategiesOverlap", "ExistNodeConfict"  # spelled so upstream
_EXAMPLES = 3  # nodes that a message names
_PERCENT = (0, 100)
_RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(
        [
            "cpuSuppressThresholdPercent",
            "cpuSuppressMinPercent",
            "memoryEvictThresholdPercent",
            "memoryEvictLowerPercent",
            "cpuEvictBESatisfactionUpperPercent",
            "cpuEvictBESatisfactionLowerPercent",
            "cpuEvictBEUsageThresholdPercent",
            "cpuEvictThresholdPercent",
            "cpuEvictLowerPercent",
            "sharePoolThresholdPercent",
            "minLimitPercent",
            "lowLimitPercent",
            "throttlingPercent",
            "wmarkRatio",
            "catRangeStartPercent",
            "catRangeEndPercent",
            "mbaPercent",
            "midCPUThresholdPercent",
            "midMemoryThresholdPercent",
            "midUnallocatedPercent",
            "midStaticCPUReservedPercent",
            "midStaticMemoryReservedPercent",
        ],
        _PERCENT,
    ),
    **dict.fromkeys(
        [
            "cpuReclaimThresholdPercent",
            "memoryReclaimThresholdPercent",
            "batchCPUThresholdPercent",
            "batchMemoryThresholdPercent",
        ],
        (0, float("inf")),
    ),
    **dict.fromkeys(
        [
            "metricAggregateDurationSeconds",
            "metricReportIntervalSeconds",
            "degradeTimeMinutes",
            "updateTimeThresholdSeconds",
            "cpuEvictTimeWindowSeconds",
            "minFreeKbytesFactor",
        ],
        (1, float("inf")),
    ),
    **dict.fromkeys(("priorityEnable", "oomKillGroup", "memcgReapBackGround", "schedIdle"), (0, 1)),
    "resourceDiffThreshold": (1e-9, 1),
    "cpuBurstPercent": (1, 10_000),
    "cfsQuotaBurstPercent": (100, float("inf")),
    "cfsQuotaBurstPeriodSeconds": (-1, float("inf")),
    "watermarkScaleFactor": (1, 400),
    "wmarkScalePermill": (1, 1000),
    "wmarkMinAdj": (-25, 50),
    "priority": (0, 12),
    "groupIdentity": (-1, 2),
}
_ORDERED = (  # the first is below the second
    ("memoryEvictLowerPercent", "memoryEvictThresholdPercent"),
    ("cpuEvictLowerPercent", "cpuEvictThresholdPercent"),
    ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"),
    ("catRangeStartPercent", "catRangeEndPercent"),
)
_NETWORK_CLASSES, _DIRECTIONS = ("lsrClass", "lsClass", "beClass"), ("ingress", "egress")


class ConfigRefusal(Exception):
    """The ConfigMap or the node is refused; the text is Koordinator's body, with its reason."""

    def __init__(self, reason: str, message: str, nodes: Sequence[str] = ()) -> None:
        body: dict[str, Any] = {"reason": reason, "message": message}
        body |= {"exampleNodes": list(nodes[:_EXAMPLES])} if nodes else {}
        super().__init__(f"___{msgspec.json.encode(body).decode()}___")


@dataclass(frozen=True, slots=True)
class _Override:
    """Settings of nodes with certain labels."""

    name: str
    selector: LabelSelector
    settings: Mapping[str, Any]

    def example(self) -> dict[str, str]:
        """Labels of a node that the selector matches, unless its expressions exclude them."""
        values = {each.key: each.values[0] if each.values else "" for each in self.selector.match_expressions}
        return {**values, **self.selector.match_labels}


@dataclass(slots=True)
class SloConfigRules:
    """The rules with what they are compared with: the labels of the nodes, and the ConfigMap as it is stored."""

    check_names: bool = True
    nodes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)

    def check(self, namespace: str, name: str, new: Mapping[str, str], old: Mapping[str, str]) -> None:
        """Check the keys of the ConfigMap that have changed and are not empty (N-4).

        Raises:
            ConfigRefusal: one of them is not valid.
        """
        if (namespace, name) != (CONFIG_NAMESPACE, CONFIG_NAME):
            return
        for key in KEYS:
            text = new.get(key, "")
            if text and text != old.get(key, ""):
                self._check_key(key, text, new)

    def _check_key(self, key: str, text: str, data: Mapping[str, str]) -> None:
        cluster, overrides = _parsed(key, text)
        for settings in (cluster, *(each.settings for each in overrides)):
            wrong = next(_out_of_range(settings), "")
            if wrong:
                raise ConfigRefusal(INVALID, f"{key}: {wrong}")
        if key == CONFIG_QOS:
            _check_network(cluster, overrides, data.get(CONFIG_SYSTEM, ""))
        if self.check_names:
            for name, number in Counter(each.name for each in overrides).items():
                if not name:
                    raise ConfigRefusal(INVALID, f"nodeConfig Name need! configType:{key}")
                if number > 1:
                    raise ConfigRefusal(
                        INVALID, f"nodeConfig Name confilict, configType:{key},nodeConfig Name:{name}! "
                    )
        index = _Index(overrides)
        for labels in (each.example() for each in overrides):
            both = index.matching(labels)
            if len(both) > 1:
                raise ConfigRefusal(OVERLAP, f"{key}: the selectors of {' and '.join(both[:2])} match the same nodes")
        conflicts = [node for node, labels in self.nodes.items() if len(index.matching(labels)) > 1]
        if conflicts:
            both = index.matching(self.nodes[conflicts[0]])
            raise ConfigRefusal(CONFLICT, f"{key}: {' and '.join(both[:2])} match the same nodes", sorted(conflicts))

    def check_node(self, name: str, labels: Mapping[str, str], before: Mapping[str, str] | None) -> None:
        """Check new labels of a node; those of a new one (`before` None) are only logged (N-3).

        Raises:
            ConfigRefusal: two settings of one key would be the node's.
        """
        if labels == before:
            return
        for key in KEYS:
            try:
                _, overrides = _parsed(key, self.data.get(key) or "{}")
            except ConfigRefusal:
                continue  # it was stored before it was checked
            both = _Index([each for each in overrides if each.name]).matching(labels)
            if len(both) > 1:
                message = f"{key}: {' and '.join(both[:2])} match node {name}"
                if before is not None:
                    raise ConfigRefusal(CONFLICT, message, [name])
                log.warning("node settings conflict: %s", message)


class _Index:
    """Overrides by a label that their nodes have, the one that the fewest of them ask for: a node looks at few."""

    def __init__(self, overrides: Sequence[_Override]) -> None:
        uses = Counter(pair for each in overrides for pair in each.selector.match_labels.items())
        self._by_label: dict[tuple[str, str] | None, list[tuple[int, _Override]]] = defaultdict(list)
        for place, each in enumerate(overrides):
            rarest = min(each.selector.match_labels.items(), key=uses.__getitem__, default=None)
            self._by_label[rarest].append((place, each))  # None: it has expressions alone

    def matching(self, labels: Mapping[str, str]) -> list[str]:
        """The names of the overrides that would be a node's, in their order."""
        own = dict(labels)
        near = [pair for key in (None, *own.items()) for pair in self._by_label.get(key, ())]
        return [
            each.name or "(no name)"
            for _, each in sorted(near, key=itemgetter(0))
            if selector_matches(each.selector, own)
        ]


def _parsed(key: str, text: str) -> tuple[Mapping[str, Any], list[_Override]]:
    """The settings of the cluster, and of nodes by label.

    Raises:
        ConfigRefusal: the text is not of its form, or a selector is missing.
    """
    nested = key in CONFIG_STRATEGIES
    try:
        document = decode_as(text, dict[str, Any])
        entries = msgspec.convert(
            document.pop("nodeStrategies" if nested else "nodeConfigs", None) or [], list[dict[str, Any]]
        )
        cluster = msgspec.convert((document.get("clusterStrategy") or {}) if nested else document, dict[str, Any])
        overrides = []
        for entry in entries:
            selector = msgspec.convert(entry.get("nodeSelector") or {}, LabelSelector)
            name = msgspec.convert(entry.get("name", ""), str)
            if not selector.match_labels and not selector.match_expressions:
                message = f"nodeConfigs NodeSelector must not empty error! configType: {key},nodeConfig name:{name}"
                raise ConfigRefusal(INVALID, message)
            overrides.append(_Override(name, selector, entry))
    except msgspec.MsgspecError as error:
        raise ConfigRefusal(PARSE_FAILED, f"{key}: {error}") from error
    return cluster, overrides


def _out_of_range(settings: Mapping[str, Any]) -> Iterator[str]:
    """What of the settings, at any depth, has a wrong type or is out of range."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            if name != "nodeSelector":
                yield from _out_of_range(value)
        elif name in _RANGES and value is not None and not isinstance(value, str):
            low, high = _RANGES[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                yield f"{name}: expected {low:g} to {high:g}, found {value!r:.60}"
        elif name in _RANGES and isinstance(value, str) and name != "priority":
            yield f"{name}: expected a number, found {value!r:.60}"
    for lower, upper in _ORDERED:
        below, above = settings.get(lower), settings.get(upper)
        if isinstance(below, int) and isinstance(above, int) and below >= above:
            yield f"{lower}: expected less than {upper}, {above}, found {below}"


def _check_network(cluster: Mapping[str, Any], overrides: Sequence[_Override], system: str) -> None:
    """The sums of what the classes request of the network (N-7).

    Raises:
        ConfigRefusal: they are more than there is, or of two kinds.
    """
    total = None
    if system:
        settings, _ = _parsed(CONFIG_SYSTEM, system)
        try:
            total = exact(settings.get("totalNetworkBandwidth") or 0) or None
        except QuantityError as error:
            raise ConfigRefusal(INVALID, f"totalNetworkBandwidth: {error}") from error
    every = [("ClusterStrategy", "clusterStrategy", cluster)]
    every += [(f"cfg.NodeStrategies[{n}]", f"nodeStrategy[{n}]", each.settings) for n, each in enumerate(overrides)]
    for title, place, settings in every:
        classes = [_mapping(_mapping(settings.get(name)).get("networkQOS")) for name in _NETWORK_CLASSES]
        values = [
            value
            for each in classes
            for direction in _DIRECTIONS
            for kind in ("Request", "Limit")
            if (value := each.get(direction + kind)) is not None
        ]
        for value in values:
            _check_bandwidth(value)
        if len({isinstance(value, int) for value in values}) > 1:
            raise ConfigRefusal(INVALID, f"only one type can be used for percentages or quantity in {place}")
        for direction in _DIRECTIONS:
            requests = [each[f"{direction}Request"] for each in classes if each.get(f"{direction}Request") is not None]
            if all(isinstance(value, int) for value in requests):
                if sum(requests) > _PERCENT[1]:
                    raise ConfigRefusal(INVALID, f"{title} total net bandwidth percentage already over 100")
            elif total is not None and sum(exact(value) for value in requests) > total:
                raise ConfigRefusal(INVALID, f"total net bandwidth over total network bandwidth in {place}")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _check_bandwidth(value: object) -> None:
    valid = isinstance(value, int) and not isinstance(value, bool) and _PERCENT[0] <= value <= _PERCENT[1]
    if isinstance(value, str):
        try:
            valid = exact(value) >= 0
        except QuantityError:
            valid = False
    if not valid:
        raise ConfigRefusal(INVALID, "must be an integer just in 0-100 or quantity (e.g '50M')")
