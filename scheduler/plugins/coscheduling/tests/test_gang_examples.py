"""The worked examples of the specification about gangs, GANG-E1 to GANG-E22, through the core.

E21 is in test_podgroups, E22a to E22c in test_gangs. Where upstream calls Permit for each member,
the engine has an attempt for the whole gang: "Wait" is shown by the places that members hold, "Success" by bindings.
A Strict gang holds no places, so that the gangs that wait here are NonStrict.
"""

import pytest

from seatrial.scheduler.api.builders import gang
from seatrial.scheduler.api.podgroup import (
    BIND_MEMBER_COUNT,
    GANG_GROUPS,
    GANG_MODE,
    GANG_TOTAL,
    GANG_WAITING_TIME,
    Mode,
)
from seatrial.scheduler.cache.resources import CPU_COLUMN
from seatrial.scheduler.framework.decisions import Bind, Reject
from seatrial.scheduler.plugins.coscheduling.cache import GangAttempt
from seatrial.scheduler.plugins.coscheduling.measures import job_size
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, light, member


def rig(cpus: int) -> GangRig:
    """One node with this number of places for members of one cpu."""
    rig = GangRig()
    if cpus:
        rig.node("n0", cpu=str(cpus))
    return rig


def free(rig: GangRig) -> int:
    """Free places of the node."""
    (node,) = rig.core.cache
    return int(node.allocatable[CPU_COLUMN] - node.requested[CPU_COLUMN]) // 1000


def test_e1_two_pods_of_four() -> None:
    gang_rig = rig(64)
    gang_rig.group(gang("ganga", 4))
    gang_rig.submit(member("p1", "ganga"), member("p2", "ganga"))
    assert gang_rig.run() == []
    for name in ("p1", "p2"):
        assert gang_rig.held(name) == (
            "gangGroup [default/ganga] basic check: memberGangs [default/ganga] child pod not collect enough,"
            f" current gang: default/ganga, podName: default/{name}; default/ganga has 2 of 4 members"
        )


def test_e2_the_fourth_of_four_pods_becomes_the_representative() -> None:
    gang_rig = rig(64)
    gang_rig.group(gang("ganga", 4).namespace("ganga_ns"), total_number="5")
    for count in (1, 2, 3):
        name = f"pod9-{count}"
        gang_rig.submit(member(name, "ganga").namespace("ganga_ns"))
        assert f"child pod not collect enough, current gang: ganga_ns/ganga, podName: ganga_ns/{name}" in gang_rig.held(
            name
        )
        assert gang_rig.held(name).endswith(f"ganga_ns/ganga has {count} of 4 members")
    gang_rig.submit(member("pod9-4", "ganga").namespace("ganga_ns"))
    assert gang_rig.gang("ganga_ns/ganga").group.representative_key == "ganga_ns/pod9-4"
    gang_rig.submit(member("pod9", "ganga").namespace("ganga_ns"))
    assert gang_rig.held("pod9") == ("representative pod ganga_ns/pod9-4 of gangGroupID ganga_ns/ganga already exists")
    assert gang_rig.gang("ganga_ns/ganga").total == 5


def test_e3_and_e12_a_pod_whose_pod_group_does_not_exist() -> None:
    """Upstream's Permit would have it wait 0 seconds. Here it does not come to Permit, and holds no place."""
    gang_rig = rig(64)
    gang_rig.submit(member("p1", "absent"))
    assert gang_rig.run() == []
    assert gang_rig.held("p1") == (
        "gang has not init, gangName: default/absent, podName: default/p1; PodGroup default/absent does not exist"
    )
    made = gang_rig.gang("default/absent")
    assert (made.initialised, made.valid, made.wait) == (False, False, 0.0)
    assert GangAttempt(gang_rig.cache, made.group).timeout_of("uid-p1") == 0.0
    assert (gang_rig.waiting(), free(gang_rig)) == ([], 64)


def test_e4_and_e5_the_third_of_three() -> None:
    """E4: two of three wait 10 s. E5: with the third all are bound."""
    for comes in (False, True):
        gang_rig = rig(2)
        gang_rig.group(gang("g", 3).waiting_time(10), mode="NonStrict")
        gang_rig.submit(*(member(f"p{number}", "g") for number in range(3)))
        assert not [decision for decision in gang_rig.run() if isinstance(decision, Bind)]
        assert (gang_rig.waiting(), free(gang_rig)) == (["p0", "p1"], 0)
        gang_rig.clock.advance(9.9)
        assert gang_rig.waiting() == ["p0", "p1"]
        if comes:
            gang_rig.node("n1", cpu="1")
            gang_rig.run()
            assert (gang_rig.placed(), gang_rig.waiting()) == (["p0", "p1", "p2"], [])
            continue
        gang_rig.clock.advance(0.2)
        assert (gang_rig.waiting(), free(gang_rig)) == ([], 2)
        messages = [decision.message for decision in gang_rig.run() if isinstance(decision, Reject)]
        assert messages.count("rejected due to timeout after waiting 10s at plugin Coscheduling") == 2


@pytest.mark.parametrize(
    ("policy", "bound", "success"),
    [
        pytest.param("once-satisfied", 2, True, id="e6"),
        pytest.param("only-waiting", 2, False, id="e7"),
        pytest.param("waiting-and-running", 1, True, id="e8"),
        pytest.param("only-waiting", 1, False, id="e9"),
    ],
)
def test_e6_to_e9_what_counts_for_a_minimum_of_three(policy: str, bound: int, *, success: bool) -> None:
    """Some members are bound already, so that the flag "once satisfied" is set; the others come now."""
    gang_rig = rig(64)
    gang_rig.group(gang("g", 3), match_policy=policy, mode="NonStrict")
    for number in range(bound):
        gang_rig.running(member(f"b{number}", "g"), "n0")
    names = [f"p{number}" for number in range(3 - bound)]
    gang_rig.submit(*(member(name, "g") for name in names))
    decisions = gang_rig.run()
    assert gang_rig.gang("default/g").group.satisfied
    bindings = [decision.info.pod.metadata.name for decision in decisions if isinstance(decision, Bind)]
    assert (bindings, gang_rig.waiting()) == ((names, []) if success else ([], names))


@pytest.mark.parametrize(
    ("minimums", "places", "success"),
    [pytest.param((2, 2), 3, False, id="e10"), pytest.param((2, 3), 5, True, id="e11")],
)
def test_e10_and_e11_gangs_of_one_group(minimums: tuple[int, int], places: int, *, success: bool) -> None:
    """E10: C has its 2 members, D one of 2: all three wait. E11: E and F have all of theirs: all five are bound."""
    gang_rig = rig(places)
    for name, minimum in zip("cd", minimums, strict=True):
        gang_rig.group(gang(name, minimum).together_with("default/c", "default/d"), mode="NonStrict")
    gang_rig.submit(
        *(member(f"{name}{n}", name) for name, count in zip("cd", minimums, strict=True) for n in range(count))
    )
    bound = [decision for decision in gang_rig.run() if isinstance(decision, Bind)]
    if success:
        assert (len(bound), gang_rig.waiting()) == (5, [])
    else:
        assert (bound, gang_rig.waiting()) == ([], ["c0", "c1", "d0"])


def test_e13_pods_whose_minimum_is_no_number_initialise_no_gang() -> None:
    gang_rig = rig(64)
    gang_rig.submit(light("p0", "g", "xxx"), light("p1", "g", "xxx"))
    gang_rig.run()
    assert (gang_rig.placed(), gang_rig.gang("default/g").initialised) == ([], False)
    assert gang_rig.held("p0").startswith("gang has not init, gangName: default/g, podName: default/p0; annotation")


@pytest.mark.parametrize("wait", ["0", "-20s"])
def test_e14_and_e15_values_of_pods_that_fall_back(wait: str) -> None:
    """A total below the minimum becomes the minimum; wait, mode and groups become their defaults."""
    gang_rig = rig(64)
    made = light("p0", "g", "2")
    for key, value in ((GANG_TOTAL, "1"), (GANG_WAITING_TIME, wait), (GANG_MODE, "x"), (GANG_GROUPS, "[a,b]")):
        made.annotation(key, value)
    gang_rig.submit(made)
    gang_of = gang_rig.gang("default/g")
    assert (gang_of.minimum, gang_of.total, gang_of.wait) == (2, 2, 600.0)
    assert (gang_of.mode, gang_of.group.ids) == (Mode.STRICT, ("default/g",))


def test_e16_and_e17_values_of_a_pod_group() -> None:
    """E16: the annotation's total 2 becomes the minimum 4. E17: a change of the minimum from 2 to 3 takes effect."""
    gang_rig = rig(64)
    gang_rig.group(gang("g", 4).waiting_time(300).mode("NonStrict"), total_number="2")
    made = gang_rig.gang("default/g")
    assert (made.minimum, made.total, made.wait, made.mode) == (4, 4, 300.0, Mode.NON_STRICT)

    gang_rig.group(gang("h", 2))
    gang_rig.submit(member("p0", "h"))
    gang_rig.group(gang("h", 3))
    assert gang_rig.gang("default/h").minimum == 3
    gang_rig.submit(member("p1", "h"))
    gang_rig.run()
    assert gang_rig.placed() == []
    assert gang_rig.held("p1").endswith("default/h has 2 of 3 members")
    gang_rig.submit(member("p2", "h"))
    gang_rig.run()
    assert gang_rig.placed() == ["p0", "p1", "p2"]


def test_e18_members_that_were_not_tried_get_the_reason_once() -> None:
    """Of four members the first has a place and the second none; the other two are not tried."""
    gang_rig = rig(1)
    gang_rig.group(gang("g", 4))
    gang_rig.submit(*(member(f"pod{number}", "g") for number in range(1, 5)))
    first = gang_rig.run()
    cause = (
        '0/1 nodes are available: GangGroup "default/g" gets rejected due to member Pod "default/pod2" is unschedulable'
        ' with reason "0/1 nodes are available: 1 Insufficient cpu.", alreadyWaitForBound: 1.'
    )
    decisions: dict[str, list[Reject]] = {}
    for decision in first:
        assert isinstance(decision, Reject)
        decisions.setdefault(decision.info.pod.metadata.name, []).append(decision)
    assert {name: len(rejects) for name, rejects in decisions.items()} == {"pod1": 1, "pod2": 1, "pod3": 1, "pod4": 1}
    for name in ("pod3", "pod4"):
        (reject,) = decisions[name]
        assert (reject.message, reject.reason, reject.nominated) == (cause, "Unschedulable", None)
    cycle = gang_rig.gang("default/g").group.cycle
    gang_rig.node("n0", cpu="4", unschedulable=True)
    gang_rig.node("n0", cpu="1")
    gang_rig.clock.advance(301)
    assert gang_rig.run() == [], "another attempt with the same reason is not reported again"
    assert gang_rig.gang("default/g").group.cycle > cycle


def test_e19_the_number_of_members_that_are_bound_together() -> None:
    gang_rig = rig(64)
    gang_rig.group(gang("g", 2))
    gang_rig.submit(member("p0", "g"), member("p1", "g"))
    gang_rig.run()
    gang_rig.submit(member("p2", "g"))
    gang_rig.run()
    counts = [gang_rig.binding(name).annotations.get(BIND_MEMBER_COUNT) for name in ("p0", "p1", "p2")]
    assert counts == ["2", "2", None]


def test_e20_the_reason_of_a_member_without_a_place_is_that_of_its_gang_group() -> None:
    """Upstream's example has no nodes. In a cluster without nodes its scheduler, and this one, do not come that far."""
    gang_rig = rig(0)
    gang_rig.group(gang("gangA", 2))
    gang_rig.submit(member("pod1", "gangA"), member("pod2", "gangA"))
    made = gang_rig.gang("default/gangA")
    entry = gang_rig.core.queue.find("uid-pod1")
    assert entry is not None
    _, peers = GangAttempt(gang_rig.cache, made.group).statuses(entry.info, "0/0 nodes are available:")
    assert peers.message == (
        'GangGroup "default/gangA" gets rejected due to member Pod "default/pod1" is unschedulable with reason'
        ' "0/0 nodes are available:", alreadyWaitForBound: 0'
    )
    gang_rig.run()
    assert all(gang_rig.message(name).startswith("no nodes available to schedule pods") for name in ("pod1", "pod2"))


def test_e22_the_duration_of_an_attempt_that_tries_26_pods() -> None:
    """26 of 26 are bound; 25 of 26 have a place, and the 26th none: both are of the size 1-100."""
    for places, reason in ((26, "gang is already succeed"), (25, "all pending pods is already been attempted")):
        gang_rig = rig(places)
        gang_rig.group(gang("g", 26))
        gang_rig.submit(*(member(f"p{number}", "g") for number in range(26)))
        gang_rig.run()
        lines = [line for family in gang_rig.cache.measures.families() for line in family[3]]
        name = "scheduler_gang_schedule_cycle_duration_seconds_count"
        counts = [line for line in lines if line.startswith(name)]
        assert counts == [f'{name}{{reason="{reason}",job_size="1-100"}} 1']


@pytest.mark.parametrize(
    ("attempted", "size"),
    [(0, "0"), (1, "1-100"), (100, "1-100"), (101, "101-200"), (1000, "901-1000"), (1001, "1000+")],
)
def test_sizes_of_jobs(attempted: int, size: str) -> None:
    assert job_size(attempted) == size
