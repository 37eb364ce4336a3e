"""Gangs through the core: all or nothing, modes, groups, match policies, timers and what users are told."""

import msgspec
import pytest

from seatrial.scheduler.api.builders import gang, pod
from seatrial.scheduler.cache.resources import CPU_COLUMN
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, light, member


def rig(*nodes: int) -> GangRig:
    """A rig with a node for each number of cpus."""
    made = GangRig()
    for number, cpus in enumerate(nodes):
        made.node(f"n{number}", cpu=str(cpus))
    return made


def free(made: GangRig) -> list[int]:
    """Free milli-cpus of each node."""
    return [node.allocatable[CPU_COLUMN] - node.requested[CPU_COLUMN] for node in made.core.cache]


def test_a_gang_of_five_with_room_for_three_binds_nobody() -> None:
    made = rig(3)
    made.group(gang("g", 5))
    made.submit(*(member(f"p{number}", "g") for number in range(5)))
    decisions = made.run()
    assert made.placed() == []
    assert not any(isinstance(decision, Bind) for decision in decisions)
    assert free(made) == [3000]
    assert made.message("p3") == (
        '0/1 nodes are available: 1 Insufficient cpu. Gang "default/g" gets rejected due to pod is unschedulable'
    )
    for name in ("p0", "p4"):
        assert made.message(name) == (
            '0/1 nodes are available: GangGroup "default/g" gets rejected due to member Pod "default/p3" is'
            ' unschedulable with reason "0/1 nodes are available: 1 Insufficient cpu.", alreadyWaitForBound: 3.'
        )


def test_a_gang_that_fits_is_bound_in_one_decision() -> None:
    made = rig(3, 3)
    made.group(gang("g", 5))
    made.submit(*(member(f"p{number}", "g") for number in range(5)))
    assert made.core.busy
    assert len(made.core.decide()) == 5
    assert len(made.placed()) == 5


def test_a_gang_is_placed_when_there_is_room_for_all_of_it() -> None:
    made = rig(3)
    made.group(gang("g", 5))
    made.submit(*(member(f"p{number}", "g") for number in range(5)))
    made.run()
    made.node("n1", cpu="1")
    made.clock.advance(30)
    made.run()
    assert made.placed() == []
    made.node("n2", cpu="1")
    made.clock.advance(30)
    made.run()
    assert len(made.placed()) == 5


def test_a_gang_that_waits_is_not_attempted_without_more_room() -> None:
    made = rig(3)
    made.group(gang("g", 5))
    made.submit(*(member(f"p{number}", "g") for number in range(5)))
    made.run()
    cycle = made.gang("default/g").group.cycle
    made.submit(*(pod(f"single{number}").request(cpu=1) for number in range(3)))
    made.run()
    for number in range(3):
        made.delete(f"single{number}")
        made.run()
        made.clock.advance(20)
        made.run()
    assert made.gang("default/g").group.cycle == cycle


def test_two_gangs_that_each_fit_alone_are_placed_one_after_the_other() -> None:
    made = rig(4)
    for name in ("a", "b"):
        made.group(gang(name, 3))
    for number in range(3):  # members come alternately
        made.submit(member(f"a{number}", "a"), member(f"b{number}", "b"))
    made.run()
    assert made.placed() == ["a0", "a1", "a2"]
    for number in range(3):
        made.delete(f"a{number}")
    made.clock.advance(20)
    made.run()
    assert [name for name in made.placed() if name.startswith("b")] == ["b0", "b1", "b2"]


def test_a_gang_with_too_few_pods_does_not_enter_the_queue() -> None:
    made = rig(64)
    made.group(gang("g", 4))
    made.submit(*(member(f"p{number}", "g") for number in range(2)))
    assert made.run() == []
    assert made.core.queue.counts()["gated"] == 2
    assert made.held("p0") == (
        "gangGroup [default/g] basic check: memberGangs [default/g] child pod not collect enough, current gang:"
        " default/g, podName: default/p0; default/g has 2 of 4 members"
    )
    made.clock.advance(3)
    made.run()
    assert (made.rejection("p1").reason, made.message("p1")) == ("SchedulingGated", made.held("p1"))


def test_one_member_represents_its_gang_in_the_queue() -> None:
    """GANG-E2 of the specification."""
    made = rig(64)
    made.group(gang("g", 4), total_number="5")
    made.submit(*(member(f"p{number}", "g") for number in range(5)))
    assert made.core.queue.counts()["active"] <= 1
    assert made.core.busy
    assert made.core.queue.counts()["active"] == 1
    entry = made.core.queue.find("uid-p4")
    assert entry is not None
    assert entry.held is not None
    assert entry.held.message.startswith("representative pod default/")
    assert entry.held.message.endswith("of gangGroupID default/g already exists")


def test_members_wait_for_their_pod_group() -> None:
    made = rig(64)
    made.submit(member("p0", "g"), member("p1", "g"))
    made.run()
    assert made.held("p0") == (
        "gang has not init, gangName: default/g, podName: default/p0; PodGroup default/g does not exist"
    )
    made.group(gang("g", 2))
    made.run()
    assert made.placed() == ["p0", "p1"]


def test_surplus_members_are_placed_alone_once_the_gang_is_satisfied() -> None:
    made = rig(4)
    made.group(gang("g", 3))
    made.submit(*(member(f"p{number}", "g") for number in range(5)))
    made.run()
    assert len(made.placed()) == 4
    bound = [decision for decision in made.decisions if isinstance(decision, Bind)]
    counts = [bind.annotations.get("internal.scheduling.koordinator.sh/bind-gang-member-count") for bind in bound]
    assert counts == ["3", "3", "3", None]


@pytest.mark.parametrize(
    ("policy", "third"), [("once-satisfied", True), ("only-waiting", False), ("waiting-and-running", True)]
)
def test_match_policies_after_a_restart_in_the_middle(policy: str, *, third: bool) -> None:
    """Two of three members are bound already when the scheduler starts (edge case 6)."""
    made = rig(64)
    made.group(gang("g", 3), match_policy=policy)
    made.running(member("p0", "g"), "n0")
    made.running(member("p1", "g"), "n0")
    made.submit(member("p2", "g"))
    made.run()
    assert bool(made.where("p2")) is third
    if not third:
        assert "default/g has 1 placed and 2 bound of 3" in made.message("p2")


def test_members_that_are_not_strict_wait_with_their_places_and_give_them_back() -> None:
    made = rig(2)
    made.group(gang("g", 3).waiting_time(60), mode="NonStrict")
    made.submit(*(member(f"p{number}", "g") for number in range(3)))
    decisions = made.run()
    assert not any(isinstance(decision, Bind) for decision in decisions)
    assert (made.waiting(), free(made)) == (["p0", "p1"], [0])
    made.clock.advance(59)
    made.run()
    assert made.waiting() == ["p0", "p1"]
    made.clock.advance(1.5)
    assert (made.waiting(), free(made)) == ([], [2000])
    messages = [getattr(decision, "message", "") for decision in made.run()]
    assert messages.count("rejected due to timeout after waiting 1m0s at plugin Coscheduling") == 2


def test_a_gang_takes_its_places_again_when_all_other_pods_were_tried() -> None:
    """While another gang holds a place that it took before, no other place is taken in part, also not by a gang that
    comes later; 11 s after the last one is given back all are."""
    made = rig(2)
    for name in ("a", "b"):
        made.group(gang(name, 2).waiting_time(60), mode="NonStrict")
        made.submit(member(f"{name}0", name), member(f"{name}1", name, cpu=9))
        made.run()
        made.clock.advance(30)
    held = []
    for second in range(60, 145):
        made.run()
        held.append((second, made.waiting()))
        if second == 70:
            made.group(gang("late", 2).waiting_time(60), mode="NonStrict")
            made.submit(member("late0", "late"), member("late1", "late", cpu=9))
        made.clock.advance(1)
    assert [second for second, result in held if result == ["b0"]] == list(range(60, 90))
    first = next(second for second, result in held[31:] if result)
    assert 101 <= first <= 112
    assert held[first - 60][1] == ["a0", "b0"]


def test_a_gang_that_is_not_strict_is_bound_when_the_last_place_comes() -> None:
    made = rig(2)
    made.group(gang("g", 3).waiting_time(60), mode="NonStrict")
    made.submit(*(member(f"p{number}", "g") for number in range(3)))
    made.run()
    made.clock.advance(5)
    made.node("n1", cpu="1")
    made.run()
    assert made.placed() == ["p0", "p1", "p2"]
    assert made.waiting() == []
    made.clock.advance(100)
    made.run()
    assert made.placed() == ["p0", "p1", "p2"]


def test_e22a_gangs_that_lack_members_on_their_own_nodes_are_not_bound_with_the_places_of_others() -> None:
    """Three gangs of five that are not strict hold 3, 3 and 4 of ten places: none is bound, all give theirs back."""
    made = GangRig()
    for name, cpus in (("a", 3), ("b", 3), ("c", 4)):
        made.node(f"n{name}", cpu=str(cpus), labels={"pool": name})
        made.group(gang(name, 5).waiting_time(60), mode="NonStrict")
        made.submit(*(member(f"{name}{number}", name).select({"pool": name}) for number in range(5)))
    assert not any(isinstance(decision, Bind) for decision in made.run())
    assert (len(made.waiting()), free(made)) == (10, [0, 0, 0])
    made.clock.advance(60)
    assert (made.placed(), made.waiting(), free(made)) == ([], [], [3000, 3000, 4000])


@pytest.mark.parametrize(("mode", "wait"), [("Strict", []), ("NonStrict", ["a", "c"])], ids=["e22b", "e22c"])
def test_e22b_e22c_a_member_without_room_and_the_others_of_its_gang(mode: str, wait: list[str]) -> None:
    """a and c have room, b has none. Strict: nothing is held after the cycle. NonStrict: a and c wait. In both modes
    the gang is bound in a later cycle, when there is room for b."""
    made = rig(2)
    made.group(gang("g", 3).waiting_time(60), mode=mode)
    made.submit(member("a", "g"), member("b", "g", cpu=4), member("c", "g"))
    assert not any(isinstance(decision, Bind) for decision in made.run())
    assert (made.waiting(), made.gang("default/g").group.cycle) == (wait, 1)
    made.clock.advance(30)
    made.node("n1", cpu="4")
    made.run()
    assert (made.placed(), made.waiting()) == (["a", "b", "c"], [])


def test_a_strict_gang_keeps_no_place_where_one_that_is_not_strict_does() -> None:
    for mode, places in (("Strict", 2), ("NonStrict", 0)):
        made = rig(2)
        made.group(gang("g", 3), mode=mode)
        made.submit(*(member(f"p{number}", "g") for number in range(3)))
        made.run()
        made.submit(pod("x").request(cpu=1), pod("y").request(cpu=1))
        made.run()
        assert sum(bool(made.where(name)) for name in ("x", "y")) == places


def test_a_deleted_member_that_waits_gives_its_place_back() -> None:
    made = rig(2)
    made.group(gang("g", 3), mode="NonStrict")
    made.submit(*(member(f"p{number}", "g") for number in range(3)))
    made.run()
    for name in ("p0", "p1", "p2"):
        made.delete(name)
    assert (free(made), made.waiting(), len(made.core.queue)) == ([2000], [], 0)
    assert not made.gang("default/g").children


def test_gangs_of_one_group_are_placed_together_or_not_at_all() -> None:
    made = rig(4)
    groups = '["default/ps", "default/worker"]'
    made.group(gang("ps", 2), groups=groups)
    made.submit(*(member(f"ps{number}", "ps") for number in range(2)))
    made.run()
    assert "memberGangs [default/worker] doesn't exists" in made.held("ps0")
    made.group(gang("worker", 3), groups=groups)
    made.submit(*(member(f"w{number}", "worker") for number in range(3)))
    made.run()
    assert made.placed() == []
    made.node("n1", cpu="1")
    made.clock.advance(20)
    made.run()
    assert len(made.placed()) == 5


def test_a_failed_binding_is_tried_again() -> None:
    made = rig(4)
    made.group(gang("g", 2))
    made.submit(member("p0", "g"), member("p1", "g"))
    made.run(bind=False)
    made.core.bind_failed("uid-p0", "conflict")
    made.core.bind_failed("uid-p1", "conflict")
    assert free(made) == [4000]
    made.clock.advance(5)
    made.run()
    assert made.placed() == ["p0", "p1"]


def test_a_deleted_representative_is_replaced() -> None:
    made = rig(4)
    made.group(gang("g", 2))
    made.submit(*(member(f"p{number}", "g") for number in range(3)))
    assert made.core.busy
    name = made.gang("default/g").group.representative.removeprefix("uid-")
    made.delete(name)
    made.run()
    assert len(made.placed()) == 2


@pytest.mark.parametrize(
    ("minimum", "words"),
    [
        ("xxx", "expected a whole number, at most 2147483647, found 'xxx'"),
        (None, "expected a whole number, found none"),
        ("-1", "expected a whole number, at most 2147483647, found '-1'"),
    ],
)
def test_annotation_gangs_without_a_minimum_are_told_of(minimum: str | None, words: str) -> None:
    made = rig(4)
    made.submit(light("p0", "g", minimum))
    made.run()
    assert words in made.held("p0")
    made.submit(light("p1", "g", "2"))
    made.run()
    assert made.placed() == ["p0", "p1"]


def test_gangs_that_list_each_other_in_a_cycle_are_told_of_and_hold_nothing_up() -> None:
    made = rig(9)
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        made.group(gang(name, 1), groups=f'["default/{name}", "default/{other}"]')
    made.submit(*(member(f"p{name}", name) for name in "abc"), pod("single").request(cpu=1))
    made.run()
    assert made.placed() == ["single"]
    assert "all pending pods is already been attempted: default/b has 0 placed and 0 bound of 1" in made.message("pa")


def test_a_pod_group_that_is_deleted_leaves_no_assumed_pods() -> None:
    made = rig(2)
    made.group(gang("g", 3).waiting_time(30), mode="NonStrict")
    made.submit(*(member(f"p{number}", "g") for number in range(3)))
    made.run()
    made.cache.remove_object("default/g")
    made.clock.advance(31)
    made.run()
    assert (free(made), made.waiting()) == ([2000], [])
    made.clock.advance(20)
    made.run()
    made.group(gang("g", 2))
    made.run()
    made.clock.advance(20)
    made.run()
    assert len(made.placed()) == 2


def test_minimum_zero_needs_nobody_else() -> None:
    made = rig(2)
    made.group(gang("g", 0))
    made.submit(*(member(f"p{number}", "g") for number in range(3)))
    made.run()
    assert len(made.placed()) == 2


def test_a_large_member_is_placed_before_small_ones() -> None:
    """By name the small member comes first, and would take room of the only node for the large ones."""
    made = rig(4, 1)
    made.group(gang("g", 3))
    made.submit(member("a", "g"), member("b", "g", cpu=2), member("c", "g", cpu=2))
    made.run()
    assert [made.where(name) for name in "abc"] == ["n1", "n0", "n0"]


def test_a_member_without_room_does_not_stop_the_others_of_a_gang_that_is_not_strict() -> None:
    """The member of the highest priority starts the attempt and fits nowhere; the two others meet the minimum."""
    made = rig(2)
    made.group(gang("g", 2), mode="NonStrict")
    made.submit(member("a", "g", cpu=9).priority(5))
    made.submit(member("b", "g"), member("c", "g"))
    made.run()
    assert made.placed() == ["b", "c"]
    assert [entry.info.key for _, entry in made.core.queue.entries()] == ["default/a"]
    made.node("n1", cpu="9")
    made.clock.advance(20)
    made.run()
    assert made.placed() == ["a", "b", "c"]


def test_nothing_is_kept_of_annotation_gangs_that_ended() -> None:
    """A PodGroup of the same name does not count their members."""
    made = rig(4)
    for gone in range(3):
        members = [light(f"p{gone}{number}", "g", "2") for number in range(2)]
        made.submit(*members)
        made.run()
        for name in (f"p{gone}0", f"p{gone}1"):
            there = made.pods[name]
            status = msgspec.structs.replace(there.status, phase="Succeeded")
            made.core.intake.pod_deleted(msgspec.structs.replace(there, status=status))
    assert (made.cache.gangs, made.cache.ended) == ({}, {})
