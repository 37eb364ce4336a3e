"""Figures of pages from the measurements of runs: latency distributions and throughput over time, without drawing."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, log10

from seatrial.harness.results import Event, Measurement, Run
from seatrial.harness.sample_statistics import percentile
from seatrial.reports.grades import CLUSTERS, grade_of

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
DISTRIBUTION_FROM = 20  # number of samples from which percentiles are drawn
LOAD_FROM = 20  # number of bound pods from which a case counts as a load
BARS = 60


@dataclass(frozen=True, slots=True)
class Series:
    """All samples of one name, unit, labels and validity in one run, sorted."""

    name: str
    unit: str
    labels: tuple[tuple[str, str], ...]
    run: int
    samples: tuple[float, ...]
    valid: bool = True

    @property
    def what(self) -> str:
        """The labels as text."""
        return ", ".join(f"{key} {value}" for key, value in self.labels)

    def at(self, percent: float) -> float:
        """The percentile of the samples (nearest rank)."""
        return percentile(self.samples, percent)

    @property
    def is_latency(self) -> bool:
        """Whether it is a distribution of times."""
        return self.unit in SECONDS and len(self.samples) >= DISTRIBUTION_FROM


@dataclass(frozen=True, slots=True)
class Load:
    """Pods created and bound over time under one case; `width` is that of a bar in seconds, rates are in pods/s."""

    case: str
    run: int
    width: float
    bound: tuple[float, ...]
    created: tuple[float, ...]
    pods: int
    seconds: float

    @property
    def rate(self) -> float:
        """Pods bound per second from the first bind to the last; that interval holds one pod less than were bound."""
        return (self.pods - 1) / self.seconds if self.seconds > 0 else 0.0


def series_of(runs: Sequence[Run]) -> list[Series]:
    """The measurements of the runs, those with equal name, unit, labels and validity merged within each run.

    Within one name, unit and labels they are in the order of the runs; in a run the valid one is the last.
    """
    merged: dict[tuple[str, str, tuple[tuple[str, str], ...], int, bool], list[float]] = defaultdict(list)
    for number, run in enumerate(runs):
        for measurement in run.measurements:
            merged[(*key_of(measurement), number, measurement.valid)].extend(measurement.samples())
    return [
        Series(name, unit, labels, number, tuple(sorted(samples)), valid)
        for (name, unit, labels, number, valid), samples in sorted(merged.items())
        if samples
    ]


def key_of(measurement: Measurement) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """The identity of a measured quantity: name, unit, labels."""
    return measurement.name, measurement.unit, tuple(sorted(measurement.labels.items()))


def loads_of(runs: Sequence[Run], *, most: int = 4) -> list[Load]:
    """The cases that bound most pods, as rates over time, without cases in virtual time: their rates are no speed."""
    results: list[Load] = []
    for number, run in enumerate(runs):
        cases = {case.nodeid: case for case in run.cases}
        virtual = {name for name, case in cases.items() if grade_of(run.info, case).cluster == CLUSTERS[0]}
        by_case: dict[str, list[Event]] = defaultdict(list)
        for event in run.timeline:
            if event.event in ("created", "bound") and event.case not in virtual:
                by_case[event.case].append(event)
        results += [load for case, events in by_case.items() if (load := _load(case, number, events))]
    return sorted(results, key=lambda load: (-load.pods, load.run, load.case))[:most]


def _load(case: str, run: int, events: Sequence[Event]) -> Load | None:
    bound = [event.at.timestamp() for event in events if event.event == "bound"]
    created = [event.at.timestamp() for event in events if event.event == "created"]
    if len(bound) < LOAD_FROM or max(bound) <= min(bound):
        return None
    start, end = min(bound + created), max(bound)
    width = nice_step((end - start) / BARS)
    bars = int((end - start) / width) + 1
    seconds = max(bound) - min(bound)
    return Load(
        case, run, width, _rates(bound, start, width, bars), _rates(created, start, width, bars), len(bound), seconds
    )


def _rates(moments: Iterable[float], start: float, width: float, bars: int) -> tuple[float, ...]:
    counts = [0] * bars
    for moment in moments:
        place = int((moment - start) / width)
        if place < bars:
            counts[place] += 1
    return tuple(count / width for count in counts)


def nice_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not under `least` (which is above 0)."""
    power = 10.0 ** floor(log10(least) + 1e-9)
    return next((times * power for times in (1, 2, 5) if times * power >= least * (1 - 1e-9)), 10 * power)


def cumulative(samples: Sequence[float], points: int = 160) -> list[tuple[float, float]]:
    """(value, percent of samples not above it) of sorted samples: about `points` of them, the tail whole."""
    count = len(samples)
    tail = max(0, count - 20)
    picked = sorted({*range(0, count, max(1, count // points)), *range(tail, count)})
    return [(samples[index], 100 * (index + 1) / count) for index in picked]


def decades(low: float, high: float) -> list[float]:
    """1, 2, 5 times powers of ten, from the last not above `low` to the first not below `high`; both above 0."""
    power = floor(log10(low) + 1e-9)
    ticks = [times * 10.0**exponent for exponent in range(power, floor(log10(high)) + 2) for times in (1, 2, 5)]
    first = max(place for place, tick in enumerate(ticks) if tick <= low * (1 + 1e-9))
    last = next(place for place, tick in enumerate(ticks) if tick >= high * (1 - 1e-9))
    return ticks[first : max(last, first + 1) + 1]


def short(value: float) -> str:
    """A figure with three significant digits and thousands separators."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.3g}"
