"""What the published policies reach on the openb workloads, and how far our replays are from that.

Source: the authors' results (github.com/hkust-adsl/kubernetes-scheduler-simulator,
`experiments/analysis/expected_results/analysis_allo_discrete.csv`), GPU allocated in percent of capacity when 100 % and
130 % had arrived; means and standard deviations over the seeds 42 to 51 are in `published.csv`. They belong to "Beware
of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC '23.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import sqrt

from seatrial.harness.errors import UsageError

Published = Mapping[str, Mapping[str, Mapping[int, tuple[float, float]]]]

SEEDS = 10  # of the published means
MIN_TOLERANCE = 0.15  # percentage points
DEVIATIONS = 3.0
"""Two means of ten seeds may differ by this many standard deviations of their difference, and by `MIN_TOLERANCE`."""

BEST, BEST_BELOW = "fgd", 0.1
"""Our policy `opportunity` must not be lower than this published one by more than this many percentage points."""

FLOORS: Mapping[str, Mapping[str, Mapping[int, float]]] = {"default": {"balanced": {130: 95.5}}}
"""Workload → policy → percent arrived → what it must be above."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One mean beside its target: a published figure to meet, or a floor to be above."""

    policy: str
    arrived_percent: int
    measured: float
    target: float
    off: float
    ok: bool


@cache
def published() -> Published:
    """Workload → policy → percent arrived → mean and standard deviation of the percent allocated."""
    by_workload: dict[str, dict[str, dict[int, tuple[float, float]]]] = {}
    text = files(__package__).joinpath("published.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        by_workload.setdefault(row["workload"], {})[row["policy"]] = {
            percent: (float(row[f"mean_{percent}"]), float(row[f"sd_{percent}"])) for percent in (100, 130)
        }
    return by_workload


def check_workload(name: str) -> None:
    """Refuse a workload without published results.

    Raises:
        UsageError: there are none for it.
    """
    if name not in published():
        raise UsageError(
            f"--check: no results are published for workload {name!r}; known, by the names of pod files "
            f"openb_pod_list_NAME.csv: {', '.join(published())}"
        )


def hold_against(workload: str, means: Mapping[str, Mapping[int, float]]) -> list[Comparison]:
    """Hold means (policy → percent arrived → percent allocated) against the published ones, to two digits as those.

    Raises:
        UsageError: nothing is published for the workload, or no pod arrived at the percent of a published result.
    """
    check_workload(workload)
    targets = published()[workload]
    rows: list[Comparison] = []
    for policy, by_percent in means.items():
        for percent, (mean, sd) in targets.get(policy, {}).items():
            allowed = max(MIN_TOLERANCE, DEVIATIONS * sd * sqrt(2 / SEEDS))
            row = _row(workload, policy, percent, by_percent, mean)
            rows.append(_judged(row, ok=abs(row.off) <= allowed))
        if policy == "opportunity":
            for percent, (mean, _) in targets[BEST].items():
                row = _row(workload, policy, percent, by_percent, mean)
                rows.append(_judged(row, ok=row.off >= -BEST_BELOW))
        for percent, floor in FLOORS.get(workload, {}).get(policy, {}).items():
            row = _row(workload, policy, percent, by_percent, floor)
            rows.append(_judged(row, ok=row.off > 0))
    return rows


def _row(workload: str, policy: str, percent: int, means: Mapping[int, float], target: float) -> Comparison:
    if percent not in means:
        raise UsageError(f"no pod arrives at {percent} %: this is not the published workload {workload!r}")
    measured = round(means[percent], 2)
    return Comparison(policy, percent, measured, target, round(measured - target, 2), ok=False)


def _judged(row: Comparison, *, ok: bool) -> Comparison:
    return Comparison(row.policy, row.arrived_percent, row.measured, row.target, row.off, ok)
