"""Preemption where a rule about other pods rejects the pod, and not a lack of resources."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.suites.preemption.nominations import freeze, thaw
from seatrial.suites.preemption.priorities import classes
from seatrial.suites.scoring.rules import REQUIRED, Json, apart_from, pod_with, spread, term

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("PRE-1.lower-goes", "PRE-1.minimal-victims")
@pytest.mark.case("PR-050", severity="critical")
@pytest.mark.parametrize("other_rack", ["full", "missing"])
def test_a_pod_goes_whose_place_makes_the_skew_too_large(classes: Trial, expect: Expect, other_rack: str) -> None:
    """The node of rack b is full of pods that are as important, or there is no rack b, and minDomains wants two. In
    rack a there is room, and a less important pod of the app: the new one takes its place, and a pod that does not
    count stays."""
    classes.add(node("n1").cpu(8).label("rack", "a"))
    more: Json = {"minDomains": 2} if other_rack == "missing" else {}
    if not more:
        classes.add(node("n2").cpu(2).label("rack", "b"))
        classes.submit(pod("full").request(cpu=2).select({"rack": "b"}).priority_class("trial-high"))
        expect.running("full")
    rack_a = {"rack": "a"}
    classes.submit(
        pod_with("counted").request(cpu=1).select(rack_a).priority_class("trial-low"),
        pod_with("other", app="b").request(cpu=1).select(rack_a).priority_class("trial-low"),
    )
    expect.running("counted", "other")

    new = pod_with("new", topologySpreadConstraints=spread(topologyKey="rack", **more)).request(cpu=1)
    classes.submit(new.priority_class("trial-high"))

    expect.gone("counted")
    assert expect.bound("new").spec.node_name == "n1"
    expect.bound("other", *([] if more else ["full"]))


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case("PR-221", severity="normal", source="ours: a pod that is being deleted is taken off the counts once")
def test_a_pod_that_is_being_deleted_is_not_taken_off_the_skew_twice(classes: Trial, expect: Expect) -> None:
    """The node of rack b is full of pods that are as important. In rack a two less important pods of the app are, of
    which the first ends slowly and does not count any more: the second is evicted before the first has ended."""
    classes.add(node("n1").cpu(8).label("rack", "a"), node("n2").cpu(2).label("rack", "b"))
    rack_a = {"rack": "a"}
    classes.submit(
        pod("full").request(cpu=2).select({"rack": "b"}).priority_class("trial-high"),
        pod_with("ends").request(cpu=1).select(rack_a).priority_class("trial-low"),
        pod_with("counted").request(cpu=1).select(rack_a).priority_class("trial-middle"),
    )
    expect.running("full", "ends", "counted")
    freeze(classes, "n1")
    assert classes.call("DELETE", classes.path("Pod", "ends")).ok
    expect.gone("ends")

    new = pod_with("new", topologySpreadConstraints=spread(topologyKey="rack")).request(cpu=1)
    classes.submit(new.priority_class("trial-high"))

    expect.gone("counted")
    assert classes.find("ends") is not None
    thaw(classes, "n1")
    assert expect.bound("new").spec.node_name == "n1"


@pytest.mark.feature("PRE-1.lower-goes", "PRE-1.minimal-victims")
@pytest.mark.case("PR-060", severity="critical")
def test_a_pod_preempts_beside_the_pod_that_it_needs(classes: Trial, expect: Expect) -> None:
    """A pod has to be on the node of its partner. That node is full: a less important pod there goes, and a pod of
    still lower priority on another full node stays."""
    classes.add(node("n1").cpu(4), node("n2").cpu(4))
    on_n1, on_n2 = {"kubernetes.io/hostname": "n1"}, {"kubernetes.io/hostname": "n2"}
    classes.submit(
        pod_with("partner", "b").request(cpu=1).select(on_n1).priority_class("trial-high"),
        pod_with("victim", "c").request(cpu=3).select(on_n1).priority_class("trial-middle"),
        pod_with("elsewhere", "c").request(cpu=4).select(on_n2).priority_class("trial-low"),
    )
    expect.running("partner", "victim", "elsewhere")

    new = pod_with("new", affinity={"podAffinity": {REQUIRED: [term("b")]}}).request(cpu=3)
    classes.submit(new.priority_class("trial-high"))

    expect.gone("victim")
    assert expect.bound("new").spec.node_name == "n1"
    expect.bound("partner", "elsewhere")


@pytest.mark.feature("PRE-1.lower-goes", "PRE-1.minimal-victims")
@pytest.mark.case("SC-704", severity="critical", source="kubernetes v1.28: interpodaffinity/filtering.go, RemovePod")
@pytest.mark.parametrize("holder", ["new", "victim"])
def test_a_pod_goes_that_the_new_one_must_not_be_near(classes: Trial, expect: Expect, holder: str) -> None:
    """There is one node, with room. The new pod has anti-affinity to a less important pod there, or that one to it: it
    goes, and a pod that is no hindrance stays."""
    classes.add(node("n1").cpu(4))
    of_victim, of_new = (apart_from("new"), {}) if holder == "victim" else ({}, apart_from("victim"))
    classes.submit(
        pod_with("victim", "victim", affinity=of_victim).request(cpu=1).priority_class("trial-low"),
        pod_with("other", "other").request(cpu=1).priority_class("trial-low"),
    )
    expect.running("victim", "other")

    classes.submit(pod_with("new", "new", affinity=of_new).request(cpu=1).priority_class("trial-high"))

    expect.gone("victim")
    assert expect.bound("new").spec.node_name == "n1"
    expect.bound("other")
