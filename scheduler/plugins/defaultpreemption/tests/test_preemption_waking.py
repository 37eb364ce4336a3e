"""A waiting pod is tried again when a pod leaves a node where it may preempt, though no node is feasible for it."""

import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.tests.rig import Rig


def waiting_rig(**there: int) -> Rig:
    """A node of 4 CPUs, full of pods `n-KEY` of these priorities and one CPU each. `p`, of priority 10, needs three."""
    rig = Rig()
    rig.node("n", cpu="4")
    for key, priority in there.items():
        rig.running(pod(f"n-{key}").request(cpu=1).priority(priority), "n")
    rig.submit(pod("p").request(cpu=3).priority(10))
    rig.run()
    assert rig.victims() == []
    return rig


def attempts(rig: Rig, name: str = "p") -> int:
    entry = rig.core.queue.find(f"uid-{name}")
    assert entry is not None
    return entry.attempts


def test_a_pod_preempts_when_a_pod_that_it_may_not_preempt_leaves() -> None:
    rig = waiting_rig(a=10, b=10, c=1, d=2)
    rig.clock.advance(2.0)
    rig.delete("n-a")
    rig.run()
    assert sorted(rig.victims()) == ["n-c", "n-d"]


def test_a_pod_in_backoff_preempts_when_it_ends() -> None:
    rig = waiting_rig(a=10, b=10, c=1, d=2)
    rig.delete("n-a")
    rig.run()
    assert rig.victims() == []
    rig.clock.advance(1.1)
    rig.run()
    assert sorted(rig.victims()) == ["n-c", "n-d"]


def test_a_pod_is_not_tried_where_all_pods_are_as_important() -> None:
    rig = waiting_rig(a=10, b=10, c=10, d=10)
    rig.running(pod("elsewhere").request(cpu=1).priority(1), "m")
    rig.node("m", cpu="1")
    rig.run()
    rig.clock.advance(20.0)
    rig.run()  # the node that was added had it tried
    before = attempts(rig)
    rig.delete("n-a")
    rig.run()
    rig.clock.advance(20.0)
    rig.run()
    assert attempts(rig) == before


def test_of_equal_pods_one_is_tried_in_a_second() -> None:
    """Three pods wait that can preempt nowhere, and pods leave another node one after another."""
    rig = waiting_rig(a=10, b=10, c=10, d=1)
    rig.submit(*(pod(name).request(cpu=3).priority(10) for name in "qr"))
    rig.node("m", cpu="2")
    rig.running(pod("stays").request(cpu=1).priority(1), "m")
    for number in range(6):
        rig.running(pod(f"m-{number}").request(cpu="100m").priority(10), "m")
    rig.run()
    rig.clock.advance(30.0)
    rig.run()

    def tried() -> int:
        return sum(attempts(rig, name) for name in "pqr")

    before = tried()
    for number in range(3):
        rig.delete(f"m-{number}")
        rig.run()
    assert tried() == before + 1
    rig.clock.advance(1.1)
    rig.run()
    assert tried() == before + 2, "the pods that left meanwhile count too"
    rig.clock.advance(30.0)
    rig.run()
    assert tried() == before + 2, "no pod has left since"


@pytest.mark.parametrize("in_backoff", [True, False])
def test_a_nominated_pod_that_lost_its_room_preempts_on_another_node(*, in_backoff: bool) -> None:
    """The victim on `n` ends, in the pod's backoff or later. A more important pod, which another scheduler has put
    there, has the room: only `m` has a pod that may be preempted."""
    rig = Rig()
    for node, priority in (("n", 1), ("m", 5)):
        rig.node(node, cpu="1")
        rig.running(pod(f"on-{node}").request(cpu=1).priority(priority), node)
    rig.submit(pod("p").request(cpu=1).priority(10))
    rig.run()
    assert rig.victims() == ["on-n"]
    rig.running(pod("boss").request(cpu=1).priority(20), "n")
    if not in_backoff:
        rig.clock.advance(2.0)
        rig.run()
    rig.delete("on-n")
    rig.run()
    assert rig.victims() == (["on-n"] if in_backoff else ["on-n", "on-m"])
    rig.clock.advance(1.1)
    rig.run()
    assert rig.victims() == ["on-n", "on-m"]
