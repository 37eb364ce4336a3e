"""Preemption where it is not a resource that lacks but a rule about other pods."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.suites.preemption.priorities import classes
from seatrial.suites.scoring.rules import given, spread

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("PRE-1.lower-goes", "PRE-1.minimal-victims")
@pytest.mark.case("PR-050", severity="critical")
def test_a_pod_goes_whose_place_makes_the_skew_too_large(classes: Trial, expect: Expect) -> None:
    """The node of rack b is full of pods that are as important. In rack a there is room, and a less important pod of
    the app: the new one takes its place, and a pod that does not count stays."""
    classes.add(node("n1").cpu(8).label("rack", "a"), node("n2").cpu(2).label("rack", "b"))
    classes.submit(pod("full").request(cpu=2).select({"rack": "b"}).priority_class("trial-high"))
    rack_a = {"rack": "a"}
    classes.submit(
        given("counted").request(cpu=1).select(rack_a).priority_class("trial-low"),
        given("other", app="b").request(cpu=1).select(rack_a).priority_class("trial-low"),
    )
    expect.running("full", "counted", "other")

    new = given("new", topologySpreadConstraints=spread(topologyKey="rack")).request(cpu=1)
    classes.submit(new.priority_class("trial-high"))

    expect.gone("counted")
    assert expect.bound("new").spec.node_name == "n1"
    expect.bound("other", "full")
