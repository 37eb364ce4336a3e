"""`bench load-aware` at a small size."""

from seatrial.harness.bench.load_aware import bench_load_aware


def test_figures() -> None:
    """Twelve nodes are hot for two minutes; pods of two shapes wait through all reports."""
    messages: list[str] = []
    load_aware = bench_load_aware(12, 3, 2, 2, messages.append, seed=1)
    assert len(messages) == 2
    assert (load_aware["nodes"], load_aware["pods_per_node"], load_aware["waiting_shapes"]) == (12, 3, 2)
    assert load_aware["core_percent"] >= 0
    assert load_aware["update_us"] > 0
    assert load_aware["report_bytes"] > 1000
