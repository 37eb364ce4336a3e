"""The colocation strategy of a node: defaults, the cluster's settings, overrides by label, annotation and labels (C-3).

Follows Koordinator's pkg/util/sloconfig/colocation_config.go.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.integers import finite
from seatrial.scheduler.api.slo import (
    AGGREGATE_DURATIONS,
    AGGREGATE_SECONDS,
    REPORT_SECONDS,
    WITHOUT_PAGE_CACHE,
    AggregatePolicy,
)
from seatrial.scheduler.api.wire import Wire, decode_as, from_plain
from seatrial.scheduler.manager.sections import Section, Settings, SettingsError, overlaid

STRATEGY_ANNOTATION = "node.koordinator.sh/colocation-strategy"
RATIO_LABELS = {
    "node.koordinator.sh/cpu-reclaim-ratio": "cpuReclaimThresholdPercent",
    "node.koordinator.sh/memory-reclaim-ratio": "memoryReclaimThresholdPercent",
    "node.koordinator.sh/mid-static-cpu-reserved-ratio": "midStaticCPUReservedPercent",
    "node.koordinator.sh/mid-static-memory-reserved-ratio": "midStaticMemoryReservedPercent",
}
USAGE, REQUEST, MAX_USAGE_REQUEST = "usage", "request", "maxUsageRequest"
STATIC = "static"

Percent = Annotated[int, Meta(ge=0, le=100)]
AtLeastZero = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(gt=0)]


class ColocationStrategy(Wire, frozen=True):
    """How much of what prod pods do not use is offered to batch and mid pods. Percentages are of the capacity."""

    enable: bool = False
    metric_aggregate_duration_seconds: Positive = AGGREGATE_SECONDS
    metric_report_interval_seconds: Positive = REPORT_SECONDS
    metric_aggregate_policy: AggregatePolicy = AggregatePolicy(durations=AGGREGATE_DURATIONS)
    metric_memory_collect_policy: str = WITHOUT_PAGE_CACHE
    cpu_reclaim_threshold_percent: AtLeastZero = 60
    memory_reclaim_threshold_percent: AtLeastZero = 65
    cpu_calculate_policy: str = USAGE
    memory_calculate_policy: str = USAGE
    degrade_time_minutes: Positive = 15
    update_time_threshold_seconds: Positive = 300
    resource_diff_threshold: Annotated[float, Meta(gt=0)] = 0.1
    mid_cpu_threshold_percent: Percent = field(default=100, name="midCPUThresholdPercent")
    mid_memory_threshold_percent: Percent = 100
    mid_unallocated_percent: Percent = 0
    mid_static_cpu_reserved_percent: AtLeastZero = field(default=0, name="midStaticCPUReservedPercent")
    mid_static_memory_reserved_percent: AtLeastZero = 0
    mid_reclaim_mode: str = ""
    batch_cpu_threshold_percent: AtLeastZero | None = field(default=None, name="batchCPUThresholdPercent")
    batch_memory_threshold_percent: AtLeastZero | None = None


def checked(settings: Settings) -> ColocationStrategy:
    """The strategy of these settings, defaults filled in.

    Raises:
        SettingsError: a field is out of range or has a wrong type.
    """
    try:
        strategy = from_plain(settings, ColocationStrategy)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error)) from error
    for duration in strategy.metric_aggregate_policy.durations:
        if (go_duration(duration) or 0) <= 0:
            raise SettingsError(f"metricAggregatePolicy.durations: expected durations above 0, found {duration!r:.60}")
    return strategy


def collect_policy(strategy: ColocationStrategy) -> Settings:
    """The collect policy of a NodeMetric: the defaults where colocation is disabled (NM-1)."""
    used = strategy if strategy.enable else ColocationStrategy()
    return {
        "aggregateDurationSeconds": used.metric_aggregate_duration_seconds,
        "reportIntervalSeconds": used.metric_report_interval_seconds,
        "nodeAggregatePolicy": {"durations": used.metric_aggregate_policy.durations or AGGREGATE_DURATIONS},
        "nodeMemoryCollectPolicy": used.metric_memory_collect_policy or WITHOUT_PAGE_CACHE,
    }


def node_strategy(
    section: Section, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[ColocationStrategy, list[str]]:
    """The strategy of one node, and what of its own settings is left out because it is not valid."""
    wrong: list[str] = []
    settings = _with(section.cluster, section.own(labels), "nodeConfigs", wrong)
    text = annotations.get(STRATEGY_ANNOTATION, "")
    if text:
        try:
            settings = _with(settings, decode_as(text, dict[str, Any]), f"annotation {STRATEGY_ANNOTATION}", wrong)
        except msgspec.MsgspecError as error:
            wrong.append(f"annotation {STRATEGY_ANNOTATION}: expected a JSON object: {error}")
    ratios = {name: finite(labels.get(label, "")) for label, name in RATIO_LABELS.items()}
    settings = {
        **settings,
        **{name: int(ratio * 100) for name, ratio in ratios.items() if ratio is not None and 0 <= ratio < _LARGEST},
    }
    return checked(settings), wrong


_LARGEST = 1e6


def _with(lower: Settings, upper: Settings, source: str, wrong: list[str]) -> Settings:
    """The settings with others on top, or without them where the result is not valid."""
    together = overlaid(lower, upper)
    try:
        checked(together)
    except SettingsError as error:
        wrong.append(f"{source}: {error}")
        return lower
    return together
