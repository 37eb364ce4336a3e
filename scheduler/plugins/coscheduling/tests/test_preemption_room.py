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


def evicted(found: GangRig) -> list[str]:
    return sorted(one.victim.pod.metadata.name for one in found.decisions if isinstance(one, Evict))


def aligned(name: str, cpu: str, priority: int) -> PodBuilder:
    return lsr(name, cpu).align("SingleNUMANode").priority(priority)


def numa_rig() -> NumaGangs:
    """Two NUMA nodes of eight CPUs: the cheap pod has all of one, the dear pod has four of the other."""
    found = NumaGangs(JOBS)
    found.machine("n")
    found.submit(aligned("cheap", "8", 10), aligned("dear", "4", 20))
    found.run()
    assert found.placed() == ["cheap", "dear"]
    return found


def test_planned_members_take_their_numa_node() -> None:
    """Two members of five CPUs each. Without the cheap pod twelve CPUs are free, but one NUMA node has room for one
    member, and four are left on the other one: both pods go."""
    found = numa_rig()
    found.group(gang("train", 2))
    found.submit(*(aligned(name, "5", 1000).label(POD_GROUP_LABEL, "train") for name in ("a", "b")))
    found.run()
    assert evicted(found) == ["cheap", "dear"]
    for name in ("cheap", "dear"):
        found.delete(name)
    found.clock.advance(11)
    found.run()
    assert (found.where("a"), found.where("b")) == ("n", "n")


def test_members_that_fit_side_by_side_spare_the_dear_pod() -> None:
    """Two members of four CPUs fit on the NUMA node of the cheap pod."""
    found = numa_rig()
    found.group(gang("train", 2))
    found.submit(*(aligned(name, "4", 1000).label(POD_GROUP_LABEL, "train") for name in ("a", "b")))
    found.run()
    assert evicted(found) == ["cheap"]


def reserved_rig(policy: str = "") -> GangRig:
    """A node of 8 CPUs: 4 reserved and unused, 4 in use by a pod of low priority; and a dearer full node."""
    found = GangRig(JOBS)
    found.node("n", cpu="8")
    found.node("other", cpu="8")
    found.running(pod("plain").request(cpu=4).priority(10), "n")
    found.running(pod("dear").request(cpu=8).priority(20), "other")
    hold(found, "r", "n", {"cpu": 4000}, policy=policy)
    return found


def wants(name: str, cpu: int) -> PodBuilder:
    return member(name, "train", cpu=cpu).priority(1000).label("app", "a")


def test_room_in_a_reservation_and_that_of_a_victim_are_enough_together() -> None:
    found = reserved_rig()
    found.group(gang("train", 1))
    found.submit(wants("m", 8))
    found.run()
    assert evicted(found) == ["plain"]
    found.delete("plain")
    found.clock.advance(11)
    found.run()
    assert found.where("m") == "n"


def test_a_restricted_reservation_gives_no_more_than_it_has() -> None:
    found = reserved_rig("Restricted")
    found.group(gang("train", 1))
    found.submit(wants("m", 8))
    found.run()
    assert evicted(found) == ["dear"]


def test_pods_without_the_reservation_do_not_count_its_room() -> None:
    found = reserved_rig()
    found.group(gang("train", 1))
    found.submit(member("m", "train", cpu=8).priority(1000))
    found.run()
    assert evicted(found) == ["dear"]


def test_two_members_do_not_use_one_reservation_twice() -> None:
    """Each needs 8 CPUs: one is in the reservation and the victim's room, the other one needs the dear node."""
    found = reserved_rig()
    found.group(gang("train", 2))
    found.submit(wants("a", 8), wants("b", 8))
    found.run()
    assert evicted(found) == ["dear", "plain"]
    for name in ("dear", "plain"):
        found.delete(name)
    found.clock.advance(11)
    found.run()
    assert sorted((found.where("a"), found.where("b"))) == ["n", "other"]


def crowded_rig(reserved: int, policy: str) -> GangRig:
    """A node of 8 CPUs where the low pod has all memory, and its CPUs that are not reserved; a dearer full node."""
    found = GangRig(JOBS)
    found.node("n", cpu="8", memory="8Gi")
    found.node("other", cpu="8", memory="8Gi")
    found.running(pod("plain").request(cpu=8 - reserved, memory="8Gi").priority(10), "n")
    found.running(pod("dear").request(cpu=8, memory="8Gi").priority(20), "other")
    hold(found, "r", "n", {"cpu": reserved * 1000}, policy=policy)
    found.group(gang("train", 2))
    for name in ("a", "b"):
        found.submit(wants(name, 4).request(cpu=4, memory="1Gi"))
    return found


def test_members_beside_and_in_a_reservation_share_a_node() -> None:
    found = crowded_rig(4, "")
    found.run()
    assert evicted(found) == ["plain"]


def test_what_a_member_takes_of_a_restricted_reservation_is_gone_for_the_next() -> None:
    """Six CPUs are reserved: after the first member two are left there, and two beside them."""
    found = crowded_rig(6, "Restricted")
    found.run()
    assert evicted(found) == ["dear", "plain"]
