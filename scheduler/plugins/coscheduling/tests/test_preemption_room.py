"""Room that job-level preemption counts besides requests: NUMA nodes, and reservations of the members."""

from seatrial.scheduler.api.builders import PodBuilder, gang, pod
from seatrial.scheduler.api.podgroup import POD_GROUP_LABEL
from seatrial.scheduler.framework.decisions import Evict
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, member
from seatrial.scheduler.plugins.nodenuma.tests.numarig import Machines, lsr
from seatrial.scheduler.plugins.reservation.tests.reservations import hold
from seatrial.scheduler.tests.rig import profile

JOBS = profile(pluginConfig=[{"name": "Coscheduling", "args": {"enablePreemption": True}}])


class NumaGangs(GangRig, Machines):
    """Gangs on machines with NUMA nodes."""


def evicted(rig: GangRig) -> list[str]:
    return sorted(one.victim.pod.metadata.name for one in rig.decisions if isinstance(one, Evict))


def aligned(name: str, cpu: str, priority: int) -> PodBuilder:
    return lsr(name, cpu).align("SingleNUMANode").priority(priority)


def numa_rig() -> NumaGangs:
    """Two NUMA nodes of eight CPUs: the cheap pod has all of one, the dear pod has four of the other."""
    numa_gangs = NumaGangs(JOBS)
    numa_gangs.machine("n")
    numa_gangs.submit(aligned("cheap", "8", 10), aligned("dear", "4", 20))
    numa_gangs.run()
    assert numa_gangs.placed() == ["cheap", "dear"]
    return numa_gangs


def test_planned_members_take_their_numa_node() -> None:
    """Two members of five CPUs each. Without the cheap pod twelve CPUs are free, but one NUMA node has room for one
    member, and four are left on the other one: both pods go."""
    numa_gangs = numa_rig()
    numa_gangs.group(gang("train", 2))
    numa_gangs.submit(*(aligned(name, "5", 1000).label(POD_GROUP_LABEL, "train") for name in ("a", "b")))
    numa_gangs.run()
    assert evicted(numa_gangs) == ["cheap", "dear"]
    for name in ("cheap", "dear"):
        numa_gangs.delete(name)
    numa_gangs.clock.advance(11)
    numa_gangs.run()
    assert (numa_gangs.where("a"), numa_gangs.where("b")) == ("n", "n")


def test_members_that_fit_side_by_side_spare_the_dear_pod() -> None:
    """Two members of four CPUs fit on the NUMA node of the cheap pod."""
    numa_gangs = numa_rig()
    numa_gangs.group(gang("train", 2))
    numa_gangs.submit(*(aligned(name, "4", 1000).label(POD_GROUP_LABEL, "train") for name in ("a", "b")))
    numa_gangs.run()
    assert evicted(numa_gangs) == ["cheap"]


def reserved_rig(policy: str = "") -> GangRig:
    """A node of 8 CPUs: 4 reserved and unused, 4 in use by a pod of low priority; and a dearer full node."""
    rig = GangRig(JOBS)
    rig.node("n", cpu="8")
    rig.node("other", cpu="8")
    rig.running(pod("plain").request(cpu=4).priority(10), "n")
    rig.running(pod("dear").request(cpu=8).priority(20), "other")
    hold(rig, "r", "n", {"cpu": 4000}, policy=policy)
    return rig


def wants(name: str, cpu: int) -> PodBuilder:
    return member(name, "train", cpu=cpu).priority(1000).label("app", "a")


def test_room_in_a_reservation_and_that_of_a_victim_are_enough_together() -> None:
    rig = reserved_rig()
    rig.group(gang("train", 1))
    rig.submit(wants("m", 8))
    rig.run()
    assert evicted(rig) == ["plain"]
    rig.delete("plain")
    rig.clock.advance(11)
    rig.run()
    assert rig.where("m") == "n"


def test_a_restricted_reservation_gives_no_more_than_it_has() -> None:
    rig = reserved_rig("Restricted")
    rig.group(gang("train", 1))
    rig.submit(wants("m", 8))
    rig.run()
    assert evicted(rig) == ["dear"]


def test_pods_without_the_reservation_do_not_count_its_room() -> None:
    rig = reserved_rig()
    rig.group(gang("train", 1))
    rig.submit(member("m", "train", cpu=8).priority(1000))
    rig.run()
    assert evicted(rig) == ["dear"]


def test_two_members_do_not_use_one_reservation_twice() -> None:
    """Each needs 8 CPUs: one is in the reservation and the victim's room, the other one needs the dear node."""
    rig = reserved_rig()
    rig.group(gang("train", 2))
    rig.submit(wants("a", 8), wants("b", 8))
    rig.run()
    assert evicted(rig) == ["dear", "plain"]
    for name in ("dear", "plain"):
        rig.delete(name)
    rig.clock.advance(11)
    rig.run()
    assert sorted((rig.where("a"), rig.where("b"))) == ["n", "other"]


def crowded_rig(reserved: int, policy: str) -> GangRig:
    """A node of 8 CPUs where the low pod has all memory, and its CPUs that are not reserved; a dearer full node."""
    rig = GangRig(JOBS)
    rig.node("n", cpu="8", memory="8Gi")
    rig.node("other", cpu="8", memory="8Gi")
    rig.running(pod("plain").request(cpu=8 - reserved, memory="8Gi").priority(10), "n")
    rig.running(pod("dear").request(cpu=8, memory="8Gi").priority(20), "other")
    hold(rig, "r", "n", {"cpu": reserved * 1000}, policy=policy)
    rig.group(gang("train", 2))
    for name in ("a", "b"):
        rig.submit(wants(name, 4).request(cpu=4, memory="1Gi"))
    return rig


def test_members_beside_and_in_a_reservation_share_a_node() -> None:
    rig = crowded_rig(4, "")
    rig.run()
    assert evicted(rig) == ["plain"]


def test_what_a_member_takes_of_a_restricted_reservation_is_gone_for_the_next() -> None:
    """Six CPUs are reserved: after the first member two are left there, and two beside them."""
    rig = crowded_rig(6, "Restricted")
    rig.run()
    assert evicted(rig) == ["dear", "plain"]
