"""A device that fails leaves the pool: its node reports it, new pods do not get it, its pods keep it."""

from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.allocations import device_allocations
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.device import GPU, GPU_CORE, GPU_MEMORY_RATIO, RDMA

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.DEVICE_FAULTS)]

DEVICES_PATH = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
SOON = 10.0  # seconds from a fault until the API shows it

NPU = {"huawei.com/npu-core": 20, GPU_MEMORY_RATIO: 100}
MLU = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}

NVIDIA = [
    pytest.param({"verb": "critical", "xid": 79}, "Xid79", id="off-the-bus"),
    pytest.param({"verb": "critical", "xid": 95}, "Xid95", id="uncontained-memory-error"),
    pytest.param({"verb": "ecc", "uncorrected": 1}, "Xid48", id="double-bit-memory-error"),
    pytest.param({"verb": "lost"}, "Xid79", id="gpu-lost"),
    pytest.param({"verb": "link"}, "Xid74", id="nvlink-down"),
    pytest.param({"verb": "reset_needed"}, "Xid154", id="reset-required"),
]
OTHERS = [
    pytest.param("ascend-910b3", NPU, {"verb": "critical"}, "0x80E01801", id="npu-critical"),
    pytest.param("ascend-910b3", NPU, {"verb": "lost"}, "0x40F84E00", id="npu-card-dropped"),
    pytest.param("mlu370-x8", MLU, {"verb": "critical"}, "CardUnhealthy", id="mlu-unhealthy"),
    pytest.param("mlu370-x8", MLU, {"verb": "lost"}, "DriverState5", id="mlu-driver-gone"),
]
HARMLESS = [
    pytest.param({"verb": "throttle"}, id="throttled"),
    pytest.param({"verb": "ecc", "uncorrected": 0, "corrected": 50}, id="corrected-memory-errors"),
    pytest.param({"verb": "app_error", "xid": 31}, id="the-application-s-page-fault"),
    pytest.param({"verb": "app_error", "xid": 13}, id="the-application-s-graphics-exception"),
    pytest.param({"verb": "leak", "mebibytes": 4096}, id="leaked-memory"),
]


def entry(trial: Trial, name: str, minor: int, kind: str = "gpu") -> dict[str, Any] | None:
    """One device of a node's Device object; None if it is not listed."""
    devices = trial.device(name)["spec"]["devices"]
    return next((device for device in devices if device["type"] == kind and device["minor"] == minor), None)


def becomes(trial: Trial, name: str, minor: int, *, well: bool, kind: str = "gpu") -> dict[str, Any]:
    """Wait until the Device object reports the health of a device; returns its entry."""

    def holds() -> bool:
        results = entry(trial, name, minor, kind)
        return results is not None and results["health"] is well

    reached = trial.wait(holds, within=SOON)
    becomes = entry(trial, name, minor, kind)
    assert reached, f"expected {kind} {minor} of {name} to become {'well' if well else 'unhealthy'}, found {becomes}"
    assert becomes is not None
    return becomes


def minors(trial: Trial, name: str, kind: str = "gpu") -> set[int]:
    """The minors of the devices that a pod was allocated."""
    return {allocation.minor for allocation in device_allocations(trial.pod(name)).get(kind, ())}


def offered(trial: Trial, name: str, resource: str) -> int:
    """The allocatable resources of a node."""
    return int(trial.node(name)["status"]["allocatable"].get(resource, 0))


def serves_one_until_healed(trial: Trial, expect: Expect, a: PodBuilder, b: PodBuilder) -> None:
    """Card 0 of two is faulty: one pod runs on the other, one waits, and runs on card 0 once it is healthy."""
    trial.submit(a)
    expect.running("a")
    assert minors(trial, "a") == {1}
    trial.submit(b)
    expect.pending("b")

    trial.heal("n1")
    becomes(trial, "n1", 0, well=True)
    expect.running("b")
    assert minors(trial, "b") == {0}


@pytest.mark.feature("DEV-2.unhealthy-leaves", "HIL-4.device-faults")
@pytest.mark.case("FT-001", severity="blocker")
@pytest.mark.parametrize(("fault", "reason"), NVIDIA)
def test_a_broken_gpu_leaves_the_pool_and_comes_back(
    trial: Trial, expect: Expect, fault: dict[str, Any], reason: str
) -> None:
    """Of two cards one breaks: it is unhealthy with the reason, the node offers one, one pod runs and one waits.

    Healed, the other runs too.
    """
    trial.add(node("n1").gpus("a100-80g", 2))
    trial.inject({"node": "n1", "device": 0, **fault})

    broken = becomes(trial, "n1", 0, well=False)
    assert broken["conditions"][0]["reason"] == reason
    assert broken["conditions"][0]["status"] == "False"
    assert becomes(trial, "n1", 1, well=True)
    assert trial.wait(lambda: offered(trial, "n1", GPU) == 100, within=SOON)

    serves_one_until_healed(trial, expect, pod("a").gpus(1), pod("b").gpus(1))


@pytest.mark.feature("DEV-2.unhealthy-leaves", "HIL-4.device-faults")
@pytest.mark.case("FT-002", severity="critical")
@pytest.mark.parametrize(("model", "ask", "fault", "reason"), OTHERS)
def test_a_broken_npu_or_mlu_leaves_the_pool_and_comes_back(  # noqa: PLR0917
    trial: Trial, expect: Expect, model: str, ask: dict[str, int], fault: dict[str, Any], reason: str
) -> None:
    """The same for cards of other vendors, by their own health scales."""
    trial.add(node("n1").gpus(model, 2))
    trial.inject({"node": "n1", "device": 0, **fault})

    assert becomes(trial, "n1", 0, well=False)["conditions"][0]["reason"] == reason

    serves_one_until_healed(trial, expect, pod("a").resources(dict(ask)), pod("b").resources(dict(ask)))


@pytest.mark.feature("DEV-2.other-events", "HIL-4.device-faults")
@pytest.mark.case("FT-003", severity="critical")
@pytest.mark.parametrize("fault", HARMLESS)
def test_what_is_no_fault_of_the_card_changes_nothing(trial: Trial, expect: Expect, fault: dict[str, Any]) -> None:
    """Heat, corrected errors and errors of the application leave the card in the pool."""
    trial.add(node("n1").gpus("a100-80g", 1))
    before = trial.device("n1")
    trial.inject({"node": "n1", "device": 0, **fault})
    trial.pass_time(1.0)

    assert trial.device("n1")["spec"] == before["spec"]
    assert offered(trial, "n1", GPU) == 100
    trial.submit(pod("a").gpus(1))
    expect.running("a")
    assert minors(trial, "a") == {0}


@pytest.mark.feature("DEV-2.holders-stay", "HIL-4.device-faults")
@pytest.mark.case("FT-004", severity="blocker")
def test_who_has_the_card_keeps_it(trial: Trial, expect: Expect) -> None:
    """A pod on a card that fails stays and keeps its allocation; afterwards no pod gets the card."""
    trial.add(node("n1").gpus("a100-80g", 1))
    trial.submit(pod("a").gpus(1))
    before = expect.running("a")
    assert device_allocations(before), "expected the annotation to name the card of the pod"

    trial.inject({"node": "n1", "device": 0, "verb": "critical", "xid": 79})
    becomes(trial, "n1", 0, well=False)
    expect.stable(seconds=2.0)

    after = trial.pod("a")
    assert after.status.phase == "Running"
    assert device_allocations(after) == device_allocations(before)
    trial.delete("a")
    trial.submit(pod("b").gpus(1))
    expect.pending("b")


@pytest.mark.feature("DEV-2.holders-stay", "HIL-4.device-faults")
@pytest.mark.case("FT-005", severity="critical")
def test_neighbours_of_a_share_stay_and_no_one_joins(trial: Trial, expect: Expect) -> None:
    """Two tenants share a card that fails; a third pod is not placed there, although there is room."""
    trial.add(node("n1").gpus("a100-80g", 1).isolation())
    trial.submit(*(pod(name).gpu_share(30).isolated() for name in ("a", "b")))
    expect.running("a", "b")

    trial.inject({"node": "n1", "device": 0, "verb": "ecc"})
    becomes(trial, "n1", 0, well=False)
    trial.submit(pod("c").gpu_share(30).isolated())
    expect.pending("c")
    expect.stable(seconds=1.0)
    assert {pod.metadata.name for pod in trial.pods() if pod.status.phase == "Running"} == {"a", "b"}

    trial.heal("n1")
    expect.running("c")


@pytest.mark.feature("DEV-2.another-node", "HIL-4.device-faults")
@pytest.mark.case("FT-006", severity="critical")
def test_another_node_takes_over(trial: Trial, expect: Expect) -> None:
    """With all cards of one node faulty, pods are placed on the other; after recovery, on both."""
    trial.add(node("n1").gpus("a10", 2), node("n2").gpus("a10", 2))
    for minor in (0, 1):
        trial.inject({"node": "n1", "device": minor, "verb": "lost"})
        becomes(trial, "n1", minor, well=False)

    trial.submit(*(pod(name).gpus(1) for name in ("a", "b")))
    a, b = expect.running("a", "b")
    assert {a.spec.node_name, b.spec.node_name} == {"n2"}
    assert minors(trial, "a") | minors(trial, "b") == {0, 1}

    trial.heal("n1")
    trial.submit(pod("c").gpus(2))
    assert expect.running("c").spec.node_name == "n1"


@pytest.mark.feature("DEV-2.nic-leaves", "HIL-4.device-faults")
@pytest.mark.case("FT-007", severity="critical")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"verb": "link"}, id="cable"),
        pytest.param({"verb": "link", "administrative": 1}, id="switched-off"),
    ],
)
def test_a_nic_without_link_leaves_the_pool_and_comes_back(trial: Trial, expect: Expect, fault: dict[str, Any]) -> None:
    """A NIC whose port is down is not allocated; it returns to the pool when the port is up."""
    trial.add(node("n1").nics("connectx-7", 2))
    assert offered(trial, "n1", RDMA) == 200
    trial.inject({"node": "n1", "device": 0, "type": "rdma", **fault})
    becomes(trial, "n1", 0, well=False, kind="rdma")
    assert trial.wait(lambda: offered(trial, "n1", RDMA) == 100, within=SOON)

    trial.submit(nic("a"))
    expect.running("a")
    assert minors(trial, "a", "rdma") == {1}
    trial.submit(nic("b"))
    expect.pending("b")

    trial.heal("n1")
    becomes(trial, "n1", 0, well=True, kind="rdma")
    expect.running("b")
    assert minors(trial, "b", "rdma") == {0}


@pytest.mark.feature("DEV-2.reported", "HIL-4.device-faults")
@pytest.mark.case("FT-008", severity="normal")
def test_a_card_that_is_pulled_out_is_not_listed(trial: Trial, expect: Expect) -> None:
    """A removed card is not in the Device object; the other cards keep their minors."""
    trial.add(node("n1").gpus("a10", 2))
    trial.inject({"node": "n1", "device": 0, "verb": "remove"})
    assert trial.wait(lambda: entry(trial, "n1", 0) is None, within=SOON)

    trial.submit(pod("a").gpus(1), pod("b").gpus(1))
    assert trial.wait(lambda: sum(bool(pod.spec.node_name) for pod in trial.pods()) == 1, within=SOON)
    bound = next(pod.metadata.name for pod in trial.pods() if pod.spec.node_name)
    waits = {"a", "b"} - {bound}
    expect.running(bound)
    assert minors(trial, bound) == {1}
    expect.pending(*waits)


@pytest.mark.feature("DEV-2.unhealthy-leaves", "HIL-4.device-faults")
@pytest.mark.case("FT-009", severity="normal")
def test_a_fault_that_passes_by_itself(trial: Trial, expect: Expect) -> None:
    """A fault with an end: afterwards the card is in the pool, and the waiting pod gets it."""
    trial.add(node("n1").gpus("a10", 1))
    trial.inject({"node": "n1", "device": 0, "verb": "critical", "xid": 95, "for": 3})
    becomes(trial, "n1", 0, well=False)
    trial.submit(pod("a").gpus(1))
    expect.pending("a", cooled=False)
    expect.running("a")
    assert entry(trial, "n1", 0)["health"] is True  # type: ignore[index]


def nic(name: str) -> PodBuilder:
    """A pod that requests one NIC."""
    return pod(name).resources({RDMA: 100})


@pytest.mark.feature("DEV-2.holders-stay")
@pytest.mark.case("FT-100", severity="blocker")
@pytest.mark.parametrize(
    "change",
    [
        "label",
        # In real time the node's end waits for minutes for the object that the case wrote.
        pytest.param("deleted", marks=pytest.mark.needs(Capability.VIRTUAL_TIME)),
    ],
)
def test_a_device_object_that_changes_or_comes_back_has_its_holders(trial: Trial, expect: Expect, change: str) -> None:
    """A pod has one of two cards. The Device object gets a label, or is deleted and written anew: the next pod gets the
    other card, and the third waits."""
    trial.add(node("n1").gpus("a100-80g", 2))
    trial.submit(pod("first").gpus(1))
    expect.running("first")
    held = minors(trial, "first")
    path = f"{DEVICES_PATH}/n1"
    if change == "label":
        assert trial.call("PATCH", path, {"metadata": {"labels": {"seen": "again"}}}).ok
    else:
        body = trial.device("n1")
        assert trial.call("DELETE", path).ok
        trial.pass_time(1)
        body["metadata"] = {"name": "n1", "labels": body["metadata"].get("labels", {})}
        trial.call("POST", DEVICES_PATH, body)  # the node's agent may be quicker
        assert trial.reaches(lambda: trial.call("GET", path).ok, within=30)
    trial.settle()

    trial.submit(pod("second").gpus(1))
    expect.running("second")
    assert minors(trial, "second").isdisjoint(held), f"{minors(trial, 'second')} was given out while first has {held}"
    trial.submit(pod("third").gpus(1))
    expect.pending("third")
