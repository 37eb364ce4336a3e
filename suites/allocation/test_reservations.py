"""Reservations: resources and devices are held for their owners, and returned.

Cases check the status of reservations, the nodes of pods, and their devices.
"""

import pytest

from seatrial.fixtures.allocated_devices import check_arrival, minors, reservation_of
from seatrial.fixtures.cpus import cpus, shares
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.allocations import device_allocations
from seatrial.harness.apiserver.quantities import amount
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, pods, priority_class, reservation
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU
from seatrial.scheduler.api.reservation import RESERVATION_AFFINITY, RESERVATION_IGNORED, RESERVATIONS_PATH, Reservation
from seatrial.suites.allocation.reserving import RESERVING, SMALL, Amounts, owner

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]

WITHOUT_PREEMPTION = "reserving-without-preemption"


def cpu(amounts: dict[str, str | int | float]) -> int:
    return amount("cpu", amounts.get("cpu", 0))


def conditions(reservation: Reservation) -> list[tuple[str, str, str]]:
    return [(condition.type, condition.status, condition.reason) for condition in reservation.status.conditions]


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-001", severity="blocker")
def test_a_place_is_held_for_its_owner(trial: Trial, expect: Expect) -> None:
    """A reservation is scheduled like a pod; only its owner gets its resources, and both record it."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(reservation("held").like(pod("x").request(cpu=6, memory="1Gi")).for_labels(app="owner").many())
    held = expect.available("held")
    trial.submit(pod("stranger").request(cpu=3))
    expect.pending("stranger", saying="Insufficient cpu")

    trial.submit(owner("a", cpu=4))

    a = expect.bound("a")
    assert (held.status.node_name, cpu(held.status.allocatable)) == ("n1", 6000)
    assert conditions(held) == [("Scheduled", "True", "Scheduled"), ("Ready", "True", "Available")]
    assert reservation_of(a) == "held"
    held = expect.reservation(
        "held", lambda reservation: len(reservation.status.current_owners) == 1, "to name its owner"
    )
    assert (held.status.current_owners[0].name, cpu(held.status.allocated), held.status.phase) == (
        "a",
        4000,
        "Available",
    )
    expect.pending("stranger")


@pytest.mark.feature("RSV-1.reused")
@pytest.mark.case("RV-002", severity="critical")
def test_a_place_is_used_again(trial: Trial, expect: Expect) -> None:
    """Resources that an owner releases return to the reservation: the next owner gets them, other pods do not."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(reservation("held").like(pod("x").request(cpu=6)).for_labels(app="owner").many())
    expect.available("held")
    trial.submit(owner("a", cpu=6))
    expect.bound("a")
    expect.reservation("held", lambda reservation: cpu(reservation.status.allocated) == 6000, "to be used")
    trial.submit(pod("stranger").request(cpu=3))
    expect.pending("stranger")

    trial.delete("a")

    unused = expect.reservation("held", lambda reservation: not reservation.status.current_owners, "to be free again")
    assert (unused.status.phase, cpu(unused.status.allocated)) == ("Available", 0)
    expect.pending("stranger")
    trial.submit(owner("b", cpu=6))
    assert reservation_of(expect.bound("b")) == "held"


@pytest.mark.feature("RSV-1.expires")
@pytest.mark.case("RV-003", severity="critical")
@pytest.mark.long(seconds=8)
def test_time_runs_out(trial: Trial, expect: Expect) -> None:
    """A reservation whose ttl has expired is Failed with reason Expired, and its resources are free for all pods."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(reservation("held").like(pod("x").request(cpu=6)).for_labels(app="owner").many().ttl("8s"))
    expect.available("held")
    trial.submit(pod("stranger").request(cpu=3))
    expect.pending("stranger", cooled=False)

    trial.reaches(lambda: (one := trial.reservation("held")) is not None and one.expired, within=12)
    ended = expect.reservation("held", lambda reservation: reservation.expired, "to expire", within=0)

    assert conditions(ended) == [("Scheduled", "True", "Scheduled"), ("Ready", "False", "Expired")]
    expect.bound("stranger")


@pytest.mark.feature("RSV-1.failure-said")
@pytest.mark.case("RV-004", severity="critical")
def test_no_room_for_a_reservation(trial: Trial, expect: Expect) -> None:
    """A reservation that fits nowhere stays Pending with a reason, and is placed once there is room."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(pod("there").request(cpu=4))
    expect.bound("there")
    trial.reserve(reservation("large").like(pod("x").request(cpu=6)).for_labels(app="owner"))

    refused = expect.reservation("large", lambda reservation: bool(reservation.status.conditions), "to be refused")

    assert conditions(refused) == [("Scheduled", "False", "Unschedulable")]
    assert "Insufficient cpu" in refused.status.conditions[0].message
    assert not refused.status.node_name
    assert "FailedScheduling" in [event.reason for event in trial.events("large", namespace="default")]
    trial.delete("there")
    expect.available("large")


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-005", severity="critical")
def test_an_owner_by_name_waits_for_its_place(trial: Trial, expect: Expect) -> None:
    """A pod without room is placed once a reservation for it exists; other pods of its shape keep waiting."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(pod("filler").request(cpu=3))
    expect.bound("filler")
    trial.reserve(reservation("held").like(pod("x").request(cpu=5)).for_pod("mine", trial.name))
    expect.available("held")

    trial.submit(pod("other").request(cpu=5), pod("mine").request(cpu=5))

    assert reservation_of(expect.bound("mine")) == "held"
    expect.pending("other")


@pytest.mark.feature("RSV-2.allocate-once")
@pytest.mark.case("RV-010", severity="critical")
def test_it_serves_once(trial: Trial, expect: Expect) -> None:
    """The first owner ends an allocate-once reservation, whatever it takes; the rest is free for all pods."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(reservation("once").like(pod("x").request(cpu=6)).for_labels(app="owner"))
    expect.available("once")
    trial.submit(owner("first", cpu=1))

    first = expect.bound("first")
    done = expect.reservation("once", lambda reservation: reservation.status.phase == "Succeeded", "to have succeeded")

    assert reservation_of(first) == "once"
    assert conditions(done) == [("Scheduled", "True", "Scheduled"), ("Ready", "False", "Succeeded")]
    assert [current_owner.name for current_owner in done.status.current_owners] == ["first"]
    trial.submit(owner("second", cpu=1), pod("stranger").request(cpu=6))
    second, _ = expect.bound("second", "stranger")
    assert not reservation_of(second)


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case("RV-011", severity="critical")
@pytest.mark.parametrize(
    ("policy", "fits"),
    [
        pytest.param("", True, id="default"),
        pytest.param("Aligned", True, id="aligned"),
        pytest.param("Restricted", False, id="restricted"),
    ],
)
def test_more_than_was_reserved(trial: Trial, expect: Expect, policy: str, fits: bool) -> None:
    """An owner may take further resources from the node, unless the reservation is Restricted."""
    trial.add(node("n1").cpu(SMALL))
    held = reservation("held").like(pod("x").request(cpu=4)).for_labels(app="owner").many()
    trial.reserve(held.policy(policy) if policy else held)
    expect.available("held")

    trial.submit(owner("a", cpu=6).into_reservation())

    if fits:
        assert reservation_of(expect.bound("a")) == "held"
    else:
        expect.pending("a", saying="Reservation(s) Insufficient cpu")


@pytest.mark.feature("RSV-3.affinity")
@pytest.mark.case("RV-020", severity="critical")
def test_affinity(trial: Trial, expect: Expect) -> None:
    """A pod may require a reservation by name or labels; without a matching one it waits, even if there is room."""
    trial.add(node("n1").cpu(64))
    trial.reserve(
        reservation("gold").like(pod("x").request(cpu=2)).for_labels(app="owner").many().label("tier", "gold"),
        reservation("tin").like(pod("x").request(cpu=2)).for_labels(app="owner").many().label("tier", "tin"),
    )
    expect.available("gold")
    expect.available("tin")

    trial.submit(
        owner("by-name", cpu=1).into_reservation(name="tin"),
        owner("by-label", cpu=1).into_reservation(reservationSelector={"tier": "gold"}),
        owner("no-such-name", cpu=1).into_reservation(name="lead"),
        owner("no-such-label", cpu=1).into_reservation(reservationSelector={"tier": "lead"}),
        pod("not-an-owner").request(cpu=1).into_reservation(),
        pod("empty").request(cpu=1).annotation(RESERVATION_AFFINITY, ""),
    )

    by_name, by_label = expect.bound("by-name", "by-label")
    assert (reservation_of(by_name), reservation_of(by_label)) == ("tin", "gold")
    expect.pending("no-such-name", saying="2 Reservation(s) didn't match the requested reservation name")
    expect.pending("no-such-label", saying="2 Reservation(s) didn't match affinity rules")
    expect.pending("not-an-owner", "empty", saying="node(s) no reservations match reservation affinity")
    messages = {
        event.message for event in trial.events("no-such-name") if event.reason == "FailedScheduling-Reservation"
    }
    assert messages == {"0/2 reservations are available: 2 Reservation(s) didn't match the requested reservation name."}


@pytest.mark.feature("RSV-3.affinity")
@pytest.mark.case(
    "RV-330",
    severity="normal",
    source="spec RSV-R31, RSV-R42, RSV-R43, E7; koordinator: pkg/scheduler/plugins/reservation/plugin.go@v1.7.0",
)
def test_why_a_required_reservation_has_no_room(trial: Trial, expect: Expect) -> None:
    """Four of six cores of a reservation are used, and another one is on a node that is cordoned later. Pods that ask
    for three cores of the one or of the other are told what is in their way, in a second event without the numbers."""
    trial.add(node("n1").cpu(16).label("zone", "a"), node("n2").cpu(16).label("zone", "b"))
    for name, zone in (("full", "a"), ("away", "b")):
        held = reservation(name).like(pod("x").request(cpu=6).select({"zone": zone})).for_labels(app="owner").many()
        trial.reserve(held.policy("Restricted").label("tier", name))
        expect.available(name)
    trial.submit(owner("first", cpu=4).into_reservation(name="full"))
    expect.bound("first")
    assert trial.call("PATCH", "/api/v1/nodes/n2", {"spec": {"unschedulable": True}}).ok
    trial.settle()

    trial.submit(
        owner("named", cpu=3).into_reservation(name="full"),
        owner("selecting", cpu=3).into_reservation(reservationSelector={"tier": "away"}),
    )

    expect.pending("named", saying="1 Reservation(s) Insufficient cpu, requested: 3000, used: 4000, capacity: 6000")
    expect.pending("named", saying="1 Reservation(s) exactly matches the requested reservation name")
    expect.pending("named", saying="2 Reservation(s) matched owner total")
    expect.pending("selecting", saying="1 Reservation(s) for node reason that node(s) were unschedulable")
    notes = {
        "named": "1 Reservation(s) exactly matches the requested reservation name, 1 Reservation(s) Insufficient cpu, "
        "1 Reservation(s) didn't match the requested reservation name",
        "selecting": "1 Reservation(s) didn't match affinity rules, "
        "1 Reservation(s) for node reason that node(s) were unschedulable",
    }
    for name, note in notes.items():
        second = {event.message for event in trial.events(name) if event.reason == "FailedScheduling-Reservation"}
        assert second == {f"0/2 reservations are available: {note}."}


@pytest.mark.feature("RSV-3.taints")
@pytest.mark.case("RV-021", severity="critical")
def test_closed_and_tainted(trial: Trial, expect: Expect) -> None:
    """An unschedulable reservation takes no new owners; taints exclude pods with affinity and no toleration."""
    trial.add(node("n1").cpu(SMALL))
    held = [
        reservation(name).like(pod("x").request(cpu=3)).for_labels(app=name).many() for name in ("closed", "tainted")
    ]
    trial.reserve(held[0].closed(), held[1].taint("t", "v"))
    for share in held:
        expect.available(share.name)

    trial.submit(
        pod("in-vain").label("app", "closed").request(cpu=3),
        pod("tolerates-nothing").label("app", "tainted").request(cpu=1).into_reservation(),
        pod("tolerates")
        .label("app", "tainted")
        .request(cpu=1)
        .into_reservation(tolerations=[{"key": "t", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]),
    )

    expect.pending("in-vain", saying="1 Reservation(s) is unschedulable")
    expect.pending("tolerates-nothing", saying="1 Reservation(s) had untolerated taint {t: v}")
    assert reservation_of(expect.bound("tolerates")) == "tainted"


@pytest.mark.feature("RSV-3.exact-match")
@pytest.mark.case("RV-022", severity="critical")
def test_exactly_this_size(trial: Trial, expect: Expect) -> None:
    """A pod that requires an exact match uses the reservation of its size and no larger one."""
    trial.add(node("n1").cpu(16))
    trial.reserve(
        *(
            reservation(f"of-{cores}").like(pod("x").request(cpu=cores)).for_labels(app="owner").many()
            for cores in (2, 4)
        )
    )
    expect.available("of-2")
    expect.available("of-4")

    trial.submit(owner("two", cpu=2).exactly("cpu"), owner("three", cpu=3).exactly("cpu").into_reservation())

    assert reservation_of(expect.bound("two")) == "of-2"
    expect.pending("three", saying="2 Reservation(s) is not exact matched")


@pytest.mark.feature("RSV-3.ignored")
@pytest.mark.case("RV-023", severity="critical")
@pytest.mark.parametrize("affinity", ["", '{"name": "held"}'])
def test_reservations_ignored(trial: Trial, expect: Expect, affinity: str) -> None:
    """For a pod that ignores reservations, reserved resources are free, and it becomes no owner, even of the one that
    its affinity names (spec RSV-R19)."""
    ignores = owner("ignores", cpu=6).ignores_reservations()
    ignored(trial, expect, ignores.annotation(RESERVATION_AFFINITY, affinity) if affinity else ignores)


@pytest.mark.feature("RSV-3.ignored")
@pytest.mark.case("RV-223", severity="normal", source="ours: Koordinator asks for the reservation, and does not use it")
def test_a_reservation_that_is_ignored_need_not_exist(trial: Trial, expect: Expect) -> None:
    """A pod ignores reservations, and its affinity names one that does not exist: it is bound."""
    absent = owner("ignores", cpu=6).annotation(RESERVATION_AFFINITY, '{"name": "absent"}')
    ignored(trial, expect, absent.ignores_reservations())


@pytest.mark.feature("RSV-3.ignored")
@pytest.mark.case("RV-222", severity="normal", source="ours: an annotation in the post, a label in the API")
def test_reservations_ignored_by_annotation(trial: Trial, expect: Expect) -> None:
    """The annotation of the release post does what the label does."""
    ignored(trial, expect, owner("ignores", cpu=6).annotation(RESERVATION_IGNORED, "true"))


def ignored(trial: Trial, expect: Expect, ignores: PodBuilder) -> None:
    """The pod gets what is reserved, and is no owner."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(reservation("held").like(pod("x").request(cpu=6)).for_labels(app="owner").many())
    expect.available("held")

    trial.submit(ignores)

    assert not reservation_of(expect.bound("ignores"))


@pytest.mark.feature("RSV-3.ignored")
@pytest.mark.case("RV-123", severity="normal", source="koordinator: pkg/scheduler/plugins/reservation")
def test_a_pod_that_ignores_reservations_waits_for_no_new_one(trial: Trial, expect: Expect) -> None:
    """A pod that ignores reservations waits for a full node, a more important reservation too. The node becomes free:
    the reservation gets it, and the pod runs in what is reserved."""
    trial.add(node("n1").cpu(6))
    trial.submit(pod("full").request(cpu=6))
    expect.bound("full")
    trial.reserve(reservation("held").like(pod("x").request(cpu=4).priority(9500)).for_labels(app="owner"))
    trial.submit(pod("ignores").request(cpu=3).ignores_reservations())
    expect.pending("ignores")

    trial.delete("full")

    expect.available("held")
    assert not reservation_of(expect.bound("ignores"))
    current_reservation = trial.reservation("held")
    assert current_reservation is not None
    assert not current_reservation.status.current_owners


@pytest.mark.feature("RSV-3.order")
@pytest.mark.case("RV-024", severity="normal")
def test_order(trial: Trial, expect: Expect) -> None:
    """Of several reservations the one with the lowest order is used first, independent of its node."""
    trial.add(node("n1").cpu(SMALL), node("n2").cpu(SMALL))
    trial.reserve(
        reservation("third").like(pod("x").request(cpu=2)).for_labels(app="owner"),
        reservation("second").like(pod("x").request(cpu=6)).for_labels(app="owner").order(7),
        reservation("first").like(pod("x").request(cpu=6)).for_labels(app="owner").order(3),
    )
    for name in ("first", "second", "third"):
        expect.available(name)

    order = []
    for name in ("a", "b", "c"):
        trial.submit(owner(name, cpu=2))
        order.append(reservation_of(expect.bound(name)))

    assert order == ["first", "second", "third"]


CARDS, NICS = 4, 8  # of an A10 and a DGX-H100 machine


@pytest.mark.feature("DEV-1.reserved-cards", "RSV-1.held")
@pytest.mark.case("RV-030", severity="blocker")
@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_cards_are_held(trial: Trial, expect: Expect, policy: str) -> None:
    """A reservation of cards holds specific cards: owners get these, one by one, and other pods get other cards."""
    trial.add(node("n1").cards(CARDS))
    held = reservation("held").like(pod("x").gpus(2)).for_labels(app="owner").many()
    trial.reserve(held.policy(policy) if policy else held)
    reserved = minors(Pod(expect.available("held").metadata))

    trial.submit(pod("stranger").gpus(CARDS - 2))
    others = minors(expect.bound("stranger"))
    trial.submit(pod("late").gpus(1), owner("a").gpus(1), owner("b").gpus(1))
    a, b = expect.bound("a", "b")

    assert len(reserved) == 2
    assert not {*reserved} & {*others}
    assert sorted(minors(a) + minors(b)) == reserved
    assert (reservation_of(a), reservation_of(b)) == ("held", "held")
    expect.pending("late")
    expect.running("a")
    check_arrival(trial, a)


@pytest.mark.feature("DEV-4.binpack-cards", "RSV-2.policies")
@pytest.mark.case("RV-031", severity="critical")
def test_a_share_of_a_card_is_held(trial: Trial, expect: Expect) -> None:
    """A reserved half of a card is not shared by others; an owner of a Restricted reservation gets no more than it."""
    trial.add(node("n1").cards(1))
    trial.reserve(reservation("half").like(pod("x").gpu_share(50)).for_labels(app="owner").many().policy("Restricted"))
    expect.available("half")

    trial.submit(
        pod("whole").gpus(1),
        pod("quarter").gpu_share(25),
        owner("too-much").gpu_share(60).into_reservation(),
        owner("third").gpu_share(30),
    )

    third, _ = expect.bound("third", "quarter")
    assert reservation_of(third) == "half"
    expect.pending("whole")
    expect.pending("too-much", saying="Reservation(s) ")


@pytest.mark.feature("DEV-1.reserved-cards", "RSV-1.reused")
@pytest.mark.case("RV-032", severity="critical")
def test_cards_go_back_to_the_reservation(trial: Trial, expect: Expect) -> None:
    """The cards of an owner that ends return to its reservation; once that is deleted, they are free for all pods."""
    trial.add(node("n1").cards(2))
    trial.reserve(reservation("held").like(pod("x").gpus(2)).for_labels(app="owner").many())
    expect.available("held")
    trial.submit(owner("a").gpus(2))
    expect.bound("a")
    trial.submit(pod("stranger").gpus(1))
    expect.pending("stranger")

    trial.delete("a")
    expect.reservation("held", lambda reservation: not reservation.status.current_owners, "to be free again")
    expect.pending("stranger")
    trial.call("DELETE", f"{RESERVATIONS_PATH}/held")

    expect.bound("stranger")


@pytest.mark.feature("DEV-1.reserved-cards")
@pytest.mark.case("DS-251", severity="critical", source="spec DEV-R62; koordinator deviceshare/reservation.go@v1.7.0")
def test_a_card_is_free_beside_what_all_owners_leave(trial: Trial, expect: Expect) -> None:
    """A reservation has 60 % of the only card, and two owners use 20 % each: the 40 % beside it are for anyone."""
    trial.add(node("n1").gpus("a10", 1))
    trial.reserve(reservation("held").like(pod("x").gpu_share(60)).for_labels(app="owner").many())
    expect.available("held")
    for name in ("a", "b"):
        trial.submit(owner(name).gpu_share(20).into_reservation())
        expect.bound(name)
    trial.submit(pod("beside").gpu_share(40))
    expect.bound("beside")
    trial.submit(pod("more").gpu_share(10))
    expect.pending("more")


@pytest.mark.feature("DEV-7.held-and-returned", "RSV-1.reused")
@pytest.mark.case("RV-033", severity="critical")
def test_virtual_functions_are_held(trial: Trial, expect: Expect) -> None:
    """An owner of a Restricted reservation of a NIC's virtual function gets that function and no second one."""
    trial.add(node("n1").server("dgx-h100"))
    first = [function_of(pod) for pod in pods("first", NICS)]
    trial.submit(*first)
    taken = [virtual_functions(bound_pod) for bound_pod in expect.bound(*(pod.name for pod in first))]
    held = reservation("held").like(function_of(pod("x"))).for_labels(app="owner").many().policy("Restricted")
    trial.reserve(held)
    reserved = virtual_functions(Pod(expect.available("held").metadata))
    assert reserved not in taken
    trial.delete(*(pod.name for pod in first))  # so that a function before the reserved one is free

    trial.submit(function_of(owner("a")).into_reservation())
    assert virtual_functions(expect.bound("a")) == reserved
    trial.submit(function_of(owner("b")).into_reservation())
    expect.pending("b", saying="Reservation(s) Insufficient")


def function_of(asking: PodBuilder) -> PodBuilder:
    """A pod that requests a virtual function of any NIC."""
    return asking.rdma(1).hint("rdma", vfSelector={})


def virtual_functions(pod: Pod) -> list[str]:
    extensions = (nic.extension for nic in device_allocations(pod).get("rdma", ()))
    return [function.bus_id for extension in extensions if extension is not None for function in extension.vfs]


@pytest.mark.feature("DEV-5.with-cpus", "NUMA-4.cards-and-cpus", "RSV-1.held")
@pytest.mark.case("RV-034", severity="critical")
@pytest.mark.parametrize("policy", ["", "Restricted"])
@pytest.mark.parametrize("qos", ["", "LSR"])
def test_a_numa_node_is_held(trial: Trial, expect: Expect, policy: str, qos: str) -> None:
    """A reservation holds CPUs, memory and cards of one NUMA node, and its owner gets all of them."""
    trial.add(node("n1").server("dgx-h100").numa_policy("SingleNUMANode"))

    def asking(name: str) -> PodBuilder:
        builder = owner(name, cpu=100, memory="500Gi").gpus(3)
        return builder.qos(qos) if qos else builder

    held = reservation("held").like(asking("x")).for_labels(app="owner").many()
    trial.reserve(held.policy(policy) if policy else held)
    reserved = Pod(expect.available("held").metadata)
    stranger = pod("stranger").request(cpu=100, memory="500Gi").gpus(3)
    trial.submit(stranger.qos(qos) if qos else stranger)
    elsewhere = expect.bound("stranger")

    trial.submit(asking("a"))

    a = expect.running("a")
    assert reservation_of(a) == "held"
    assert (minors(a), shares(a), cpus(a)) == (minors(reserved), shares(reserved), cpus(reserved))
    assert not {*minors(a)} & {*minors(elsewhere)}
    assert shares(a).keys() != shares(elsewhere).keys()
    assert cpus(a).isdisjoint(cpus(elsewhere))
    check_arrival(trial, a)


@pytest.mark.feature("DEV-1.reserved-cards", "NUMA-4.cards-and-cpus", "RSV-2.policies")
@pytest.mark.case("RV-035", severity="critical")
def test_a_restricted_owner_gets_no_card_beside_its_reservation(trial: Trial, expect: Expect) -> None:
    """The NUMA node of the reserved card has no CPUs left, the other one has all: the owner waits for its own card."""
    trial.add(node("n1").server("dgx-h100").numa_policy("SingleNUMANode"))
    trial.reserve(reservation("held").like(owner("x").gpus(1)).for_labels(app="owner").many().policy("Restricted"))
    reserved = minors(Pod(expect.available("held").metadata))
    trial.submit(pod("elsewhere").request(cpu=4).gpus(4))
    expect.bound("elsewhere")
    trial.submit(pod("beside").request(cpu=110).gpus(3))
    beside = expect.bound("beside")
    assert len({card // 4 for card in (*reserved, *minors(beside))}) == 1
    trial.delete("elsewhere")

    trial.submit(owner("a", cpu=4).gpus(1).into_reservation())
    expect.pending("a", saying="Unaligned NUMA Hint")
    expect.stable(seconds=5)
    trial.delete("beside")

    a = expect.bound("a")
    assert (reservation_of(a), minors(a)) == ("held", reserved)


@pytest.mark.feature("RSV-4.inside")
@pytest.mark.case("RV-040", severity="critical")
@pytest.mark.profile(RESERVING)
@pytest.mark.parametrize(
    ("held", "amounts"), [({"cpu": 4}, {"cpu": 3}), ({GPU: 100}, {GPU: 100})], ids=["cores", "cards"]
)
def test_room_is_made_inside(trial: Trial, expect: Expect, held: Amounts, amounts: Amounts) -> None:
    """A pod that must use a full reservation preempts the least important owner, and no other pod."""
    trial.apply(priority_class("trial-high", 1000))
    trial.add(node("n1").cpu(SMALL).cards(2))
    like = pod("x").resources(held)
    trial.reserve(reservation("held").like(like).for_labels(app="owner").many().policy("Restricted"))
    expect.available("held")
    trial.submit(owner("inside").resources(held).into_reservation(), pod("beside").resources(held))
    expect.bound("inside", "beside")

    wants = owner("wants").resources(amounts).into_reservation()
    trial.submit(wants.priority_class("trial-high").scheduler(RESERVING))

    expect.gone("inside")
    assert reservation_of(expect.bound("wants")) == "held"
    assert trial.pod("beside").spec.node_name == "n1"


@pytest.mark.feature("RSV-4.enable-preemption")
@pytest.mark.case("RV-041", severity="critical")
@pytest.mark.profile(WITHOUT_PREEMPTION)
def test_without_enable_preemption_no_room_is_made_inside(trial: Trial, expect: Expect) -> None:
    """With enablePreemption false the same pod waits, and the owners of the reservation stay."""
    trial.apply(priority_class("trial-high", 1000))
    trial.add(node("n1").cpu(SMALL))
    held = reservation("held").like(pod("x").request(cpu=4)).for_labels(app="owner").many()
    trial.reserve(held.policy("Restricted"))
    expect.available("held")
    trial.submit(owner("inside", cpu=4))
    expect.bound("inside")

    wanting = owner("wants", cpu=3).into_reservation().priority_class("trial-high")
    trial.submit(wanting.scheduler(WITHOUT_PREEMPTION))

    expect.pending("wants")
    expect.stable(seconds=30)
    assert trial.find("inside") is not None
    trial.delete("inside")
    assert reservation_of(expect.bound("wants")) == "held"


@pytest.mark.feature("RSV-5.own-place")
@pytest.mark.case("RV-050", severity="critical")
def test_its_own_place_is_not_in_the_way(trial: Trial, expect: Expect) -> None:
    """A reservation counts for the anti-affinity of other pods, but not for that of its own owners."""
    trial.add(node("n1").cpu(SMALL))
    alone = away_from(pod("x").request(cpu=2).label("app", "owner"), "owner")
    trial.reserve(reservation("held").like(alone).for_labels(app="owner").many())
    expect.available("held")

    trial.submit(away_from(pod("stranger").request(cpu=2), "owner"))
    expect.pending("stranger", saying="anti-affinity")
    trial.submit(away_from(owner("a", cpu=2), "owner"))

    assert reservation_of(expect.bound("a")) == "held"


def away_from(pod: PodBuilder, app: str) -> PodBuilder:
    """A pod that avoids nodes with a pod of the given app."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    pod.manifest["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod
