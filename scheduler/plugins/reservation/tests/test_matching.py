"""Which pods match a reservation (RSV-R17 to RSV-R20)."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.reservation import AnnotationError, Reservation, ReservationOwner
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.framework.reservation_info import ReservationInfo
from seatrial.scheduler.plugins.reservation.matching import Match, ReservationRequest, exactly, judge
from seatrial.scheduler.plugins.reservation.owners import OwnerIndex

NODE = Node(ObjectMeta(name="n", labels={"zone": "a"}))
CONTROLLED = {"kind": "Job", "name": "j", "uid": "u-j", "apiVersion": "batch/v1", "controller": True}


def made(builder: PodBuilder, **metadata: Any) -> Pod:
    manifest = builder.manifest
    return msgspec.convert(
        manifest | {"metadata": {"uid": "u", "namespace": "d"} | manifest["metadata"] | metadata}, Pod
    )


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        pytest.param([], False, id="none"),
        pytest.param([{"object": {"name": "p", "namespace": "d"}}], True, id="by-name"),
        pytest.param([{"object": {"name": "p", "namespace": "e"}}], False, id="another-namespace"),
        pytest.param([{"object": {"uid": "u", "kind": "Node"}}], True, id="kind-is-not-looked-at"),
        pytest.param([{"object": {"uid": "v"}}], False, id="another-uid"),
        pytest.param([{"object": {"name": "q"}}, {"object": {"uid": "u"}}], True, id="one-of-two"),
        pytest.param(
            [{"object": {"name": "p"}, "labelSelector": {"matchLabels": {"app": "b"}}}], False, id="all-of-one"
        ),
        pytest.param([{"labelSelector": {"matchLabels": {"app": "a"}}}], True, id="by-label"),
        pytest.param([{"labelSelector": {}}], True, id="an-empty-selector-takes-all"),
        pytest.param(
            [{"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}], True, id="by-expression"
        ),
        pytest.param([{"controller": CONTROLLED}], True, id="by-controller"),
        pytest.param([{"controller": CONTROLLED | {"namespace": "d"}}], True, id="controller-in-its-namespace"),
        pytest.param([{"controller": CONTROLLED | {"namespace": "e"}}], False, id="controller-elsewhere"),
        pytest.param([{"controller": CONTROLLED | {"uid": "u-k"}}], False, id="another-controller"),
        pytest.param([{"controller": {"name": "j", "controller": False}}], False, id="it-does-control"),
    ],
)
def test_owners(owners: list[dict[str, Any]], expected: bool) -> None:
    one = made(pod("p").label("app", "a"), ownerReferences=[CONTROLLED])
    index = OwnerIndex()
    group = index.add(msgspec.convert(owners, tuple[ReservationOwner, ...]))
    assert index.knows(one) is expected
    assert index.groups(one) == ([group] if expected else [])


def test_owners_of_the_last_reservation_are_forgotten() -> None:
    owners = msgspec.convert([{"labelSelector": {"matchLabels": {"app": "a"}}}], tuple[ReservationOwner, ...])
    index, one = OwnerIndex(), made(pod("p").label("app", "a"))
    group = index.add(owners)
    assert index.add(owners) == group
    index.remove(group)
    assert index.knows(one)
    index.remove(group)
    assert not index.knows(one)
    assert not index


TAINT = {"key": "t", "value": "v", "effect": "NoSchedule"}
ZONE_A = {"reservationSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
BY_NAME = {
    "reservationSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}]
}


@pytest.mark.parametrize(
    ("wants", "spec", "expected"),
    [
        pytest.param(pod("p"), {}, Match.MATCHED, id="plainly"),
        pytest.param(pod("p"), {"unschedulable": True}, Match.UNSCHEDULABLE, id="closed"),
        pytest.param(
            pod("p").into_reservation(
                tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]
            ),
            {"unschedulable": True},
            Match.MATCHED,
            id="closed-and-tolerated",
        ),
        pytest.param(pod("p"), {"taints": [TAINT]}, Match.MATCHED, id="without-affinity-taints-mean-nothing"),
        pytest.param(pod("p").into_reservation(), {"taints": [TAINT]}, Match.TAINT, id="tainted"),
        pytest.param(
            pod("p").tolerate("t").into_reservation(),
            {"taints": [TAINT]},
            Match.TAINT,
            id="its-own-tolerations-do-not-count",
        ),
        pytest.param(
            pod("p").into_reservation(tolerations=[{"key": "t", "value": "v", "effect": "NoSchedule"}]),
            {"taints": [TAINT]},
            Match.MATCHED,
            id="tainted-and-tolerated",
        ),
        pytest.param(
            pod("p").into_reservation(),
            {"taints": [TAINT | {"effect": "PreferNoSchedule"}]},
            Match.MATCHED,
            id="soft-taint",
        ),
        pytest.param(pod("p").into_reservation(name="r"), {}, Match.MATCHED, id="by-name"),
        pytest.param(pod("p").into_reservation(name="s"), {}, Match.NAME, id="another-name"),
        pytest.param(
            pod("p").into_reservation(name="r"),
            {"unschedulable": True, "taints": [TAINT]},
            Match.MATCHED,
            id="a-name-goes-before-all-else",
        ),
        pytest.param(
            pod("p").into_reservation(name="r").request(cpu=1).exactly("cpu"),
            {},
            Match.INEXACT,
            id="named-but-of-another-size",
        ),
        pytest.param(pod("p").into_reservation(reservationSelector={"tier": "gold"}), {}, Match.MATCHED, id="label"),
        pytest.param(pod("p").into_reservation(reservationSelector={"tier": "tin"}), {}, Match.AFFINITY, id="no-label"),
        pytest.param(
            pod("p").into_reservation(requiredDuringSchedulingIgnoredDuringExecution=ZONE_A),
            {},
            Match.MATCHED,
            id="by-a-label-of-the-node",
        ),
        pytest.param(
            pod("p").into_reservation(requiredDuringSchedulingIgnoredDuringExecution=BY_NAME),
            {},
            Match.AFFINITY,
            id="by-a-field",
        ),
        pytest.param(pod("p").request(cpu=2).exactly("cpu"), {}, Match.MATCHED, id="of-its-size"),
        pytest.param(pod("p").request(cpu=1).exactly("cpu"), {}, Match.INEXACT, id="of-another-size"),
    ],
)
def test_match_of_a_reservation_and_a_pod(wants: PodBuilder, spec: dict[str, Any], expected: Match) -> None:
    manifest = {"metadata": {"name": "r", "uid": "r", "labels": {"tier": "gold"}}, "spec": spec}
    one = ReservationInfo(msgspec.convert(manifest, Reservation), {"cpu": 2000}, {}, (), "")
    pod = made(wants)
    requests = {"cpu": 1000 * int(str(pod.spec.containers[0].resources.requests.get("cpu", 0)))}
    assert judge(ReservationRequest.of(pod), requests, one, NODE)[0] is expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], True, id="nothing-named"),
        pytest.param(["cpu"], True, id="the-same"),
        pytest.param(["memory"], False, id="another-amount"),
        pytest.param(["nvidia.com/gpu"], False, id="only-the-pod"),
        pytest.param(["cpu", "ephemeral-storage", "memory"], True, id="ends-at-what-neither-has"),
    ],
)
def test_exact_match(names: list[str], expected: bool) -> None:
    request, there = {"cpu": 2000, "memory": 1, "nvidia.com/gpu": 1}, {"cpu": 2000, "memory": 2}
    assert exactly(tuple(names), request, there) is expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("exact-match-reservation", '{"resourceNames":{"cpu","memory"}}', id="braces-as-in-the-post"),
        pytest.param("reservation-affinity", '{"name": 3}', id="a-number-for-a-name"),
        pytest.param(
            "reservation-affinity",
            '{"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": [3]}}',
            id="a-number-for-a-term",
        ),
    ],
)
def test_an_invalid_annotation_is_named(key: str, value: str) -> None:
    annotation = f"scheduling.koordinator.sh/{key}"
    with pytest.raises(AnnotationError, match=annotation):
        ReservationRequest.of(made(pod("p").annotation(annotation, value)))


def test_the_ignored_mark_is_read_as_label_and_as_annotation() -> None:
    key = "scheduling.koordinator.sh/reservation-ignored"
    assert ReservationRequest.of(made(pod("p").label(key, "true"))).ignored
    assert ReservationRequest.of(made(pod("p").annotation(key, "true"))).ignored
    assert not ReservationRequest.of(made(pod("p").label(key, "false"))).ignored
