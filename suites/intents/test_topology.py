"""Gangs within one domain of the network, in any scheduler's words. A member asks for one CPU."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.intents import Intents
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import NodeBuilder, node
from seatrial.suites.intents.places import bound, members

# Some schedulers have one topology for the whole cluster.
pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

PROMISE = (
    "MustGather of Koordinator, schedulingConstraints of Kubernetes 1.37, networkTopology hard of Volcano,"
    " requiredTopologyLevel of KAI: all members are in one domain"
)
RACK = "example.com/rack"


def in_rack(name: str, cpus: int) -> NodeBuilder:
    """A node of the rack that its name begins with."""
    return node(name).cpu(cpus).label(RACK, name.partition("-")[0])


def racks(trial: Trial) -> list[str]:
    """The rack of each bound pod, by the pod's name."""
    return [trial.pod(name).spec.node_name.partition("-")[0] for name in bound(trial)]


@pytest.mark.feature("INT-1.topology")
@pytest.mark.case("IN-007", severity="critical", source=PROMISE)
def test_all_members_are_in_one_rack(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Rack a has three CPUs on one node, rack b four on two: a gang of four is bound in b."""
    intents.add(in_rack("a-0", 3), in_rack("b-0", 2), in_rack("b-1", 2))
    intents.topology(RACK, "a", "b")
    intents.gang_within("train", 4, RACK)
    intents.submit(*members("train", 4), gang="train")

    expect.bound(*[f"train-{number}" for number in range(4)], within=60)

    assert racks(trial) == ["b"] * 4


@pytest.mark.feature("INT-1.topology")
@pytest.mark.case("IN-008", severity="critical", source=PROMISE)
def test_a_gang_waits_for_room_in_one_rack(trial: Trial, expect: Expect, intents: Intents) -> None:
    """Two racks have three CPUs each: a gang of four is not bound. Rack b gets a fourth: all are bound there."""
    intents.add(in_rack("a-0", 3), in_rack("b-0", 3))
    intents.topology(RACK, "a", "b")
    intents.gang_within("train", 4, RACK)
    intents.submit(*members("train", 4), gang="train")
    expect.stable(seconds=5)
    assert bound(trial) == []

    intents.add(in_rack("b-1", 1))

    expect.bound(*[f"train-{number}" for number in range(4)], within=120)
    assert racks(trial) == ["b"] * 4
