"""Arguments of LoadAwareScheduling in a configuration file (FWK-2.3)."""

from collections.abc import Mapping

from msgspec import field

from seatrial.scheduler.api.durations import required_duration
from seatrial.scheduler.api.quantity import CPU, MEMORY
from seatrial.scheduler.api.slo import AGGREGATIONS
from seatrial.scheduler.api.wire import Wire
from seatrial.scheduler.framework.extension_points import Args

DEFAULT_ESTIMATOR = "defaultEstimator"
DEFAULT_WEIGHTS = {CPU: 1, MEMORY: 1}
DEFAULT_THRESHOLDS = {CPU: 65, MEMORY: 95}
DEFAULT_FACTORS = {CPU: 85, MEMORY: 70}


class Aggregated(Wire, frozen=True, forbid_unknown_fields=True):
    """Filter and score by aggregates instead of the mean over the report window; a duration is Go's, as in 5m."""

    usage_thresholds: dict[str, int] = field(default_factory=dict)
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str = ""
    score_aggregation_type: str = ""
    score_aggregated_duration: str = ""


class LoadAwareSchedulingArgs(Args, frozen=True):
    """Koordinator's arguments, with its defaults."""

    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: int = 180
    enable_schedule_when_node_metrics_expired: bool = False
    resource_weights: dict[str, int] = field(default_factory=dict)
    dominant_resource_weight: int = 0
    usage_thresholds: dict[str, int] = field(default_factory=dict)
    prod_usage_thresholds: dict[str, int] = field(default_factory=dict)
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool = False
    estimator: str = DEFAULT_ESTIMATOR
    estimated_scaling_factors: dict[str, int] = field(default_factory=dict)
    estimated_seconds_after_pod_scheduled: int | None = None
    estimated_seconds_after_initialized: int | None = None
    allow_customize_estimation: bool = False
    aggregated: Aggregated | None = None
    supported_resources: tuple[str, ...] = ()

    @property
    def weights(self) -> Mapping[str, int]:
        return self.resource_weights or ({} if self.dominant_resource_weight else DEFAULT_WEIGHTS)

    @property
    def thresholds(self) -> Mapping[str, int]:
        return self.usage_thresholds or DEFAULT_THRESHOLDS

    @property
    def factors(self) -> Mapping[str, int]:
        return DEFAULT_FACTORS | self.estimated_scaling_factors

    @property
    def names(self) -> tuple[str, ...]:
        """All resources that take part, sorted (FWK-R49)."""
        aggregated = self.aggregated.usage_thresholds if self.aggregated else {}
        parts = (self.weights, self.thresholds, self.prod_usage_thresholds, aggregated, self.factors)
        return tuple(sorted({CPU, MEMORY, *self.supported_resources, *(name for part in parts for name in part)}))

    def check(self) -> None:
        if self.node_metric_expiration_seconds <= 0:
            raise ValueError(
                f"nodeMetricExpirationSeconds: expected 1 or more, found {self.node_metric_expiration_seconds}"
            )
        _check_range("resourceWeights", self.resource_weights, 1)
        _check_range("usageThresholds", self.usage_thresholds, 0)
        _check_range("prodUsageThresholds", self.prod_usage_thresholds, 0)
        _check_range("estimatedScalingFactors", self.estimated_scaling_factors, 1)
        _check_range("dominantResourceWeight", {"": self.dominant_resource_weight}, 0)
        for name in self.weights:
            if name not in self.factors:
                raise ValueError(
                    f"estimatedScalingFactors: expected a factor for {name}, which has a weight; found none"
                )
        if self.estimator != DEFAULT_ESTIMATOR:
            raise ValueError(f"estimator: expected {DEFAULT_ESTIMATOR}, found {self.estimator!r}")
        if self.aggregated is not None:
            _check_aggregated(self.aggregated)


def _check_aggregated(aggregated: Aggregated) -> None:
    _check_range("aggregated.usageThresholds", aggregated.usage_thresholds, 0)
    for name, kind, duration in (
        ("usage", aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration),
        ("score", aggregated.score_aggregation_type, aggregated.score_aggregated_duration),
    ):
        if kind and kind not in AGGREGATIONS:
            raise ValueError(
                f"aggregated.{name}AggregationType: expected one of {', '.join(AGGREGATIONS)}, found {kind!r}"
            )
        try:
            required_duration(duration or "0")
        except ValueError as error:
            raise ValueError(f"aggregated.{name}AggregatedDuration: {error}") from None


def _check_range(field_name: str, values: Mapping[str, int], low: int) -> None:
    for name, value in values.items():
        if not low <= value <= 100:
            where = f"{field_name}[{name}]" if name else field_name
            raise ValueError(f"{where}: expected {low} to 100, found {value}")
