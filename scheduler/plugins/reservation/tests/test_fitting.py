"""Free amounts in reservations and beside them: RSV-E3 to RSV-E5."""

from typing import Any

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.reservation import RESERVATION_ALLOCATED, allocation
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.engine.explanation import explain
from seatrial.scheduler.engine.restoring import restore
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.reservation.fitting import lacking, worth
from seatrial.scheduler.plugins.reservation.tests.reservations import hold, inside, owner, refusal, reserved
from seatrial.scheduler.tests.rig import GIB, Rig, profile

ALIGNED, RESTRICTED = "Aligned", "Restricted"
BY_NODE, IN_IT = "Insufficient cpu by node", "Reservation(s) Insufficient cpu"


def filled(cpu: int, **more: Any) -> Rig:
    """A node of 32 cores partly used by plain pods: one is a possible victim, the others are not."""
    rig = Rig()
    rig.node("n", cpu="32", memory="32Gi", pods=100, more={"kubernetes.io/batch-cpu": 7500}, **more)
    rig.running(pod("small").request(cpu=2), "n")
    rig.running(pod("large").request(cpu=cpu - 2), "n")
    return rig


def wanting(cpu: int) -> PodBuilder:
    return owner("wants", cpu=cpu).into_reservation()


@pytest.mark.parametrize(
    ("policy", "plain", "cpu", "expected"),
    [
        pytest.param(ALIGNED, 24, 8, (), id="aligned-spills-onto-the-node"),
        pytest.param(ALIGNED, 26, 8, (BY_NODE,), id="aligned-and-no-room-beside-it"),
        pytest.param(RESTRICTED, 24, 6, (), id="restricted-and-large-enough"),
        pytest.param(RESTRICTED, 24, 8, (IN_IT,), id="restricted-does-not-spill"),
        pytest.param("", 24, 8, (), id="default-spills"),
        pytest.param("", 24, 9, (BY_NODE,), id="default-and-no-room-beside-it"),
    ],
)
def test_a_pod_in_a_reservation_of_six_cores(policy: str, plain: int, cpu: int, expected: tuple[str, ...]) -> None:
    rig = filled(plain)
    hold(rig, "r", "n", {"cpu": 6000}, policy=policy)
    assert refusal(rig, wanting(cpu), "n") == expected


@pytest.mark.parametrize(
    ("policy", "plain", "gone", "expected"),
    [
        pytest.param("", 24, ["in-4"], (), id="victims-inside-leave-room-inside"),
        pytest.param("", 26, ["in-2", "small"], (), id="victims-inside-and-beside-it"),
        pytest.param("", 26, ["in-2"], (BY_NODE,), id="victims-inside-alone"),
        pytest.param("", 26, ["small"], (BY_NODE,), id="victims-beside-it-alone"),
        pytest.param(RESTRICTED, 24, ["small", "large"], (IN_IT,), id="restricted-needs-victims-inside"),
        pytest.param(RESTRICTED, 24, ["in-4"], (), id="restricted-with-victims-inside"),
    ],
)
def test_a_pod_of_four_cores_where_all_six_are_used(
    policy: str, plain: int, gone: list[str], expected: tuple[str, ...]
) -> None:
    rig = filled(plain)
    hold(rig, "r", "n", {"cpu": 6000}, policy=policy)
    inside(rig, "in-4", "n", "r", cpu=4)
    inside(rig, "in-2", "n", "r", cpu=2)
    assert refusal(rig, wanting(4), "n", gone=gone) == expected


def test_withheld_amounts_are_not_for_owners() -> None:
    rig = filled(24)
    hold(
        rig,
        "r",
        "n",
        {"cpu": 6000},
        policy=RESTRICTED,
        annotations={"node.koordinator.sh/reservation": '{"resources": {"cpu": "2"}}'},
    )
    assert refusal(rig, wanting(6), "n") == (IN_IT,)
    assert refusal(rig, wanting(4), "n") == ()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param({}, ("Insufficient example.com/seats by node",), id="all-counts"),
        pytest.param({"ignoredResources": ["example.com/seats"]}, (), id="ignored-by-name"),
        pytest.param({"ignoredResourceGroups": ["example.com"]}, (), id="ignored-by-group"),
        pytest.param(
            {"ignoredResourceGroups": ["cpu"]}, ("Insufficient example.com/seats by node",), id="another-group"
        ),
    ],
)
def test_resources_excluded_from_the_check(args: dict[str, Any], expected: tuple[str, ...]) -> None:
    rig = Rig(profile(pluginConfig=[{"name": "Reservation", "args": args}]))
    rig.node("n", more={"example.com/seats": 1})
    hold(rig, "r", "n", {"cpu": 6000})
    assert refusal(rig, wanting(2).resources({"example.com/seats": 2}), "n") == expected


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param({}, ("Reservation(s) Insufficient example.com/seats",), id="all-counts"),
        pytest.param({"ignoredResources": ["example.com/seats"]}, (), id="ignored-by-name"),
        pytest.param({"ignoredResourceGroups": ["example.com"]}, (), id="ignored-by-group"),
    ],
)
def test_a_restricted_reservation_skips_the_same_resources(args: dict[str, Any], expected: tuple[str, ...]) -> None:
    rig = Rig(profile(pluginConfig=[{"name": "Reservation", "args": args}]))
    rig.node("n", more={"example.com/seats": 4})
    hold(rig, "r", "n", {"cpu": 6000, "example.com/seats": 1}, policy=RESTRICTED)
    assert refusal(rig, wanting(2).resources({"example.com/seats": 2}), "n") == expected
    assert refusal(rig, wanting(7).resources({"example.com/seats": 1}), "n") == (IN_IT,)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("", ("Reservation(s) Too many pods",), id="by-affinity"),
        pytest.param("r", ("Reservation(s) Too many pods, requested: 1, used: 2, capacity: 2",), id="by-name"),
    ],
)
def test_a_reservation_may_count_pods(name: str, expected: tuple[str, ...]) -> None:
    """RSV-E4: two pods of 1 core fill it, of its 7 cores 1 is withheld."""
    rig = filled(20)
    hold(
        rig,
        "r",
        "n",
        {"cpu": 7000, "pods": 2},
        policy=RESTRICTED,
        annotations={"node.koordinator.sh/reservation": '{"resources": {"cpu": "1"}}'},
    )
    for number in range(2):
        inside(rig, f"in-{number}", "n", "r", cpu=1)
    wants = owner("wants", cpu=3).into_reservation(**({"name": name} if name else {}))
    assert refusal(rig, wants, "n") == expected


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        pytest.param(6, (f"{IN_IT}, requested: 6000, used: 1000, capacity: 6000",), id="too-much"),
        pytest.param(3, (), id="little-enough"),
    ],
)
def test_reasons_for_a_named_reservation_have_numbers(cpu: int, expected: tuple[str, ...]) -> None:
    rig = filled(20)
    hold(rig, "r", "n", {"cpu": 6000}, policy=RESTRICTED)
    inside(rig, "in-1", "n", "r", cpu=1)
    inside(rig, "goes", "n", "r", cpu=1)
    wants = owner("wants", cpu=cpu).into_reservation(name="r")
    assert refusal(rig, wants, "n", gone=["goes"]) == expected


def test_two_small_reservations_give_two_reasons() -> None:
    rig = filled(16)
    for name in ("r", "s"):
        hold(rig, name, "n", {"cpu": 2000}, policy=RESTRICTED)
    assert refusal(rig, wanting(4), "n") == (IN_IT, IN_IT)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        pytest.param(8000, ("Insufficient kubernetes.io/batch-cpu by node",), id="too-much"),
        pytest.param(6000, (), id="fits"),
    ],
)
def test_extended_resources_count(amount: int, expected: tuple[str, ...]) -> None:
    rig = filled(4)
    rig.running(pod("batch").resources({"kubernetes.io/batch-cpu": 1500}), "n")
    hold(rig, "r", "n", {"cpu": 6000})
    assert refusal(rig, owner("wants", memory="8Gi").resources({"kubernetes.io/batch-cpu": amount}), "n") == ()
    assert refusal(rig, owner("wants", cpu=1).resources({"kubernetes.io/batch-cpu": amount}), "n") == expected


def test_only_the_named_resources_are_limited() -> None:
    amounts = {"cpu": 2000, "memory": 2 * GIB}
    targets = {"cpu": 4000, "memory": 4 * GIB}
    assert lacking(targets, reserved(amounts, strict=("memory",))) == ["Reservation(s) Insufficient memory"]
    assert lacking(targets, reserved(amounts, strict=("nvidia.com/gpu",))) == [
        IN_IT,
        "Reservation(s) Insufficient memory",
    ]
    assert lacking({"nvidia.com/gpu": 1}, reserved(amounts)) == []  # what it does not have comes from the node


@pytest.mark.parametrize(
    ("requests", "allocatable", "used", "expected"),
    [
        pytest.param((2, 4), (4, 8), None, 50, id="half-of-it"),
        pytest.param((2, 4), (2, 4), None, 100, id="all-of-it"),
        pytest.param((), (4, 8), None, 0, id="asks-for-nothing"),
        pytest.param((2, 4), (2, 4), (2, 3), 0, id="used-already"),
    ],
)
def test_the_score_of_a_reservation(
    requests: tuple[int, ...], allocatable: tuple[int, int], used: tuple[int, int] | None, expected: int
) -> None:
    def amounts(cpu: int, memory: int) -> dict[str, int]:
        return {"cpu": cpu * 1000, "memory": memory * GIB}

    one = reserved(amounts(*allocatable), {"there": amounts(*used)} if used else {})
    assert worth(amounts(*requests) if requests else {}, one) == expected


def test_the_reservation_that_fits_best_is_nominated() -> None:
    """RSV-E5: a pod of 2/4Gi, and on its node reservations of 4/8Gi (score 50) and of 2/4Gi (score 100)."""
    rig = Rig()
    rig.node("n", cpu="32", memory="64Gi")
    hold(rig, "a-large", "n", {"cpu": 4000, "memory": 8 * GIB})
    hold(rig, "b-equal", "n", {"cpu": 2000, "memory": 4 * GIB})
    rig.submit(owner("wants", cpu=2, memory="4Gi"))
    rig.run()
    assert rig.binding("wants").annotations[RESERVATION_ALLOCATED] == allocation("b-equal", "b-equal")


def test_free_amounts_for_an_owner_and_for_another_pod() -> None:
    """RSV-E3: an unmatched reservation of 12/24Gi with a pod of 4/8Gi in it, and a matched one of 8/16Gi."""
    rig = Rig()
    rig.node("n", cpu="32", memory="64Gi")
    rig.running(pod("plain").request(cpu=12, memory="24Gi"), "n")
    hold(rig, "unmatched", "n", {"cpu": 12000, "memory": 24 * GIB}, app="b")
    hold(rig, "matched", "n", {"cpu": 8000, "memory": 16 * GIB})
    inside(rig, "in-it", "n", "unmatched", cpu=4, memory="8Gi")
    made = rig.pod(owner("wants", cpu=1))
    info = PodInfo(made, rig.core.cache.classes.of(made))
    node = rig.core.cache.find("n")
    assert node is not None
    assert node.requested[1:3] == [32000, 64 * GIB]
    state, runner = CycleState(), rig.core.runners.of(info)
    for plugin in runner.pre_filters:
        plugin.pre_filter(state, info.pod)
    restore(runner, state, info)
    assert as_seen(state, node)[1].requested[1:3] == [24000, 48 * GIB]
    assert [item.node for item in explain(runner, info).feasible] == ["n"]


def test_the_smallest_order_scores_highest_and_others_are_scaled() -> None:
    rig = Rig()
    for name in ("a", "b", "c", "d"):
        rig.node(name, cpu="32")
        labels = {"scheduling.koordinator.sh/reservation-order": "1"} if name == "d" else {}
        hold(rig, f"r{name}", name, {"cpu": 2000}, labels=labels)
    made = rig.pod(owner("wants", cpu=2))
    info = PodInfo(made, rig.core.cache.classes.of(made))
    scores = {item.node: item.by_plugin["Reservation"] for item in explain(rig.core.runners.of(info), info).feasible}
    assert scores == {"a": 50_000, "b": 50_000, "c": 50_000, "d": 500_000}
