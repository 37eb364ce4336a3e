"""Places of running pods, the index of reservation selectors, and the released configuration of preemption.

Cases of plain reservations are in test_reservations.py.
"""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.allocated_devices import reservation_of
from seatrial.fixtures.cluster import Ask
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.profiles import announced
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, priority_class, reservation
from seatrial.scheduler.api.reservation import (
    CURRENT_OWNER,
    OPERATING_MODE,
    RESERVATION_AFFINITY,
    RESERVATION_OWNERS,
    RESERVATIONS_PATH,
)
from seatrial.suites.allocation.reserving import RESERVING, SMALL, owner

pytestmark = [pytest.mark.needs(Capability.NODES)]

INDEXED = "indexed-reservations"


def offering(name: str, count: int) -> PodBuilder:
    """A pod whose place pods of the owners may take once it is Ready."""
    owners = orjson.dumps([{"labelSelector": {"matchLabels": {"app": "owner"}}}]).decode()
    built = pod(name).request(cpu=count).label(OPERATING_MODE, "Reservation")
    return built.annotation(RESERVATION_OWNERS, owners)


@pytest.mark.feature("RSV-2.operating-mode")
@pytest.mark.case("RV-080", severity="critical")
@pytest.mark.long(seconds=5)
def test_the_place_of_a_running_pod_serves_one_owner(trial: Trial, expect: Expect) -> None:
    """Two pods require a reservation. The only one is the place of a running pod in operating mode Reservation: the
    first takes it, the second waits, and takes it when the first one ends. When the running pod and its owner are gone,
    there is no place, until another such pod runs."""
    trial.add(node("n1").cpu(SMALL), node("n2").cpu(SMALL))
    trial.submit(owner("a", cpu=2).into_reservation())
    expect.pending("a", saying="no reservations match reservation affinity")

    trial.submit(offering("offer", 3))

    offer = expect.running("offer")
    a = expect.running("a")
    assert (reservation_of(a), a.spec.node_name) == ("offer", offer.spec.node_name)
    trial.submit(owner("b", cpu=2).into_reservation())
    expect.pending("b", saying="no reservations match reservation affinity")
    expect.stable(seconds=20)
    trial.delete("a")
    assert reservation_of(expect.running("b")) == "offer"
    assert trial.call("DELETE", f"{trial.path('Pod', 'offer')}?gracePeriodSeconds=0").ok  # nobody sees it end
    trial.wait(lambda: trial.find("offer") is None, within=30)
    assert trial.pod("b").spec.node_name == offer.spec.node_name
    trial.delete("b")
    trial.submit(owner("c", cpu=2).into_reservation(), owner("d", cpu=2))
    expect.bound("d")
    expect.pending("c")
    expect.stable(seconds=2)
    expect.pending("c")
    assert not reservation_of(expect.bound("d"))
    trial.submit(offering("again", 3))
    assert reservation_of(expect.bound("c")) == "again"


@pytest.mark.feature("RSV-2.operating-mode")
@pytest.mark.case(
    "RV-173", severity="normal", source="koordinator: pkg/scheduler/frameworkext/reservation_info.go@v1.7.0"
)
def test_the_place_of_a_pod_that_is_not_ready(trial: Trial, expect: Expect) -> None:
    """A running pod in operating mode Reservation is not Ready any more: nobody takes its place before it is again."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(offering("offer", 3))
    expect.running("offer")
    trial.inject({"node": "n1", "verb": "frozen"})  # the kubelet leaves the status alone
    path = f"{trial.path('Pod', 'offer')}/status"

    def become(status: str) -> None:
        assert trial.call("PATCH", path, {"status": {"conditions": [{"type": "Ready", "status": status}]}}).ok

    become("False")
    trial.submit(owner("a", cpu=2).into_reservation())
    expect.pending("a")
    expect.stable(seconds=2)

    become("True")

    assert reservation_of(expect.bound("a")) == "offer"


@pytest.mark.feature("RSV-2.operating-mode")
@pytest.mark.case("RV-190", severity="normal", source="spec RSV-R23; ours: changes wake pods")
def test_the_place_that_a_waiting_pod_may_take_later(trial: Trial, expect: Expect) -> None:
    """An owner that requires no reservation waits for room that is reserved for others. A running pod becomes one whose
    place it may take, and the owner is bound there."""
    trial.add(node("n1").cpu(SMALL))
    trial.reserve(reservation("held").like(pod("x").request(cpu=2)).for_labels(app="others"))
    expect.available("held")
    offer = offering("offer", 4)
    operating = offer.manifest["metadata"].pop("labels")
    trial.submit(offer)
    expect.running("offer")
    trial.submit(owner("a", cpu=4))
    expect.pending("a", saying="Insufficient cpu")

    assert trial.call("PATCH", trial.path("Pod", "offer"), {"metadata": {"labels": operating}}).ok

    assert reservation_of(expect.bound("a")) == "offer"


@pytest.mark.feature("RSV-2.operating-mode", "RSV-2.policies")
@pytest.mark.case("RV-194", severity="normal", source="spec RSV-R23, RSV-R28")
def test_the_policy_of_a_place(trial: Trial, expect: Expect) -> None:
    """The place of a running pod has the policy Aligned: a reservation without one waits until that pod is gone."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(offering("offer", 3))
    expect.running("offer")
    trial.reserve(reservation("held").like(pod("x").request(cpu=2)).for_labels(app="owner").many())
    expect.reservation("held", lambda one: bool(one.status.conditions), "to be refused")

    trial.delete("offer")

    expect.available("held")


@pytest.mark.feature("RSV-2.operating-mode", "RSV-3.ignored")
@pytest.mark.case(
    "RV-191", severity="critical", source="koordinator: pkg/scheduler/plugins/reservation/transformer.go@v1.7.0"
)
def test_a_place_that_is_taken_is_no_room(trial: Trial, expect: Expect) -> None:
    """For a pod that ignores reservations the place of a running pod is room, until its owner has it."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(offering("offer", 6))
    expect.running("offer")
    trial.submit(pod("early").request(cpu=4).ignores_reservations())
    expect.bound("early")
    trial.delete("early")
    trial.submit(owner("a", cpu=1).into_reservation())
    assert reservation_of(expect.bound("a")) == "offer"

    trial.submit(pod("late").request(cpu=4).ignores_reservations())

    expect.pending("late")
    expect.stable(seconds=2)


@pytest.mark.feature("RSV-2.operating-mode")
@pytest.mark.case("RV-178", severity="normal", source="spec reservation-descheduling R23")
def test_the_current_owner_of_a_place(trial: Trial, expect: Expect) -> None:
    """A running pod in operating mode Reservation names a pod as its current owner: nobody else takes its place, until
    it names none any more."""
    trial.add(node("n1").cpu(SMALL))
    trial.submit(pod("there").request(cpu=1))
    uid = expect.bound("there").metadata.uid
    trial.submit(offering("offer", 3).annotation(CURRENT_OWNER, orjson.dumps({"uid": uid}).decode()))
    expect.running("offer")

    trial.submit(owner("a", cpu=2).into_reservation())

    expect.pending("a")
    expect.stable(seconds=2)
    expect.pending("a")
    patch = {"metadata": {"annotations": {CURRENT_OWNER: None}}}
    assert trial.call("PATCH", trial.path("Pod", "offer"), patch).ok
    assert reservation_of(expect.bound("a")) == "offer"


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-096", severity="critical")
@pytest.mark.parametrize(("tight", "loose"), [("n1", "n2"), ("n2", "n1")])
def test_the_reservation_that_fits_best_is_taken(trial: Trial, expect: Expect, tight: str, loose: str) -> None:
    """An owner of two cores can have a place of two cores on the fuller node, or one of six on the emptier: it gets the
    first. The next can have a place of two or of six cores on one node: it gets that of two. One of three cores gets
    that of six, though the others, with the free cores of their nodes, would be large enough."""
    trial.add(node(tight).cpu(16), node(loose).cpu(16))

    def held(name: str, where: str, count: int) -> None:
        there = pod("x").request(cpu=count).select({"kubernetes.io/hostname": where})
        trial.reserve(reservation(name).like(there).for_labels(app="owner").many())
        expect.available(name)

    trial.submit(pod("filler").request(cpu=8).select({"kubernetes.io/hostname": tight}))
    expect.bound("filler")
    held("wide", loose, 6)
    held("narrow", tight, 2)

    trial.submit(owner("a", cpu=2))

    assert reservation_of(expect.bound("a")) == "narrow"
    held("narrow-too", loose, 2)
    trial.submit(owner("b", cpu=2))
    assert reservation_of(expect.bound("b")) == "narrow-too"
    trial.submit(owner("c", cpu=3))
    assert reservation_of(expect.bound("c")) == "wide"


def choosing(name: str, **selector: str) -> PodBuilder:
    """An owner that requires a reservation with these labels."""
    affinity = orjson.dumps({"reservationSelector": {f"trial-{key}": value for key, value in selector.items()}})
    return owner(name, cpu=1).annotation(RESERVATION_AFFINITY, affinity.decode()).scheduler(INDEXED)


def index_of(services: Ask) -> dict[str, Any]:
    answer = services("GET", "/apis/v1/plugins/Reservation/reservationSelectorIndex?detail=true")
    assert answer.code == 200, answer.body
    body: dict[str, Any] = orjson.loads(answer.body)
    return body


@pytest.mark.feature("RSV-3.selector-index")
@pytest.mark.case("RV-081", severity="normal")
@pytest.mark.profile(INDEXED)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # the index has the names of the cluster
def test_selectors_are_found_by_an_index(trial: Trial, expect: Expect, services: Ask) -> None:
    """Reservations on three nodes: selectors by an indexed key, by a prefix and by another label find the right one,
    and a value that no reservation has finds none. The index shows them, and leaves a deleted one out."""
    trial.add(*(node(f"n{number}").cpu(SMALL) for number in range(3)))
    tiers = {"gold": "ops", "silver": "web", "iron": "db"}
    for number, (tier, team) in enumerate(tiers.items()):
        there = pod("x").request(cpu=2).select({"kubernetes.io/hostname": f"n{number}"})
        held = reservation(tier).like(there).for_labels(app="owner").many()
        held.label("trial-tier", tier).label(f"trial-team-{team}", "yes").label("trial-rack", f"r{number}")
        trial.reserve(held)
        expect.available(tier)

    trial.submit(
        choosing("by-key", tier="silver"),
        choosing("by-prefix", **{"team-db": "yes"}),
        choosing("by-rack", rack="r0"),
        choosing("wrong-value", **{"team-db": "no"}),
        choosing("nobody", tier="wood"),
        choosing("no-owner", tier="gold").label("app", "another"),
    )

    placed = [reservation_of(pod) for pod in expect.bound("by-key", "by-prefix", "by-rack")]
    assert placed == ["silver", "iron", "gold"]
    expect.pending("wrong-value", "nobody", "no-owner", saying="no reservations match reservation affinity")
    index = index_of(services)
    assert (index["enabled"], index["indexedReservations"]) == (True, 3)
    assert index["byPrefix"]["trial-team-"]["nodes"] == 3
    assert index["byKeyValue"]["trial-tier"]["gold"]["nodes"] == 1
    metrics = services("GET", "/metrics").body.decode()
    assert 'scheduler_reservation_selector_index_query_total{result="miss"} ' in metrics
    trial.call("DELETE", f"{RESERVATIONS_PATH}/silver")
    assert trial.wait(lambda: index_of(services)["indexedReservations"] == 2, within=10)
    assert index_of(services)["byKeyValue"]["trial-tier"].keys() == {"gold", "iron"}


@pytest.mark.feature("RSV-4.configuration-reservation-preemption")
@pytest.mark.case("RV-042", severity="critical")
@pytest.mark.profile(RESERVING)
def test_the_released_configuration_of_preemption(trial: Trial, expect: Expect) -> None:
    """The announcement's arguments, and what they do: the plugin Reservation, and not DefaultPreemption, makes room for
    a Reservation. Of two pods the one of lower priority goes; one that may not be preempted stays."""
    assert announced("v1.6/config/reservation-preemption.config.yaml", RESERVING)
    trial.apply(priority_class("trial-middle", 1000), priority_class("trial-high", 2000))
    trial.add(node("n1").cpu(SMALL))
    trial.submit(pod("low").request(cpu=3), pod("middle").request(cpu=3).priority_class("trial-middle"))
    expect.running("low", "middle")
    trial.pass_time(2)  # start times are whole seconds: of equal pods the one that started last goes
    trial.submit(pod("spared").request(cpu=2).label("scheduling.koordinator.sh/disable-preemptible", "true"))
    expect.running("spared")

    builder = pod("x").request(cpu=2).priority_class("trial-high").scheduler(RESERVING)
    trial.reserve(reservation("held").like(builder).for_labels(app="owner"))

    expect.gone("low")
    assert expect.available("held").status.node_name == "n1"
    assert {pod.metadata.name for pod in trial.pods() if not pod.deleting} == {"spared", "middle"}
