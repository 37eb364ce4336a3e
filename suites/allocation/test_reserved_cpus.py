"""Reservations on NUMA nodes: what an owner leaves of them is held for the next owner, no more and no less."""

import pytest

from seatrial.fixtures.allocated_devices import reservation_of
from seatrial.fixtures.cpus import cpus, shares
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, reservation

pytestmark = [pytest.mark.needs(Capability.NODES)]

MACHINE = "cpu-64"  # two NUMA nodes of 32 CPUs


@pytest.mark.feature("RSV-1.held", "NUMA-1.not-overbooked")
@pytest.mark.case("RV-099", severity="critical")
@pytest.mark.parametrize("qos", ["", "LSR"], ids=["shared-cpus", "exclusive-cpus"])
def test_the_rest_of_a_numa_node_beside_an_owner(trial: Trial, expect: Expect, qos: str) -> None:
    """A reservation holds 16 CPUs of one NUMA node, whose first owner uses eight. On the other NUMA node eight are
    free. A pod of 18 waits, because 16 are free beside the reservation; a pod of 16 gets them. Then the second owner
    gets the other eight of the reservation."""
    trial.add(node("n1").server(MACHINE).numa_policy("SingleNUMANode"))

    def asking(name: str, cpu: int, app: str = "stranger") -> PodBuilder:
        builder = pod(name).request(cpu=cpu, memory="1Gi").label("app", app)
        return builder.qos(qos) if qos else builder

    trial.reserve(reservation("held").like(asking("x", 16)).for_labels(app="owner").many())
    expect.available("held")
    trial.submit(asking("other", 24))
    other = expect.bound("other")
    trial.submit(asking("first", 8, "owner"))
    first = expect.bound("first")
    assert reservation_of(first) == "held"
    assert not shares(first).keys() & shares(other).keys()

    trial.submit(asking("large", 18))
    expect.pending("large")
    trial.submit(asking("beside", 16))
    beside = expect.bound("beside")
    trial.submit(asking("second", 8, "owner"))
    second = expect.bound("second")

    assert reservation_of(second) == "held"
    assert shares(first).keys() == shares(beside).keys() == shares(second).keys()
    sets = [cpus(item) for item in (other, first, beside, second)]
    assert len(frozenset[int]().union(*sets)) == sum(map(len, sets)) == (56 if qos else 0)
