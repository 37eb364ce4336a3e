"""A load in the files of a run."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from seatrial.harness.load.measurements import record
from seatrial.harness.load.record import Sample
from seatrial.harness.load.tests.test_bounds import result
from seatrial.harness.results import ResultsWriter, RunInfo, Subject, moment, read_run
from seatrial.scheduler.api.clock import SIM_EPOCH


@pytest.mark.parametrize("valid", [True, False])
def test_every_figure_is_as_valid_as_the_load(tmp_path: Path, valid: bool) -> None:
    samples = [Sample("load/a", "s", 0, 0.5, 0.6, bound=0.75, node="n1"), Sample("load/b", "s", 1, 1)]
    (tmp_path / "samples.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, samples)))
    load = replace(result(valid=valid), samples=tmp_path / "samples.jsonl")
    with ResultsWriter(tmp_path / "run") as writer:
        writer.run(RunInfo("r", moment(SIM_EPOCH), (), "embedded", Subject("ours")))
        record(load, writer, workload="steady", case="t::a", begun=SIM_EPOCH, memory_mib=90)
    run = read_run(tmp_path / "run")
    assert {(each.name, each.values, each.valid) for each in run.measurements} == {
        ("create to bound", (250.0,), valid),
        ("throughput", (50.0,), valid),
        ("memory of the scheduler", (90.0,), valid),
    }
    assert all(each.labels == {"workload": "steady"} for each in run.measurements)
    assert [(each.event, each.pod) for each in run.timeline] == [
        ("created", "load/a"),
        ("bound", "load/a"),
        ("created", "load/b"),
    ]
