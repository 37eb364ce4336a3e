"""The node agents' follower: one object that its handler fails at."""

import msgspec

from seatrial.harness.nodes.follow import Follower, HeadMeta
from seatrial.harness.nodes.tests.little_api import LittleApi
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.faults import Faults

PODS = "/api/v1/pods"


def test_an_object_that_raises_is_handed_over_again_and_the_others_follow() -> None:
    """Of the listed pods and of those that come later the handler raises for one, until the cause is gone."""
    clock = SimClock(faults=Faults())
    api, seen, broken = LittleApi(clock), list[str](), True

    def on_set(head: HeadMeta, _raw: msgspec.Raw) -> None:
        if broken and head.name == "poison":
            raise TypeError("a fault")
        seen.append(head.name)

    for name in ("poison", "a"):
        api.put("/api/v1/namespaces/d/pods", {"metadata": {"name": name, "namespace": "d"}})
    follower = Follower(api, clock, PODS, {}, on_set=on_set, on_gone=lambda head: seen.append(f"-{head.name}"))
    follower.start()
    clock.settle()
    assert seen == ["a"]
    assert follower.synced
    api.put("/api/v1/namespaces/d/pods", {"metadata": {"name": "b", "namespace": "d"}})
    clock.advance(1.0)
    assert seen == ["a", "b"]
    assert [line.split(" failed")[0] for line in clock.faults.report()] == [f"[!]Follower {PODS} d/poison"]
    broken = False
    clock.advance(2.0)
    assert seen == ["a", "b", "poison"]
    broken = True
    api.put("/api/v1/namespaces/d/pods", {"metadata": {"name": "poison", "namespace": "d", "uid": "new"}})
    clock.settle()
    api.drop("/api/v1/namespaces/d/pods/poison")
    clock.advance(3600)
    assert seen[-1] == "-poison"
    assert not clock.faults.report()
