"""Waiting pods are woken one after the other, also when they were first tried on an empty cluster."""

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.tests.rig import Rig

HOST = "kubernetes.io/hostname"


def spread(name: str) -> PodBuilder:
    """A pod whose scores depend on where others like it are."""
    built = pod(name).label("app", "a").request(cpu=2)
    built.manifest["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": HOST,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "a"}},
        }
    ]
    return built


def test_pods_that_were_tried_before_the_first_node_came() -> None:
    """On an empty cluster no plugin runs, so the pods wait without the mark that they have later: all are woken."""
    rig = Rig()
    rig.submit(*(spread(name) for name in "abc"))
    rig.run()
    rig.node("n1", labels={HOST: "n1"})
    rig.run()
    for _ in range(3):
        rig.clock.advance(1.0)
        rig.run()
    assert [rig.where(name) for name in "abc"] == ["n1", "n1", "n1"]


def test_each_pod_is_tried_again_when_it_has_waited_for_five_minutes() -> None:
    """Two pods wait from the seconds 0 and 100 on, and nothing happens: the second one need not wait until five minutes
    after the first one's turn."""
    rig = Rig()
    rig.node("n1")
    for name in "ab":
        rig.submit(pod(name).request(cpu=100_000))
        rig.run()
        rig.clock.advance(100.0)
    rig.clock.advance(205.0)
    rig.run()
    assert {entry.info.pod.metadata.name: entry.attempts for _, entry in rig.core.queue.entries()} == {"a": 2, "b": 2}


def test_what_a_pod_has_met_is_no_reason_to_try_it_again() -> None:
    """A pod is placed that the spread constraint of the next one counts, and then the next is tried and fits nowhere.
    Only what is placed afterwards has it tried again, as a less important pod could be evicted for it."""
    rig = Rig()
    rig.node("n1", labels={HOST: "n1"})
    rig.running(pod("less").priority(-1), "n1")
    many = spread("many").request(cpu=100_000).priority(1)
    many.manifest["spec"]["topologySpreadConstraints"][0]["whenUnsatisfiable"] = "DoNotSchedule"

    def attempts() -> int:
        for _ in range(8):
            rig.run()
            rig.clock.advance(1.0)
        entry = rig.core.queue.find("uid-many")
        assert entry is not None
        return entry.attempts

    rig.submit(spread("first").priority(2), many)
    assert attempts() == 1
    rig.submit(pod("second").label("app", "a").priority(2))
    assert attempts() == 2
