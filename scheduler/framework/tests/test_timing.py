"""The two histograms of latency: which cycles are timed, what one observation is, and that nothing stays behind."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import gang, pod, reservation
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.engine.explanation import explain
from seatrial.scheduler.framework.decisions import Reject
from seatrial.scheduler.framework.extension_points import Plugin
from seatrial.scheduler.framework.timing import EVERY, POINT_SECONDS
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, member
from seatrial.scheduler.plugins.noderesources.fit import NodeResourcesFit as Fit
from seatrial.scheduler.serving.histogram import Histogram
from seatrial.scheduler.tests.rig import Rig

PLACED = {"PreFilter", "Filter", "PreScore", "Score", "Reserve", "Permit", "PreBind"}


def points(rig: Rig) -> dict[tuple[str, str], int]:
    """How often each extension point was observed, by point and status."""
    return {(point, status): key.count for (point, status, _), key in rig.core.timing.by_point.items()}


def plugins(rig: Rig) -> dict[tuple[str, str, str], int]:
    return {key: histogram.count for key, histogram in rig.core.timing.by_plugin.items()}


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        pytest.param([], [0, 0, 0], id="nothing"),
        pytest.param([0.5, 1.0], [2, 2, 2], id="a-bound-counts-as-up-to-it"),
        pytest.param([1.5, 3.0], [0, 1, 2], id="beyond-the-last"),
    ],
)
def test_a_histogram(values: list[float], counts: list[int]) -> None:
    one = Histogram((1.0, 2.0))
    for value in values:
        one.observe(value)
    assert (one.up_to(), one.count, one.sum) == (counts, len(values), sum(values))


@pytest.mark.parametrize(
    ("cycles", "timed"),
    [pytest.param(1, 1, id="the-first"), pytest.param(EVERY, 1, id="ten"), pytest.param(EVERY + 1, 2, id="eleven")],
)
def test_one_cycle_of_ten_is_timed(cycles: int, timed: int) -> None:
    rig = Rig()
    rig.node("n")
    rig.submit(*(pod(f"p{number}").request(cpu="100m") for number in range(cycles)))
    rig.run()
    assert points(rig) == {(point, "Success"): timed for point in PLACED | {"PreEnqueue", "PostBind"}}


def test_time_is_the_clocks_and_a_pass_over_many_nodes_is_one_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    passing, widths = Fit.filter_batch, list[int]()

    def slow(self: Any, stacked: Any, batch: Any) -> Any:
        widths.append(batch.size)
        rig.clock.advance(0.005)
        return passing(self, stacked, batch)

    monkeypatch.setattr(Fit, "filter_batch", slow)
    rig = Rig()
    for number in range(20):
        rig.node(f"n{number}")
    rig.submit(pod("p").request(cpu="1"))
    rig.run()
    assert widths == [20]
    assert plugins(rig)["NodeResourcesFit", "Filter", "Success"] >= 1
    assert rig.core.timing.by_plugin["NodeResourcesFit", "Filter", "Success"].sum == pytest.approx(0.005)
    of_point = rig.core.timing.by_point["Filter", "Success", "default-scheduler"]
    assert of_point.sum == pytest.approx(0.005)
    assert of_point.up_to()[-2:] == [1, 1]
    assert POINT_SECONDS[5] < 0.005 < POINT_SECONDS[6]
    assert of_point.up_to()[5:7] == [0, 1]


def test_where_no_node_is_left() -> None:
    rig = Rig()
    rig.node("n", cpu="1")
    rig.submit(pod("p").request(cpu="4"))
    rig.run()
    assert points(rig) == {
        ("PreEnqueue", "Success"): 1,
        ("PreFilter", "Success"): 1,
        ("Filter", "Success"): 1,
        ("PostFilter", "Unschedulable"): 1,
    }
    assert plugins(rig)["DefaultPreemption", "PostFilter", "Unschedulable"] == 1


def test_where_no_node_need_be_looked_at() -> None:
    rig = Rig()
    rig.node("n")
    rig.submit(pod("p").gpus(1).annotation("scheduling.koordinator.sh/device-joint-allocate", "{"))
    rig.run()
    amounts = points(rig)
    assert amounts["PreFilter", "UnschedulableAndUnresolvable"] == 1
    assert not {point for point, _ in amounts} & {"Filter", "Score", "Reserve"}


def test_a_binding_that_fails_is_an_unreserve() -> None:
    rig = Rig()
    rig.node("n")
    rig.submit(pod("p"))
    rig.run(bind=False)
    rig.core.bind_failed("uid-p", "refused")
    assert points(rig)["Unreserve", "Success"] == 1


def test_members_that_wait_for_their_group_wait_in_permit() -> None:
    """Of a NonStrict gang two members find a place, and the third does not."""
    rig = GangRig()
    rig.node("n", cpu="2")
    rig.group(gang("train", 3).mode("NonStrict"))
    rig.submit(*(member(f"m{number}", "train") for number in range(3)))
    rig.run()
    assert points(rig)["Permit", "Wait"] == 1


def test_transformers_are_points_too() -> None:
    rig = Rig()
    rig.node("n")
    held = reservation("r").like(pod("x").request(cpu=2)).for_labels(app="x").manifest
    status = {"phase": "Available", "nodeName": "n", "allocatable": {"cpu": "2"}}
    rig.core.intake.set_reservation(
        msgspec.convert({**held, "metadata": {"name": "r", "uid": "r"}, "status": status}, Reservation)
    )
    rig.submit(pod("p").label("app", "x").request(cpu=1))
    rig.run()
    assert {("BeforePreFilter", "Success"), ("AfterPreFilter", "Success")} <= {*points(rig)}


def test_what_is_asked_between_cycles_is_not_timed() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    rig.submit(pod("p").gpus(1))
    rig.run()
    before = plugins(rig)
    info = rig.core.find("default/p")
    assert info is not None
    explain(rig.core.runners.of(info), info)
    assert plugins(rig) == before != {}


def test_a_cycle_that_raises_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.node("n")
    rig.submit(pod("p"))
    info = rig.core.find("default/p")
    assert info is not None
    runner = rig.core.runners.of(info)
    monkeypatch.setattr(runner, "reserve", lambda *_: 1 // 0)
    (message,) = rig.core.decide()
    assert isinstance(message, Reject)
    assert "ZeroDivisionError" in message.message
    before = plugins(rig)
    explain(runner, info)
    assert (points(rig), plugins(rig)) == ({("PreEnqueue", "Success"): 1, ("Unreserve", "Success"): 1}, before)


def test_timing_changes_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cycle timed, or the first alone: the same pods end on the same nodes."""

    def placed(every: int) -> tuple[dict[str, str], int]:
        monkeypatch.setattr("seatrial.scheduler.core.cycle.EVERY", every)
        rig = Rig()
        for number in range(8):
            rig.node(f"n{number}", gpus=number % 3, cpu=str(4 + number))
        for number in range(60):
            rig.submit(pod(f"p{number}").request(cpu=f"{100 + number % 7 * 150}m"), pod(f"g{number}").gpus(1))
            rig.run()
        return {name: rig.where(name) for name in rig.pods}, points(rig)["PreFilter", "Success"]

    (all_timed, many), (one_timed, one) = placed(1), placed(1 << 30)
    assert all_timed == one_timed
    assert (many >= 120, one) == (True, 1)


def _subclasses(kind: type) -> set[type]:
    direct: list[type] = kind.__subclasses__()
    return {kind}.union(*(_subclasses(below) for below in direct))


def test_a_second_scheduler_in_one_process_makes_no_new_plugin_classes() -> None:
    """Classes made for each scheduler stay in the process, and each one slows down every isinstance of a plugin."""
    Rig()
    before = _subclasses(Plugin)
    Rig()
    assert _subclasses(Plugin) == before
