"""Two policies on the same arrivals, workload by workload: what one allocates more or less than the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.harness.errors import UsageError
from seatrial.harness.replay.openb import Trace
from seatrial.harness.replay.outcome import Outcome
from seatrial.harness.replay.series import run, spread

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

    @property
    def worst(self) -> float:
        """The smallest mean difference."""
        return min(each["mean"] for each in self.points.values())

    def document(self) -> dict[str, Any]:
        """The fields for JSON."""
        return {
            "workload": self.workload,
            "gpu_allocated_percent": self.allocated,
            "difference_points": self.points,
            "largest_refused_earlier_with_seeds": self.earlier,
            "unplaced": {size: {"policy": own, "beside": other} for size, (own, other) in self.unplaced.items()},
        }


def difference(
    workload: str,
    trace: Trace,
    policy: str,
    beside: str,
    *,
    seeds: Sequence[int],
    config: Path | None = None,
    done: Callable[[], None] = lambda: None,
) -> Difference:
    """Replay a workload with both policies and each seed. `done` is called after each seed.

    Raises:
        UsageError: a policy does not exist, or the trace has no arrival at one of the compared percents.
    """
    own: list[Outcome] = []
    other: list[Outcome] = []
    for seed in seeds:
        own.append(run(trace, policy, load=LOAD, seed=seed, config=config))
        other.append(run(trace, beside, load=LOAD, seed=seed, config=config))
        done()
    curves = [(_allocated(workload, value), _allocated(workload, two)) for value, two in zip(own, other, strict=True)]
    figures = [(value.figures(), two.figures()) for value, two in zip(own, other, strict=True)]
    refused = "largest_refused_at_percent"
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
            if key.startswith("unplaced_")
        },
    )


def workload_of(pods: Path) -> str:
    """A workload's short name, by its file."""
    return pods.stem.removeprefix(PREFIX)


def _allocated(workload: str, outcome: Outcome) -> dict[int, float]:
    found = {int(row["arrived_percent"]): float(row["gpu_allocated_percent"]) for row in outcome.curve()}
    for percent in AT:
        if percent not in found:
            raise UsageError(f"workload {workload}: no pod arrives at {percent} %; the trace is too coarse to compare")
    return found
