"""What a scheduler must know again after a restart before it decides: nominations, devices, pods on nodes."""

from collections.abc import Iterator

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.promises import devices_of, minors
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.faulty import Link, devices
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import PodBuilder, node, pod, priority_class

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.fixture
def running(subject: Subject | None) -> Subject:
    """The scheduler under test, if the test may end it."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started; the harness did not start this one")
    return subject


@pytest.fixture
def link(running: Subject) -> Iterator[Link]:
    """The scheduler's connection to the API server."""
    with running.troubled() as link:
        yield link


def ending_slowly(one: PodBuilder, seconds: int) -> PodBuilder:
    one.manifest["spec"]["terminationGracePeriodSeconds"] = seconds
    return one


@pytest.mark.feature("HIL-4.scheduler-crash", "PRE-1.freed-place")
@pytest.mark.case("FT-060", severity="critical")
@pytest.mark.long(25)
def test_a_nomination_outlives_a_restart(cluster: Trial, expect: Expect, running: Subject) -> None:
    """Half of the room of a nominated pod is free when the scheduler restarts: a less important pod does not get it,
    and no further pod is a victim."""
    cluster.apply(priority_class("trial-low", 1000), priority_class("trial-middle", 5000),
                  priority_class("trial-high", 9000))  # fmt: skip
    cluster.add(node("n1").cpu(8))
    low = pod("quick").request(cpu=4), pod("slow").request(cpu=4)
    cluster.submit(*(ending_slowly(one, seconds).priority_class("trial-low")
                     for one, seconds in zip(low, (1, 20), strict=True)))  # fmt: skip
    expect.running("quick", "slow")
    cluster.submit(pod("high").request(cpu=8).priority_class("trial-high"))
    assert cluster.cluster.wait(lambda: cluster.find("quick") is None, within=10), "the quick victim was to be gone"
    assert cluster.pod("high").status.nominated_node_name == "n1"
    running.kill()
    cluster.add(node("n2").cpu(8))
    cluster.submit(pod("thief").request(cpu=4).priority_class("trial-middle").never_preempts(),
                   pod("innocent").request(cpu=8).node_name("n2"))  # fmt: skip
    expect.running("innocent")
    running.start_again()
    expect.pending("thief")
    assert expect.bound("high", within=40).spec.node_name == "n1"
    expect.stable(seconds=2)
    assert not cluster.pod("thief").spec.node_name
    assert not cluster.pod("innocent").deleting, "the victims of the first preemption were enough"


@pytest.mark.feature("HIL-4.scheduler-crash", "HIL-4.api-errors")
@pytest.mark.case("FT-061", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_nothing_is_decided_before_all_is_known(cluster: Trial, expect: Expect, running: Subject, link: Link) -> None:
    """While a restarted scheduler cannot list the devices it decides nothing; then the pod gets its card at once."""
    cluster.add(node("n1").gpus("a10", 2))
    cluster.submit(pod("before").gpus(1))
    before = expect.bound("before")
    running.kill()
    cluster.submit(pod("after").gpus(1))
    link.refuse(503, devices)
    cluster.cluster.clock.call_later(5.0, link.heal)
    running.start_again()
    after = expect.bound("after")
    assert not {*minors(before)} & {one.minor for one in devices_of(after)}
    refused = [event.message for event in cluster.events("after") if event.reason == "FailedScheduling"]
    assert not refused, f"expected no decision before the devices were known, found {refused}"


@pytest.mark.feature("HIL-4.scheduler-crash")
@pytest.mark.case("FT-062", severity="critical")
def test_bound_pods_count_after_a_restart(cluster: Trial, expect: Expect, running: Subject) -> None:
    """A restarted scheduler counts CPU, places and devices of the pods that run: what is left is given, no more."""
    cluster.add(node("n1").cpu(8).pods(3).gpus("a10", 2))
    cluster.submit(pod("cpu").request(cpu=3), pod("half").gpu_share(50).request(cpu=1))
    half = expect.bound("cpu", "half")[1]
    running.kill()
    running.start_again()
    cluster.submit(pod("large").request(cpu=5))
    expect.pending("large", saying="Insufficient cpu")
    cluster.submit(pod("whole").gpus(1).request(cpu=1))
    whole = expect.bound("whole")
    assert minors(whole) != minors(half)
    cluster.submit(pod("fourth"))
    expect.pending("fourth", saying="Too many pods")
