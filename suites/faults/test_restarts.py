"""What a scheduler must know again after a restart before it decides: nominations, devices, pods on nodes."""

import pytest

from seatrial.fixtures.allocated_devices import devices_of, minors
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link, OfKind
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import node, pod, priority_class
from seatrial.suites.faults.schedulers import link, running

__all__ = ["link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("HIL-4.scheduler-crash", "PRE-1.freed-place")
@pytest.mark.case("FT-060", severity="critical")
def test_a_nomination_outlives_a_restart(trial: Trial, expect: Expect, running: Subject) -> None:
    """One of two victims is gone and the other ends slowly, as its node is frozen, when the scheduler restarts.

    The room of the first is not given to a less important pod, and no victim is sought on a further node.
    """
    trial.apply(
        priority_class("trial-low", 1000),
        priority_class("trial-middle", 5000, preempts=False),
        priority_class("trial-high", 9000),
    )
    trial.add(node("n1").cpu(8))
    trial.submit(*(pod(name).request(cpu=4).priority_class("trial-low") for name in ("quick", "slow")))
    expect.running("quick", "slow")
    trial.inject({"node": "n1", "verb": "frozen"})
    trial.submit(pod("high").request(cpu=8).priority_class("trial-high"))
    expect.gone("quick", "slow")
    assert trial.call("DELETE", f"/api/v1/namespaces/{trial.name}/pods/quick?gracePeriodSeconds=0").ok
    expect.nominated("high", "n1")
    running.kill()
    trial.add(node("n2").cpu(8))
    trial.submit(
        pod("thief").request(cpu=4).priority_class("trial-middle"), pod("innocent").request(cpu=8).node_name("n2")
    )
    expect.running("innocent")
    running.start_again()
    expect.pending("thief")
    expect.stable(seconds=2)
    assert not trial.pod("innocent").deleting, "expected no further victim: those of n1 make room enough"
    trial.heal("n1")
    assert expect.bound("high").spec.node_name == "n1"
    assert not trial.pod("thief").spec.node_name


@pytest.mark.feature("HIL-4.scheduler-crash", "HIL-4.api-errors")
@pytest.mark.case("FT-061", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_nothing_is_decided_before_all_is_known(trial: Trial, expect: Expect, running: Subject, link: Link) -> None:
    """While a restarted scheduler cannot list the devices it decides nothing; then the pod gets its card at once."""
    trial.add(node("n1").gpus("a10", 2))
    trial.submit(pod("before").gpus(1))
    before = expect.bound("before")
    running.kill()
    trial.submit(pod("after").gpus(1))
    link.refuse(503, OfKind("devices"))
    trial.cluster.clock.call_later(5.0, link.heal)
    running.start_again()
    after = expect.bound("after")
    assert not {*minors(before)} & {device.minor for device in devices_of(after)}
    refused = [event.message for event in trial.events("after") if event.reason == "FailedScheduling"]
    assert not refused, f"expected no decision before the devices were known, found {refused}"


@pytest.mark.feature("HIL-4.scheduler-crash")
@pytest.mark.case("FT-062", severity="critical")
def test_bound_pods_count_after_a_restart(trial: Trial, expect: Expect, running: Subject) -> None:
    """A restarted scheduler counts CPU, places and devices of the pods that run: what is left is given, no more."""
    trial.add(node("n1").cpu(8).pods(3).gpus("a10", 2))
    trial.submit(pod("cpu").request(cpu=3), pod("half").gpu_share(50).request(cpu=1))
    half = expect.bound("cpu", "half")[1]
    running.kill()
    running.start_again()
    trial.submit(pod("large").request(cpu=5))
    expect.pending("large", saying="Insufficient cpu")
    trial.submit(pod("whole").gpus(1).request(cpu=1))
    whole = expect.bound("whole")
    assert minors(whole) != minors(half)
    trial.submit(pod("fourth"))
    expect.pending("fourth", saying="Too many pods")
