"""Usage thresholds that are in force on a node: those of the arguments, or of the node's annotation (FWK-R51)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
from msgspec import field

from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.wire import Wire, decode_as
from seatrial.scheduler.plugins.loadaware.args import LoadAwareSchedulingArgs
from seatrial.scheduler.plugins.loadaware.estimator import Vector


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Which aggregate counts: its type, and its duration in seconds (0: the longest that is recorded)."""

    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Percentages by resource, 0: not limited. `prod` None: prod pods are judged as others.

    `aggregation` None: the usage itself counts, not an aggregate.
    """

    usage: Vector
    prod: Vector | None
    aggregation: Aggregation | None


class _Aggregated(Wire, frozen=True):
    usage_thresholds: dict[str, int] = field(default_factory=dict)
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str | None = None


class _Custom(Wire, frozen=True):
    usage_thresholds: dict[str, int] = field(default_factory=dict)
    prod_usage_thresholds: dict[str, int] = field(default_factory=dict)
    aggregated_usage: _Aggregated | None = None


class ThresholdRules:
    """The thresholds of one configuration."""

    def __init__(self, args: LoadAwareSchedulingArgs) -> None:
        self._names = args.names
        value = args.aggregated
        aggregated = None
        if value is not None:
            duration = value.usage_aggregated_duration
            aggregated = _Aggregated(value.usage_thresholds, value.usage_aggregation_type, duration)
        self._usage = dict(args.thresholds)
        self._prod = dict(args.prod_usage_thresholds)
        self._aggregated = aggregated
        self.default = self._combined(_Custom())
        self.of = lru_cache(maxsize=4096)(self._of)

    def _of(self, annotation: str) -> tuple[Thresholds, str]:
        """The thresholds in force with this annotation of a node, and what is wrong with it ("": nothing)."""
        if not annotation:
            return self.default, ""
        try:
            return self._combined(decode_as(annotation, _Custom)), ""
        except msgspec.DecodeError as error:
            return self.default, f"expected thresholds as JSON: {error}; those of the configuration are used"

    def _combined(self, custom: _Custom) -> Thresholds:
        prod = _vector(self._names, custom.prod_usage_thresholds or self._prod)
        aggregated = self._aggregated
        own = custom.aggregated_usage
        if own is not None and own.usage_thresholds and own.usage_aggregation_type:
            aggregated = own
        if aggregated is not None and aggregated.usage_thresholds and aggregated.usage_aggregation_type:
            seconds = go_duration(aggregated.usage_aggregated_duration or "0") or 0.0
            aggregation = Aggregation(aggregated.usage_aggregation_type, seconds)
            usage = _vector(self._names, aggregated.usage_thresholds)
        else:
            aggregation, usage = None, _vector(self._names, custom.usage_thresholds or self._usage)
        return Thresholds(usage, prod if any(prod) else None, aggregation)


def _vector(names: Sequence[str], values: Mapping[str, int]) -> Vector:
    return tuple(values.get(name, 0) for name in names)
