"""Priorities, preemption and places: words that are the same for all schedulers of Kubernetes."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.intents import Intents
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, priority_class
from seatrial.suites.intents.places import bound

# Priorities are below 100: KAI evicts no pod from there on, and gives 50 to pods without a class.
pytestmark = [pytest.mark.needs(Capability.NODES)]

PRIORITY = "Kubernetes: Pod Priority and Preemption"
PLACES = "Kubernetes: Assigning Pods to Nodes; Taints and Tolerations"


@pytest.mark.feature("INT-1.order")
@pytest.mark.case("IN-050", severity="critical", source=PRIORITY)
def test_the_most_important_pod_gets_the_room(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Three pods wait for the room of one. When it comes, the one with the highest priority gets it: at once, or from a
    less important one that was tried while a scheduler woke them one by one."""
    names = {level: f"{trial.name}-{level}" for level in ("low", "high")}
    trial.apply(priority_class(names["low"], 10), priority_class(names["high"], 90))
    intents.add(node("none").cpu(0))
    intents.submit(pod("low").request(cpu=2).priority_class(names["low"]))
    intents.submit(pod("plain").request(cpu=2))
    intents.submit(pod("high").request(cpu=2).priority_class(names["high"]))
    expect.stable(seconds=3)

    intents.add(node("n1").cpu(2))

    expect.bound("high", within=120)
    expect.stable(seconds=3)
    assert bound(trial) == ["high"]


@pytest.mark.feature("INT-1.order")
@pytest.mark.case("IN-051", severity="critical", source=PRIORITY)
def test_a_more_important_pod_evicts_a_less_important_one(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Two pods of little and of some importance fill a node; one that is more important evicts the least."""
    names = {level: f"{trial.name}-{level}" for level in ("low", "mid", "high")}
    trial.apply(*[priority_class(name, 10 * (place + 1)) for place, name in enumerate(names.values())])
    intents.add(node("n1").cpu(4))
    for level in ("low", "mid"):
        intents.submit(pod(level).request(cpu=2).priority_class(names[level]))
    expect.bound("low", "mid", within=120)

    intents.submit(pod("high").request(cpu=2).priority_class(names["high"]))

    expect.bound("high", within=120)
    assert trial.find("low") is None
    assert trial.pod("mid").spec.node_name == "n1"


@pytest.mark.feature("INT-1.order")
@pytest.mark.case("IN-052", severity="critical", source=PRIORITY)
def test_no_pod_evicts_its_equals(trial: Trial, expect: Expect, intents: Intents) -> None:
    """A node is full with a pod of the same priority: the newer one waits."""
    trial.apply(priority_class(f"{trial.name}-same", 10))
    intents.add(node("n1").cpu(2))
    intents.submit(pod("first").request(cpu=2).priority_class(f"{trial.name}-same"))
    expect.bound("first", within=120)

    intents.submit(pod("second").request(cpu=2).priority_class(f"{trial.name}-same"))

    expect.stable(seconds=5)
    assert trial.pod("first").spec.node_name == "n1"
    assert not trial.pod("second").spec.node_name


@pytest.mark.feature("INT-1.places")
@pytest.mark.case("IN-060", severity="critical", source=PLACES)
def test_selectors_and_taints(trial: Trial, expect: Expect, intents: Intents) -> None:
    """One node has a label, one a taint, one neither: a pod that selects, one that tolerates and selects, and one that
    selects the tainted node alone get their places, or none."""
    intents.add(
        node("plain").cpu(4).label("pool", "plain"),
        node("fast").cpu(4).label("pool", "fast"),
        node("kept").cpu(4).label("pool", "kept").taint("team", "a"),
    )
    intents.submit(pod("on-fast").request(cpu=1).on(pool="fast"))
    intents.submit(pod("on-kept").request(cpu=1).on(pool="kept").tolerate("team", value="a", effect="NoSchedule"))
    intents.submit(pod("refused").request(cpu=1).on(pool="kept"))

    fast, kept = expect.bound("on-fast", "on-kept", within=120)

    assert (fast.spec.node_name, kept.spec.node_name) == ("fast", "kept")
    expect.stable(seconds=3)
    assert not trial.pod("refused").spec.node_name
