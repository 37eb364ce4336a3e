"""The cost of one decision: its lowest time over many pods, which a busy machine hardly raises."""

import time

import pytest

from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod

pytestmark = [
    pytest.mark.feature("HIL-8"),
    pytest.mark.needs(Capability.NODES, Capability.VIRTUAL_TIME),
    pytest.mark.alone,
]

MAX_SECONDS = 0.025  # from creation to binding in virtual time, where nothing waits for a network


def lowest(cluster: Trial, prefix: str, count: int) -> float:
    """The shortest real time in which one of `count` pods was placed."""
    found = []
    for number in range(count):
        name = f"{prefix}{number}"
        began = time.perf_counter()
        cluster.submit(pod(name).request(cpu="10m"))
        placed = cluster.cluster.wait(lambda name=name: bool(cluster.pod(name).spec.node_name), within=30)  # type: ignore[misc]
        found.append(time.perf_counter() - began)
        assert placed, f"expected pod {name!r} to be placed within 30 s"
    return min(found)


@pytest.mark.feature("HIL-8.decision-time")
@pytest.mark.case("TP-010", severity="critical")
def test_a_decision_takes_little_time(cluster: Trial) -> None:
    """The fastest of 30 placements stays below the ceiling."""
    cluster.add(node("n1").cpu(64), node("n2").cpu(64))
    seconds = lowest(cluster, "p", 30)
    assert seconds < MAX_SECONDS, (
        f"the fastest placement took {seconds * 1000:.1f} ms, allowed are {MAX_SECONDS * 1000:g}"
    )
