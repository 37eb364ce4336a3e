"""`bench load-aware` at a small size."""

from seatrial.harness.bench.load_aware import bench_load_aware


def test_figures() -> None:
    """Twelve nodes are hot for two minutes; pods of two shapes wait through all reports."""
    said: list[str] = []
    found = bench_load_aware(12, 3, 2, 2, said.append, seed=1)
    assert len(said) == 2
    assert (found["nodes"], found["pods_per_node"], found["waiting_shapes"]) == (12, 3, 2)
    assert found["core_percent"] >= 0
    assert found["update_us"] > 0
    assert found["report_bytes"] > 1000
