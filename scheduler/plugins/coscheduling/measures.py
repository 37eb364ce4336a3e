"""Durations of gangs' scheduling cycles and of job-level preemption, with the names and labels of upstream's metrics.

Upstream's cycle goes through the queue pod by pod; here it is one decision, so that its duration is much shorter.
"""

from collections.abc import Iterator

from seatrial.scheduler.serving.exposition import Family, histogram_lines
from seatrial.scheduler.serving.histogram import Histogram

FAILED = "all pending pods is already been attempted"  # GANG-M21
SUCCEEDED = "gang is already succeed"  # GANG-M22

_CYCLE_SECONDS = (0.1, 0.5, 1, 2, 3, 5, 7.5, 10, 12.5, 15, 20, 25, 30, 45, 60, 120)
_PREEMPTION_SECONDS = tuple(0.001 * 2**power for power in range(20))  # 1 ms to 9 minutes
_MAX_JOBS = 256  # jobs with a histogram of their own; the oldest is forgotten


def job_size(attempted: int) -> str:
    """The class of a number of attempted pods: `0`, `1-100`, `101-200` to `901-1000`, `1000+`."""
    if attempted > 1000:
        return "1000+"
    last = -(-attempted // 100) * 100
    return f"{last - 99}-{last}" if attempted else "0"


class GangMeasures:
    """Histograms of all profiles."""

    def __init__(self) -> None:
        self._cycles: dict[tuple[str, str], Histogram] = {}  # by reason and job size
        self._preemptions: dict[tuple[str, str], Histogram] = {}  # by job and result

    def cycle(self, reason: str, attempted: int, seconds: float) -> None:
        """Count an attempt for a gang group that tried `attempted` pods."""
        _observe(self._cycles, (reason, job_size(attempted)), _CYCLE_SECONDS, seconds)

    def preemption(self, job: str, *, success: bool, seconds: float) -> None:
        """Count a search for victims for the gang group or pod `job`."""
        _observe(self._preemptions, (job, "success" if success else "failure"), _PREEMPTION_SECONDS, seconds)
        if len(self._preemptions) > _MAX_JOBS:
            del self._preemptions[next(iter(self._preemptions))]

    def families(self) -> Iterator[Family]:
        """The metrics in Prometheus' text format."""
        for name, words, keys, result in (
            (
                "scheduler_gang_schedule_cycle_duration_seconds",
                "Duration of an attempt to place a gang group, by how it ended and the number of pods tried.",
                ("reason", "job_size"),
                self._cycles,
            ),
            (
                "scheduler_job_preemption_duration_seconds",
                "Duration of a search for pods to evict for a gang group or pod.",
                ("jobName", "result"),
                self._preemptions,
            ),
        ):
            lines = [
                line
                for labels, histogram in sorted(result.items())
                for line in histogram_lines(name, dict(zip(keys, labels, strict=True)), histogram)
            ]
            yield name, "histogram", words, lines


def _observe(
    histograms: dict[tuple[str, str], Histogram], labels: tuple[str, str], bounds: tuple[float, ...], seconds: float
) -> None:
    histogram = histograms.get(labels)
    if histogram is None:
        histogram = histograms[labels] = Histogram(bounds)
    histogram.observe(seconds)
