"""Pre-allocation: a reservation takes over what running pods hold, instead of waiting for free resources."""

import pytest

from seatrial.fixtures.allocated_devices import reservation_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import amount
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, ReservationBuilder, node, pod
from seatrial.scheduler.api.reservation import CLUSTER_MODE
from seatrial.suites.allocation.reserving import taking_over

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]

TAKING_OVER = "taking-over"  # the profile that allows pre-allocation of marked pods
SMALL = 8  # cores of a node


def owner(name: str, cores: int) -> PodBuilder:
    """A pod that owns the reservations of these cases."""
    return pod(name).label("app", "owner").request(cpu=cores)


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("RV-070", severity="critical")
def test_a_running_pod_becomes_the_first_owner(trial: Trial, expect: Expect) -> None:
    """The node is full. The reservation takes over what its owner holds; when the owner ends, only owners get it."""
    trial.add(node("n1").cpu(SMALL), node("n2").cpu(SMALL))
    trial.submit(owner("old", 5))
    placed = expect.running("old")
    trial.submit(*(pod(name).request(cpu=3) for name in ("a", "b", "c")))
    expect.bound("a", "b", "c")

    trial.reserve(taking_over("held", 5))

    held = expect.available("held")
    assert held.status.node_name == placed.spec.node_name
    assert trial.wait(lambda: reservation_of(trial.pod("old")) == "held", within=10)
    held = expect.reservation("held", lambda item: bool(item.status.current_owners), "to name its owner")
    assert (held.status.current_owners[0].name, amount("cpu", held.status.allocated["cpu"])) == ("old", 5000)
    trial.delete("old")
    trial.submit(pod("stranger").request(cpu=5), owner("new", 5))
    assert reservation_of(expect.bound("new")) == "held"
    expect.pending("stranger")


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("RV-072", severity="critical")
@pytest.mark.parametrize("who", ["a-stranger", "a-larger-owner", "the-owner-of-another-reservation"])
def test_a_pod_that_is_not_taken_over(trial: Trial, expect: Expect, who: str) -> None:
    """The only pod on a node must not be taken over: the reservation waits, and the pod is in none of its own. Room is
    not what it lacks where the pod is another's owner: a reservation that must take over takes nothing that is free."""
    trial.add(node("n1").cpu(4 * SMALL if "another" in who else SMALL))
    running = pod("old").request(cpu=5) if who == "a-stranger" else owner("old", 6 if "larger" in who else 5)
    trial.submit(running, pod("filler").request(cpu=2))
    expect.running("old", "filler")
    before = ""
    if "another" in who:
        trial.reserve(taking_over("first", 5))
        expect.available("first")
        assert trial.wait(lambda: reservation_of(trial.pod("old")) == "first", within=10)
        before = "first"

    trial.reserve(taking_over("held", 5))

    expect.reservation("held", lambda item: item.status.condition("Scheduled") is not None, "to say why it waits")
    expect.stable(seconds=5)
    reservation = trial.reservation("held")
    assert reservation is not None
    assert not reservation.status.node_name
    assert reservation_of(trial.pod("old")) == before


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("RV-071", severity="critical")
@pytest.mark.parametrize("required", [True, False])
def test_without_a_pod_to_take_over(trial: Trial, expect: Expect, *, required: bool) -> None:
    """No owner runs: a reservation that must take one over waits and has a reason, another takes free resources."""
    trial.add(node("n1").cpu(SMALL))

    trial.reserve(taking_over("held", 5, required=required))

    if required:
        waiting = expect.reservation(
            "held", lambda item: item.status.condition("Scheduled") is not None, "to say why it waits"
        )
        condition = waiting.status.condition("Scheduled")
        assert condition is not None
        assert "node(s) no pod match reservation with pre allocation required" in condition.message
        assert not waiting.status.node_name
    else:
        assert expect.available("held").status.node_name == "n1"


def of_marked(name: str, cores: int, *, several: bool = False) -> ReservationBuilder:
    """A reservation that takes over pods that are marked for it, whatever its owners are."""
    built = taking_over(name, cores)
    built.manifest["spec"]["preAllocationPolicy"] = {"mode": CLUSTER_MODE, "enableMultiple": several}
    built.manifest["spec"]["template"]["spec"]["schedulerName"] = TAKING_OVER
    return built


def marked(name: str, rank: int, cores: int) -> PodBuilder:
    """A pod that may be taken over; of several, the one with the highest rank is tried first."""
    built = pod(name).request(cpu=cores).label("pod.koordinator.sh/is-pre-allocatable", "true")
    return built.annotation("pod.koordinator.sh/pre-allocatable-priority", str(rank))


def taken_over(trial: Trial, expect: Expect, *names: str) -> list[str]:
    """Which of the pods are in the reservation `held` after it became available."""
    expect.available("held")
    trial.wait(lambda: any(reservation_of(trial.pod(name)) for name in names), within=10)
    expect.stable(seconds=3)
    return [name for name in names if reservation_of(trial.pod(name)) == "held"]


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("RV-073", severity="normal")
@pytest.mark.profile(TAKING_OVER)
@pytest.mark.parametrize(("first", "second"), [(7, -1), (-1, 7)])
def test_the_pod_of_highest_rank_is_taken_over(trial: Trial, expect: Expect, first: int, second: int) -> None:
    """Two pods of the reservation's size fill the node; which was created first does not matter."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(marked("first", first, 4), marked("second", second, 4))
    expect.running("first", "second")

    trial.reserve(of_marked("held", 4))

    assert taken_over(trial, expect, "first", "second") == ["first" if first > second else "second"]


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("RV-343", severity="normal", source="spec RSV-R48")
@pytest.mark.profile(TAKING_OVER)
def test_pods_that_are_taken_over_fit_together(trial: Trial, expect: Expect) -> None:
    """Each of three pods fits into the reservation, and not all together: the second by rank does not fit beside the
    first, and the third does."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(marked("large", 3, 3), marked("second", 2, 3), marked("little", 1, 1))
    expect.running("large", "second", "little")

    trial.reserve(of_marked("held", 4, several=True))

    assert taken_over(trial, expect, "large", "second", "little") == ["large", "little"]


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("RV-074", severity="normal")
@pytest.mark.profile(TAKING_OVER)
def test_several_pods_are_taken_over(trial: Trial, expect: Expect) -> None:
    """Neither pod of the full node holds enough; with enableMultiple both become owners."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(marked("a", 2, 3), marked("b", 1, 3), pod("filler").request(cpu=2))
    expect.running("a", "b", "filler")

    trial.reserve(of_marked("held", 6, several=True))

    assert taken_over(trial, expect, "a", "b", "filler") == ["a", "b"]


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("RV-075", severity="normal")
@pytest.mark.profile(TAKING_OVER)
@pytest.mark.parametrize(
    ("first", "several"), [(1, False), (6, False), (6, True)], ids=["less", "more", "one-of-several"]
)
def test_a_pod_of_another_size_is_passed_over(trial: Trial, expect: Expect, first: int, several: bool) -> None:
    """The pod of highest rank is too small to make room on the full node, or larger than the reservation; the next one
    is as large."""
    trial.add(node("n1").cpu(first + 7))
    trial.submit(marked("first", 9, first), marked("next", 1, 5), pod("filler").request(cpu=2))
    expect.running("first", "next", "filler")

    trial.reserve(of_marked("held", 5, several=several))

    assert taken_over(trial, expect, "first", "next", "filler") == ["next"]


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("RV-176", severity="normal", source="koordinator: pkg/scheduler/plugins/reservation/plugin.go@v1.8.0")
@pytest.mark.profile(TAKING_OVER)
@pytest.mark.parametrize("preferred", [True, False])
def test_room_without_taking_over(trial: Trial, expect: Expect, *, preferred: bool) -> None:
    """The node has room beside an owner. With preferNoPreAllocatedPods a reservation takes the room, else the owner."""
    trial.add(node("n1").cpu(2 * SMALL))
    trial.submit(owner("old", 5))
    expect.running("old")
    built = taking_over("held", 5, required=False)
    if preferred:
        built.manifest["spec"]["template"]["spec"]["schedulerName"] = TAKING_OVER

    trial.reserve(built)

    assert taken_over(trial, expect, "old") == ([] if preferred else ["old"])


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case(
    "RV-179", severity="normal", source="koordinator: pkg/scheduler/plugins/reservation/transformer.go@v1.8.0"
)
@pytest.mark.parametrize("why", ["policy", "mode"])
def test_a_reservation_that_may_not_take_over(trial: Trial, expect: Expect, why: str) -> None:
    """It has another allocate policy than Restricted, or would take over marked pods, and the profile does not allow
    that: it waits, although there is a pod for it."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(marked("old", 1, 5).label("app", "owner"))
    expect.running("old")
    built = taking_over("held", 5)
    if why == "policy":
        built.policy("Aligned")
    else:
        built.manifest["spec"]["preAllocationPolicy"] = {"mode": CLUSTER_MODE}

    trial.reserve(built)

    expect.reservation("held", lambda item: item.status.condition("Scheduled") is not None, "to say why it waits")
    expect.stable(seconds=3)
    assert not reservation_of(trial.pod("old"))


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case(
    "RV-180", severity="normal", source="koordinator: pkg/scheduler/plugins/reservation/scoring.go@v1.8.0"
)
@pytest.mark.profile(TAKING_OVER)
@pytest.mark.parametrize("few", ["n1", "n2"])
def test_the_node_where_the_fewest_pods_are_taken_over(trial: Trial, expect: Expect, few: str) -> None:
    """One pod of the reservation's size fills a node, two of half its size fill another: the first is taken over."""
    (many,) = {"n1", "n2"} - {few}
    trial.add(node("n1").cpu(SMALL), node("n2").cpu(SMALL))
    for name, count, where in (("large", 8, few), ("half", 4, many), ("other", 4, many)):
        trial.submit(marked(name, 1, count).select({"kubernetes.io/hostname": where}))
    expect.running("large", "half", "other")

    trial.reserve(of_marked("held", 8, several=True))

    assert taken_over(trial, expect, "large", "half", "other") == ["large"]


@pytest.mark.feature("RSV-2.pre-allocation")
@pytest.mark.case("RV-076", severity="normal")
@pytest.mark.needs(Capability.NODES)
def test_an_owner_that_ends_is_not_taken_over(trial: Trial, expect: Expect) -> None:
    """The owner is being deleted, and its frozen node does not end it: a reservation that must take over waits."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(owner("old", 5))
    expect.running("old")
    trial.inject({"node": "n1", "verb": "frozen"})
    assert trial.call("DELETE", f"/api/v1/namespaces/{trial.name}/pods/old").ok  # Trial.delete waits for the end

    trial.reserve(taking_over("held", 5))

    expect.reservation("held", lambda item: item.status.condition("Scheduled") is not None, "to say why it waits")
    expect.stable(seconds=2)
    assert trial.pod("old").deleting
    reservation = trial.reservation("held")
    assert reservation is not None
    assert not reservation.status.node_name
