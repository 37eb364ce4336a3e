"""Groups of waiting pods: pods that differ in labels which no selector reads are woken as one."""

from typing import Any

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.tests.rig import Rig

INDEX = "apps.kubernetes.io/pod-index"


def replica(number: int, app: str = "web", *, key: str = INDEX) -> PodBuilder:
    """A pod of a StatefulSet with a spread constraint over its app."""
    built = pod(f"{app}-{number}").request(cpu=1).label("app", app).label(key, str(number))
    constraint: dict[str, Any] = {
        "topologyKey": "zone",
        "maxSkew": 5,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    built.manifest["spec"]["topologySpreadConstraints"] = [constraint]
    return built


def waiting(count: int = 20) -> Rig:
    rig = Rig()
    rig.node("n", cpu="1", labels={"zone": "a"})
    rig.submit(pod("first").request(cpu=1))
    rig.run()
    rig.submit(*(replica(number) for number in range(count)))
    rig.run()
    return rig


def test_labels_that_nobody_reads_do_not_split_a_group() -> None:
    assert len(list(waiting().core.queue.waiting.classes())) == 1


def test_labels_that_a_constraint_reads_do() -> None:
    rig = waiting(3)
    rig.submit(replica(0, "other"))
    rig.run()
    assert len(list(rig.core.queue.waiting.classes())) == 2


@pytest.mark.parametrize("count", [1, 3])
def test_each_place_goes_to_one_of_them(count: int) -> None:
    rig = waiting(5)
    rig.clock.advance(20)
    rig.node("n", cpu=str(1 + count), labels={"zone": "a"})
    rig.run()
    assert [rig.where(f"web-{number}") for number in range(5)] == ["n"] * count + [""] * (5 - count)


def test_pods_of_a_group_are_tried_one_by_one_when_a_term_reads_what_sets_them_apart() -> None:
    """web-0 waits as the first of its group. Then a pod with anti-affinity against index 0 is placed on the node that
    gets room: web-0 must not stand for the others any more."""
    rig = waiting(3)
    rig.clock.advance(20)
    guard = pod("guard").request(cpu=1)
    guard.manifest["spec"]["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {INDEX: "0"}}}
            ]
        }
    }
    rig.running(guard, "n")
    rig.delete("first")
    rig.node("n", cpu="2", labels={"zone": "a"})
    rig.run()
    assert [rig.where(f"web-{number}") for number in range(3)] == ["", "n", ""]
