"""Preemption for devices: who is evicted where no device is free for a claim. Upstream has none (rule DRA-R128)."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, claim, claim_template, node, pod
from seatrial.suites.dra.offers import Offers, device, offers, served
from seatrial.suites.preemption.nominations import end, freeze, thaw
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes", "offers", "served"]

PREEMPTING = "preempting-for-devices"
pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
PLUGIN = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources"
DESIGN = "specification: a victim gives back what no other pod uses; kubernetes 1.37 does not preempt for devices"


def of(priority: str, name: str, *, template: str = "", shared: str = "") -> PodBuilder:
    built = pod(name).request(cpu=1).priority_class(f"trial-{priority}").scheduler(PREEMPTING)
    return built.claim("d", name=shared, template=template)


@pytest.mark.feature("DRA-5.evicts")
@pytest.mark.case("DR-050", severity="blocker", source=DESIGN)
@pytest.mark.profile(PREEMPTING)
def test_the_least_important_holder_is_evicted(classes: Trial, expect: Expect, offers: Offers) -> None:
    """Two of three devices serve the claim; their holders are of different priority, and one pod holds none."""
    classes.add(node("n1"))
    kinds = ("a", "a", "b")
    offers.publish("n1", *[device(f"d{n}", attributes={"kind": kind}) for n, kind in enumerate(kinds)])
    for kind in "ab":
        serves = f"{offers.attribute('kind')} == '{kind}'"
        classes.apply(claim_template(kind).asks("d", offers.of_class, serves))
    classes.submit(of("middle", "middle", template="a"))
    expect.bound("middle")
    classes.submit(of("low", "low", template="a"), of("low", "other", template="b"))
    expect.bound("low", "other")
    classes.submit(pod("plain").request(cpu=1).priority_class("trial-low"))

    classes.submit(of("high", "high", template="a"))

    expect.running("high", within=60)
    expect.gone("low")
    expect.bound("middle", "other", "plain")
    assert offers.devices_of(offers.claim_of("high", "d")) == ["d=d1"]


@pytest.mark.feature("DRA-5.shared")
@pytest.mark.case("DR-051", severity="critical", source=DESIGN)
@pytest.mark.profile(PREEMPTING)
def test_nobody_is_evicted_for_a_claim_that_stays_in_use(classes: Trial, expect: Expect, offers: Offers) -> None:
    """A low and a high pod share the device: the low one stays, until the other one has ended."""
    classes.add(node("n1"))
    offers.publish("n1", device("d0"))
    classes.apply(claim("shared").asks("d", offers.of_class), claim_template("one").asks("d", offers.of_class))
    classes.submit(of("low", "low", shared="shared"), of("high", "first", shared="shared"))
    expect.running("low", "first")
    classes.submit(of("high", "high", template="one"))
    expect.pending("high", saying="cannot allocate all claims")
    expect.stable(seconds=10)
    expect.bound("low")

    classes.delete("first")

    expect.running("high", within=60)
    expect.gone("low")


@pytest.mark.feature("DRA-5.once")
@pytest.mark.case("DR-052", severity="critical", source=DESIGN)
@pytest.mark.profile(PREEMPTING)
def test_devices_are_kept_for_the_pod_that_waits_for_them(classes: Trial, expect: Expect, offers: Offers) -> None:
    """One of two victims is gone: nobody else is evicted, a less important pod does not take the device that is free,
    and one that asks for a device that nobody waits for gets it."""
    classes.add(node("n1"))
    kinds = ("a", "a", "a", "b")
    offers.publish("n1", *[device(f"d{n}", attributes={"kind": kind}) for n, kind in enumerate(kinds)])
    for name, kind, count in (("one", "a", 1), ("two", "a", 2), ("other", "b", 1)):
        serves = f"{offers.attribute('kind')} == '{kind}'"
        classes.apply(claim_template(name).asks("d", offers.of_class, serves, count=count))
    classes.submit(of("low", "first", template="one"), of("low", "second", template="one"))
    classes.submit(of("middle", "stays", template="one"))
    expect.running("first", "second", "stays")
    freeze(classes, "n1")
    classes.submit(of("high", "high", template="two"))
    expect.nominated("high", "n1")
    end(classes, "first")
    classes.submit(of("middle", "late", template="one"), of("middle", "other", template="other"))
    expect.bound("other")
    expect.stable(seconds=10)
    assert not classes.pod("late").spec.node_name
    assert not classes.pod("stays").deleting

    thaw(classes, "n1")

    expect.running("high", within=60)
    expect.bound("stays")
    assert not classes.pod("late").spec.node_name


@pytest.mark.feature("DRA-5.waits")
@pytest.mark.case(
    "DR-053", severity="normal", source="kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources"
)
def test_without_preemption_for_devices_a_pod_waits(classes: Trial, expect: Expect, offers: Offers) -> None:
    """By default nobody is evicted for a device, and the more important pod gets it when it is free."""
    classes.add(node("n1"))
    offers.publish("n1", device("d0"))
    classes.apply(claim_template("one").asks("d", offers.of_class))
    classes.submit(pod("low").priority_class("trial-low").claim("d", template="one"))
    expect.running("low")
    classes.submit(pod("high").priority_class("trial-high").claim("d", template="one"))
    expect.pending("high", saying="cannot allocate all claims")
    expect.stable(seconds=10)
    expect.bound("low")

    classes.delete("low")

    expect.running("high")
