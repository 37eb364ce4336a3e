"""Claims that keep or lose their devices: who uses them, and what happened while the scheduler saw nothing."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Manifest, Trial
from seatrial.harness.clusters.fault_injection.transport import Link, writes
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import claim, node, pod
from seatrial.suites.dra.offers import Offers, device, offers, served
from seatrial.suites.faults.schedulers import link, pause, running, witnessed

__all__ = ["link", "offers", "running", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
PLUGIN = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources"
HOST = "kubernetes.io/hostname"


@pytest.mark.feature("DRA-1.shared", "DRA-1.comes-back")
@pytest.mark.case("DR-127", severity="critical", source=f"{PLUGIN}/dynamicresources.go: PostFilter; spec DRA-R65")
@pytest.mark.parametrize(
    ("users", "kept"),
    [
        pytest.param(["user"], True, id="another"),
        pytest.param(["user", "late"], True, id="another-and-itself"),
        pytest.param(["late"], False, id="itself"),
    ],
)
def test_a_claim_keeps_its_devices_while_another_pod_uses_it(
    trial: Trial, expect: Expect, offers: Offers, users: list[str], kept: bool
) -> None:
    """A claim has a device of a node that its next pod may not use: it gets one of another node if nobody else uses
    it, whoever it is reserved for, and waits otherwise."""
    trial.add(node("n1"), node("n2"))
    for name in ("n1", "n2"):
        offers.publish(name, device("d0"))
    trial.apply(claim("one").asks("d", offers.of_class))
    late = pod("late").claim("d", name="one").select({HOST: "n2"})
    late.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    trial.submit(late)
    if "user" in users:
        trial.submit(pod("user").claim("d", name="one").select({HOST: "n1"}))
        expect.running("user")
    if "late" in users:
        _reserve(trial, offers, *users)

    assert trial.call("PATCH", trial.path("Pod", "late"), {"spec": {"schedulingGates": None}}).ok

    if kept:
        expect.pending("late", saying="resourceclaim not available on the node")
        expect.stable(seconds=5)
        assert offers.devices_of("one") == ["d=d0"]
        assert {user.name for user in offers.claim("one").status.reserved_for} >= {"user"}
    else:
        assert expect.bound("late", within=60).spec.node_name == "n2"


def _reserve(trial: Trial, offers: Offers, *names: str) -> None:
    """The claim has the device of n1 and is reserved for these pods, as a failed binding leaves it."""
    users = [{"resource": "pods", "name": name, "uid": trial.pod(name).metadata.uid} for name in names]
    local = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    result = {"request": "d", "driver": offers.driver, "pool": f"{trial.name}-n1", "device": "d0"}
    allocation: Manifest = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [local]}}
    status: Manifest = {"reservedFor": users}
    if offers.claim("one").status.allocation is None:
        status["allocation"] = allocation
    response = trial.call("PATCH", f"{trial.path('ResourceClaim', 'one')}/status", {"status": status})
    assert response.ok, response.body
    trial.settle()


@pytest.mark.feature("DRA-1.comes-back", "HIL-4.api-errors")
@pytest.mark.case("DR-128", severity="critical", source=f"{PLUGIN}/dra_manager.go: claims are known by their uid")
@pytest.mark.long(seconds=12)
def test_what_changed_while_the_scheduler_saw_nothing(trial: Trial, expect: Expect, offers: Offers, link: Link) -> None:
    """A claim is deleted and made anew, another one and a slice are deleted, a class means other devices."""
    trial.add(node("n1"), node("n2"))
    offers.publish("n1", device("d0", attributes={"kind": "a"}), device("d1", attributes={"kind": "a"}))
    offers.publish("n2", device("d2", attributes={"kind": "a"}))
    for name in ("anew", "gone"):
        trial.apply(claim(name).asks("d", offers.of_class))
        trial.submit(pod(f"first-{name}").claim("d", name=name).select({HOST: "n1"}))
    witnessed(trial, expect)
    expect.running("first-anew", "first-gone")

    link.cut()
    link.expire_watches()
    trial.delete("first-anew", "first-gone")
    for name in ("anew", "gone"):
        assert trial.call("DELETE", trial.path("ResourceClaim", name)).ok
    assert trial.reaches(lambda: trial.call("GET", trial.path("ResourceClaim", "anew")).code == 404, within=30)
    trial.apply(claim("anew").asks("d", offers.of_class))
    assert trial.call("DELETE", trial.path("ResourceSlice", f"{trial.name}-n2")).ok
    trial.apply(claim("both").asks("d", offers.of_class, count=2))
    pause(trial, 10, real=2)
    link.heal()
    trial.submit(pod("second").claim("d", name="both"))

    assert expect.bound("second", within=90).spec.node_name == "n1"
    trial.submit(pod("third").claim("d", name="anew"))
    expect.pending("third", saying="cannot allocate all claims")
    trial.delete("second")
    expect.bound("third")


@pytest.mark.feature("DRA-1.comes-back", "HIL-4.api-errors")
@pytest.mark.case(
    "DR-137", severity="critical", source=f"{PLUGIN}/dynamicresources.go: Unreserve; spec DRA-R67, DRA-R68"
)
@pytest.mark.long(seconds=12)
@pytest.mark.parametrize("lost", [False, True], ids=["refused", "unanswered"])
def test_a_device_comes_back_if_its_allocation_is_not_written(
    trial: Trial, expect: Expect, offers: Offers, link: Link, lost: bool
) -> None:
    """All writes fail for a while, and the pod that was to have the device is deleted: the next pod gets the device."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"))
    trial.apply(claim("one").asks("d", offers.of_class), claim("two").asks("d", offers.of_class))
    witnessed(trial, expect)
    if lost:
        link.lose_answers(writes)
    else:
        link.refuse(500, writes)
    trial.submit(pod("a").claim("d", name="one"))
    assert trial.wait(lambda: bool(link.lost if lost else link.refused), within=60), "a write was to be tried"
    pause(trial, 10, real=3)
    trial.delete("a")
    link.heal()
    assert trial.reaches(lambda: not offers.devices_of("one"), within=60)

    trial.submit(pod("b").claim("d", name="two"))

    expect.bound("b", within=90)
