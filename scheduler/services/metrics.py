"""Figures about the scheduler in Prometheus' text format, under upstream's names where upstream has them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from scheduler.cycle import Core
from scheduler.framework.events import Bind, Decision, Evict, Reject
from scheduler.framework.histogram import Histogram
from scheduler.plugins.reservation.figures import phases, resources

SECONDS = tuple(0.0001 * 2**power for power in range(16))  # 0.1 ms to 3.3 s
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
_SETTLED = (Bind, Reject)  # what settles a pod


class Metrics:
    """Told of every decision; asked for everything at once."""

    def __init__(self, core: Core, timeouts: Mapping[str, int] | None = None) -> None:
        """`timeouts` is a monitor's count by profile."""
        self._timeouts = timeouts if timeouts is not None else {}
        self._core = core
        self._attempts: Counter[tuple[str, str]] = Counter()  # profile, result
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._victims = 0

    def decided(self, decisions: Iterable[Decision], seconds: float) -> None:
        """One turn of the core, and how long it took."""
        for decision in decisions:
            if isinstance(decision, _SETTLED):
                result = "scheduled"
                if isinstance(decision, Reject):
                    result = "unschedulable" if decision.reason == "Unschedulable" else "error"
                key = (decision.info.pod.spec.scheduler_name, result)
                self._attempts[key] += 1
                durations = self._durations.get(key)
                if durations is None:
                    durations = self._durations[key] = Histogram(SECONDS)
                durations.observe(seconds)
            elif isinstance(decision, Evict):
                self._victims += 1

    def render(self) -> bytes:
        """Everything in text."""
        lines: list[str] = []
        for name, kind, words, values in self._families():
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *values]
        return ("\n".join(lines) + "\n").encode()

    def _families(self) -> Iterator[tuple[str, str, str, list[str]]]:
        core = self._core
        name = "scheduler_pending_pods"
        counts = core.queue.counts().items()
        yield name, "gauge", "Pending pods, by where they stand.", [
            _line(name, {"queue": place}, count) for place, count in counts
        ]  # fmt: skip
        name = "scheduler_schedule_attempts_total"
        yield name, "counter", "Attempts to place pods, by their result.", [
            _line(name, {"profile": profile, "result": result}, count)
            for (profile, result), count in sorted(self._attempts.items())
        ]  # fmt: skip
        name = "scheduler_scheduling_attempt_duration_seconds"
        yield name, "histogram", "How long a decision took, without the binding.", [
            line
            for (profile, result), histogram in sorted(self._durations.items())
            for line in _histogram(name, {"profile": profile, "result": result}, histogram)
        ]  # fmt: skip
        name = "scheduler_framework_extension_point_duration_seconds"
        yield name, "histogram", "Time of all plugins of an extension point, in one cycle of ten.", [
            line
            for (point, status, profile), histogram in sorted(core.timing.by_point.items())
            for line in _histogram(name, {"extension_point": point, "status": status, "profile": profile}, histogram)
        ]  # fmt: skip
        name = "scheduler_plugin_execution_duration_seconds"
        yield name, "histogram", "Time of one call of a plugin, in one cycle of ten.", [
            line
            for (plugin, point, status), histogram in sorted(core.timing.by_plugin.items())
            for line in _histogram(name, {"plugin": plugin, "extension_point": point, "status": status}, histogram)
        ]  # fmt: skip
        name = "scheduler_scheduling_timeout"
        yield name, "counter", "How often a pod was found to be in scheduling for longer than the timeout.", [
            _line(name, {"profile": profile}, count) for profile, count in sorted(self._timeouts.items())
        ]  # fmt: skip
        name = "scheduler_preemption_victims_total"
        yield name, "counter", "Pods evicted for more important ones.", [_line(name, {}, self._victims)]
        name = "scheduler_scheduler_cache_size"
        nodes = core.cache.nodes.values()
        sizes = {"nodes": core.cache.known_count, "pods": sum(len(node.pods) for node in nodes)}
        yield (
            name,
            "gauge",
            "What the cache holds.",
            [_line(name, {"type": kind}, size) for kind, size in sizes.items()],
        )
        for name, words, samples in (
            ("scheduler_reservation_status_phase", "Which phase each reservation is in.", phases),
            ("scheduler_reservation_resource", "How much of each available reservation is used.", resources),
        ):
            yield name, "gauge", words, [_line(name, labels, value) for labels, value in samples(core.reservations)]


def _histogram(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    for bound, count in zip((*map(_number, histogram.bounds), "+Inf"), histogram.up_to(), strict=True):
        yield _line(f"{name}_bucket", {**labels, "le": bound}, count)
    yield _line(f"{name}_sum", labels, histogram.sum)
    yield _line(f"{name}_count", labels, histogram.count)


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return f"{value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
