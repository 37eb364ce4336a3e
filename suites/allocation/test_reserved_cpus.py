"""Reservations on NUMA nodes: what an owner leaves of them is held for the next owner, no more and no less."""

import pytest

from seatrial.fixtures.allocated_devices import reservation_of
from seatrial.fixtures.cpus import cores, cpus, kept_cpus, shares
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, priority_class, reservation
from seatrial.scheduler.api.numa import FULL_PCPUS, NODE_RESERVATION, SPREAD_BY_PCPUS

pytestmark = [pytest.mark.needs(Capability.NODES)]

MACHINE = "cpu-64"  # two NUMA nodes of 32 CPUs


@pytest.mark.feature("RSV-1.held", "NUMA-1.not-overbooked")
@pytest.mark.case("RV-099", severity="critical")
@pytest.mark.parametrize("qos", ["", "LSR"], ids=["shared-cpus", "exclusive-cpus"])
def test_the_rest_of_a_numa_node_beside_an_owner(trial: Trial, expect: Expect, qos: str) -> None:
    """A reservation holds 16 CPUs of one NUMA node, whose first owner uses eight; the other NUMA node is full. A pod of
    18 waits, because 16 are free beside the reservation; a pod of 16 gets them. Then the second owner gets the other
    eight of the reservation."""
    trial.add(node("n1").server(MACHINE).numa_policy("SingleNUMANode"))

    def asking(name: str, cpu: int, app: str = "stranger") -> PodBuilder:
        builder = pod(name).request(cpu=cpu, memory="1Gi").label("app", app)
        return builder.qos(qos) if qos else builder

    trial.reserve(reservation("held").like(asking("x", 16)).for_labels(app="owner").many())
    expect.available("held")
    trial.submit(asking("other", 32))
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
    assert len(frozenset[int]().union(*sets)) == sum(map(len, sets)) == (64 if qos else 0)


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


def exclusive(name: str, cpu: int) -> PodBuilder:
    return pod(name).qos("LSR").request(cpu=cpu, memory="1Gi")


def of_60_cpus(trial: Trial) -> None:
    """A machine of which four CPUs are for pods without CPUs of their own."""
    trial.add(node("n1").server(MACHINE))
    kept = {"metadata": {"annotations": {NODE_RESERVATION: '{"reservedCPUs":"0-3","applyPolicy":"ReservedCPUsOnly"}'}}}
    assert trial.call("PATCH", "/api/v1/nodes/n1", kept).ok
    assert trial.wait(lambda: kept_cpus(trial, "n1") == {0, 1, 2, 3}, within=10)


@pytest.mark.feature("RSV-1.held", "CPU-1.policies")
@pytest.mark.case("RV-230", severity="normal", source="spec NUMA-R62")
def test_an_owner_of_two_reservations_has_the_cpus_of_one(trial: Trial, expect: Expect) -> None:
    """Two reservations hold four CPUs each for one owner, and 52 CPUs are taken. The owner, which asks for six, waits
    until CPUs beside the reservations are free."""
    of_60_cpus(trial)
    for name in ("r1", "r2"):
        trial.reserve(reservation(name).like(exclusive("x", 4)).for_labels(app="owner"))
        expect.available(name)
    trial.submit(exclusive("filler", 52))
    taken = cpus(expect.bound("filler"))
    trial.submit(exclusive("owner", 6).label("app", "owner"))
    expect.pending("owner")
    trial.delete("filler")
    assert len(cpus(expect.bound("owner")) - taken) in {0, 4}


@pytest.mark.feature("RSV-1.held", "CPU-1.policies")
@pytest.mark.case("RV-231", severity="normal", source="spec NUMA-R63")
@pytest.mark.parametrize("reserved", [True, False], ids=["owner", "pod"])
def test_cpus_of_a_victim_go_back_to_its_reservation(trial: Trial, expect: Expect, reserved: bool) -> None:
    """56 CPUs are taken, and a less important pod has the other four. An important one preempts it, but not if it is
    the owner of a reservation, which would hold its CPUs again."""
    trial.apply(priority_class("cpus-low", 1000), priority_class("cpus-high", 9000))
    of_60_cpus(trial)
    if reserved:
        trial.reserve(reservation("held").like(exclusive("x", 4)).for_labels(app="owner").many())
        expect.available("held")
    trial.submit(exclusive("filler", 56).priority_class("cpus-high"))
    expect.running("filler")
    trial.submit(exclusive("less", 4).label("app", "owner").priority_class("cpus-low"))
    assert (reservation_of(expect.running("less")) == "held") == reserved
    trial.submit(exclusive("more", 4).priority_class("cpus-high"))
    if not reserved:
        expect.bound("more")
        expect.refusal()
        return
    expect.pending("more")
    expect.stable(seconds=3)
    assert [each for each in trial.pods() if each.metadata.name == "less" and not each.deleting]
