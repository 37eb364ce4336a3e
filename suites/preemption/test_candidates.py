"""Which node is chosen when every pod on it has to go.

Two nodes are full of pods of less importance. A pod needs a whole node, so that the victims are known and only the
order of the nodes decides.
"""

from typing import NamedTuple

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, priority_class
from seatrial.suites.preemption.nominations import of
from seatrial.suites.preemption.priorities import classes
from seatrial.suites.scoring.rules import apart_from

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES)]
UPSTREAM = "spec FWK-R78; kubernetes pkg/scheduler/framework/preemption/preemption.go (pickOneNodeForPreemption)"


class Victim(NamedTuple):
    level: str
    cpu: int
    turn: int = 0  # pods of a later turn start later


LOW, MIDDLE, NEGATIVE, ZERO = "low", "middle", "negative", "zero"
CHOICES = {  # the victims of the node that is chosen, and those of the other
    "highest-priority": ([Victim(LOW, 2)] * 4, [Victim(MIDDLE, 8)]),
    "sum-of-priorities": ([Victim(MIDDLE, 4), Victim(LOW, 4)], [Victim(MIDDLE, 4)] * 2),
    "fewer": ([Victim(MIDDLE, 8)], [Victim(MIDDLE, 4), Victim(LOW, 4)]),
    "fewer-of-negative": ([Victim(ZERO, 8)], [Victim(ZERO, 4), Victim(NEGATIVE, 4)]),
    "later-start": ([Victim(LOW, 8, 1)], [Victim(LOW, 8)]),
    "later-start-of-the-most-important": (
        [Victim(MIDDLE, 4, 2), Victim(LOW, 4)],
        [Victim(MIDDLE, 4, 1), Victim(LOW, 4, 3)],
    ),
    "later-start-of-the-earliest": ([Victim(LOW, 4, 1), Victim(LOW, 4, 2)], [Victim(LOW, 4), Victim(LOW, 4, 3)]),
}


def on(host: str, number: int, victim: Victim) -> PodBuilder:
    return of(victim.level, f"{host}-{number}", victim.cpu).on(host=host)


@pytest.mark.feature("PRE-1.minimal-victims")
@pytest.mark.case("PR-082", severity="critical", source=UPSTREAM)
@pytest.mark.parametrize("chosen", ["n1", "n2"])
@pytest.mark.parametrize("apart", [False, True], ids=["plain", "with-a-term"])
@pytest.mark.parametrize("choice", CHOICES)
def test_the_node_whose_victims_count_least_is_chosen(
    classes: Trial, expect: Expect, choice: str, apart: bool, chosen: str
) -> None:
    """Two nodes differ in one of the measures by which candidates are compared, and some in a later one the other way
    round: the pods of one go, and all of the other stay. The pod with a term has to be apart from pods that are not
    there."""
    classes.apply(priority_class("trial-negative", -1000), priority_class("trial-zero", 0))
    (other,) = {"n1", "n2"} - {chosen}
    classes.add(*(node(name).cpu(8).label("host", name) for name in ("n1", "n2")))
    victims = dict(zip((chosen, other), CHOICES[choice], strict=True))
    for turn in range(4):
        built = [
            on(host, number, victim)
            for host, row in victims.items()
            for number, victim in enumerate(row)
            if victim.turn == turn
        ]
        if built:
            classes.submit(*built)
            expect.running(*(one.name for one in built))
            classes.cluster.pass_time(2)  # start times have whole seconds

    new = of("high", "high", 8)
    if apart:
        new.manifest["spec"]["affinity"] = apart_from("nobody")
    classes.submit(new)

    assert expect.bound("high").spec.node_name == chosen
    left = {one.metadata.name for one in classes.pods() if not one.deleting} - {"high"}
    assert left == {f"{other}-{number}" for number in range(len(victims[other]))}
