"""Nominated room of a gang, and pods that are more important than the gang."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang
from seatrial.suites.preemption.jobs import PREEMPTING, filler, hosts, names, nominated, workers
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(PREEMPTING)]


@pytest.mark.feature("PRE-3.given-back")
@pytest.mark.case("JP-054", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # the victim terminates for minutes
def test_the_room_is_given_back_when_a_more_important_pod_takes_a_part(classes: Trial, expect: Expect) -> None:
    """A gang of two has evicted a pod from each of two nodes, and one of them still ends. A more important pod preempts
    there: the other node, which is free already, goes to the pod of low priority that waits for it."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("quick", "n1"), filler("slow", "n2", grace=300))
    expect.running("quick", "slow")
    classes.apply(gang("train", 2))
    classes.submit(*workers("train", 2, priority="trial-middle"))
    expect.gone("quick", "slow")
    classes.submit(filler("next", "n1"))
    expect.pending("next")
    assert all(nominated(classes, *names("train", 2)))

    classes.submit(filler("boss", "n2", priority="trial-top"))

    expect.running("next", within=30)
    assert nominated(classes, *names("train", 2)) == ["", ""]
