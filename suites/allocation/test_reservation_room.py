"""What a reservation holds and gives to its owners, where it goes, and what becomes of it."""

import json
from pathlib import Path

import pytest
import yaml

from seatrial.fixtures.allocated_devices import minors, reservation_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import amount
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.subject.protocol import open_subject
from seatrial.scheduler.api.builders import PodBuilder, ReservationBuilder, node, pod, priority_class, reservation
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU, GPU_CORE, GPU_MEMORY_RATIO
from seatrial.scheduler.api.extension import RAISES_IN
from seatrial.scheduler.api.reservation import (
    INNER_RESERVATION,
    PRIORITY_LABEL,
    RESERVATION_ALLOCATED,
    RESERVATIONS_PATH,
    RESIZE_ALLOCATABLE,
    RESTRICTED_OPTIONS,
)
from seatrial.suites.allocation.reserving import RESERVING, SMALL, Amounts, owner, taking_over
from seatrial.suites.scoring.rules import resize

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]

_CONFIGURATION = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
_PLUGIN = "koordinator: pkg/scheduler/plugins/reservation/plugin.go@v1.7.0"
_CONTROLLER = "koordinator: pkg/scheduler/plugins/reservation/controller@v1.7.0"
_UTIL = "koordinator: pkg/util/reservation/reservation.go@v1.7.0"


def cores(name: str, count: int) -> ReservationBuilder:
    """A reservation of cores for many owners."""
    return reservation(name).like(pod("x").request(cpu=count)).for_labels(app="owner").many()


def inside(name: str, count: int) -> PodBuilder:
    """An owner that requires a reservation."""
    return owner(name, cpu=count).into_reservation()


def is_in(trial: Trial, expect: Expect, one: PodBuilder, place: str) -> None:
    trial.submit(one)
    assert reservation_of(expect.bound(one.name)) == place


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case("RV-150", severity="critical", source=f"{_PLUGIN} (fitsNode)")
def test_what_the_other_reservations_of_an_owner_hold(trial: Trial, expect: Expect) -> None:
    """Two reservations of three cores are for the same owners, two cores are free: an owner gets five, and not six."""
    trial.add(node("n1").cpu(SMALL))
    for name in ("one", "two"):
        trial.reserve(cores(name, 3))
        expect.available(name)
    trial.submit(inside("six", 6))
    expect.pending("six", saying="1 Insufficient cpu by node")

    trial.submit(inside("five", 5))

    assert reservation_of(expect.bound("five")) in {"one", "two"}
    expect.pending("six")


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case(
    "RV-331",
    severity="normal",
    source="spec RSV-R24; koordinator: pkg/scheduler/plugins/reservation/transformer.go@v1.7.0 (host ports)",
)
def test_a_port_of_the_node_is_held_for_the_owner(trial: Trial, expect: Expect) -> None:
    """A reservation holds a port of its node, also when an owner without ports is in it: another pod with the port
    waits, and an owner gets it."""
    trial.add(node("n1").cpu(SMALL))
    like, stranger, a = (builder.request(cpu=2) for builder in (pod("x"), pod("stranger"), owner("a")))
    for built in (like, stranger, a):
        built.manifest["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    trial.reserve(reservation("held").like(like.request(cpu=4)).for_labels(app="owner").many())
    expect.available("held")
    is_in(trial, expect, owner("first", cpu=1), "held")

    trial.submit(stranger)

    expect.pending("stranger", saying="didn't have free ports for the requested pod ports")
    is_in(trial, expect, a, "held")
    expect.pending("stranger")


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case("RV-151", severity="normal", source=f"{_PLUGIN} (fitsNode, fitsReservation)")
@pytest.mark.parametrize(("policy", "most"), [("", 4), ("Restricted", 1)])
def test_what_is_withheld_from_owners(trial: Trial, expect: Expect, policy: str, most: int) -> None:
    """A reservation withholds two of its four cores. An owner has one. The next gets from a Restricted one what is left
    of the other two; else also the node's free cores, and nothing of what is withheld."""
    trial.add(node("n1").cpu(SMALL))
    held = cores("held", 4).annotation(INNER_RESERVATION, '{"resources": {"cpu": "2"}}')
    trial.reserve(held.policy(policy) if policy else held)
    expect.available("held")
    is_in(trial, expect, inside("first", 1 if policy else 3), "held")
    trial.submit(inside("too-large", most + 1))
    expect.pending("too-large")

    is_in(trial, expect, inside("next", most), "held")

    expect.pending("too-large")


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case("RV-152", severity="normal", source=f"{_PLUGIN} (fitsReservation)")
def test_a_restricted_reservation_has_places_for_pods(trial: Trial, expect: Expect) -> None:
    """It has two places, and cores for eight: the third owner waits until one ends."""
    trial.add(node("n1").cpu(16))
    trial.reserve(cores("held", 8).policy("Restricted").annotation(RESIZE_ALLOCATABLE, '{"resources": {"pods": "2"}}'))
    expect.available("held")
    for name in ("a", "b"):
        is_in(trial, expect, inside(name, 1), "held")
    trial.submit(inside("c", 1))
    expect.pending("c")

    trial.delete("a")

    assert reservation_of(expect.bound("c")) == "held"


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-153", severity="critical", source=f"{_PLUGIN} (fitsNode)")
def test_an_owner_needs_a_place_on_the_node(trial: Trial, expect: Expect) -> None:
    """The node takes two pods: one runs, a reservation holds the other place. One owner gets it, the second waits."""
    trial.add(node("n1").cpu(SMALL).pods(2))
    trial.submit(pod("there").request(cpu=1))
    expect.bound("there")
    trial.reserve(cores("held", 4))
    expect.available("held")
    is_in(trial, expect, inside("a", 1), "held")

    trial.submit(inside("b", 1))

    expect.pending("b")
    expect.stable(seconds=2)
    trial.delete("there")
    assert reservation_of(expect.bound("b")) == "held"


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case("RV-154", severity="critical", source=f"{_CONTROLLER} (syncStatus)")
def test_an_owner_counts_with_all_that_it_asks_for(trial: Trial, expect: Expect) -> None:
    """An owner has more than was reserved, and a resource that was not: the status shows all of the first, and nothing
    of the second; the node has no more than the rest. When the owner ends, only what was reserved is held."""
    trial.add(node("n1").cpu(SMALL).memory("16Gi"))
    trial.reserve(cores("held", 4))
    expect.available("held")
    is_in(trial, expect, owner("a", cpu=6, memory="1Gi").into_reservation(), "held")
    held = expect.reservation("held", lambda one: bool(one.status.current_owners), "to name its owner")
    assert {name: amount(name, value) for name, value in held.status.allocated.items()} == {"cpu": 6000}
    (listed,) = held.status.current_owners
    assert (listed.namespace, listed.name, listed.uid) == (trial.name, "a", trial.pod("a").metadata.uid)
    trial.submit(pod("three").request(cpu=3))
    expect.pending("three")
    trial.delete("three")

    trial.delete("a")

    trial.submit(pod("too-large").request(cpu=5), pod("fits").request(cpu=4))
    expect.bound("fits")
    expect.pending("too-large")


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-182", severity="normal", source="spec RSV-R17; ours: changes wake pods")
def test_a_reservation_gets_other_owners(trial: Trial, expect: Expect) -> None:
    """A pod waits, because a reservation holds the node for other pods; it is bound once the reservation is for it."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(reservation("held").like(pod("x").request(cpu=6)).for_labels(app="other").many())
    expect.available("held")
    trial.submit(owner("a", cpu=4))
    expect.pending("a", saying="Insufficient cpu")

    owners = [{"labelSelector": {"matchLabels": {"app": "owner"}}}]
    assert trial.call("PATCH", f"{RESERVATIONS_PATH}/held", {"spec": {"owners": owners}}).ok

    assert reservation_of(expect.bound("a")) == "held"


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case("RV-181", severity="normal", source="KEP-1287; spec RSV-R7")
@pytest.mark.long(seconds=5)
def test_an_owner_that_is_resized_counts_with_its_new_size(trial: Trial, expect: Expect) -> None:
    """An owner grows from one core to three in place: the reservation's status has three, its owners are as before."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(cores("held", 4))
    expect.available("held")
    trial.submit(inside("a", 1))
    expect.running("a")
    expect.reservation("held", lambda one: bool(one.status.current_owners), "to name its owner")

    resize(trial, "a", "3")

    expect.reservation(
        "held", lambda one: amount("cpu", one.status.allocated["cpu"]) == 3000, "to have three cores used"
    )


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-155", severity="normal", source=f"{_UTIL} (ReservationRequests)")
def test_a_size_beside_that_of_the_template(trial: Trial, expect: Expect) -> None:
    """A reservation of two cores is annotated with a size of five: it holds five, also when that changes later."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(cores("held", 2).annotation(RESIZE_ALLOCATABLE, '{"resources": {"cpu": "5"}}'))
    assert amount("cpu", expect.available("held").status.allocatable["cpu"]) == 5000
    trial.submit(pod("stranger").request(cpu=4))
    expect.pending("stranger")
    later = {"metadata": {"annotations": {RESIZE_ALLOCATABLE: '{"resources": {"cpu": "7"}}'}}}
    assert trial.call("PATCH", f"{RESERVATIONS_PATH}/held", later).ok
    trial.submit(pod("three").request(cpu=3))
    expect.bound("three")

    is_in(trial, expect, inside("a", 5), "held")

    expect.pending("stranger")


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-156", severity="critical", source=f"{_UTIL} (NewReservePod)")
def test_the_node_that_a_template_names(trial: Trial, expect: Expect) -> None:
    """A template names the fuller of two nodes: its reservation goes there, and a larger one waits for it."""
    trial.add(node("n1").cpu(SMALL), node("n2").cpu(SMALL))
    trial.submit(pod("there").request(cpu=4).select({"kubernetes.io/hostname": "n2"}))
    expect.bound("there")
    for name, count in (("fits", 3), ("waits", 5)):
        held = cores(name, count)
        held.manifest["spec"]["template"]["spec"]["nodeName"] = "n2"
        trial.reserve(held)

    assert expect.available("fits").status.node_name == "n2"
    expect.reservation("waits", lambda one: bool(one.status.conditions), "to be refused")
    trial.delete("there")
    assert expect.available("waits").status.node_name == "n2"


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case("RV-157", severity="normal", source=f"{_PLUGIN} (filterWithReservations)")
@pytest.mark.parametrize("policy", ["Aligned", "Restricted", "pre-allocation"])
def test_policies_that_contradict_each_other(trial: Trial, expect: Expect, policy: str) -> None:
    """A reservation without allocate policy shares no node with one of a policy, which may take over a running pod;
    Aligned and Restricted share one."""
    trial.add(node("n1").cpu(2 * SMALL))
    trial.submit(owner("old", cpu=2))
    expect.running("old")
    trial.reserve(cores("default", 2))
    expect.available("default")

    held = taking_over("held", 2) if policy == "pre-allocation" else cores("held", 2).policy(policy)
    trial.reserve(held)

    expect.reservation("held", lambda one: bool(one.status.conditions), "to be refused")
    for name in ("held", "default"):  # without the wake-up of a reservation that waits
        assert trial.call("DELETE", f"{RESERVATIONS_PATH}/{name}").ok
    trial.settle()
    trial.reserve(held)
    expect.available("held")
    trial.reserve(cores("aligned", 2).policy("Aligned"))
    expect.available("aligned")


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-158", severity="normal", source="ours")
def test_a_template_from_a_pod_that_has_a_card(trial: Trial, expect: Expect) -> None:
    """The template of a reservation of cores is copied from a bound pod, with the annotation about its card: the
    reservation holds no card."""
    trial.add(node("n1").cpu(SMALL).cards(1))
    trial.submit(pod("first").gpus(1))
    marks = expect.bound("first").metadata.annotations
    template = pod("x").request(cpu=2).annotation(DEVICE_ALLOCATED, marks.get(DEVICE_ALLOCATED, "{}"))
    trial.delete("first")
    trial.reserve(reservation("held").like(template).for_labels(app="owner"))
    expect.available("held")

    trial.submit(pod("second").gpus(1))

    assert minors(expect.bound("second")) == [0]


@pytest.mark.feature("RSV-1.reused")
@pytest.mark.case(
    "RV-159",
    severity="normal",
    source="koordinator: pkg/scheduler/plugins/reservation/pod_eventhandler.go@v1.8.0 (updatePod)",
)
@pytest.mark.parametrize("moved", [True, False], ids=["to-another", "to-none"])
def test_the_reservation_of_a_running_owner_changes(trial: Trial, expect: Expect, *, moved: bool) -> None:
    """Somebody writes another reservation to a bound owner, or none: the first one is free again."""
    trial.add(node("n1").cpu(12))
    for name in ("one", "two"):
        trial.reserve(cores(name, 4).policy("Restricted"))
        expect.available(name)
    is_in(trial, expect, owner("a", cpu=4).into_reservation(name="one"), "one")
    two = trial.reservation("two")
    assert two is not None

    written = json.dumps({"name": "two", "uid": two.metadata.uid}) if moved else None
    patch = {"metadata": {"annotations": {RESERVATION_ALLOCATED: written}}}
    assert trial.call("PATCH", trial.path("Pod", "a"), patch).ok

    expect.reservation("one", lambda one: not one.status.current_owners, "to have no owner")
    if moved:
        expect.reservation("two", lambda one: bool(one.status.current_owners), "to have an owner")
    is_in(trial, expect, owner("b", cpu=4).into_reservation(name="one"), "one")


@pytest.mark.feature("RSV-1.expires")
@pytest.mark.case("RV-160", severity="normal", source=f"{_CONTROLLER} (expireReservations)")
@pytest.mark.long(60)
def test_a_reservation_that_waits_does_not_expire(trial: Trial, expect: Expect) -> None:
    """A reservation with a ttl of five seconds fits nowhere: it stays Pending."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(cores("held", 2 * SMALL).ttl("5s"))
    expect.reservation("held", lambda one: bool(one.status.conditions), "to be refused")

    ended = trial.wait(lambda: (one := trial.reservation("held")) is not None and one.ended, within=45)

    assert not ended, trial.reservation("held")


@pytest.mark.feature("RSV-1.expires")
@pytest.mark.case("RV-161", severity="normal", source=f"{_CONTROLLER} (garbage collection)")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # days
def test_ended_reservations_are_deleted(trial: Trial, expect: Expect) -> None:
    """One that succeeded a while after it was placed, and one that expires two hours later, are deleted a day after
    their end; one whose node is gone is deleted at once."""
    hour = 3600.0
    trial.add(node("n1").cpu(2 * SMALL), node("n2").cpu(SMALL))
    trial.reserve(
        reservation("used").like(pod("x").request(cpu=2)).for_pod("a", trial.name),
        cores("late", 2).ttl("2h").select({"kubernetes.io/hostname": "n1"}),
        cores("homeless", 2).select({"kubernetes.io/hostname": "n2"}),
    )
    for name in ("used", "late", "homeless"):
        expect.available(name)
    trial.pass_time(0.25 * hour)
    trial.submit(pod("a").request(cpu=1))
    expect.reservation("used", lambda one: one.status.phase == "Succeeded", "to have succeeded")
    for name in ("n1", "n2"):
        trial.inject({"node": name, "verb": "frozen"})  # it reports nothing for days, which is cheaper

    def is_there(name: str) -> bool:
        return trial.reservation(name) is not None

    assert trial.call("DELETE", "/api/v1/nodes/n2").ok
    assert trial.wait(lambda: not is_there("homeless"), within=300)
    trial.pass_time(23.8 * hour)
    assert is_there("used")
    assert trial.wait(lambda: not is_there("used"), within=hour)
    assert reservation_of(trial.pod("a")) == "used"
    trial.pass_time(hour)
    assert is_there("late")
    assert trial.wait(lambda: not is_there("late"), within=2 * hour)


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-162", severity="normal", source=f"{_UTIL} (NewReservePod)")
def test_a_reservation_on_a_closed_node(trial: Trial, expect: Expect) -> None:
    """A reservation waits for a node that is closed, if its template does not tolerate that; its owner has to tolerate
    it too."""
    trial.add(node("n1").cpu(SMALL))
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}).ok
    key = "node.kubernetes.io/unschedulable"
    trial.reserve(
        cores("waits", 2),
        reservation("held").like(pod("x").request(cpu=2).tolerate(key)).for_labels(app="owner").many(),
    )
    expect.available("held")
    expect.reservation("waits", lambda one: bool(one.status.conditions), "to be refused")
    trial.submit(inside("a", 1))
    expect.pending("a")

    is_in(trial, expect, inside("b", 1).tolerate(key), "held")

    expect.pending("a")
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": False}}).ok
    assert reservation_of(expect.bound("a")) == "held"
    expect.available("waits")


@pytest.mark.feature("RSV-4.configuration-reservation-preemption")
@pytest.mark.case("RV-163", severity="critical", source=f"{_PLUGIN} (filterWithReservations)")
@pytest.mark.profile(RESERVING)
@pytest.mark.parametrize("why", ["policy", "node"])
def test_no_pod_is_evicted_for_a_reservation_that_may_not_go_there(trial: Trial, expect: Expect, why: str) -> None:
    """A reservation is more important than a pod, but may not go to its node: there is one of another allocate policy,
    or the template names another node, which is full of important pods. The pod stays."""
    trial.apply(priority_class("trial-high", 2000))
    trial.add(node("n1").cpu(SMALL), node("n2").cpu(SMALL))

    def on(name: str, one: PodBuilder) -> PodBuilder:
        return one.select({"kubernetes.io/hostname": name})

    trial.submit(on("n1", pod("low").request(cpu=6)), on("n2", pod("full").request(cpu=8).priority_class("trial-high")))
    expect.bound("low", "full")
    if why == "policy":
        trial.reserve(cores("default", 2).select({"kubernetes.io/hostname": "n1"}))
        expect.available("default")
    template = pod("x").request(cpu=6).priority(2000).scheduler(RESERVING)
    held = reservation("held").like(template).for_labels(app="owner")
    if why == "policy":
        held.policy("Aligned")
    else:
        held.manifest["spec"]["template"]["spec"]["nodeName"] = "n2"

    trial.reserve(held)

    expect.reservation("held", lambda one: bool(one.status.conditions), "to be refused")
    expect.stable(seconds=5)
    assert not trial.pod("low").deleting
    if why == "policy":
        assert trial.call("DELETE", f"{RESERVATIONS_PATH}/default").ok
        expect.gone("low")
        expect.available("held")


@pytest.mark.feature("RSV-1.reused", "SHELL-5.plugin-error")
@pytest.mark.case("RV-164", severity="critical", source="ours")
@pytest.mark.profile("plugin-errors")
@pytest.mark.parametrize("where", ["Reserve", "Permit", "PreBind"])
@pytest.mark.parametrize("amounts", [{"cpu": 4}, {GPU: 100}], ids=["cores", "card"])
def test_an_owner_that_a_plugin_turns_away_later(trial: Trial, expect: Expect, where: str, amounts: Amounts) -> None:
    """A plugin raises after an owner has got all of a reservation: another owner gets it, and the status names that."""
    trial.add(node("n1").cpu(SMALL).cards(1))
    like = pod("x").resources(amounts)
    trial.reserve(reservation("held").like(like).for_labels(app="owner").many().policy("Restricted"))
    expect.available("held")
    turned_away = owner("a").resources(amounts).into_reservation().annotation(RAISES_IN, where)
    trial.submit(turned_away.scheduler("plugin-errors"))
    expect.pending("a")

    is_in(trial, expect, owner("b").resources(amounts).into_reservation(), "held")

    held = expect.reservation("held", lambda one: bool(one.status.current_owners), "to name its owner")
    assert [owner.name for owner in held.status.current_owners] == ["b"]


@pytest.mark.feature("RSV-1.expires")
@pytest.mark.case("RV-165", severity="normal", source=f"{_CONTROLLER} (garbage collection)")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # a scheduler of its own
def test_arguments_about_ended_reservations(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """With disableGarbageCollection a reservation that succeeded is kept beyond gcDurationSeconds. When somebody
    deletes it, its owner loses the annotation, as CleanExpiredReservationAllocated wants it; that of one which had not
    ended keeps it."""
    args = {"disableGarbageCollection": True, "gcDurationSeconds": 30, "cleanExpiredReservationAllocated": True}
    config, subject = tmp_path / "config.yaml", pytestconfig.getoption("--seatrial-subject")
    profiles = [{"schedulerName": "default-scheduler", "pluginConfig": [{"name": "Reservation", "args": args}]}]
    config.write_text(yaml.safe_dump({**_CONFIGURATION, "profiles": profiles}))
    with seatrial_backend.start() as cluster, open_subject(subject, cluster, seed=0, config=config):
        trial = Trial(cluster, "case")
        expect = Expect(trial)
        trial.add(node("n1").cpu(SMALL))
        trial.reserve(reservation("used").like(pod("x").request(cpu=2)).for_labels(app="owner"), cores("open", 2))
        for name in ("used", "open"):
            expect.available(name)
        is_in(trial, expect, owner("a", cpu=1).into_reservation(name="used"), "used")
        is_in(trial, expect, owner("b", cpu=1).into_reservation(name="open"), "open")
        expect.reservation("used", lambda one: one.status.phase == "Succeeded", "to have succeeded")

        trial.pass_time(300)

        assert trial.reservation("used") is not None
        assert reservation_of(trial.pod("a")) == "used"
        for name in ("used", "open"):
            assert trial.call("DELETE", f"{RESERVATIONS_PATH}/{name}").ok
        assert trial.wait(lambda: not reservation_of(trial.pod("a")), within=60)
        trial.pass_time(60)
        assert reservation_of(trial.pod("b")) == "open"


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case(
    "RV-166",
    severity="critical",
    source="koordinator: pkg/scheduler/plugins/reservation/plugin.go@v1.8.0 (filterWithReservations)",
)
def test_an_owner_outside_of_its_reservation(trial: Trial, expect: Expect) -> None:
    """A Restricted reservation is too small for an owner that does not require it: outside of it the owner gets what is
    free on the node, and nothing of what is reserved."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(cores("held", 3).policy("Restricted"))
    expect.available("held")
    trial.submit(owner("six", cpu=6))
    expect.pending("six")

    trial.submit(owner("five", cpu=5))

    assert not reservation_of(expect.bound("five"))
    is_in(trial, expect, owner("three", cpu=3), "held")
    expect.pending("six")


@pytest.mark.feature("RSV-3.order")
@pytest.mark.case(
    "RV-167", severity="critical", source="koordinator: pkg/scheduler/plugins/reservation/nominator.go@v1.7.0"
)
def test_the_first_on_a_node_that_fits(trial: Trial, expect: Expect) -> None:
    """Of four reservations on a node the first in order is too small: the second is taken, before a later one, whose
    name is before its own, and one that fits better."""
    trial.add(node("n1").cpu(32))
    sizes = {"small": (2, 1), "second": (8, 3), "later": (8, 7), "tight": (3, 0)}
    for name, (count, order) in sizes.items():
        held = cores(name, count).policy("Restricted")
        trial.reserve(held.order(order) if order else held)
        expect.available(name)

    is_in(trial, expect, owner("a", cpu=3), "second")


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case("RV-168", severity="normal", source=f"{_PLUGIN} (fitsNode)")
def test_places_of_another_reservation_for_pods(trial: Trial, expect: Expect) -> None:
    """Each of two reservations has places for three pods on a node for three: each takes one place of the node."""
    trial.add(node("n1").cpu(SMALL).pods(3))
    for name in ("one", "two"):
        held = cores(name, 3).policy("Restricted").annotation(RESIZE_ALLOCATABLE, '{"resources": {"pods": "3"}}')
        trial.reserve(held)
        expect.available(name)

    for name in ("a", "b", "c"):
        trial.submit(inside(name, 1))
        expect.bound(name)


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case("RV-169", severity="normal", source=f"{_UTIL} (GetReservationRestrictedResources)")
def test_restricted_options_that_name_nothing_of_it(trial: Trial, expect: Expect) -> None:
    """A Restricted reservation of cores is annotated to limit memory alone: it limits cores."""
    trial.add(node("n1").cpu(SMALL))
    options = '{"resources": ["memory", "example.com/seats"]}'
    trial.reserve(cores("held", 2).policy("Restricted").annotation(RESTRICTED_OPTIONS, options))
    expect.available("held")
    trial.submit(inside("three", 3))
    expect.pending("three")

    is_in(trial, expect, inside("two", 2), "held")

    expect.pending("three")


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-170", severity="normal", source=f"{_UTIL} (NewReservePod)")
@pytest.mark.long(seconds=13)
@pytest.mark.parametrize("by", ["label", "template", ""])
def test_the_priority_of_a_reservation(trial: Trial, expect: Expect, by: str) -> None:
    """A pod and a reservation wait for one place. The reservation is more important than any pod, unless its label or
    its template says otherwise."""
    trial.apply(priority_class("trial-high", 9000))
    trial.add(node("n1").cpu(SMALL))
    trial.submit(pod("there").request(cpu=SMALL).priority_class("trial-high"))
    expect.bound("there")
    trial.submit(pod("a").request(cpu=5).priority_class("trial-high"))
    expect.pending("a")
    held = cores("held", 5).label(PRIORITY_LABEL, "100") if by == "label" else cores("held", 5)
    if by == "template":
        held.manifest["spec"]["template"]["spec"]["priority"] = 100
    trial.reserve(held)
    expect.reservation("held", lambda one: bool(one.status.conditions), "to be refused")
    trial.pass_time(12)  # the backoff of both is over

    trial.delete("there")

    if by:
        expect.bound("a")
        expect.reservation("held", lambda one: not one.status.node_name, "to wait")
    else:
        expect.available("held")
        expect.pending("a")


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-174", severity="normal", source=f"{_UTIL} (UpdateReservePodWithAllocatable)")
@pytest.mark.parametrize("more", ["initContainers", "overhead"])
def test_what_is_left_of_a_template_that_asks_for_more(trial: Trial, expect: Expect, more: str) -> None:
    """A template asks for four cores in an init container and for two afterwards, or for two and an overhead of two:
    four are held, and three beside an owner of one."""
    trial.add(node("n1").cpu(SMALL))
    template = pod("x").request(cpu=2)
    requests = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    first = {"name": "first", "image": "busybox:stable", "resources": requests}
    template.manifest["spec"][more] = {"cpu": "2"} if more == "overhead" else [first]
    trial.reserve(reservation("held").like(template).for_labels(app="owner").many())
    assert amount("cpu", expect.available("held").status.allocatable["cpu"]) == 4000
    is_in(trial, expect, inside("a", 1), "held")
    trial.submit(pod("five").request(cpu=5))
    expect.pending("five")

    trial.submit(pod("four").request(cpu=4))

    expect.bound("four")


@pytest.mark.feature("RSV-1.failure-said")
@pytest.mark.case("RV-192", severity="normal", source="spec RSV-R3")
def test_the_reason_follows_the_template(trial: Trial, expect: Expect) -> None:
    """A reservation waits for cores. Its template is changed, and it waits for memory, and says so beside a condition
    of another writer; changed once more, it is placed."""
    trial.add(node("n1").cpu(SMALL).memory("16Gi"))
    trial.reserve(cores("held", 2 * SMALL))

    def is_refused(saying: str) -> None:
        expect.reservation(
            "held", lambda one: any(saying in each.message for each in one.status.conditions), f"to say {saying!r}"
        )

    def change(**requests: str) -> None:
        template = json.loads(trial.call("GET", f"{RESERVATIONS_PATH}/held").body)["spec"]["template"]
        template["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": requests}
        assert trial.call("PATCH", f"{RESERVATIONS_PATH}/held", {"spec": {"template": template}}).ok

    is_refused("Insufficient cpu")
    written = json.loads(trial.call("GET", f"{RESERVATIONS_PATH}/held").body)["status"]["conditions"]
    status = {"conditions": [{"type": "Example", "status": "True"}, *written]}  # a merge patch replaces the list
    assert trial.call("PATCH", f"{RESERVATIONS_PATH}/held/status", {"status": status}).ok
    change(memory="32Gi")
    is_refused("Insufficient memory")
    held = trial.reservation("held")
    assert held is not None
    assert [each.type for each in held.status.conditions] == ["Example", "Scheduled"]
    change(cpu="2")
    expect.available("held")


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-193", severity="normal", source="spec RSV-R16")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # koord-scheduler 1.7.0 counts the node's room twice ever after
def test_a_reservation_whose_place_is_taken_back(trial: Trial, expect: Expect) -> None:
    """The status of an available reservation is set back to Pending: it is scheduled again, and counted once."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(cores("held", 6))
    expect.available("held")

    status = {"phase": "Pending", "nodeName": None, "conditions": None}
    assert trial.call("PATCH", f"{RESERVATIONS_PATH}/held/status", {"status": status}).ok

    trial.settle()
    expect.available("held")
    trial.submit(pod("three").request(cpu=3), pod("two").request(cpu=2))
    expect.bound("two")
    expect.pending("three")
    assert trial.call("DELETE", f"{RESERVATIONS_PATH}/held").ok
    expect.bound("three")


@pytest.mark.feature("RSV-1.failure-said")
@pytest.mark.case("RV-172", severity="normal", source="ours")
def test_a_ttl_that_is_no_duration(trial: Trial, expect: Expect) -> None:
    """A reservation with such a ttl is placed nowhere, and its status names the field."""
    trial.add(node("n1").cpu(SMALL))

    trial.reserve(cores("held", 2).ttl("soon"))

    refused = expect.reservation("held", lambda one: bool(one.status.conditions), "to be refused")
    assert (refused.status.node_name, "ttl" in refused.status.conditions[0].message) == ("", True)


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-175", severity="critical", source=f"{_UTIL} (NewReservePod: priority)")
@pytest.mark.parametrize(
    ("held", "one", "many"),
    [
        ({"cpu": 6}, {"cpu": 1}, {"cpu": 3}),
        ({GPU: 200}, {GPU: 100}, {GPU: 100}),
        ({GPU: 100}, {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, {GPU: 100}),
    ],
    ids=["cores", "cards", "shares"],
)
def test_a_reservation_is_no_victim(trial: Trial, expect: Expect, held: Amounts, one: Amounts, many: Amounts) -> None:
    """The label of a reservation says that it is unimportant. It has its place, and an owner of normal priority: an
    important pod preempts neither what is left of it, nor the owner if that makes no room."""
    trial.apply(priority_class("trial-high", 9000))
    trial.add(node("n1").cpu(SMALL).cards(int(held.get(GPU, 100)) // 100))
    like = pod("x").resources(held)
    trial.reserve(reservation("held").like(like).for_labels(app="owner").many().label(PRIORITY_LABEL, "5"))
    expect.available("held")
    is_in(trial, expect, owner("a").resources(one).into_reservation(), "held")

    trial.submit(pod("important").resources(many).priority_class("trial-high"))

    expect.pending("important")
    expect.stable(seconds=5)
    assert not expect.bound("a").deleting
    expect.available("held")


@pytest.mark.feature("RSV-1.held", "DEV-7.held-and-returned")
@pytest.mark.case("RV-195", severity="critical", source="spec DEV-R62, DEV-R63")
def test_the_card_of_an_owner_goes_back_to_its_reservation(trial: Trial, expect: Expect) -> None:
    """The node's cards have room for an important pod in all, and none of them has alone. An owner has the card of a
    reservation: without it the card is the reservation's, and so the owner stays."""
    trial.apply(priority_class("trial-high", 9000))
    trial.add(node("n1").cpu(SMALL).cards(3))
    trial.reserve(reservation("held").like(pod("x").gpus(1)).for_labels(app="owner").many())
    expect.available("held")
    is_in(trial, expect, owner("a").gpus(1).into_reservation(), "held")
    for name in ("first", "second"):
        trial.submit(pod(name).gpu_share(60).priority_class("trial-high"))
        expect.bound(name)

    trial.submit(pod("important").gpu_share(60).priority_class("trial-high"))

    expect.pending("important")
    expect.stable(seconds=5)
    assert not trial.pod("a").deleting


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-177", severity="normal", source=f"{_UTIL} (NewReservePod: labels)")
def test_labels_of_a_reservation_and_of_its_template(trial: Trial, expect: Expect) -> None:
    """Pods keep away from labels. Those of a reservation count, and those of its template with other keys."""
    trial.add(node("n1").cpu(SMALL))
    template = pod("x").request(cpu=2).label("app", "template").label("team", "template")
    trial.reserve(reservation("held").like(template).for_labels(app="owner").label("app", "own"))
    expect.available("held")

    def away_from(name: str, **labels: str) -> PodBuilder:
        one = pod(name).request(cpu=1)
        term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        one.manifest["spec"]["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        }
        return one

    trial.submit(away_from("own", app="own"), away_from("team", team="template"), away_from("hidden", app="template"))

    expect.bound("hidden")
    expect.pending("own", "team")
