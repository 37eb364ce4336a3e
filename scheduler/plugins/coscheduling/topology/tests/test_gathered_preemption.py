"""Job-level preemption for gangs with gather rules: examples E26 and E27, whole jobs, several classes, devices."""

from typing import Any

from seatrial.scheduler.api.builders import PodBuilder, gang, pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.framework.decisions import Evict
from seatrial.scheduler.plugins.coscheduling.jobs import JOB_LABEL
from seatrial.scheduler.plugins.coscheduling.tests.gangs import member
from seatrial.scheduler.plugins.coscheduling.topology.tests.fleets import CLUSTER_T, TopologyRig, gathered
from seatrial.scheduler.plugins.deviceshare.tests.test_cache import allocation
from seatrial.scheduler.tests.rig import profile

MUST_SPINE = ("SpineLayer", "MustGather")
MUST_BLOCK = ("BlockLayer", "MustGather")


def rig(**resources: Any) -> TopologyRig:
    """The cluster T of the specification with job-level preemption."""
    rig = TopologyRig(profile(pluginConfig=[{"name": "Coscheduling", "args": {"enablePreemption": True}}]))
    rig.fleet(CLUSTER_T, **resources)
    return rig


def low(name: str, priority: int = 10, cpu: int = 16) -> PodBuilder:
    return pod(name).request(cpu=cpu).priority(priority)


def members(count: int, *, cpu: int = 16) -> list[PodBuilder]:
    return [member(f"pod-{number}", "job", cpu=cpu).priority(1000) for number in range(1, count + 1)]


def submit(rig: TopologyRig, count: int, *rules: tuple[str, str] | tuple[str, str, int]) -> None:
    rig.group(gathered(gang("job", count), *rules))
    rig.submit(*members(count))


def evicted(rig: TopologyRig) -> list[str]:
    return sorted(one.victim.pod.metadata.name for one in rig.decisions if isinstance(one, Evict))


def nominated(rig: TopologyRig, count: int) -> list[str]:
    return [rig.core.handle.nominator.node_of(f"uid-pod-{number}") for number in range(1, count + 1)]


def end(rig: TopologyRig, *names: str) -> dict[str, str]:
    """The victims end; backoffs too. Returns the nodes of pods that are bound then."""
    for name in names:
        rig.delete(name)
    rig.clock.advance(11)
    return rig.decide_all()


def test_e26_only_the_pod_in_the_way_of_the_chosen_spine_is_evicted() -> None:
    topology_rig = rig()
    topology_rig.running(low("on-node-1"), "node-1")
    topology_rig.running(low("on-node-4"), "node-4")
    submit(topology_rig, 4, MUST_SPINE)
    assert topology_rig.decide_all() == {}
    words = (
        "no candidate topology nodes can accommodate job, desiredOfferSlot: 4, topology topologyNode SpineLayer/s1: 3;"
        "topology topologyNode SpineLayer/s2: 3, 0/8 nodes are available: 8 Insufficient cpu."
    )
    assert topology_rig.last_message("pod-4").startswith(words)
    assert topology_rig.last_message("pod-4").endswith("preemption: preempt success, alreadyWaitingForBound: 0/4")
    assert sorted(nominated(topology_rig, 4)) == ["node-1", "node-2", "node-7", "node-8"]
    assert evicted(topology_rig) == ["on-node-1"]
    assert topology_rig.held("pod-1").endswith("room in SpineLayer/s1 by preemption")

    assert end(topology_rig, "on-node-1") == {
        "pod-1": "node-1",
        "pod-2": "node-8",
        "pod-3": "node-2",
        "pod-4": "node-7",
    }
    assert len(topology_rig.core.groups.nominations) == 0


def test_e27_no_spine_has_room_even_without_the_victims() -> None:
    topology_rig = rig()
    topology_rig.running(low("high-1", 5000), "node-1")
    topology_rig.running(low("high-4", 5000), "node-4")
    topology_rig.running(low("low-2"), "node-2")
    submit(topology_rig, 4, MUST_SPINE)
    assert topology_rig.decide_all() == {}
    last_message = topology_rig.last_message("pod-4")
    assert "topologyNode SpineLayer/s1: 2;topology topologyNode SpineLayer/s2: 3," in last_message
    assert (
        "preemption: no candidate topology nodes can accommodate job, desiredOfferSlot: 4, topology topologyNode"
        " SpineLayer/s1: 3;topology topologyNode SpineLayer/s2: 3, 0/8 nodes are available: 8 Insufficient cpu."
    ) in last_message
    assert evicted(topology_rig) == []
    assert nominated(topology_rig, 4) == ["", "", "", ""]
    assert "best domain SpineLayer/s2 has room for 3 of 4 members" in topology_rig.held("pod-1")


def test_nominations_of_an_earlier_plan_are_cleared_by_a_plan_that_fails() -> None:
    """E27 after E26: while the victim terminates its place is taken by more important pods on other nodes."""
    topology_rig = rig()
    topology_rig.running(low("on-node-1"), "node-1")
    topology_rig.running(low("on-node-4"), "node-4")
    submit(topology_rig, 4, MUST_SPINE)
    topology_rig.decide_all()
    assert evicted(topology_rig) == ["on-node-1"]
    for name in ("node-2", "node-7"):
        topology_rig.running(low(f"boss-{name}", 5000), name)
    end(topology_rig, "on-node-1")
    assert evicted(topology_rig) == ["on-node-1", "on-node-4"], "the other spine is planned now"
    assert sorted(nominated(topology_rig, 4)) == ["node-3", "node-4", "node-5", "node-6"]


def test_of_equal_domains_the_cheapest_victims_go() -> None:
    """Both spines lack one node. By name s1 would be first; its victim is dearer."""
    topology_rig = rig()
    topology_rig.running(low("dear", 50), "node-1")
    topology_rig.running(low("cheap", 10), "node-4")
    submit(topology_rig, 4, MUST_SPINE)
    topology_rig.decide_all()
    assert evicted(topology_rig) == ["cheap"]
    assert sorted(nominated(topology_rig, 4)) == ["node-3", "node-4", "node-5", "node-6"]


def test_free_nodes_of_the_domain_need_no_victims() -> None:
    """Three members, one free node in each spine: the cheaper spine loses two of its three pods."""
    topology_rig = rig()
    for number in (1, 2, 7, 3, 4, 5):
        topology_rig.running(low(f"on-{number}", 10 if number < 6 else 20), f"node-{number}")
    submit(topology_rig, 3, MUST_SPINE)
    topology_rig.decide_all()
    assert evicted(topology_rig) == ["on-3", "on-4"]
    assert sorted(nominated(topology_rig, 3)) == ["node-3", "node-4", "node-6"]


def test_a_job_is_evicted_whole_also_outside_of_the_domain() -> None:
    topology_rig = rig()
    for number in (1, 8, 3, 4, 5, 6, 2):
        topology_rig.running(low(f"on-{number}", 20), f"node-{number}")
    topology_rig.running(low("part-1", 10).label(JOB_LABEL, "j"), "node-7")
    topology_rig.delete("on-6")
    topology_rig.running(low("part-2", 10).label(JOB_LABEL, "j"), "node-6")
    submit(topology_rig, 2, MUST_BLOCK)
    topology_rig.decide_all()
    assert evicted(topology_rig) == ["on-2", "part-1", "part-2"]
    assert sorted(nominated(topology_rig, 2)) == ["node-2", "node-7"]


def test_pods_that_turn_out_not_to_be_needed_stay() -> None:
    """Half a node is enough for a member: of two pods there the more important one is put back (GANG-R80)."""
    topology_rig = rig()
    for number in range(1, 9):
        topology_rig.running(low(f"minor-{number}", 10, 8), f"node-{number}")
        topology_rig.running(low(f"major-{number}", 20, 8), f"node-{number}")
    topology_rig.group(gathered(gang("job", 2), MUST_BLOCK))
    topology_rig.submit(*members(2, cpu=8))
    topology_rig.decide_all()
    assert evicted(topology_rig) == ["major-1", "minor-1"], "two members on one node: the deepest level with room"
    assert nominated(topology_rig, 2) == ["node-1", "node-1"]


def test_multiples_hold_for_nominations_too() -> None:
    """Each node has room for one member of two. With podCountMultiple 2 on nodes, members go there by two."""
    topology_rig = rig()
    for number in range(1, 9):
        topology_rig.running(low(f"on-{number}", 10, 8), f"node-{number}")
    topology_rig.group(gathered(gang("job", 4), MUST_BLOCK, ("NodeTopologyLayer", "PreferGather", 2)))
    topology_rig.submit(*members(4, cpu=8))
    topology_rig.decide_all()
    assert evicted(topology_rig) == ["on-1", "on-8"]
    assert sorted(nominated(topology_rig, 4)) == ["node-1", "node-1", "node-8", "node-8"]


def test_cards_that_do_not_add_up_correct_the_plan() -> None:
    """Two cards on each node. On node-1 important pods keep 50 % of each card, so that the sum without the low pod is
    one card, but no member fits. It is the cheapest node; the plan is corrected, and another one is taken."""
    topology_rig = rig(gpus=2)

    def use(name: str, node: str, card: int, percent: int, priority: int) -> None:
        taken = pod(name).gpu_share(percent).annotation(DEVICE_ALLOCATED, allocation(card, percent))
        topology_rig.running(taken.priority(priority), node)

    for number in range(2, 9):
        for card in (0, 1):
            use(f"on-{number}-{card}", f"node-{number}", card, 100, 20)
    use("kept-0", "node-1", 0, 40, 5000)
    use("kept-1", "node-1", 1, 50, 5000)
    use("low", "node-1", 0, 10, 10)
    topology_rig.group(gathered(gang("job", 1), ("NodeTopologyLayer", "MustGather")))
    topology_rig.submit(member("pod-1", "job").gpus(1).priority(1000))
    topology_rig.decide_all()
    assert evicted(topology_rig) == ["on-2-1"], "of two equal pods the first by name is put back"
    assert nominated(topology_rig, 1) == ["node-2"]


def test_members_of_two_classes_share_a_domain() -> None:
    """A launcher of 4 CPUs beside two workers of 16: the block's third place is what a pod of one CPU leaves."""
    topology_rig = rig()
    for number in range(1, 9):
        topology_rig.running(low(f"on-{number}", 10), f"node-{number}")
    topology_rig.group(gathered(gang("job", 3), MUST_SPINE))
    launcher = member("pod-0", "job", cpu=4).priority(1000)
    topology_rig.submit(launcher, *members(2))
    topology_rig.decide_all()
    nodes = [*nominated(topology_rig, 2), topology_rig.core.handle.nominator.node_of("uid-pod-0")]
    assert len(evicted(topology_rig)) == 3
    assert sorted(nodes) in (["node-1", "node-2", "node-7"], ["node-1", "node-2", "node-8"])


def test_a_gang_that_is_not_strict_evicts_nobody() -> None:
    topology_rig = rig()
    for number in range(1, 9):
        topology_rig.running(low(f"on-{number}"), f"node-{number}")
    topology_rig.group(gathered(gang("job", 4), MUST_SPINE), mode="NonStrict")
    topology_rig.submit(*members(4))
    topology_rig.decide_all()
    assert evicted(topology_rig) == []


def test_nodes_relabelled_while_victims_end_the_gang_is_still_in_one_domain() -> None:
    """A nominated node moves to the other spine, which has room for all then: no second pod is evicted for the gang."""
    topology_rig = rig()
    topology_rig.running(low("on-node-1"), "node-1")
    topology_rig.running(low("on-node-4"), "node-4")
    submit(topology_rig, 4, MUST_SPINE)
    topology_rig.decide_all()
    topology_rig.member_node("node-2", "s2", "b3", cpu="16")
    bound = topology_rig.decide_all() | end(topology_rig, "on-node-1")
    assert sorted(bound.values()) == ["node-2", "node-3", "node-5", "node-6"]
    assert evicted(topology_rig) == ["on-node-1"]
    assert len(topology_rig.core.groups.nominations) == 0


def test_a_deleted_pod_group_gives_the_nominated_room_back() -> None:
    topology_rig = rig()
    topology_rig.running(low("on-node-1"), "node-1")
    topology_rig.running(low("on-node-4"), "node-4")
    submit(topology_rig, 4, MUST_SPINE)
    topology_rig.decide_all()
    topology_rig.cache.remove_object("default/job")
    assert topology_rig.decide_all() == {}
    assert nominated(topology_rig, 4) == ["", "", "", ""]
    assert len(topology_rig.core.groups.nominations) == 0


def test_a_smaller_minimum_keeps_the_nominated_room() -> None:
    """Another plan would evict another pod while the first victim ends."""
    topology_rig = rig()
    topology_rig.running(low("on-node-1"), "node-1")
    topology_rig.running(low("on-node-4"), "node-4")
    submit(topology_rig, 4, MUST_SPINE)
    topology_rig.decide_all()
    topology_rig.terminating("on-node-1")
    before = nominated(topology_rig, 4)
    topology_rig.group(gathered(gang("job", 3), MUST_SPINE))
    topology_rig.decide_all()
    assert nominated(topology_rig, 4) == before
    assert evicted(topology_rig) == ["on-node-1"]
