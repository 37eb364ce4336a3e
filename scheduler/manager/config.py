"""The ConfigMap `slo-controller-config`: settings of the cluster, and overrides for nodes by label (QOS-C-1 to C-3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from seatrial.scheduler.api.core import ConfigMap
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.slo import AGGREGATE_DURATIONS, AGGREGATE_SECONDS, REPORT_SECONDS, WITHOUT_PAGE_CACHE
from seatrial.scheduler.api.wire import LabelSelector, decode_as
from seatrial.scheduler.pods.selectors import selector_matches

NAMESPACE, NAME = "koordinator-system", "slo-controller-config"
COLOCATION, NORMALIZATION, AMPLIFICATION = (
    "colocation-config",
    "cpu-normalization-config",
    "resource-amplification-config",
)
KEYS = (COLOCATION, NORMALIZATION, AMPLIFICATION)
Settings = dict[str, Any]


class SettingsError(ValueError):
    """A setting is not usable; the text names it, and what was expected and found."""


@dataclass(frozen=True, slots=True)
class Section:
    """One key of the ConfigMap: settings of the cluster, and of nodes with certain labels."""

    cluster: Settings = field(default_factory=dict)
    overrides: Sequence[tuple[LabelSelector, Settings]] = ()

    def on(self, labels: Mapping[str, str]) -> Settings:
        """The settings for a node: those of the first override whose selector matches go before the cluster's."""
        own = next((settings for selector, settings in self.overrides if selector_matches(selector, dict(labels))), {})
        return _overlaid(self.cluster, own)


@dataclass(frozen=True, slots=True)
class SloConfig:
    """All keys. A key in `broken` could not be parsed and was never good."""

    sections: Mapping[str, Section] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()

    def section(self, key: str) -> Section:
        return self.sections.get(key, Section())


def read_config(config_map: ConfigMap, before: SloConfig) -> tuple[SloConfig, list[str]]:
    """The settings, and what is wrong with them. A key that cannot be parsed keeps its settings of `before`."""
    sections: dict[str, Section] = {}
    wrong: list[str] = []
    broken: set[str] = set()
    for key in KEYS:
        text = config_map.data.get(key, "")
        try:
            sections[key] = _section(text) if text.strip() else Section()
        except (msgspec.DecodeError, SettingsError) as error:
            wrong.append(f"ConfigMap {NAMESPACE}/{NAME}: {key}: {error}")
            broken.add(key)
            if key in before.sections:
                sections[key] = before.sections[key]
    return SloConfig(sections, frozenset(broken)), wrong


def _section(text: str) -> Section:
    found = decode_as(text, dict[str, Any])
    overrides = []
    for number, entry in enumerate(found.pop("nodeConfigs", None) or ()):
        if not isinstance(entry, dict) or not isinstance(entry.get("nodeSelector"), dict):
            raise SettingsError(f"nodeConfigs[{number}].nodeSelector: expected a label selector, found {entry!r:.60}")
        settings = {name: value for name, value in entry.items() if name not in {"name", "nodeSelector"}}
        overrides.append((msgspec.convert(entry["nodeSelector"], LabelSelector), settings))
    return Section(found, tuple(overrides))


def _overlaid(lower: Settings, upper: Settings) -> Settings:
    """A JSON overlay: absent fields keep the lower value, maps merge by key, lists are replaced."""
    found = dict(lower)
    for name, value in upper.items():
        below = found.get(name)
        found[name] = _overlaid(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return found


def collect_policy(settings: Settings) -> Settings:
    """The collect policy of a NodeMetric: the defaults, or those of an enabled and valid strategy (QOS-NM-1)."""
    given = settings if settings.get("enable") is True and _valid(settings) else {}
    policy = given.get("metricAggregatePolicy") or {}
    return {
        "aggregateDurationSeconds": given.get("metricAggregateDurationSeconds", AGGREGATE_SECONDS),
        "reportIntervalSeconds": given.get("metricReportIntervalSeconds", REPORT_SECONDS),
        "nodeAggregatePolicy": {"durations": list(policy.get("durations") or AGGREGATE_DURATIONS)},
        "nodeMemoryCollectPolicy": given.get("metricMemoryCollectPolicy") or WITHOUT_PAGE_CACHE,
    }


def _valid(settings: Settings) -> bool:
    seconds = [settings.get(name, 1) for name in ("metricAggregateDurationSeconds", "metricReportIntervalSeconds")]
    policy = settings.get("metricAggregatePolicy") or {}
    durations = policy.get("durations") or [] if isinstance(policy, dict) else [None]
    return all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in seconds) and all(
        isinstance(text, str) and go_duration(text) for text in durations
    )
