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
