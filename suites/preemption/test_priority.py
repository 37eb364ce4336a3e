"""Preemption by priority: the right victims, and no more than necessary."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, disruption_budget, node, pod, reservation
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


def low(name: str, cards: int = 1) -> PodBuilder:
    return pod(name).gpus(cards).priority_class("trial-low")


def high(name: str, cards: int = 1) -> PodBuilder:
    return pod(name).gpus(cards).priority_class("trial-high")


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case("PR-001", severity="blocker")
def test_a_higher_pod_takes_the_place_of_a_lower_one(classes: Trial, expect: Expect) -> None:
    """On a full node the lower pod is deleted and the higher one gets its card."""
    classes.add(node("n1").cards(1))
    classes.submit(low("low"))
    expect.running("low")

    classes.submit(high("high"))

    expect.gone("low")
    expect.running("high")


@pytest.mark.feature("PRE-1.minimal-victims")
@pytest.mark.case("PR-002", severity="critical")
def test_no_more_victims_than_needed(classes: Trial, expect: Expect) -> None:
    """For one card, one of four lower pods is deleted and three stay."""
    classes.add(node("n1").cards(4))
    classes.submit(*(low(f"low{number}") for number in range(4)))
    expect.running("low0", "low1", "low2", "low3")

    classes.submit(high("high"))

    expect.running("high")
    expect.stable(seconds=2)
    left = [pod.metadata.name for pod in classes.pods() if pod.metadata.name.startswith("low") and not pod.deleting]
    assert len(left) == 3, f"expected three of four lower pods to stay, found {left}"


@pytest.mark.feature("PRE-1.minimal-victims")
@pytest.mark.case("PR-003", severity="critical")
def test_the_lowest_priority_goes_first(classes: Trial, expect: Expect) -> None:
    """Of two nodes with one victim each, the node with the lower victim is chosen."""
    classes.add(node("n1").cards(1), node("n2").cards(1))
    classes.submit(pod("middle").gpus(1).priority_class("trial-middle"), low("low"))
    expect.running("middle", "low")

    classes.submit(high("high"))

    expect.gone("low")
    expect.running("high", "middle")


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case("PR-004", severity="critical")
def test_equal_priority_is_left_alone(classes: Trial, expect: Expect) -> None:
    """A pod of equal priority waits; no pod is deleted for it."""
    classes.add(node("n1").cards(1))
    classes.submit(low("first"))
    expect.running("first")

    classes.submit(low("second"))

    expect.pending("second")
    expect.stable(seconds=2)
    assert not classes.pod("first").deleting


@pytest.mark.feature("PRE-1.never")
@pytest.mark.case("PR-005", severity="critical")
@pytest.mark.parametrize("nominated", [False, True], ids=["plain", "nominated-by-another"])
def test_never_means_never(classes: Trial, expect: Expect, nominated: bool) -> None:
    """A pod whose class never preempts waits until the card is free, also where another program nominates a node."""
    classes.add(node("n1").cards(1))
    classes.submit(low("low"))
    expect.running("low")

    patient = pod("patient").gpus(1).priority_class("trial-patient")
    patient.manifest["spec"]["schedulingGates"] = [{"name": "example.com/later"}] if nominated else []
    classes.submit(patient)
    path = classes.path("Pod", "patient")
    if nominated:
        assert classes.call("PATCH", f"{path}/status", {"status": {"nominatedNodeName": "n1"}}).ok
        assert classes.call("PATCH", path, {"spec": {"schedulingGates": None}}).ok

    expect.pending("patient")
    expect.stable(seconds=2)
    classes.delete("low")
    expect.running("patient")


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-006", severity="critical")
def test_a_budget_protects_its_pods_where_others_will_do(classes: Trial, expect: Expect) -> None:
    """Of two possible victims, the one outside of the disruption budget is deleted."""
    classes.add(node("n1").cards(2))
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    classes.submit(low("guarded").label("app", "guarded"), low("other"))
    expect.running("guarded", "other")

    classes.submit(high("high"))

    expect.gone("other")
    expect.running("high", "guarded")


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-007", severity="normal")
def test_a_budget_gives_way_where_nothing_else_will_do(classes: Trial, expect: Expect) -> None:
    """A budget is violated only if no other victim helps, as upstream does."""
    classes.add(node("n1").cards(1))
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    classes.submit(low("guarded").label("app", "guarded"))
    expect.running("guarded")

    classes.submit(high("high"))

    expect.running("high")


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-008", severity="critical")
def test_the_freed_place_is_held_for_the_one_it_was_freed_for(classes: Trial, expect: Expect) -> None:
    """While victims terminate, a later pod of lower priority does not get the card that becomes free."""
    classes.add(node("n1").cards(1))
    slow = low("slow")
    slow.manifest["spec"]["terminationGracePeriodSeconds"] = 3
    classes.submit(slow)
    expect.running("slow")

    classes.submit(high("high"))
    expect.gone("slow")
    classes.submit(pod("middle").gpus(1).priority_class("trial-middle"))

    expect.running("high")
    expect.pending("middle")


@pytest.mark.feature("PRE-1.device-shares")
@pytest.mark.case("PR-009", severity="critical")
def test_shares_are_preempted_too(classes: Trial, expect: Expect) -> None:
    """A pod that needs a whole card preempts the shares of one card only."""
    classes.add(node("n1").cards(2))
    classes.submit(*(pod(f"s{number}").gpu_share(50).priority_class("trial-low") for number in range(4)))
    expect.running("s0", "s1", "s2", "s3")

    classes.submit(high("whole"))

    expect.running("whole")
    expect.stable(seconds=2)
    assert sum(1 for pod in classes.pods() if pod.metadata.name.startswith("s") and not pod.deleting) == 2


@pytest.mark.feature("PRE-1.minimal-victims")
@pytest.mark.case("PR-010", severity="normal")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_preemption_that_cannot_help_evicts_no_pod(classes: Trial, expect: Expect) -> None:
    """A pod that would not fit on an empty node preempts no pod."""
    classes.add(node("n1").cards(2))
    classes.submit(low("a"), low("b"))
    expect.running("a", "b")

    classes.submit(high("huge", cards=4))

    expect.pending("huge", saying="preemption: 0/1 nodes are available")
    expect.stable(seconds=2)


@pytest.mark.feature("RSV-4.enable-preemption")
@pytest.mark.case("PR-228", severity="critical", source="spec RSV-R44: without enablePreemption no victims")
@pytest.mark.long(seconds=12)
def test_a_reservation_evicts_no_pod(classes: Trial, expect: Expect) -> None:
    """The only card has a less important pod: a Reservation waits for it."""
    classes.add(node("n1").cards(1))
    classes.submit(low("low"))
    expect.running("low")

    classes.reserve(reservation("held").like(high("x")).for_labels(app="owner"))

    expect.stable(seconds=12)
    assert not classes.pod("low").deleting
    classes.delete("low")
    expect.available("held")


@pytest.mark.feature("PRE-1.minimal-victims", "RSV-4.enable-preemption")
@pytest.mark.case("PR-229", severity="critical", source="spec RSV-R33, RSV-R34: what is reserved stays so")
def test_an_owner_of_a_reservation_is_not_evicted_for_others(classes: Trial, expect: Expect) -> None:
    """A Reservation holds the node for its owner, which is less important. The eviction of the owner would not make
    room for others: it stays."""
    classes.add(node("n1").cpu(4))
    classes.reserve(reservation("held").like(pod("x").request(cpu=4)).for_labels(app="owner").many())
    expect.available("held")
    classes.submit(pod("owner").request(cpu=4).label("app", "owner").priority_class("trial-low"))
    expect.running("owner")

    classes.submit(pod("high").request(cpu=4).priority_class("trial-high"))

    expect.pending("high")
    expect.stable(seconds=3)
    expect.running("owner")


@pytest.mark.feature("PRE-1.minimal-victims")
@pytest.mark.case("PR-063", severity="critical", source="kubernetes plugins/defaultpreemption: SelectVictimsOnNode")
@pytest.mark.parametrize("first", ["low", "middle"])
def test_of_two_pods_on_a_node_the_less_important_goes(classes: Trial, expect: Expect, first: str) -> None:
    """One card has to become free: the low pod goes and the middle one stays, whichever came first."""
    classes.add(node("n1").cards(2))
    pods = {"low": low("low"), "middle": pod("middle").gpus(1).priority_class("trial-middle")}
    classes.submit(pods.pop(first))
    expect.running(first)
    (second,) = pods
    classes.submit(pods[second])
    expect.running(second)

    classes.submit(high("high"))

    expect.gone("low")
    expect.running("high", "middle")
