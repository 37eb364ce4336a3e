"""Metrics of the scheduler in Prometheus' text format, with upstream's names where upstream has them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.framework.decisions import Bind, Decision, Evict, Reject
from seatrial.scheduler.serving.exposition import Family, exposed, histogram_lines, sample
from seatrial.scheduler.serving.histogram import Histogram

SECONDS = tuple(0.0001 * 2**power for power in range(16))  # 0.1 ms to 3.3 s
_SETTLED = (Bind, Reject)  # decisions that end a scheduling cycle


class Metrics:
    """Counts decisions, and renders all metrics."""

    def __init__(
        self, core: Core, timeouts: Mapping[str, int] | None = None, decode_errors: Mapping[str, int] | None = None
    ) -> None:
        """`timeouts` is a monitor's count by profile, `decode_errors` the informers' count by path."""
        self._decode_errors = decode_errors if decode_errors is not None else {}
        self._timeouts = timeouts if timeouts is not None else {}
        self._core = core
        self._attempts: Counter[tuple[str, str]] = Counter()  # profile, result
        self._durations: dict[tuple[str, str], Histogram] = {}
        self._victims = 0

    def decided(self, decisions: Iterable[Decision], seconds: float) -> None:
        """Count the decisions of one cycle that took `seconds`."""
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
        """All metrics in text format."""
        return exposed(self._families())

    def _families(self) -> Iterator[Family]:
        core = self._core
        name = "scheduler_pending_pods"
        counts = core.queue.counts().items()
        yield (
            name,
            "gauge",
            "Pending pods, by where they stand.",
            [sample(name, {"queue": place}, count) for place, count in counts],
        )
        name = "scheduler_schedule_attempts_total"
        yield (
            name,
            "counter",
            "Attempts to place pods, by their result.",
            [
                sample(name, {"profile": profile, "result": result}, count)
                for (profile, result), count in sorted(self._attempts.items())
            ],
        )
        name = "scheduler_scheduling_attempt_duration_seconds"
        yield (
            name,
            "histogram",
            "How long a decision took, without the binding.",
            [
                line
                for (profile, result), histogram in sorted(self._durations.items())
                for line in histogram_lines(name, {"profile": profile, "result": result}, histogram)
            ],
        )
        for name, words, keys, outcome in (
            (
                "scheduler_framework_extension_point_duration_seconds",
                "Time of all plugins of an extension point, in one cycle of ten.",
                ("extension_point", "status", "profile"),
                core.timing.by_point,
            ),
            (
                "scheduler_plugin_execution_duration_seconds",
                "Time of one call of a plugin, in one cycle of ten.",
                ("plugin", "extension_point", "status"),
                core.timing.by_plugin,
            ),
        ):
            yield (
                name,
                "histogram",
                words,
                [
                    line
                    for values, histogram in sorted(outcome.items())
                    for line in histogram_lines(name, dict(zip(keys, values, strict=True)), histogram)
                ],
            )
        name = "scheduler_scheduling_timeout"
        yield (
            name,
            "counter",
            "How often a pod was found to be in scheduling for longer than the timeout.",
            [sample(name, {"profile": profile}, count) for profile, count in sorted(self._timeouts.items())],
        )
        name = "seatrial_object_decode_errors_total"
        yield (
            name,
            "counter",
            "Attempts to decode an object of the API server that failed, by path.",
            [sample(name, {"path": path}, count) for path, count in sorted(self._decode_errors.items())],
        )
        name = "seatrial_plugin_errors_total"
        yield (
            name,
            "counter",
            "Exceptions of plugins, by plugin and extension point.",
            [
                sample(name, {"plugin": plugin, "extension_point": point}, count)
                for (plugin, point), count in sorted(core.handle.plugin_errors.counts.items())
            ],
        )
        name = "scheduler_preemption_victims_total"
        yield name, "counter", "Pods evicted for more important ones.", [sample(name, {}, self._victims)]
        name = "scheduler_scheduler_cache_size"
        nodes = core.cache.nodes.values()
        sizes = {"nodes": core.cache.known_count, "pods": sum(len(node.pods) for node in nodes)}
        yield (
            name,
            "gauge",
            "What the cache holds.",
            [sample(name, {"type": kind}, size) for kind, size in sizes.items()],
        )
        yield from core.handle.clock.faults.families()
        for families in core.handle.exports:
            yield from families()
