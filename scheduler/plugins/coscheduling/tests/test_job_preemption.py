"""Job-level preemption: the worked examples of the specification, whole jobs, protected pods, quotas and budgets.

A node has room for 32 CPUs; every pod asks for 16, as in the examples.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder, gang, pod
from seatrial.scheduler.framework.decisions import ClearNomination, Evict, Reject
from seatrial.scheduler.plugins.coscheduling.jobs import JOB_LABEL
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, member
from seatrial.scheduler.tests.rig import profile

JOBS = {"pluginConfig": [{"name": "Coscheduling", "args": {"enablePreemption": True}}]}


def rig(*nodes: str, **parts: Any) -> GangRig:
    """Nodes of 32 CPUs; job-level preemption is on."""
    rig = GangRig(profile(**{**JOBS, **parts}))
    for name in nodes or ("node-1", "node-2"):
        rig.node(name, cpu="32")
    return rig


def low(name: str, priority: int = 10, cpu: int = 16) -> PodBuilder:
    return pod(name).request(cpu=cpu).priority(priority)


def high(name: str, group: str = "train", *, cpu: int = 16, priority: int = 1000) -> PodBuilder:
    return member(name, group, cpu=cpu).priority(priority)


def full(rig: GangRig, priority: int = 10) -> None:
    """Two pods on each of two nodes, existing-pod-1 to -4."""
    for number, name in enumerate(("node-1", "node-1", "node-2", "node-2"), 1):
        rig.running(low(f"existing-pod-{number}", priority), name)


def evicted(rig: GangRig) -> list[str]:
    return sorted(d.victim.pod.metadata.name for d in rig.decisions if isinstance(d, Evict))


def nominated(rig: GangRig, *names: str) -> list[str]:
    return [rig.core.handle.nominator.node_of(f"uid-{name}") for name in names]


def end(rig: GangRig, *names: str) -> None:
    """The victims end; backoffs too."""
    for name in names:
        rig.delete(name)
    rig.clock.advance(11)
    rig.run()


def test_e36_a_policy_of_never_evicts_nobody() -> None:
    gang_rig = rig()
    full(gang_rig)
    gang_rig.group(gang("train", 2))
    patient = [high("a"), high("b")]
    for builder in patient:
        builder.never_preempts()
    gang_rig.submit(*patient)
    gang_rig.run()
    assert evicted(gang_rig) == []
    assert "preemption: not eligible due to preemptionPolicy=Never." in gang_rig.message("a")


def test_e37_no_second_eviction_while_the_first_victims_terminate() -> None:
    gang_rig = rig()
    full(gang_rig)
    gang_rig.group(gang("train", 2))
    gang_rig.submit(high("a"), high("b"))
    gang_rig.run()
    first = evicted(gang_rig)
    for name in first:
        gang_rig.terminating(name)
    gang_rig.node("node-3", cpu="16")  # room for one more: the gang is not asked, one place is not enough
    gang_rig.clock.advance(301)
    gang_rig.run()
    assert evicted(gang_rig) == first
    assert nominated(gang_rig, "a", "b") == ["node-1", "node-1"]
    assert gang_rig.message("a").endswith("preemption: not eligible due to terminating pod on the nominated node.")


def test_e38_nodes_that_no_eviction_makes_suitable() -> None:
    gang_rig = rig()
    full(gang_rig)
    for name in ("node-1", "node-2"):
        gang_rig.node(name, cpu="32", unschedulable=True)
    gang_rig.group(gang("train", 2))
    gang_rig.submit(high("a"), high("b"))
    gang_rig.run()
    words = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    assert gang_rig.message("a").endswith(words)
    assert evicted(gang_rig) == []


@pytest.mark.parametrize("priority", [1000, 2000])
def test_e39_pods_that_are_not_less_important_stay(priority: int) -> None:
    gang_rig = rig()
    full(gang_rig, priority)
    gang_rig.group(gang("train", 2))
    gang_rig.submit(high("a"), high("b"))
    gang_rig.run()
    assert gang_rig.message("a").endswith("preemption: 0/2 nodes are available: 2 no potential victims.")
    assert evicted(gang_rig) == []


def test_e40_both_members_go_to_the_first_node_of_equal_ones() -> None:
    gang_rig = rig()
    full(gang_rig)
    gang_rig.group(gang("train", 2))
    gang_rig.submit(high("a"), high("b"))
    gang_rig.run()
    assert evicted(gang_rig) == ["existing-pod-1", "existing-pod-2"]
    assert nominated(gang_rig, "a", "b") == ["node-1", "node-1"]
    assert gang_rig.message("a").endswith("preemption: preempt success, alreadyWaitingForBound: 0/2")
    assert {r.nominated for r in gang_rig.decisions if isinstance(r, Reject) and r.nominated} == {"node-1"}
    assert gang_rig.placed() == ["existing-pod-1", "existing-pod-2", "existing-pod-3", "existing-pod-4"]
    measured = [line for family in gang_rig.cache.measures.families() for line in family[3] if "preemption" in line]
    assert measured[-1] == (
        'scheduler_job_preemption_duration_seconds_count{jobName="default/train",result="success"} 1'
    )

    end(gang_rig, "existing-pod-1", "existing-pod-2")
    assert (gang_rig.where("a"), gang_rig.where("b")) == ("node-1", "node-1")
    assert len(gang_rig.core.groups.nominations) == 0


def test_e41_a_member_that_has_a_place_needs_no_victim() -> None:
    gang_rig = rig()
    for name, where in (("existing-pod-1", "node-1"), ("existing-pod-2", "node-1"), ("existing-pod-3", "node-2")):
        gang_rig.running(low(name), where)
    gang_rig.group(gang("train", 2))
    gang_rig.submit(high("waits"), high("needs"))
    gang_rig.run()
    assert evicted(gang_rig) == ["existing-pod-2"], "the pod that is put back first stays"
    assert sorted(nominated(gang_rig, "waits", "needs")) == ["node-1", "node-2"]
    assert gang_rig.message("waits").endswith("preemption: preempt success, alreadyWaitingForBound: 1/2")


def test_e42_the_node_with_the_cheapest_jobs_goes_first() -> None:
    """Node X: job a with 10 and 10, job b with 100: 0 + 2 = 2. Node Y: job c with 50: 1."""
    gang_rig = rig("x", "y")
    for name, job, priority, cpu in (("a1", "a", 10, 8), ("a2", "a", 10, 8), ("b1", "b", 100, 16)):
        gang_rig.running(low(name, priority, cpu).label(JOB_LABEL, job), "x")
    gang_rig.running(low("c1", 50, 32).label(JOB_LABEL, "c"), "y")
    gang_rig.group(gang("train", 1))
    gang_rig.submit(high("m", cpu=32))
    gang_rig.run()
    assert evicted(gang_rig) == ["c1"]


def test_e43_pods_without_a_job_are_jobs_of_their_own() -> None:
    """Upstream counts both as one job with the cost of the first: x costs 0 (GANG-D9). Here x costs 0 + 2, y 1."""
    gang_rig = rig("x", "y")
    gang_rig.running(low("first", 10), "x")
    gang_rig.running(low("second", 50), "x")
    gang_rig.running(low("other", 30, 32), "y")
    gang_rig.group(gang("train", 1))
    gang_rig.submit(high("m", cpu=32))
    gang_rig.run()
    assert evicted(gang_rig) == ["other"]


def test_a_job_is_evicted_whole() -> None:
    """The cheapest victim is one of three pods of a gang: all three are evicted, on all their nodes."""
    gang_rig = rig("n1", "n2", "n3")
    gang_rig.group(gang("old", 3))
    for number in (1, 2, 3):
        gang_rig.running(member(f"old-{number}", "old", cpu=32).priority(10), f"n{number}")
    gang_rig.group(gang("train", 1))
    gang_rig.submit(high("m"))
    gang_rig.run()
    assert evicted(gang_rig) == ["old-1", "old-2", "old-3"]


def test_what_a_whole_job_leaves_serves_other_members() -> None:
    """Job a is on two nodes: evicted for the first member, it leaves room for the second one as well."""
    gang_rig = rig("n1", "n2", "n3")
    for name, job, node, priority in (("a1", "a", "n1", 10), ("b1", "b", "n2", 20), ("a2", "a", "n3", 10)):
        gang_rig.running(low(name, priority, 32).label(JOB_LABEL, job), node)
    gang_rig.group(gang("train", 2))
    gang_rig.submit(high("x", cpu=32), high("y", cpu=32))
    gang_rig.run()
    assert evicted(gang_rig) == ["a1", "a2"]


def test_the_smaller_of_two_equal_jobs_goes() -> None:
    """One pod on n2 ends instead of a job of two, of which one is on n1."""
    gang_rig = rig("n1", "n2", "n3")
    for name, job, node in (("a1", "a", "n1"), ("b1", "b", "n2"), ("a2", "a", "n3")):
        gang_rig.running(low(name, cpu=32).label(JOB_LABEL, job), node)
    gang_rig.group(gang("train", 1))
    gang_rig.submit(high("x", cpu=32))
    gang_rig.run()
    assert evicted(gang_rig) == ["b1"]


@pytest.mark.parametrize(
    "protected",
    [
        pytest.param({"priority": 1000}, id="as-important"),
        pytest.param({"label": "quota.scheduling.koordinator.sh/preemptible", "value": "false"}, id="not-preemptible"),
        pytest.param({"label": "scheduling.koordinator.sh/disable-preemptible", "value": "true"}, id="disabled"),
    ],
)
def test_a_job_with_a_protected_pod_stays_whole(protected: dict[str, Any]) -> None:
    gang_rig = rig("n1", "n2")
    gang_rig.running(low("a1", cpu=32).label(JOB_LABEL, "a"), "n1")
    other = low("a2", protected.get("priority", 10), 32).label(JOB_LABEL, "a")
    gang_rig.running(other.label(protected["label"], protected["value"]) if "label" in protected else other, "n2")
    gang_rig.group(gang("train", 1))
    gang_rig.submit(high("x"))
    gang_rig.run()
    assert evicted(gang_rig) == []
    assert "no potential victims" in gang_rig.message("x")


def test_a_gang_that_does_not_fit_even_so_evicts_nobody() -> None:
    """Room for three of four members, if everybody goes: node-2 has one pod of higher priority."""
    gang_rig = rig()
    full(gang_rig)
    gang_rig.running(low("important", 2000, 0), "node-1")
    gang_rig.delete("existing-pod-4")
    gang_rig.running(low("boss", 2000), "node-2")
    gang_rig.group(gang("train", 4))
    gang_rig.submit(*(high(name) for name in "abcd"))
    gang_rig.run()
    assert evicted(gang_rig) == []
    assert nominated(gang_rig, *"abcd") == [""] * 4
    assert gang_rig.placed() == ["boss", "existing-pod-1", "existing-pod-2", "existing-pod-3", "important"]
    assert "Insufficient cpu" in gang_rig.message("a")


def test_three_members_do_not_share_the_room_of_two() -> None:
    """GANG-D1: a planned member counts for the next one."""
    gang_rig = rig("node-1")
    gang_rig.running(low("one"), "node-1")
    gang_rig.running(low("two"), "node-1")
    gang_rig.group(gang("train", 3))
    gang_rig.submit(*(high(name) for name in "abc"))
    gang_rig.run()
    assert evicted(gang_rig) == []


def test_no_more_members_are_planned_than_the_minimum() -> None:
    gang_rig = rig("node-1")
    gang_rig.running(low("one"), "node-1")
    gang_rig.running(low("two"), "node-1")
    gang_rig.group(gang("train", 2))
    gang_rig.submit(*(high(name) for name in "abc"))
    gang_rig.run()
    assert evicted(gang_rig) == ["one", "two"]
    assert sorted(nominated(gang_rig, *"abc")) == ["", "node-1", "node-1"]


def test_budgets_are_spared_where_others_will_do() -> None:
    gang_rig = rig("n1", "n2")
    gang_rig.running(low("guarded", cpu=32).label("app", "guarded"), "n1")
    gang_rig.running(low("other", 50, cpu=32), "n2")
    gang_rig.budget("keep", {"app": "guarded"}, allowed=0)
    gang_rig.group(gang("train", 1))
    gang_rig.submit(high("m"))
    gang_rig.run()
    assert evicted(gang_rig) == ["other"], "a budget is worth more than a lower priority"


def test_a_budget_is_no_veto() -> None:
    gang_rig = rig("n1")
    gang_rig.running(low("guarded", cpu=32).label("app", "guarded"), "n1")
    gang_rig.budget("keep", {"app": "guarded"}, allowed=0)
    gang_rig.group(gang("train", 1))
    gang_rig.submit(high("m"))
    gang_rig.run()
    assert evicted(gang_rig) == ["guarded"]


def test_members_of_a_group_of_gangs_are_planned_together() -> None:
    gang_rig = rig("n1", "n2")
    gang_rig.running(low("one", cpu=32), "n1")
    gang_rig.running(low("boss", 2000, 32), "n2")
    ids = ["default/ps", "default/worker"]
    gang_rig.group(gang("ps", 1).together_with(*ids))
    gang_rig.group(gang("worker", 2).together_with(*ids))
    gang_rig.submit(high("w1", "worker"), high("w2", "worker"), high("p", "ps"))
    gang_rig.run()
    assert evicted(gang_rig) == [], "two of three fit on n1"


def test_a_pod_without_a_gang_preempts_whole_jobs_too() -> None:
    gang_rig = rig("n1", "n2")
    for name, node in (("a1", "n1"), ("a2", "n2")):
        gang_rig.running(low(name, cpu=32).label(JOB_LABEL, "a"), node)
    gang_rig.submit(pod("m").request(cpu=16).priority(1000))
    gang_rig.run()
    assert evicted(gang_rig) == ["a1", "a2"]
    end(gang_rig, "a1", "a2")
    assert gang_rig.where("m") == "n1"


def test_without_the_argument_nobody_is_evicted_for_a_gang() -> None:
    rig = GangRig()
    rig.node("node-1", cpu="32")
    rig.running(low("one", cpu=32), "node-1")
    rig.group(gang("train", 1))
    rig.submit(high("m"))
    rig.run()
    assert evicted(rig) == []


def test_devices_of_planned_members_count() -> None:
    """Two cards, half of one is kept: without the low pod the sums allow two members of 75 %, the cards only one."""
    gang_rig = rig("other")
    gang_rig.node("n", gpus=2)
    gang_rig.submit(pod("kept").gpu_share(50).priority(2000), pod("low").gpus(1).priority(10))
    gang_rig.run()
    assert gang_rig.placed() == ["kept", "low"]
    gang_rig.group(gang("train", 2))
    gang_rig.submit(*(pod(name).gpu_share(75).in_gang("train").priority(1000) for name in ("a", "b")))
    gang_rig.run()
    assert evicted(gang_rig) == []


def test_nominated_devices_are_kept() -> None:
    """Two cards are nominated to members of 75 % each. Pods of 50 % fit by the sums, but not beside the members."""
    gang_rig = rig("other")
    gang_rig.node("n", gpus=2)
    gang_rig.submit(pod("low").gpus(2).priority(10))
    gang_rig.run()
    gang_rig.group(gang("train", 2))
    gang_rig.submit(*(pod(name).gpu_share(75).in_gang("train").priority(1000) for name in ("a", "b")))
    gang_rig.run()
    assert evicted(gang_rig) == ["low"]
    gang_rig.submit(pod("thief").gpu_share(50).priority(10))
    gang_rig.delete("low")
    gang_rig.run()
    end(gang_rig)
    assert gang_rig.placed() == ["a", "b"]


# -- nominated room ---------------------------------------------------------------------------------------------------


def nominated_pair() -> GangRig:
    """A gang of two that is nominated to node-1, whose victims still run."""
    gang_rig = rig()
    full(gang_rig)
    gang_rig.group(gang("train", 2).waiting_time(60))
    gang_rig.submit(high("a"), high("b"))
    gang_rig.run()
    assert nominated(gang_rig, "a", "b") == ["node-1", "node-1"]
    return gang_rig


def cleared(rig: GangRig) -> list[str]:
    return sorted(d.info.pod.metadata.name for d in rig.decisions if isinstance(d, ClearNomination))


def test_a_smaller_pod_does_not_get_the_nominated_room() -> None:
    """One victim ended: the room for one member is free, and a pod of lower priority waits for it in vain."""
    pair = nominated_pair()
    pair.delete("existing-pod-1")
    pair.submit(low("thief", 500, 8))
    pair.run()
    assert pair.where("thief") == ""
    end(pair, "existing-pod-2")
    assert [pair.where(name) for name in ("a", "b", "thief")] == ["node-1", "node-1", ""]


def test_the_room_is_given_back_when_a_member_is_deleted() -> None:
    """Without its second member the gang is incomplete: the pod that waits gets the room of the first."""
    pair = nominated_pair()
    pair.delete("existing-pod-1")
    pair.submit(low("next", 500))
    pair.run()
    pair.delete("a")
    pair.run()
    pair.clock.advance(11)
    pair.run()
    assert cleared(pair) == ["b"]
    assert pair.where("next") == "node-1"


def test_the_room_is_given_back_when_the_gang_waits_too_long() -> None:
    """One victim never ends, and is not terminating either: after the waiting time the hold ends."""
    pair = nominated_pair()
    pair.delete("existing-pod-1")
    pair.submit(low("next", 500))
    pair.clock.advance(59)
    pair.run()
    assert nominated(pair, "a", "b") == ["node-1", "node-1"]
    pair.clock.advance(1)
    pair.run()
    assert cleared(pair) == ["a", "b"]


def test_victims_that_terminate_slowly_keep_the_hold() -> None:
    pair = nominated_pair()
    for name in ("existing-pod-1", "existing-pod-2"):
        pair.terminating(name)
    for _ in range(10):
        pair.clock.advance(30)
        pair.run()
    assert evicted(pair) == ["existing-pod-1", "existing-pod-2"], "no other pod was evicted in between"
    assert nominated(pair, "a", "b") == ["node-1", "node-1"]
    end(pair, "existing-pod-1", "existing-pod-2")
    assert (pair.where("a"), pair.where("b")) == ("node-1", "node-1")


def test_another_plan_is_made_when_the_nominated_node_is_gone() -> None:
    pair = nominated_pair()
    pair.core.intake.remove_node("node-1")
    pair.run()
    pair.clock.advance(11)
    pair.run()
    assert nominated(pair, "a", "b") == ["node-2", "node-2"]
    assert evicted(pair) == [f"existing-pod-{number}" for number in (1, 2, 3, 4)]


def test_a_more_important_preemptor_takes_all_of_it() -> None:
    """It needs half of the room only; the rest is of no use to the gang, whose nominations all end."""
    pair = nominated_pair()
    for name in ("existing-pod-1", "existing-pod-2"):
        pair.terminating(name)
    pair.submit(pod("boss").request(cpu=16).priority(5000))
    pair.run()
    assert nominated(pair, "boss") == ["node-1"]
    assert cleared(pair) == ["a", "b"]


@pytest.mark.parametrize("ended", [False, True], ids=["victims-terminate", "victims-are-gone"])
def test_after_a_restart_the_room_is_held_as_before(*, ended: bool) -> None:
    """The successor knows the nominations from the pods' status alone."""
    before = nominated_pair()
    gang_rig = rig()
    for name in ("existing-pod-3", "existing-pod-4"):
        gang_rig.running(low(name), "node-2")
    if not ended:
        for name in ("existing-pod-1", "existing-pod-2"):
            gang_rig.running(low(name), "node-1")
            gang_rig.terminating(name)
    gang_rig.submit(low("thief", 5, 8))
    for name in ("a", "b"):
        old = before.pods[name]
        gang_rig.pods[name] = replace(old, status=replace(old.status, nominated_node_name="node-1"))
        gang_rig.core.intake.set_pod(gang_rig.pods[name])
    gang_rig.group(gang("train", 2).waiting_time(60))
    gang_rig.run()
    gang_rig.clock.advance(2)
    gang_rig.run()
    assert evicted(gang_rig) == []
    assert gang_rig.where("thief") == ""
    if not ended:
        end(gang_rig, "existing-pod-1", "existing-pod-2")
    assert (gang_rig.where("a"), gang_rig.where("b")) == ("node-1", "node-1")


def test_after_a_restart_the_room_of_an_incomplete_gang_is_given_back() -> None:
    """A member was deleted while no scheduler ran: the other one's nomination ends with the waiting time."""
    before = nominated_pair()
    gang_rig = rig("node-1")
    gang_rig.group(gang("train", 2).waiting_time(60))
    old = before.pods["a"]
    gang_rig.pods["a"] = replace(old, status=replace(old.status, nominated_node_name="node-1"))
    gang_rig.core.intake.set_pod(gang_rig.pods["a"])
    gang_rig.submit(low("next", 500, 32))
    gang_rig.run()
    assert gang_rig.where("next") == ""
    gang_rig.clock.advance(62)
    gang_rig.run()
    gang_rig.clock.advance(11)
    gang_rig.run()
    assert cleared(gang_rig) == ["a"]
    assert gang_rig.where("next") == "node-1"


def test_the_condition_of_a_victim_names_the_gang() -> None:
    pair = nominated_pair()
    evict = next(d for d in pair.decisions if isinstance(d, Evict))
    assert evict.preemptor == "default/train"
    assert (evict.by.pod.metadata.name, evict.node) == ("a", "node-1")


def test_a_member_that_waits_for_its_own_gang_is_no_victim_but_gives_its_place_back() -> None:
    """Members of a NonStrict gang hold places that an important gang needs: they are not deleted."""
    gang_rig = rig("node-1")
    gang_rig.group(gang("loose", 3).waiting_time(600), mode="NonStrict")
    gang_rig.submit(*(high(name, "loose", priority=10) for name in ("l1", "l2", "l3")))
    gang_rig.run()
    assert gang_rig.waiting() == ["l1", "l2"]
    gang_rig.group(gang("train", 2))
    gang_rig.submit(high("a"), high("b"))
    gang_rig.run()
    assert evicted(gang_rig) == []
    gang_rig.clock.advance(11)
    gang_rig.run()
    assert (gang_rig.where("a"), gang_rig.where("b")) == ("node-1", "node-1")
    assert gang_rig.message("l1") in {"preempted", "0/1 nodes are available: 1 Insufficient cpu."}


def test_a_new_leader_takes_the_nominations_over() -> None:
    """It has followed the cluster: the members came without a nomination, which the former leader wrote later.

    When it leads, its informers deliver all objects again.
    """
    gang_rig = rig("node-1")
    gang_rig.core.handle.wakes.leading = False
    gang_rig.group(gang("train", 2).waiting_time(60))
    gang_rig.running(low("victim", cpu=32), "node-1")
    gang_rig.submit(high("a"), high("b"))
    known = [gang_rig.pods[name] for name in ("a", "b")]
    now = [replace(old, status=replace(old.status, nominated_node_name="node-1")) for old in known]
    for each in now:
        gang_rig.core.intake.set_pod(each)
    assert nominated(gang_rig, "a", "b") == ["", ""]
    gang_rig.core.handle.wakes.leading = True
    for each in now:
        gang_rig.core.intake.set_pod(each)
    gang_rig.clock.advance(1)
    assert nominated(gang_rig, "a", "b") == ["node-1", "node-1"]
    assert len(gang_rig.core.groups.nominations) == 1


@pytest.mark.parametrize("policy", ["only-waiting", "waiting-and-running"])
def test_a_gang_does_not_evict_its_own_running_members(policy: str) -> None:
    """Two members of low priority run on the only node. Two more of high priority find no room: the running ones stay,
    and a pod that is no member goes as soon as there is one."""
    gang_rig = rig("node-1")
    gang_rig.group(gang("train", 2 if policy == "only-waiting" else 3), match_policy=policy)
    gang_rig.running(high("first", priority=10), "node-1")
    gang_rig.running(high("second", priority=10), "node-1")
    gang_rig.submit(high("third"), high("fourth"))
    gang_rig.run()
    assert evicted(gang_rig) == []
    gang_rig.node("node-2", cpu="32")
    gang_rig.running(low("else", cpu=32), "node-2")
    gang_rig.clock.advance(700)
    gang_rig.run()
    assert evicted(gang_rig) == ["else"]
