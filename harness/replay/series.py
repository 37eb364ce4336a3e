"""Statistics of a replay with several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

from seatrial.harness.replay import through_scheduler
from seatrial.harness.replay.openb import Trace
from seatrial.harness.replay.outcome import Outcome
from seatrial.harness.replay.replay import replay
from seatrial.harness.workers import CarriedFile, unpacked

Row = dict[str, float | int]


@dataclass(frozen=True, slots=True)
class Series:
    """The outcome of each seed."""

    policy: str
    seeds: Sequence[int]
    figures: list[Row]
    curves: list[list[Row]]

    def summary(self) -> dict[str, Any]:
        """Each documented field: a number for one seed, its mean and spread for several."""
        if len(self.figures) == 1:
            return {"policy": self.policy, "seed": self.seeds[0], **self.figures[0]}
        fields = {field: spread([each[field] for each in self.figures]) for field in self.figures[0]}
        return {"policy": self.policy, "seeds": list(self.seeds), **fields}

    def curve(self) -> list[Row]:
        """The rows per whole percent arrived, means over the seeds that have a row for that percent."""
        by_percent: dict[int, list[Row]] = {}
        for curve in self.curves:
            for row in curve:
                by_percent.setdefault(int(row["arrived_percent"]), []).append(row)
        return [
            {"arrived_percent": percent}
            | {field: round(fmean(row[field] for row in rows), 3) for field in rows[0] if field != "arrived_percent"}
            for percent, rows in sorted(by_percent.items())
        ]

    def allocated(self) -> dict[int, float]:
        """Percent arrived → mean of the allocated percent, in the form of published results."""
        return {int(row["arrived_percent"]): float(row["gpu_allocated_percent"]) for row in self.curve()}


def series(title: str, seeds: Sequence[int], outcomes: Sequence[Outcome]) -> Series:
    """The outcomes of replays with each seed, under the name `title`."""
    return Series(title, seeds, [each.figures() for each in outcomes], [each.curve() for each in outcomes])


def run(trace: Trace, policy: str, load: float, seed: int, config: CarriedFile | None = None) -> Outcome:
    """One replay. `config`: the scheduler's, for the policy `scheduler`.

    Raises:
        UsageError: there is no such policy, or `config` is no configuration that the scheduler can use.
    """
    if policy == through_scheduler.POLICY:
        with unpacked(config) as file:
            return through_scheduler.replay(trace, load=load, seed=seed, config=file)
    return replay(trace, policy, load=load, seed=seed)


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation (of a sample; 0 for one), median, lowest and highest."""
    figures = {
        "mean": fmean(samples),
        "sd": stdev(samples) if len(samples) > 1 else 0.0,
        "median": median(samples),
        "low": min(samples),
        "high": max(samples),
    }
    return {name: round(value, 3) for name, value in figures.items()}
