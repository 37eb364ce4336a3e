"""Figures about the scheduler in Prometheus' text format, under upstream's names where upstream has them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from scheduler.cycle import Core
from scheduler.framework.events import Bind, Decision, Evict, Reject
from scheduler.plugins.reservation.figures import phases, resources

SECONDS = tuple(0.0001 * 2**power for power in range(16))  # 0.1 ms to 3.3 s
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
_SETTLED = (Bind, Reject)  # what settles a pod


class Histogram:
    """Counts of values up to each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        for bound, count in zip((*map(_number, self._bounds), "+Inf"), accumulate(self._counts), strict=True):
            yield _line(f"{name}_bucket", {**labels, "le": bound}, count)
        yield _line(f"{name}_sum", labels, self._sum)
        yield _line(f"{name}_count", labels, sum(self._counts))


class Metrics:
    """Told of every decision; asked for everything at once."""

    def __init__(self, core: Core) -> None:
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
            for line in histogram.lines(name, {"profile": profile, "result": result})
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


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return f"{value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
