"""Which pods get into a reservation: each condition is judged by pods or reservations that miss it by one thing.

All pods require a reservation, so that who does not get in waits.
"""

from typing import Any

import pytest

from seatrial.fixtures.allocated_devices import reservation_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, reservation
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH
from seatrial.suites.allocation.reserving import owner

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]

_MATCHING = "koordinator: pkg/scheduler/plugins/reservation/transformer.go@v1.7.0"
_UTIL = "koordinator: pkg/util/reservation/reservation.go@v1.7.0"


def get_in(expect: Expect, inside: dict[str, str], *outside: str) -> None:
    """The pods `inside` are in these reservations; those `outside` wait."""
    for name, place in inside.items():
        assert reservation_of(expect.bound(name)) == place, name
    expect.pending(*outside)
    expect.stable(seconds=2)
    expect.pending(*outside)


def terms(*alternatives: dict[str, str]) -> dict[str, Any]:
    """Required terms, each of which has one value for each of its labels."""
    return {
        "reservationSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]}
            for labels in alternatives
        ]
    }


@pytest.mark.feature("RSV-3.affinity")
@pytest.mark.case(
    "RV-140",
    severity="critical",
    source="koordinator: pkg/scheduler/frameworkext/reservation_info.go@v1.7.0 (MatchReservationAffinity)",
)
def test_all_of_a_selector_and_one_of_the_terms_hold(trial: Trial, expect: Expect) -> None:
    """All labels of the selector count, those of the node too, but for keys that the reservation has itself; of the
    required terms one has to hold, and all expressions of it."""
    trial.add(node("n1").cpu(16).label("rack", "r1").label("zone", "x"))
    held = reservation("held").like(pod("x").request(cpu=12)).for_labels(app="owner").many()
    trial.reserve(held.label("kind", "gold").label("zone", "y"))
    expect.available("held")
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    name_is = [{"key": "metadata.name", "operator": "In", "values": ["held"]}]
    gold, tin = {"kind": "gold"}, {"kind": "tin"}
    matching: dict[str, dict[str, Any]] = {
        "two-labels": {"reservationSelector": {"kind": "gold", "rack": "r1"}},
        "own-label-first": {"reservationSelector": {"zone": "y"}},
        "first-term": {required: terms(gold, tin)},
        "second-term": {required: terms(tin, gold)},
        "two-expressions": {required: terms({"kind": "gold", "rack": "r1"})},
        "name-field": {required: {"reservationSelectorTerms": [{"matchFields": name_is}]}},
    }
    others: dict[str, dict[str, Any]] = {
        "second-label-differs": {"reservationSelector": {"kind": "gold", "rack": "r2"}},
        "first-label-differs": {"reservationSelector": {"kind": "tin", "rack": "r1"}},
        "node-label-is-hidden": {"reservationSelector": {"zone": "x"}},
        "no-term": {required: terms(tin, {"kind": "lead"})},
        "second-expression-differs": {required: terms({"kind": "gold", "rack": "r2"})},
        "first-expression-differs": {required: terms({"kind": "tin", "rack": "r1"})},
        "selector-without-term": {"reservationSelector": gold, required: terms(tin)},
        "term-without-selector": {"reservationSelector": tin, required: terms(gold)},
    }

    trial.submit(*(owner(name, cpu=1).into_reservation(**words) for name, words in (others | matching).items()))

    get_in(expect, dict.fromkeys(matching, "held"), *others)


@pytest.mark.feature("RSV-3.taints")
@pytest.mark.case("RV-141", severity="critical", source=f"{_MATCHING} (checkReservationMatchedOrIgnored)")
def test_taints_of_each_effect(trial: Trial, expect: Expect) -> None:
    """NoSchedule and NoExecute keep a pod with reservation affinity out, if it does not tolerate them, the second of
    two as well; PreferNoSchedule keeps no pod out. A pod that names its reservation gets in, closed or not, and so does
    one whose affinity tolerates the taint of closed nodes."""
    trial.add(node("n1").cpu(32))
    effects = {"schedule": "NoSchedule", "execute": "NoExecute", "prefer": "PreferNoSchedule"}
    for name, effect in effects.items():
        held = reservation(name).like(pod("x").request(cpu=4)).for_labels(app=name).many()
        trial.reserve(held.taint("for", "x", effect).closed() if name == "schedule" else held.taint("for", "x", effect))
    two = reservation("two").like(pod("x").request(cpu=4)).for_labels(app="two").many()
    trial.reserve(two.taint("for", "x").taint("on", "y", "NoExecute"))
    trial.reserve(reservation("shut").like(pod("x").request(cpu=4)).for_labels(app="shut").many().closed())
    for name in (*effects, "two", "shut"):
        expect.available(name)
    tolerated = {"key": "for", "operator": "Exists"}

    trial.submit(
        owner("bare", cpu=1).label("app", "execute").into_reservation(),
        owner("one-of-two", cpu=1).label("app", "two").into_reservation(tolerations=[tolerated]),
        owner("other-value", cpu=1)
        .label("app", "execute")
        .into_reservation(tolerations=[{"key": "for", "operator": "Equal", "value": "y"}]),
        owner("other-effect", cpu=1)
        .label("app", "execute")
        .into_reservation(tolerations=[tolerated | {"effect": "NoSchedule"}]),
        owner("tolerates", cpu=1).label("app", "execute").into_reservation(tolerations=[tolerated]),
        owner("preferred", cpu=1).label("app", "prefer").into_reservation(),
        owner("by-name", cpu=1).label("app", "schedule").into_reservation(name="schedule"),
        owner("without-affinity", cpu=1).label("app", "two"),
        owner("shut-out", cpu=1).label("app", "shut").into_reservation(tolerations=[tolerated]),
        owner("let-in", cpu=1)
        .label("app", "shut")
        .into_reservation(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
    )

    inside = {"tolerates": "execute", "preferred": "prefer", "by-name": "schedule", "without-affinity": "two"}
    inside["let-in"] = "shut"
    get_in(expect, inside, "bare", "one-of-two", "other-value", "other-effect", "shut-out")


@pytest.mark.feature("RSV-3.taints")
@pytest.mark.case(
    "RV-142",
    severity="critical",
    source="koordinator: pkg/scheduler/frameworkext/reservation_info.go@v1.7.0 (IsUnschedulable)",
)
def test_a_reservation_that_is_being_deleted_takes_no_owner(trial: Trial, expect: Expect) -> None:
    """A finalizer keeps a reservation that was deleted: it still holds its place, and an owner does not get in."""
    trial.add(node("n1").cpu(4))
    held = reservation("held").like(pod("x").request(cpu=3)).for_labels(app="owner").many()
    held.manifest["metadata"]["finalizers"] = ["seatrial.dev/kept"]
    trial.reserve(held)
    expect.available("held")
    path = f"{RESERVATIONS_PATH}/held"
    try:
        assert trial.call("DELETE", path).ok

        trial.submit(owner("a", cpu=1).into_reservation(), owner("b", cpu=2))

        get_in(expect, {}, "a", "b")
    finally:
        assert trial.call("PATCH", path, {"metadata": {"finalizers": None}}).ok
    assert not reservation_of(expect.bound("b"))


@pytest.mark.feature("RSV-3.exact-match")
@pytest.mark.case(
    "RV-143", severity="critical", source="koordinator: apis/extension/reservation.go@v1.7.0 (ExactMatchReservation)"
)
def test_each_amount_of_an_exact_match(trial: Trial, expect: Expect) -> None:
    """All named amounts are equal, with a reservation by name too: neither less nor more, and in both or in neither."""
    trial.add(node("n1").cpu(32).memory("64Gi"))
    trial.reserve(reservation("held").like(pod("x").request(cpu=4, memory="4Gi")).for_labels(app="owner").many())
    expect.available("held")

    trial.submit(
        owner("less-memory", cpu=4, memory="1Gi").exactly("cpu", "memory").into_reservation(),
        owner("less-cpu", cpu=1, memory="4Gi").exactly("memory", "cpu").into_reservation(),
        owner("more-cpu", cpu=5, memory="4Gi").exactly("cpu").into_reservation(),
        owner("without-memory", cpu=4).exactly("cpu", "memory").into_reservation(),
        owner("by-name", cpu=1).exactly("cpu").into_reservation(name="held"),
        pod("seats").label("app", "owner").request(cpu=1).exactly("example.com/seats").into_reservation(name="other"),
    )
    get_in(expect, {}, "less-memory", "less-cpu", "more-cpu", "without-memory", "by-name", "seats")

    trial.submit(
        owner("equal", cpu=4, memory="4Gi").exactly("cpu", "memory").into_reservation(name="held"),
        owner("in-neither", cpu=1).exactly("example.com/seats").into_reservation(),
        owner("none", cpu=1).exactly().into_reservation(),
    )
    get_in(expect, {"equal": "held", "in-neither": "held", "none": "held"})


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-144", severity="critical", source=f"{_UTIL} (MatchObjectRef)")
def test_all_of_an_owner_object_counts(trial: Trial, expect: Expect) -> None:
    """An owner is an object by uid, name, namespace and API version: with another of these a pod is none. Its kind does
    not matter, and of two owners one is enough."""
    trial.add(node("n1").cpu(16))
    names = ["uid", "both", "kind", "second", "other-uid", "other-name", "other-version", "other-label"]
    trial.submit(*(owner(name, cpu=1).into_reservation(name=f"for-{name}") for name in names))
    expect.pending(*names)
    uids = {name: trial.pod(name).metadata.uid for name in names}
    objects = {
        "uid": {"uid": uids["uid"]},
        "both": {"uid": uids["both"], "name": "both", "namespace": trial.name},
        "kind": {"kind": "Deployment", "name": "kind"},
        "second": {"name": "another"},
        "other-uid": {"uid": uids["both"], "name": "other-uid", "namespace": trial.name},
        "other-name": {"uid": uids["other-name"], "name": "another"},
        "other-version": {"apiVersion": "apps/v1", "name": "other-version"},
    }
    for name, fields in objects.items():
        held = reservation(f"for-{name}").like(pod("x").request(cpu=1)).owner(object=fields)
        trial.reserve(held.for_labels(app="owner") if name == "second" else held)
    labelled = {"labelSelector": {"matchLabels": {"app": "another"}}}
    trial.reserve(
        reservation("for-other-label")
        .like(pod("x").request(cpu=1))
        .owner(object={"name": "other-label"}, **labelled)
        .owner(object={"uid": uids["uid"]})
    )
    for name in names:
        if name.startswith("other"):
            expect.available(f"for-{name}")

    get_in(expect, {name: f"for-{name}" for name in names[:4]}, *names[4:])


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("RV-145", severity="critical", source=f"{_UTIL} (MatchReservationControllerReference)")
def test_all_of_one_owner_reference_counts(trial: Trial, expect: Expect) -> None:
    """Pods have two owner references, of which the second is their controller. The owner of a reservation matches by
    either, but by all of one: name, uid, kind, API version, and whether it is the controller."""
    trial.add(node("n1").cpu(16))
    path = trial.path("ConfigMap", "").rstrip("/")
    first, second = (
        {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}
        for name in ("first", "second")
        for made in [trial.accept({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}, path)]
    )
    references = [first, second | {"controller": True}]
    owners: dict[str, dict[str, Any]] = {
        "by-first": first,
        "by-second": second,
        "by-controller": references[1],
        "by-space": second | {"namespace": trial.name},
        "other-kind": second | {"kind": "Secret"},
        "other-version": second | {"apiVersion": "apps/v1"},
        "other-name": second | {"name": "first"},
        "other-uid": first | {"uid": second["uid"]},
        "other-space": second | {"namespace": f"{trial.name}-other"},
        "no-controller": first | {"controller": True},
        "a-controller": references[1] | {"controller": False},
    }
    for name, fields in owners.items():
        trial.reserve(reservation(f"for-{name}").like(pod("x").request(cpu=1)).owner(controller=fields))
        expect.available(f"for-{name}")

    for name in owners:
        one = pod(name).request(cpu=1).into_reservation(name=f"for-{name}")
        one.manifest["metadata"]["ownerReferences"] = references
        trial.submit(one)

    inside = {name: f"for-{name}" for name in owners if name.startswith("by-")}
    get_in(expect, inside, *(name for name in owners if name not in inside))


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case(
    "RV-146", severity="critical", source="koordinator: pkg/scheduler/plugins/reservation/plugin.go@v1.7.0"
)
def test_an_owner_that_shares_no_resource_with_it(trial: Trial, expect: Expect) -> None:
    """A reservation for one pod has memory alone. An owner that asks for cores uses it up only if it requires one."""
    trial.add(node("n1").cpu(8).memory("16Gi"))
    trial.reserve(reservation("held").like(pod("x").request(memory="4Gi")).for_labels(app="owner"))
    expect.available("held")

    trial.submit(owner("a", cpu=1))

    assert not reservation_of(expect.bound("a"))
    expect.stable(seconds=2)
    assert expect.available("held").status.current_owners == ()
    trial.submit(owner("b", cpu=1, memory="1Gi"))
    assert reservation_of(expect.bound("b")) == "held"


@pytest.mark.feature("RSV-3.affinity")
@pytest.mark.case("RV-171", severity="critical", source=f"{_MATCHING} (checkReservationMatchedOrIgnored)")
@pytest.mark.parametrize("event", ["one-comes", "one-is-left"])
def test_pods_of_one_owner_wait_for_different_reservations(trial: Trial, expect: Expect, event: str) -> None:
    """Three owners of one shape require reservations by different names. A place in one of these becomes free: its pod
    gets it, whichever of them is tried first."""
    trial.add(node("n1").cpu(16))
    names = ["a", "b", "c"]

    def reserve(name: str) -> None:
        held = reservation(f"for-{name}").like(pod("x").request(cpu=1)).for_labels(app="owner").many()
        trial.reserve(held.policy("Restricted"))
        expect.available(f"for-{name}")
        if event == "one-is-left":
            trial.submit(owner(f"in-{name}", cpu=1).into_reservation(name=f"for-{name}"))
            expect.bound(f"in-{name}")

    for name in names if event == "one-is-left" else ():
        reserve(name)
    trial.submit(*(owner(name, cpu=1).into_reservation(name=f"for-{name}") for name in names))
    expect.pending(*names)

    for name in ("b", "c", "a"):
        if event == "one-is-left":
            trial.delete(f"in-{name}")
        else:
            reserve(name)
        assert reservation_of(expect.bound(name)) == f"for-{name}"


@pytest.mark.feature("RSV-3.affinity")
@pytest.mark.case("RV-320", severity="normal", source=f"{_MATCHING} (checkReservationMatchedOrIgnored)")
def test_a_reservation_by_name_is_that_of_the_whole_name(trial: Trial, expect: Expect) -> None:
    """Owners name a reservation by its whole name, by its beginning, its end, and in capitals."""
    trial.add(node("n1").cpu(8))
    trial.reserve(reservation("held-back").like(pod("x").request(cpu=4)).for_labels(app="owner").many())
    expect.available("held-back")
    names = {"whole": "held-back", "beginning": "held", "end": "back", "capitals": "Held-Back"}

    trial.submit(*(owner(name, cpu=1).into_reservation(name=words) for name, words in names.items()))

    get_in(expect, {"whole": "held-back"}, "beginning", "end", "capitals")


@pytest.mark.feature("RSV-2.policies")
@pytest.mark.case(
    "RV-321", severity="critical", source="koordinator: pkg/scheduler/plugins/reservation@v1.7.0 (fitsNode)"
)
def test_beside_several_reservations_that_are_too_small(trial: Trial, expect: Expect) -> None:
    """Three Restricted reservations of five cores are for the owner of seven, and four cores of the node are free: it
    waits, until one of the three is deleted."""
    trial.add(node("n1").cpu(19))
    for name in ("one", "two", "three"):
        held = reservation(name).like(pod("x").request(cpu=5)).for_labels(app="owner").many()
        trial.reserve(held.policy("Restricted"))
        expect.available(name)

    trial.submit(owner("a", cpu=7))

    expect.pending("a")
    expect.stable(seconds=2)
    assert trial.call("DELETE", f"{RESERVATIONS_PATH}/two").ok
    assert not reservation_of(expect.bound("a"))
