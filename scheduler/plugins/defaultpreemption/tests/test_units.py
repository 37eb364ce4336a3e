"""Groups that are preempted as a whole: the cost of dry runs, and budgets of their pods (WAS-R49, FWK-R81)."""

import sys
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.scheduler.api.builders import native_gang, pod
from seatrial.scheduler.api.core import PodDisruptionBudget
from seatrial.scheduler.api.podgroup import NativePodGroup
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig
from seatrial.scheduler.plugins.defaultpreemption.dry_run import broken
from seatrial.scheduler.plugins.defaultpreemption.units import Breaks, unit_of
from seatrial.scheduler.tests.rig import Rig

LABELS = "abc"


def calls_of_a_preemption(members: int, *, budget: bool) -> int:
    """The calls of functions while a pod preempts a group with a pod on each node."""
    rig = GangRig()
    group = native_gang("whole", members, disruptionMode={"all": {}})
    group["metadata"]["namespace"] = "default"
    rig.cache.set_native(msgspec.convert(group, NativePodGroup))
    if budget:
        rig.budget("budget", {"app": "whole"}, allowed=1)
    for number in range(members):
        rig.node(f"n{number}", cpu="8")
        placed = pod(f"m{number}").request(cpu=8).in_native_gang("whole").label("app", "whole")
        rig.running(placed, f"n{number}", started="2026-01-01T00:00:00Z")
    rig.submit(pod("urgent").request(cpu=8).priority(10))
    calls = count()

    def on_event(_frame: Any, event: str, _argument: Any) -> None:
        if event in {"call", "c_call"}:
            next(calls)

    sys.setprofile(on_event)
    try:
        rig.run()
    finally:
        sys.setprofile(None)
    assert len(rig.victims()) == members
    return next(calls)


@pytest.mark.parametrize("budget", [False, True])
def test_the_cost_of_a_preemption_is_proportional_to_the_members(budget: bool) -> None:
    """All nodes are tried. If each took all members off, 4 times the members would be 16 times the calls."""
    few, many = (calls_of_a_preemption(members, budget=budget) for members in (24, 96))
    assert many < 6 * few, f"{few} and {many} calls"


def placed_pods(labels: Sequence[str]) -> list[PodInfo]:
    """Pods on one node, each with these labels, one letter each."""
    rig = Rig()
    rig.node("n")
    for number, letters in enumerate(labels):
        rig.running(pod(f"p{number}"), "n", labels=dict.fromkeys(letters, "yes"))
    infos = [rig.core.cache.placed(f"uid-p{number}") for number in range(len(labels))]
    return [info for info in infos if info is not None]


@given(
    st.lists(st.lists(st.text(LABELS, max_size=2), min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(0, 3), min_size=len(LABELS), max_size=len(LABELS)),
    st.booleans(),
    st.data(),
)
def test_budgets_are_counted_down_as_pod_by_pod(
    labels: list[list[str]], allowed: list[int], disrupted: bool, data: st.DataObject
) -> None:
    infos = iter(placed_pods([own for unit in labels for own in unit]))
    groups = [[next(infos) for _ in unit] for unit in labels]
    budgets = [
        msgspec.convert(
            {
                "metadata": {"name": letter, "namespace": "default"},
                "spec": {"selector": {"matchLabels": {letter: "yes"}}},
                "status": {"disruptionsAllowed": left, "disruptedPods": {"p0": "now"} if disrupted else {}},
            },
            PodDisruptionBudget,
        )
        for letter, left in zip(LABELS, allowed, strict=True)
    ]
    firsts = [data.draw(st.sampled_from(group)) for group in groups]
    orders = [[first, *(one for one in group if one is not first)] for group, first in zip(groups, firsts, strict=True)]
    each = iter(broken([one for order in orders for one in order], budgets))
    expected = [sum(next(each) for _ in order) for order in orders]
    breaks = Breaks({"default": budgets})
    units = [unit_of(group, lambda _: True, is_group=True) for group in groups]
    assert [breaks.of(unit, first) for unit, first in zip(units, firsts, strict=True)] == expected
