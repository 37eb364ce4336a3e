"""Events that come at once, as after a gap in the connection, or shortly after each other: each counts for all pods."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node
from seatrial.suites.faults.schedulers import link, pause, running
from seatrial.suites.preemption.nominations import end, of
from seatrial.suites.preemption.priorities import classes
from seatrial.suites.scoring.rules import HOST

__all__ = ["classes", "link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES)]

DELETED = "kubernetes pkg/scheduler/eventhandlers.go: each deletion of a pod moves waiting pods to the queue"


def end_at_once(trial: Trial, link: Link, *names: str) -> None:
    """Have these pods end while the scheduler is disconnected, so that it reads of all of them in one turn."""
    link.cut()
    for name in names:
        end(trial, name)
    pause(trial, 2, real=2)
    link.heal()


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case("PR-110", severity="normal", source=DELETED)
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("helpful", ["n1", "n2"])
def test_of_two_nodes_that_pods_leave_at_once_each_counts(
    classes: Trial, expect: Expect, link: Link, helpful: str
) -> None:
    """Two nodes are half full of a pod of equal importance each. The rest of one has a less important pod, the rest of
    the other a more important one. Both equal pods end at once: the less important one is evicted."""
    (other,) = {"n1", "n2"} - {helpful}
    classes.add(node("n1").cpu(8), node("n2").cpu(8))
    classes.submit(
        of("high", "equal-n1", 4).select({HOST: "n1"}),
        of("high", "equal-n2", 4).select({HOST: "n2"}),
        of("low", "low", 4).select({HOST: helpful}),
        of("top", "top", 4).select({HOST: other}),
    )
    expect.running("equal-n1", "equal-n2", "low", "top")
    classes.submit(of("high", "waits", 8))
    expect.pending("waits")
    assert not classes.pod("low").deleting

    end_at_once(classes, link, "equal-n1", "equal-n2")

    expect.gone("low", within=60)
    assert expect.bound("waits").spec.node_name == helpful


@pytest.mark.feature("PRE-1.lower-goes")
@pytest.mark.case("PR-111", severity="normal", source=DELETED)
@pytest.mark.long(seconds=15)
def test_a_later_event_does_not_hide_an_earlier_one(classes: Trial, expect: Expect) -> None:
    """A pod waits in its backoff, and a more important one that is larger than all nodes does. A pod of equal
    importance leaves n1, where a less important one remains; then one leaves n2, where a more important one remains:
    the less important one is evicted."""
    classes.add(node("n1").cpu(8), node("n2").cpu(8))
    classes.submit(
        of("middle", "equal-n1", 4).select({HOST: "n1"}),
        of("low", "low", 4).select({HOST: "n1"}),
        of("middle", "equal-n2", 4).select({HOST: "n2"}),
        of("high", "important", 4).select({HOST: "n2"}),
    )
    expect.running("equal-n1", "low", "equal-n2", "important")
    classes.submit(of("top", "too-large", 64))
    expect.pending("too-large")
    classes.submit(of("middle", "waits", 8))
    expect.pending("waits", cooled=False)
    assert not classes.pod("low").deleting

    end(classes, "equal-n1")
    end(classes, "equal-n2")

    expect.gone("low")
    assert expect.bound("waits").spec.node_name == "n1"
