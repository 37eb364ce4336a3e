"""Reservations: whose they are, when they end, and what of them is limited."""

import orjson
import pytest

from seatrial.fixtures.allocated_devices import reservation_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.audit.running import RunningAudit
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, priority_class, reservation
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.reservation import (
    PRIORITY_LABEL,
    RESERVATIONS_PATH,
    RESTRICTED_OPTIONS,
    Reservation,
    ReservationCondition,
)
from seatrial.suites.allocation.reserving import owner
from seatrial.suites.scoring.offers import offer

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]

_STATUS = "koordinator: pkg/util/reservation/reservation.go@v1.8.0"
IGNORING = "taking-over"  # the profile whose Reservation plugin ignores some resources


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-090", severity="critical")
def test_an_owner_of_another_namespace_is_another_pod(trial: Trial, expect: Expect) -> None:
    """Two reservations name pods by namespace and name: a pod of that name in another namespace is no owner."""
    trial.add(node("n1").cpu(8))
    trial.reserve(
        reservation("elsewhere").like(pod("x").request(cpu=2)).for_pod("mine", f"{trial.name}-other"),
        reservation("here").like(pod("x").request(cpu=2)).for_pod("yours", trial.name),
    )
    expect.available("elsewhere")
    expect.available("here")

    trial.submit(pod("mine").request(cpu=1).into_reservation(), pod("yours").request(cpu=1).into_reservation())

    assert reservation_of(expect.bound("yours")) == "here"
    expect.pending("mine")


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-091", severity="critical")
@pytest.mark.parametrize("own", [True, False], ids=["its-own-namespace", "another-namespace"])
def test_a_controller_is_one_of_a_namespace(trial: Trial, expect: Expect, own: bool) -> None:
    """The owner is a StatefulSet by namespace, name and uid: with another namespace its pods are no owners."""
    trial.add(node("n1").cpu(8))
    template = pod("x").request(cpu=1).into_reservation().label("app", "web").manifest
    metadata = {key: template["metadata"][key] for key in ("labels", "annotations")}
    trial.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 1,
                "serviceName": "web",
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": metadata, "spec": template["spec"]},
            },
        }
    )
    expect.pending("web-0")
    (controller,) = trial.pod("web-0").metadata.owner_references
    held = reservation("held").like(pod("x").request(cpu=2)).many()
    trial.reserve(
        held.owner(
            controller={
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": "web",
                "uid": controller.uid,
                "controller": True,
                "namespace": trial.name if own else f"{trial.name}-other",
            }
        )
    )
    expect.available("held")

    if own:
        assert reservation_of(expect.bound("web-0")) == "held"
    else:
        expect.stable(seconds=5)
        expect.pending("web-0")


@pytest.mark.feature("RSV-1.reused")
@pytest.mark.case("RV-092", severity="critical")
@pytest.mark.parametrize("gone", ["first", "second"])
def test_of_two_reservations_with_equal_owners_one_goes(trial: Trial, expect: Expect, gone: str) -> None:
    """Two reservations have the same owners. One is deleted: an owner finds the other."""
    trial.add(node("n1").cpu(8))
    for name in ("first", "second"):
        trial.reserve(reservation(name).like(pod("x").request(cpu=2)).for_labels(app="owner").many())
        expect.available(name)
    (kept,) = {"first", "second"} - {gone}
    assert trial.call("DELETE", f"{RESERVATIONS_PATH}/{gone}").ok
    trial.wait(lambda: trial.reservation(gone) is None, within=30)

    trial.submit(owner("a", cpu=1).into_reservation())

    assert reservation_of(expect.bound("a")) == kept


@pytest.mark.feature("RSV-1.expires")
@pytest.mark.case("RV-093", severity="critical")
@pytest.mark.long(60)
@pytest.mark.parametrize(
    ("ttl", "expires", "ends"),
    [
        pytest.param("1h", 10.0, True, id="expires-is-sooner"),
        pytest.param("10s", 3600.0, True, id="ttl-is-sooner"),
        pytest.param("0s", 10.0, False, id="a-ttl-of-0-never-ends"),
    ],
)
def test_the_sooner_end_counts(trial: Trial, expect: Expect, ttl: str, expires: float, ends: bool) -> None:
    """A reservation with a ttl and a time of expiry ends at the earlier of the two; with a ttl of 0 it does not end."""
    trial.add(node("n1").cpu(8))
    held = reservation("held").like(pod("x").request(cpu=2)).for_labels(app="owner").many().ttl(ttl)
    held.manifest["spec"]["expires"] = rfc3339(trial.cluster.clock.now() + expires)
    trial.reserve(held)
    expect.available("held")

    ended = trial.wait(lambda: (one := trial.reservation("held")) is not None and one.expired, within=45)

    assert ended == ends, trial.reservation("held")


@pytest.mark.feature("RSV-1.expires")
@pytest.mark.case("RV-120", severity="critical")
@pytest.mark.long(60)
@pytest.mark.parametrize(
    "expires",
    [pytest.param("0000-01-01T00:00:00Z", id="year-0"), pytest.param("2026-01-01T00:00:00+99:99", id="offset-99")],
)
def test_a_time_of_expiry_that_cannot_be_read_stops_nothing_else(trial: Trial, expect: Expect, expires: str) -> None:
    """One user's reservation has it; another user's pod is bound, and another reservation ends at its time.

    Source: Koordinator's CRD says `format: date-time`, and kube-apiserver 1.34 takes year 0 and such offsets.
    """
    trial.add(node("n1").cpu(8))
    poison = reservation("poison").like(pod("x").request(cpu=1)).for_labels(app="owner").many()
    poison.manifest["spec"]["expires"] = expires
    trial.reserve(poison)
    trial.reserve(reservation("held").like(pod("x").request(cpu=1)).for_labels(app="owner").many().ttl("10s"))

    trial.submit(pod("other").request(cpu=1))

    expect.bound("other")
    expect.reservation("held", lambda item: item.expired, "to end", within=45)


@pytest.mark.feature("RSV-1.expires")
@pytest.mark.case("RV-094", severity="critical")
@pytest.mark.long(seconds=7)
def test_a_reservation_ends_with_its_node(trial: Trial, expect: Expect) -> None:
    """The node of a reservation is deleted: the reservation is Failed."""
    trial.add(node("n1").cpu(8))
    trial.reserve(reservation("held").like(pod("x").request(cpu=2)).for_labels(app="owner").many())
    expect.available("held")

    assert trial.call("DELETE", "/api/v1/nodes/n1").ok

    def failed(reservation: Reservation) -> bool:
        return reservation.status.phase == "Failed"

    expect.reservation("held", failed, "to be Failed", within=60)


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case(
    "RV-342", severity="critical", source="koordinator: pkg/util/reservation@v1.7.0 (MatchReservationOwners)"
)
@pytest.mark.long(seconds=7)
def test_a_reservation_with_two_owners_of_one_label_ends(trial: Trial, expect: Expect) -> None:
    """Two owners ask for one label, and each for another one: both pods go into the reservation, and when it
    is deleted, its room goes to a pod that waits."""
    trial.add(node("n1").cpu(8))
    held = reservation("held").like(pod("x").request(cpu=6)).for_labels(app="owner", tier="a").many()
    trial.reserve(held.for_labels(app="owner", tier="b"))
    expect.available("held")
    for name in "ab":
        trial.submit(owner(name, cpu=1).label("tier", name).into_reservation())
        assert reservation_of(expect.bound(name)) == "held"
    trial.submit(pod("waits").request(cpu=6))
    expect.pending("waits")

    assert trial.call("DELETE", f"{RESERVATIONS_PATH}/held").ok

    expect.bound("waits", within=60)


@pytest.mark.feature("RSV-1.expires")
@pytest.mark.case(
    "RV-341",
    severity="critical",
    source="koordinator: pkg/scheduler/plugins/reservation/controller@v1.7.0 (expireReservations)",
)
@pytest.mark.long(seconds=20)
def test_a_reservation_in_use_expires_as_well(trial: Trial, expect: Expect) -> None:
    """A pod is in a reservation that ends: it stays, and another pod gets what the reservation still held."""
    trial.add(node("n1").cpu(4))
    trial.reserve(reservation("held").like(pod("x").request(cpu=3)).for_labels(app="owner").many().ttl("10s"))
    expect.available("held")
    trial.submit(owner("a", cpu=1).into_reservation())
    expect.bound("a")
    trial.submit(pod("other").request(cpu=3))
    expect.pending("other")

    expect.bound("other", within=60)

    expect.reservation("held", lambda one: one.expired, "to be expired")
    expect.bound("a")


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case("RV-095", severity="critical")
def test_a_restricted_reservation_may_limit_some_resources(trial: Trial, expect: Expect) -> None:
    """Restricted to CPU by its annotation: an owner takes more memory than was reserved, but no more CPU."""
    trial.add(node("n1").cpu(8).memory("64Gi"))
    held = reservation("held").like(pod("x").request(cpu=2, memory="1Gi")).for_labels(app="owner").many()
    trial.reserve(held.policy("Restricted").annotation(RESTRICTED_OPTIONS, '{"resources": ["cpu"]}'))
    expect.available("held")

    trial.submit(owner("much-memory", cpu=1, memory="8Gi").into_reservation())
    assert reservation_of(expect.bound("much-memory")) == "held"

    trial.submit(owner("much-cpu", cpu=2, memory="100Mi").into_reservation())
    expect.pending("much-cpu", saying="Reservation(s) Insufficient cpu")


@pytest.mark.feature("RSV-2.ignored-resources")
@pytest.mark.case("RV-098", severity="normal")
@pytest.mark.profile(IGNORING)
@pytest.mark.parametrize("resource", ["trial.example/seats", "trial-group.example/seats", "trial.example/others"])
def test_resources_that_the_profile_ignores(
    trial: Trial, expect: Expect, seatrial_audit: RunningAudit, resource: str
) -> None:
    """A Restricted reservation has one of three units on its node, and its owner asks for two: it is refused, but for a
    profile that ignores the resource, by its name or by its group."""
    trial.add(node("n1").cpu(8))
    offer(trial, "n1", {resource: "3"})
    held = reservation("held").like(pod("x").request(cpu=4).resources({resource: 1})).for_labels(app="owner").many()
    trial.reserve(held.policy("Restricted"))
    expect.available("held")
    wanting = owner("wanting", cpu=2).resources({resource: 2}).into_reservation().scheduler(IGNORING)
    refused = owner("refused", cpu=2).resources({resource: 2}).into_reservation()

    trial.submit(refused)
    expect.pending("refused", saying=f"Insufficient {resource}")
    wanting.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    trial.submit(wanting)
    # The auditor does not know the profile's arguments. It has to be told before the pod is bound.
    seatrial_audit.auditor.excuse("AUD-404", trial.pod("wanting").metadata.uid)
    path = f"/api/v1/namespaces/{trial.name}/pods/wanting"
    assert trial.call("PATCH", path, {"spec": {"schedulingGates": None}}).ok

    if resource == "trial.example/others":
        expect.pending("wanting", saying=f"Insufficient {resource}")
    else:
        assert reservation_of(expect.bound("wanting")) == "held"
    expect.pending("refused")


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-121", severity="critical")
def test_all_labels_of_an_owner_count(trial: Trial, expect: Expect) -> None:
    """The owners have two labels: a pod with one of them, in whichever order, does not get into the reservation."""
    trial.add(node("n1").cpu(4))
    trial.reserve(reservation("held").like(pod("x").request(cpu=3)).for_labels(app="a", team="x").many())
    expect.available("held")
    trial.submit(
        pod("app-alone").request(cpu=2).label("app", "a").label("team", "y"),
        pod("team-alone").request(cpu=2).label("app", "b").label("team", "x"),
    )
    expect.pending("app-alone", "team-alone")

    trial.submit(pod("both").request(cpu=2).label("app", "a").label("team", "x"))

    assert reservation_of(expect.bound("both")) == "held"


@pytest.mark.feature("RSV-1.failure-said")
@pytest.mark.case("RV-300", severity="normal", source=f"{_STATUS} (SetReservationUnschedulable)")
@pytest.mark.long(seconds=12)
def test_the_time_of_a_refusal_is_that_of_the_first_one(trial: Trial, expect: Expect) -> None:
    """A reservation waits for cores, and for memory once its template is changed: the message of its condition changes,
    and its time does not, until the reservation is placed."""
    trial.add(node("n1").cpu(8).memory("16Gi"))
    trial.reserve(reservation("held").like(pod("x").request(cpu=16)).for_labels(app="owner").many())

    def scheduled(one: Reservation) -> ReservationCondition:
        return next(each for each in one.status.conditions if each.type == "Scheduled")

    def refused(saying: str) -> ReservationCondition:
        one = expect.reservation(
            "held", lambda one: any(saying in each.message for each in one.status.conditions), f"to say {saying!r}"
        )
        return scheduled(one)

    def change(**requests: str) -> None:
        template = orjson.loads(trial.call("GET", f"{RESERVATIONS_PATH}/held").body)["spec"]["template"]
        template["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": requests}
        assert trial.call("PATCH", f"{RESERVATIONS_PATH}/held", {"spec": {"template": template}}).ok

    first = refused("Insufficient cpu")
    trial.pass_time(12)  # times are whole seconds, and the backoff is over
    change(memory="32Gi")
    second = refused("Insufficient memory")
    assert (second.status, second.last_transition_time) == ("False", first.last_transition_time)

    change(cpu="2")

    placed = scheduled(expect.available("held"))
    assert placed.status == "True"
    assert str(placed.last_transition_time) > str(first.last_transition_time)


@pytest.mark.feature("RSV-3.exact-match")
@pytest.mark.case(
    "RV-301", severity="normal", source="koordinator: apis/extension/reservation.go@v1.7.0 (ExactMatchReservation)"
)
@pytest.mark.parametrize(
    ("names", "matches"),
    [
        (["memory", "cpu"], True),
        (["example.com/a", "cpu"], True),
        (["cpu", "memory"], False),
        (["cpu", "example.com/a", "memory"], False),
    ],
)
def test_an_exact_match_ends_at_what_neither_has(trial: Trial, expect: Expect, names: list[str], matches: bool) -> None:
    """A reservation of four cores, and an owner of two: what follows a resource that neither has is not compared."""
    trial.add(node("n1").cpu(8))
    trial.reserve(reservation("held").like(pod("x").request(cpu=4)).for_labels(app="owner").many())
    expect.available("held")

    trial.submit(owner("a", cpu=2).exactly(*names).into_reservation())

    if matches:
        assert reservation_of(expect.bound("a")) == "held"
    else:
        expect.pending("a", saying="1 Reservation(s) is not exact matched")


@pytest.mark.feature("RSV-1.expires")
@pytest.mark.case("RV-302", severity="minor", source=f"{_STATUS} (SetReservationSucceeded, SetReservationExpired)")
@pytest.mark.long(seconds=20)
def test_the_times_of_a_reservation_that_ends(trial: Trial, expect: Expect) -> None:
    """A reservation serves once, another one expires. That which was used keeps the time at which it became ready, that
    which expired has the time of its end."""
    trial.add(node("n1").cpu(8))
    for name in ("used", "expired"):
        held = reservation(name).like(pod("x").request(cpu=2)).for_pod("a" if name == "used" else "nobody", trial.name)
        trial.reserve(held.ttl("8s") if name == "expired" else held)

    def ready(one: Reservation) -> ReservationCondition:
        return next(each for each in one.status.conditions if each.type == "Ready")

    before = {name: ready(expect.available(name)) for name in ("used", "expired")}
    trial.pass_time(2)  # times are whole seconds
    trial.submit(owner("a", cpu=2))

    used = ready(expect.reservation("used", lambda one: one.status.phase == "Succeeded", "to be used up"))
    assert (used.status, used.reason) == ("False", "Succeeded")
    assert used.last_transition_time == before["used"].last_transition_time
    assert str(used.last_probe_time) > str(before["used"].last_probe_time)
    trial.reaches(lambda: (one := trial.reservation("expired")) is not None and one.expired, within=30)
    expired = ready(expect.reservation("expired", lambda one: one.expired, "to expire", within=0))
    assert str(expired.last_transition_time) > str(before["expired"].last_transition_time)


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-303", severity="normal", source="spec RSV-R12, RSV-R13")
@pytest.mark.long(seconds=13)
@pytest.mark.parametrize(("own", "of_template"), [(100, 20000), (20000, 100)], ids=["lower", "higher"])
def test_its_own_priority_goes_before_that_of_its_template(
    trial: Trial, expect: Expect, own: int, of_template: int
) -> None:
    """A pod and a reservation wait for one place. Both the reservation and its template have a label with a priority:
    that of the reservation says which of the two gets the place."""
    trial.apply(priority_class("trial-high", 9000))
    trial.add(node("n1").cpu(8))
    trial.submit(pod("there").request(cpu=8).priority_class("trial-high"))
    expect.bound("there")
    trial.submit(pod("a").request(cpu=5).priority_class("trial-high"))
    expect.pending("a")
    template = pod("x").request(cpu=5).label(PRIORITY_LABEL, str(of_template))
    trial.reserve(reservation("held").like(template).for_labels(app="owner").many().label(PRIORITY_LABEL, str(own)))
    expect.reservation("held", lambda one: bool(one.status.conditions), "to be refused")
    trial.pass_time(12)  # the backoff of both is over

    trial.delete("there")

    if own < 9000:
        expect.bound("a")
        expect.reservation("held", lambda one: not one.status.node_name, "to wait")
    else:
        expect.available("held")
        expect.pending("a")
