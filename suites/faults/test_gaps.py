"""Gaps in what the API server tells: a watch that is too old, and a kind that may not be read for a while."""

import pytest

from seatrial.fixtures.allocated_devices import devices_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link, OfKind
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import gang, node, pod
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH
from seatrial.suites.faults.schedulers import link, pause, running, witnessed
from seatrial.suites.scoring.rules import HOST

__all__ = ["link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES)]

GATE = "example.com/later"
TOO_OLD = (
    "k8s.io/apiserver pkg/storage/cacher/cacher.go@v0.37.2: a watch that is too old gets an event ERROR with 410;"
    " k8s.io/client-go tools/cache/reflector.go@v0.37.2: it is listed again"
)
FORBIDDEN = "k8s.io/client-go tools/cache/reflector.go@v0.37.2: a list or watch that is refused is tried again"


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-110", severity="blocker", source=TOO_OLD)
@pytest.mark.long(seconds=12)
def test_a_watch_is_told_inside_that_it_is_too_old(trial: Trial, expect: Expect, link: Link) -> None:
    """Disconnected for a while; then each watch gets the event that it is too old. What came, changed and went
    meanwhile counts: a new pod, a gate that was removed, a taint that was removed, a deleted pod and a deleted node."""
    trial.add(node("full").cpu(1), node("tainted").cpu(1).taint("team"), node("free").cpu(4), node("lost").cpu(4))
    witnessed(trial, expect)
    trial.submit(pod("holder").request(cpu=1).select({HOST: "full"}))
    expect.bound("holder")
    gated = pod("gated").request(cpu=1).select({HOST: "free"})
    gated.manifest["spec"]["schedulingGates"] = [{"name": GATE}]
    trial.submit(
        gated,
        pod("for-the-room").request(cpu=1).select({HOST: "full"}),
        pod("for-the-node").request(cpu=1).select({HOST: "tainted"}),
    )
    expect.pending("for-the-room", "for-the-node")
    before = link.answers[410]

    link.cut()
    link.expire_watches()
    trial.delete("holder")
    removed = {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}
    assert trial.call("PATCH", trial.path("Pod", "gated"), removed, kind=STRATEGIC_MERGE_PATCH).ok
    assert trial.call("PATCH", "/api/v1/nodes/tainted", {"spec": {"taints": None}}).ok
    assert trial.call("DELETE", "/api/v1/nodes/lost").ok
    trial.submit(pod("new").request(cpu=1).select({HOST: "free"}))
    pause(trial, 10, real=2)
    link.heal()

    expect.bound("new", within=90)
    assert link.answers[410] > before, "the watches must have been told that they are too old"
    expect.bound("gated", "for-the-room", "for-the-node", within=90)
    trial.submit(pod("stays").request(cpu=1).select({HOST: "lost"}))  # now the nodes, too, have been listed again
    expect.pending("stays")


@pytest.mark.feature("HIL-4.api-errors", "GANG-1.all-or-nothing")
@pytest.mark.case("FT-176", severity="critical", source=TOO_OLD)
@pytest.mark.long(seconds=12)
def test_what_is_replaced_in_a_gap_is_another_object(trial: Trial, expect: Expect, link: Link) -> None:
    """Disconnected for a while, after which the watches are too old. Meanwhile a pod that holds a node is replaced by
    one of its name and of another scheduler, and the PodGroup of a gang of three by one of two: the pod that waits for
    the node is bound, and so are the two members."""
    trial.add(node("full").cpu(1), node("free").cpu(8))
    witnessed(trial, expect)
    trial.apply(gang("train", 3))
    members = [pod(f"train-{number}").request(cpu=1).select({HOST: "free"}).in_gang("train") for number in range(2)]
    trial.submit(pod("holder").request(cpu=1).select({HOST: "full"}), *members)
    expect.bound("holder")
    trial.submit(pod("for-the-room").request(cpu=1).select({HOST: "full"}))
    expect.pending("for-the-room")
    expect.held("train-0", "train-1")

    link.cut()
    link.expire_watches()
    assert trial.call("DELETE", trial.path("PodGroup", "train")).ok
    trial.apply(gang("train", 2))
    trial.delete("holder")
    trial.submit(pod("holder").request(cpu=1).scheduler("absent-scheduler"))
    pause(trial, 10, real=2)
    link.heal()
    expect.bound("for-the-room", "train-0", "train-1", within=90)


@pytest.mark.feature("HIL-4.api-errors")
@pytest.mark.case("FT-111", severity="critical", source=FORBIDDEN)
@pytest.mark.long(seconds=10)
def test_nodes_may_not_be_read_for_a_while(trial: Trial, expect: Expect, link: Link) -> None:
    """The right to read nodes is taken away: pods go on being placed on the known ones. A node comes meanwhile; the
    right is given back, and the pod that waits for the node is placed."""
    trial.add(node("known").cpu(4))
    witnessed(trial, expect)

    link.refuse(403, OfKind("nodes"))
    link.break_streams()
    trial.add(node("new").cpu(4))
    trial.submit(pod("waits").request(cpu=1).select({HOST: "new"}), pod("placed").request(cpu=1))
    expect.bound("placed", within=60)
    pause(trial, 60, real=4)
    assert link.refused, "requests about nodes must have been refused"
    assert not trial.pod("waits").spec.node_name
    link.heal()

    expect.bound("waits", within=90)


@pytest.mark.feature("HIL-4.api-errors", "HIL-4.scheduler-crash")
@pytest.mark.case("FT-112", severity="critical", source=FORBIDDEN)
@pytest.mark.long(seconds=22)
def test_devices_may_not_be_read_at_the_start(trial: Trial, expect: Expect, running: Subject, link: Link) -> None:
    """A scheduler is started without the right to read devices, and gets it later: a pod gets a card."""
    trial.add(node("n1").gpus("a10", 2))
    witnessed(trial, expect)

    running.kill()
    link.refuse(403, OfKind("devices"))
    running.start_again()
    pause(trial, 5, real=5)
    if not link.refused:
        pytest.skip("the scheduler reads no Device objects")
    link.heal()
    pause(trial, 90, real=12)
    trial.submit(pod("p").gpus(1))

    assert devices_of(expect.bound("p", within=60)), "expected the pod to have a card"


@pytest.mark.feature("HIL-4.api-errors", "HIL-4.scheduler-crash")
@pytest.mark.case("FT-160", severity="critical", source="k8s.io/client-go tools/pager/pager.go@v0.37.2: List")
@pytest.mark.long(seconds=12)
def test_lists_come_in_pages(trial: Trial, expect: Expect, running: Subject, link: Link) -> None:
    """A scheduler is started whose lists come in pages of two: pods are placed by the nodes, pods and cards of all."""
    names = [f"n{number}" for number in range(5)]
    trial.add(*(node(name).cpu(4).gpus("a10", 1) for name in names))
    witnessed(trial, expect)
    trial.submit(*(pod(f"on-{name}").request(cpu=4).select({HOST: name}) for name in names[:4]))
    expect.bound(*(f"on-{name}" for name in names[:4]))

    running.kill()
    link.cut_lists(2)
    running.start_again()
    pause(trial, 90, real=5)
    trial.submit(pod("last").request(cpu=3).gpus(1), pod("waits").request(cpu=2))

    assert expect.bound("last", within=60).spec.node_name == names[4]
    expect.pending("waits")
