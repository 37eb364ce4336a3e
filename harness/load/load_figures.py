"""Figures of a load, computed from samples: counts, latency, throughput, a series by second, and their validity."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from seatrial.harness.load.record import Part, Sample
from seatrial.harness.load.settings import LoadSettings
from seatrial.harness.sample_statistics import percentile

MAX_LAG = 0.050  # seconds, p99 of the delay of create requests; above it the load was not the requested one
MAX_WATCH_LAG = 0.100  # seconds, p99 of the delay of the watch after the answers
CLIENT_BUSY_THRESHOLD = 0.85  # share of one core; above it the client is the limit
CROWDED_THRESHOLD = 0.8  # part of the fleet's resources; above it pods wait for room, not for the scheduler


@dataclass(frozen=True, slots=True)
class Second:
    """Counts of one second of the load; `second` 0 is the first."""

    second: int
    created: int
    bound: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Throughput:
    """Bindings per second from the first binding to the last, and the times of both in seconds of the load."""

    pods_per_second: float
    first_bind: float
    last_bind: float


@dataclass(frozen=True, slots=True)
class Validity:
    """Measurements of the load generator itself. Milliseconds by percentile; shares of one core."""

    generator_lag_ms: dict[str, float]
    client_cpu_share: float  # of the busiest load process
    throttled: int
    watch_lag_ms: dict[str, float]
    watch_restarts: int
    watch_gaps: int
    errors: dict[str, int]
    crowding: dict[str, float]


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """The part of one worker of a load over several machines, judged by itself; latencies as in `LoadResult`."""

    worker: str  # which one, on which machine
    created: int
    bound: int
    latency_ms: dict[str, float]
    validity: Validity  # without `crowding`, which is the whole load's
    valid: bool
    invalid_because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load. Latencies are from the create request to the watch event with the node, in milliseconds."""

    settings: dict[str, Any]
    created: int
    bound: int
    deleted: int
    unbound: int  # created, and not bound before the end of the drain time
    rebound: int  # shown on more than one node
    latency_ms: dict[str, float]  # p50, p90, p99, max; empty if nothing was bound
    rows: dict[str, dict[str, float]]  # what users measured: count, and milliseconds as in `latency_ms`
    throughput: Throughput | None  # None: fewer than two bindings
    per_second: tuple[Second, ...]
    validity: Validity
    valid: bool
    invalid_because: tuple[str, ...]
    workers: tuple[WorkerFigures, ...]  # none: processes of this command alone
    samples: Path | None  # JSON Lines, one `seatrial.harness.load.record.Sample` for each pod; None: not kept

    @property
    def bound_once(self) -> bool:
        """Every pod that was created was bound, and to one node."""
        return self.unbound == 0 and self.rebound == 0

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            **asdict(self),
            "samples": None if self.samples is None else str(self.samples),
            "bound_once": self.bound_once,
        }


def summarise(
    settings: LoadSettings, parts: Sequence[Part], *, crowding: Mapping[str, float], samples: Path | None
) -> LoadResult:
    """The figures of all load processes together; `crowding`: the part of each resource that the load asks for, as of
    `workload.crowding`."""
    lives = _lives(parts)
    latencies = _latencies(lives)
    validity = _validity(parts, lives, crowding)
    rows: dict[str, list[float]] = {}
    for part in parts:
        for name, seconds in part.rows.items():
            rows.setdefault(name, []).extend(seconds)
    workers = tuple(_worker(part) for part in parts if part.worker)
    generator = [f"{each.worker}: {reason}" for each in workers for reason in each.invalid_because]
    because = (*(generator if workers else _process_reasons(validity)), *_crowding_reasons(validity))
    bound = _bound(lives)
    return LoadResult(
        settings=msgspec.to_builtins(settings),
        created=len(lives),
        bound=bound,
        deleted=sum(sample.deleted is not None for sample in lives),
        unbound=len(lives) - bound,
        rebound=sum(sample.nodes_seen > 1 for sample in lives),
        latency_ms=_milliseconds(latencies),
        rows={name: {"count": len(seconds), **_milliseconds(seconds)} for name, seconds in sorted(rows.items())},
        throughput=_throughput(lives),
        per_second=_by_second(lives),
        validity=validity,
        valid=not because,
        invalid_because=because,
        workers=workers,
        samples=samples,
    )


def _worker(part: Part) -> WorkerFigures:
    """Workers are judged one by one: among many, one that is late changes no p99."""
    lives = _lives([part])
    latencies, validity = _latencies(lives), _validity([part], lives, {})
    because = ["lost before the end: its pods are not in these figures"] if part.lost else _process_reasons(validity)
    return WorkerFigures(
        worker=part.worker,
        created=len(lives),
        bound=_bound(lives),
        latency_ms=_milliseconds(latencies),
        validity=validity,
        valid=not because,
        invalid_because=tuple(because),
    )


def _lives(parts: Sequence[Part]) -> list[Sample]:
    """The pods that were created, by the time of the request."""
    return sorted(
        (sample for part in parts for sample in part.samples if sample.answered is not None), key=lambda s: s.sent
    )


def _bound(lives: Sequence[Sample]) -> int:
    return sum(sample.bound is not None for sample in lives)


def _latencies(lives: Sequence[Sample]) -> list[float]:
    return [sample.latency for sample in lives if sample.latency is not None and not sample.aside]


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    if not ordered:
        return {}
    figures = {f"p{percent}": percentile(ordered, percent) for percent in (50, 90, 99)}
    return {name: round(value * 1000, 2) for name, value in {**figures, "max": ordered[-1]}.items()}


def _throughput(lives: Sequence[Sample]) -> Throughput | None:
    times = sorted(sample.bound for sample in lives if sample.bound is not None and not sample.aside)
    if len(times) < 2 or times[-1] == times[0]:
        return None
    rate = (len(times) - 1) / (times[-1] - times[0])  # n bindings have n - 1 intervals
    return Throughput(round(rate, 1), round(times[0], 3), round(times[-1], 3))


def _by_second(lives: Sequence[Sample]) -> tuple[Second, ...]:
    created, bound, deleted = (
        Counter(int(when) for sample in lives if (when := getattr(sample, field)) is not None)
        for field in ("answered", "bound", "deleted")
    )
    last = max([*created, *bound, *deleted], default=-1)
    return tuple(Second(number, created[number], bound[number], deleted[number]) for number in range(last + 1))


def _validity(parts: Sequence[Part], lives: Sequence[Sample], crowding: Mapping[str, float]) -> Validity:
    errors: Counter[str] = Counter()
    for part in parts:
        errors.update(part.errors)
    return Validity(
        generator_lag_ms=_milliseconds([sample.sent - sample.due for sample in lives]),
        client_cpu_share=round(max((part.cpu_seconds / max(part.wall_seconds, 1e-9) for part in parts), default=0), 3),
        throttled=sum(part.throttled for part in parts),
        watch_lag_ms=_milliseconds(
            [
                max(0.0, sample.seen - sample.answered)
                for sample in lives
                if sample.seen is not None and sample.answered is not None
            ]
        ),
        watch_restarts=sum(part.watch_restarts for part in parts),
        watch_gaps=sum(part.watch_gaps for part in parts),
        errors=dict(errors),
        crowding={name: round(part, 3) for name, part in crowding.items()},
    )


def _process_reasons(validity: Validity) -> list[str]:
    messages: list[str] = []
    lag, watch_lag = validity.generator_lag_ms.get("p99", 0.0), validity.watch_lag_ms.get("p99", 0.0)
    if lag > MAX_LAG * 1000:
        messages.append(f"generator lag: pods were sent {lag:.0f} ms late at p99; the limit is {MAX_LAG * 1000:.0f}")
    if validity.client_cpu_share > CLIENT_BUSY_THRESHOLD:
        messages.append(
            f"the client was the limit: it used {validity.client_cpu_share:.0%} of a core;"
            f" the limit is {CLIENT_BUSY_THRESHOLD:.0%}; use more --processes, or workers"
        )
    if validity.throttled:
        messages.append(f"throttling: the API server answered {validity.throttled} requests with 429")
    if watch_lag > MAX_WATCH_LAG * 1000:
        messages.append(f"watch lag: {watch_lag:.0f} ms at p99; the limit is {MAX_WATCH_LAG * 1000:.0f}")
    if validity.watch_gaps:
        messages.append(f"the watch expired {validity.watch_gaps} times and was replaced by a new list")
    if validity.errors:
        messages.append(f"{sum(validity.errors.values())} requests failed: {'; '.join(validity.errors)}")
    return messages


def _crowding_reasons(validity: Validity) -> list[str]:
    messages: list[str] = []
    for name, part in validity.crowding.items():
        if part == float("inf"):
            messages.append(f"no node offers {name}, which the mix requests")
        elif part > CROWDED_THRESHOLD:
            messages.append(f"the load requests {part:.0%} of the fleet's {name} on average: pods wait for room")
    return messages
