"""Published results of the policies on the openb default trace, and the distance of our replays from them.

Source: the authors' results for `openb_pod_list_default` (github.com/hkust-adsl/kubernetes-scheduler-simulator,
`experiments/analysis/expected_results/analysis_allo_discrete.csv`), GPU allocated in percent of capacity when 100 % and
130 % had arrived: means over the seeds 42 to 51. They are shown in figure 9(a) of "Beware of Fragmentation: Scheduling
GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC '23.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seatrial.harness.errors import UsageError

PUBLISHED: dict[str, dict[int, float]] = {
    "random": {100: 86.30, 130: 87.47},
    "dotprod": {100: 90.62, 130: 90.85},
    "gpuclustering": {100: 91.65, 130: 91.88},
    "gpupacking": {100: 91.78, 130: 92.00},
    "bestfit": {100: 92.86, 130: 93.08},
    "fgd": {100: 95.23, 130: 95.39},
}
"""Policy → percent arrived → percent allocated."""

TOLERANCE = 0.15
"""Percentage points. Two sets of ten seeds differ by about this much for the policies that scatter most."""

FLOORS: dict[str, dict[int, float]] = {"balanced": {130: 95.5}, "opportunity": {100: 95.4, 130: 95.5}}
"""What our own policies must be above."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One mean beside its target: a published figure to meet, or a floor to be above."""

    policy: str
    arrived_percent: int
    measured: float
    target: float
    off: float
    ok: bool


def hold_against(means: Mapping[str, Mapping[int, float]]) -> list[Comparison]:
    """Hold means (policy → percent arrived → percent allocated) against the published ones, to two digits as those.

    Raises:
        UsageError: a mean is missing, because no pod arrived at that percent: the trace is another one.
    """
    rows: list[Comparison] = []
    for policy, by_percent in means.items():
        for table, meets in ((PUBLISHED, _near), (FLOORS, _above)):
            for percent, target in table.get(policy, {}).items():
                if percent not in by_percent:
                    raise UsageError(f"no pod of this trace arrives at {percent} %; --check is for the default trace")
                measured = round(by_percent[percent], 2)
                off = round(measured - target, 2)
                rows.append(Comparison(policy, percent, measured, target, off, meets(off)))
    return rows


def _near(off: float) -> bool:
    return abs(off) <= TOLERANCE


def _above(off: float) -> bool:
    return off > 0
