"""Samples of CPU and memory use, and what a NodeMetric reports of them: means and percentiles over durations.

Follows koordlet's metric cache (QOS-MC-2, QOS-RP-1, QOS-RP-2).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seatrial.harness.apiserver.quantities import CPU, MEMORY, Amounts, quantities
from seatrial.scheduler.api.durations import go_duration, go_text
from seatrial.scheduler.api.slo import AGGREGATE_DURATIONS, AGGREGATE_SECONDS, AVG, P50, P90, P95, P99, CollectPolicy

Manifest = dict[str, Any]
Floats = NDArray[np.float64]

WITH_PAGE_CACHE = "usageWithPageCache"
MIN_WINDOW = 60.0  # seconds; koordlet's minimum of aggregateDurationSeconds
PERCENTILES = {P50: 0.5, P90: 0.9, P95: 0.95, P99: 0.99}


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples in the order of time. `times`: seconds since 1970, [sample]; `cpu` in milli-CPU and `memory` in bytes.

    `memory` is without page cache, `page_cache` is that in bytes; None: there is none.
    """

    times: Floats
    cpu: Floats
    memory: Floats
    page_cache: Floats | None = None

    def since(self, moment: float) -> "Samples":
        """The samples at `moment` and later."""
        first = int(np.searchsorted(self.times, moment))
        cache = self.page_cache[first:] if self.page_cache is not None else None
        return Samples(self.times[first:], self.cpu[first:], self.memory[first:], cache)

    def by(self, policy: CollectPolicy) -> "Samples":
        """The samples with the memory that the policy counts (QOS-KM-2, QOS-KM-14).

        Cold pages are not measured here, so `usageWithHotPageCache` counts no page cache, as in koordlet without its
        collector of cold pages.
        """
        if policy.node_memory_collect_policy != WITH_PAGE_CACHE or self.page_cache is None:
            return self
        return Samples(self.times, self.cpu, self.memory + self.page_cache)

    def __len__(self) -> int:
        return len(self.times)

    def last(self) -> Amounts:
        return {CPU: int(self.cpu[-1]), MEMORY: int(self.memory[-1])}

    def mean(self) -> Amounts:
        """The arithmetic mean, truncated."""
        return {CPU: int(self.cpu.mean()), MEMORY: int(self.memory.mean())}

    def percentile(self, part: float) -> Amounts:
        """The sample at index int(n · part) - 1 of the sorted samples, `part` as a 32-bit float."""
        index = max(int(len(self) * np.float32(part)) - 1, 0)
        return {CPU: int(np.sort(self.cpu)[index]), MEMORY: int(np.sort(self.memory)[index])}


def reported(samples: Samples, policy: CollectPolicy, now: float) -> Amounts | None:
    """The use that is reported: the mean over the window of the policy; None without a sample in it.

    Deviation from koordlet, which has a default of 300 s: without `aggregateDurationSeconds` the last sample counts.
    """
    window = window_of(policy)
    result = samples.by(policy).since(now - window)
    if not len(result):
        return None
    return result.last() if policy.aggregate_duration_seconds is None else result.mean()


def aggregates(samples: Samples, policy: CollectPolicy, now: float) -> list[Manifest]:
    """`aggregatedNodeUsages`: an entry for each duration, without usage where samples cover less than half of it."""
    statuses: list[Manifest] = []
    samples = samples.by(policy)
    for text in durations_of(policy):
        seconds = go_duration(text) or 0.0
        entry: Manifest = {"duration": go_text(seconds), "usage": {}}
        covered = samples.since(now - seconds)
        if len(covered) and covered.times[-1] - covered.times[0] >= 0.5 * seconds:
            amounts = {AVG: covered.mean(), **{name: covered.percentile(part) for name, part in PERCENTILES.items()}}
            entry["usage"] = {name: {"resources": quantities(value)} for name, value in amounts.items()}
        statuses.append(entry)
    return statuses


def durations_of(policy: CollectPolicy) -> Sequence[str]:
    """The durations of aggregates that the policy asks for."""
    durations = policy.node_aggregate_policy.durations if policy.node_aggregate_policy is not None else ()
    return [text for text in durations if go_duration(text)] or AGGREGATE_DURATIONS


def window_of(policy: CollectPolicy) -> float:
    """Seconds over which the reported use is the mean."""
    return max(float(policy.aggregate_duration_seconds or AGGREGATE_SECONDS), MIN_WINDOW)


def longest(policy: CollectPolicy) -> float:
    """Seconds that samples have to be kept."""
    return max(window_of(policy), *(go_duration(text) or 0.0 for text in durations_of(policy)))


def total(times: Floats, parts: Iterable[Samples]) -> Samples:
    """The sum of samples that were taken at some of `times`."""
    cpu, memory, cache = np.zeros(len(times)), np.zeros(len(times)), np.zeros(len(times))
    for part in parts:
        at = np.searchsorted(times, part.times)
        cpu[at] += part.cpu
        memory[at] += part.memory
        if part.page_cache is not None:
            cache[at] += part.page_cache
    return Samples(times, cpu, memory, cache)
