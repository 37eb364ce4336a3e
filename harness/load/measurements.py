"""What a load writes into the files of a run: each pod's events, and its figures, valid only if the load was."""

import msgspec

from seatrial.harness.load.load_figures import LoadResult
from seatrial.harness.load.record import Sample
from seatrial.harness.results import ResultsWriter


def record(
    result: LoadResult, results: ResultsWriter, *, workload: str, case: str, begun: float, memory_mib: float | None
) -> None:
    """Record each pod's events for the timeline, and the figures; latencies are samples of one measurement.

    `begun`: when the load began, in seconds since 1970.
    """
    assert result.samples is not None, "a load whose samples were not kept"
    decoder = msgspec.json.Decoder(Sample)
    latencies = []
    for sample in map(decoder.decode, filter(None, result.samples.read_bytes().splitlines())):
        results.event("created", sample.pod, case=case, at=begun + sample.sent)
        if sample.bound is not None:
            results.event("bound", sample.pod, node=sample.node, case=case, at=begun + sample.bound)
            latencies.append((sample.bound - sample.sent) * 1000)
    for name, unit, values in (
        ("create to bound", "ms", latencies),
        ("throughput", "pods/s", [result.throughput.pods_per_second] if result.throughput else []),
        ("memory of the scheduler", "MiB", [] if memory_mib is None else [memory_mib]),
    ):
        if values:
            results.measure(name, unit, values=values, labels={"workload": workload}, valid=result.valid)
