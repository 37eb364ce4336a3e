"""Metrics of the descheduler in Prometheus' text format."""

from collections import Counter
from collections.abc import Iterator

from seatrial.scheduler.descheduler.shell import Shell
from seatrial.scheduler.serving.exposition import Family, exposed, sample


def render(shell: Shell) -> bytes:
    """All metrics in text format."""
    return exposed(_families(shell))


def _families(shell: Shell) -> Iterator[Family]:
    name = "descheduler_pods_evicted"
    yield (
        name,
        "counter",
        "Evictions, by result, strategy, namespace and node.",
        [
            sample(name, {"result": result, "strategy": strategy, "namespace": namespace, "node": node}, count)
            for (result, strategy, namespace, node), count in sorted(shell.rounds.evicted.items())
        ],
    )
    name = "descheduler_rounds_total"
    yield name, "counter", "Rounds that were begun.", [sample(name, {}, shell.rounds.count)]
    name = "descheduler_round_errors_total"
    yield name, "counter", "Rounds that ended early.", [sample(name, {}, shell.round_errors)]
    name = "descheduler_migration_jobs"
    phases = Counter(job.status.phase or "Pending" for job in shell.state.jobs.values())
    yield (
        name,
        "gauge",
        "Migration jobs, by phase.",
        [sample(name, {"phase": phase}, count) for phase, count in sorted(phases.items())],
    )
    yield from shell.faults.families()
