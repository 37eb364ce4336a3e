"""Two policies on the same arrivals, workload by workload: what one allocates more or less than the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.harness.errors import UsageError
from seatrial.harness.replay.bound import bound
from seatrial.harness.replay.openb import Trace, arrivals
from seatrial.harness.replay.outcome import Outcome
from seatrial.harness.replay.series import run, spread
from seatrial.harness.workers import CarriedFile, results_of

PREFIX = "openb_pod_list_"
LOAD = 1.3
AT = (90, 95, 100, 130)
"""Percent of the GPU capacity that has arrived, at which policies are compared."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One workload, all seeds."""

    workload: str
    allocated: dict[int, float]  # percent arrived → mean allocated by the policy, in percent
    points: dict[int, dict[str, float]]  # percent arrived → spread of the difference by seed, in percentage points
    earlier: list[int]  # seeds with which a pod with the most GPUs was refused earlier
    unplaced: dict[str, tuple[float, float]]  # size → mean number of pods unplaced, of both policies
    unplaced_at_100: dict[str, tuple[float, float]]  # the same of the pods that arrived until 100 %
    curves: dict[int, tuple[float, float, float]]  # percent arrived → mean allocated by both, and what none can exceed

    @property
    def worst(self) -> float:
        """The smallest mean difference."""
        return min(each["mean"] for each in self.points.values())

    @property
    def lowest(self) -> tuple[float, int]:
        """The smallest mean difference over all whole percents arrived, and where it is."""
        return min((round(own - other, 3), percent) for percent, (own, other, _) in self.curves.items())

    def document(self) -> dict[str, Any]:
        """The fields for JSON."""
        return {
            "workload": self.workload,
            "gpu_allocated_percent": self.allocated,
            "difference_points": self.points,
            "largest_refused_earlier_with_seeds": self.earlier,
            "unplaced": _beside(self.unplaced),
            "unplaced_at_100_percent": _beside(self.unplaced_at_100),
            "lowest": dict(zip(("difference_points", "arrived_percent"), self.lowest, strict=True)),
            "curve": [
                {"arrived_percent": percent, "policy": own, "beside": other, "bound": most}
                for percent, (own, other, most) in self.curves.items()
            ],
        }


def difference(
    workload: str,
    trace: Trace,
    policy: str,
    beside: str,
    *,
    seeds: Sequence[int],
    config: Path | None = None,
    on: str = "",
    jobs: int = 1,
) -> Difference:
    """Replay a workload with both policies and each seed; `on` and `jobs` as of `results_of`.

    Raises:
        UsageError: a policy does not exist, or the trace has no arrival at one of the compared percents.
    """
    file = CarriedFile.of(config, "--scheduler-config")
    parts = [(trace, each, LOAD, seed, file) for each in (policy, beside) for seed in seeds]
    outcomes = results_of(run, parts, on=on, jobs=jobs)
    own, other = outcomes[: len(seeds)], outcomes[len(seeds) :]
    curves = [(_allocated(workload, value), _allocated(workload, two)) for value, two in zip(own, other, strict=True)]
    bounds = [_bounds(trace, value, seed) for value, seed in zip(own, seeds, strict=True)]
    at_100 = [(value.unplaced(100), two.unplaced(100)) for value, two in zip(own, other, strict=True)]
    common = sorted(set.intersection(*(set(curve) for curve, _ in curves)))
    figures = [(value.figures(), two.figures()) for value, two in zip(own, other, strict=True)]
    refused = "largest_refused_at_percent"
    sizes = list(at_100[0][0])
    return Difference(
        workload,
        {percent: round(sum(curve[percent] for curve, _ in curves) / len(curves), 3) for percent in AT},
        {percent: spread([curve[percent] - two[percent] for curve, two in curves]) for percent in AT},
        [seed for seed, (number, two) in zip(seeds, figures, strict=True) if number[refused] < two[refused]],
        {
            key.removeprefix("unplaced_"): (
                round(sum(figure[key] for figure, _ in figures) / len(figures), 2),
                round(sum(two[key] for _, two in figures) / len(figures), 2),
            )
            for key in figures[0][0]
            if key.startswith("unplaced_") and key != "unplaced_pods"
        },
        {size: (_mean([each[size] for each, _ in at_100]), _mean([two[size] for _, two in at_100])) for size in sizes},
        {
            percent: (
                _mean([curve[percent] for curve, _ in curves]),
                _mean([two[percent] for _, two in curves]),
                _mean([each[percent] for each in bounds]),
            )
            for percent in common
        },
    )


def markdown(rows: Sequence[Difference], policy: str, beside: str) -> str:
    """The table of `docs/openb.md`."""
    large = max((size for row in rows for size in row.unplaced_at_100), key=_gpus)
    head = ["workload", *(f"at {percent} %" for percent in AT), "lowest, where", "allocated at 130 %"]
    head.append(f"{large.replace('_', ' ')} unplaced at 100 %: {policy} ({beside})")
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        own, other = row.unplaced_at_100.get(large, (0.0, 0.0))
        lowest, where = row.lowest
        cells = [row.workload, *(f"{row.points[percent]['mean']:+.2f}" for percent in AT)]
        cells += [f"{lowest:+.2f}, {where} %", f"{row.allocated[130]:.2f}", f"{own:.1f} ({other:.1f})"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _gpus(size: str) -> float:
    return float(size.split("_", maxsplit=1)[0]) if size[0].isdigit() else 0.0


def _beside(sizes: dict[str, tuple[float, float]]) -> dict[str, dict[str, float]]:
    return {size: {"policy": own, "beside": other} for size, (own, other) in sizes.items()}


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 3)


def _bounds(trace: Trace, outcome: Outcome, seed: int) -> dict[int, float]:
    """Percent arrived → percent of the GPU capacity that no policy can exceed."""
    counts = outcome.counts()
    most = bound(trace, arrivals(trace, LOAD, seed), list(counts.values()))
    return {percent: 100 * each / outcome.capacity for percent, each in zip(counts, most, strict=True)}


def workload_of(pods: Path) -> str:
    """A workload's short name, by its file."""
    return pods.stem.removeprefix(PREFIX)


def _allocated(workload: str, outcome: Outcome) -> dict[int, float]:
    floats = {int(row["arrived_percent"]): float(row["gpu_allocated_percent"]) for row in outcome.curve()}
    for percent in AT:
        if percent not in floats:
            raise UsageError(f"workload {workload}: no pod arrives at {percent} %; the trace is too coarse to compare")
    return floats
