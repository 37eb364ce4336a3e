"""Reservations on NUMA nodes: what an owner leaves of them is held for the next owner, no more and no less."""

import pytest

from seatrial.fixtures.allocated_devices import reservation_of
from seatrial.fixtures.cpus import cores, cpus, shares
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, reservation
from seatrial.scheduler.api.numa import FULL_PCPUS, SPREAD_BY_PCPUS

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


@pytest.mark.feature("RSV-1.held", "CPU-1.required")
@pytest.mark.case("RV-122", severity="normal", source="spec NUMA-R62")
@pytest.mark.parametrize(("policy", "fits"), [("Aligned", True), ("Restricted", False)])
def test_an_owner_that_the_reserved_cpus_do_not_suit(trial: Trial, expect: Expect, policy: str, fits: bool) -> None:
    """A reservation holds one thread of each of four cores, and its owner requires a whole core: it gets one beside the
    reservation, or waits where the reservation is Restricted."""
    trial.add(node("n1").server(MACHINE))
    like = pod("x").qos("LSR").request(cpu=4, memory="1Gi").bind_cpus(required=SPREAD_BY_PCPUS)
    trial.reserve(reservation("held").like(like).for_labels(app="owner").many().policy(policy))
    expect.available("held")
    owner = pod("owner").qos("LSR").request(cpu=2, memory="1Gi").label("app", "owner")
    trial.submit(owner.bind_cpus(required=FULL_PCPUS).into_reservation())
    if not fits:
        expect.pending("owner")
        return
    assert set(cores(trial, expect.bound("owner")).values()) == {2}
