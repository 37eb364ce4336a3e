"""Devices of this machine as a node: a device that fails leaves the pool within a second, and returns.

The same faults as on simulated nodes (test_devices.py), through all parts: the stand-in's library or files report, the
real provider reads, the node agent publishes, the scheduler decides, a process runs.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from seatrial.fixtures.allocated_devices import devices_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY_RATIO, GPU_VENDOR_LABEL, RDMA

pytestmark = [pytest.mark.needs(Capability.CONTAINERS, Capability.DEVICE_FAULTS)]

SOON = 5.0  # seconds; a health change takes one, the rest is for a busy machine
ASKS: dict[str, dict[str, int]] = {
    "nvidia": {"nvidia.com/gpu": 1},
    "huawei": {"huawei.com/npu-core": 20, GPU_MEMORY_RATIO: 100},
    "cambricon": {GPU_CORE: 100, GPU_MEMORY_RATIO: 100},
    "amd": {"amd.com/gpu": 1},
}
_STAND_INS = {"nvidia": "HIL-3.nvidia", "huawei": "HIL-3.ascend", "cambricon": "HIL-3.cambricon"}


def _fault(whose: str, fault: dict[str, Any], reason: str, name: str) -> Any:
    marks = [pytest.mark.feature(_STAND_INS[whose])] if whose in _STAND_INS else []
    return pytest.param(whose, fault, reason, id=name, marks=marks)


FAULTS = [
    _fault("nvidia", {"verb": "critical", "xid": 79}, "Xid79", "gpu-off-the-bus"),
    _fault("nvidia", {"verb": "ecc", "uncorrected": 1}, "Xid48", "gpu-double-bit-memory-error"),
    _fault("nvidia", {"verb": "lost"}, "Xid79", "gpu-lost"),
    _fault("nvidia", {"verb": "link"}, "Xid74", "nvlink-down"),
    _fault("nvidia", {"verb": "reset_needed"}, "Xid154", "gpu-wants-a-reset"),
    _fault("huawei", {"verb": "critical"}, "0x80E01801", "npu-unhealthy"),
    _fault("huawei", {"verb": "lost"}, "healthGone", "npu-dropped"),
    _fault("cambricon", {"verb": "critical"}, "CardUnhealthy", "mlu-unhealthy"),
    _fault("cambricon", {"verb": "lost"}, "DriverState5", "mlu-driver-gone"),
    _fault("amd", {"verb": "critical"}, "RasGfx", "amd-uncorrectable-error"),
    _fault("amd", {"verb": "lost"}, "GpuIsLost", "amd-gpu-lost"),
    _fault("amd", {"verb": "reset_needed"}, "GpuResetNeeded", "amd-gpu-hangs"),
]
HARMLESS = [
    pytest.param({"verb": "throttle"}, id="throttled"),
    pytest.param({"verb": "ecc", "uncorrected": 0, "corrected": 50}, id="corrected-memory-errors"),
    pytest.param({"verb": "app_error", "xid": 31}, id="the-application-s-page-fault"),
]


@pytest.fixture
def machine(trial: Trial) -> Iterator[str]:
    """The name of this machine's node; its faults are removed afterwards."""
    if Capability.CLAIM_DRIVER in trial.cluster.capabilities:
        pytest.skip("needs devices that are resources of the node; here a driver gives them by claims")
    name: str = trial.machine()["metadata"]["name"]
    yield name
    trial.heal(name)
    for device in devices(trial, name):
        becomes(trial, name, device["minor"], well=True, kind=device["type"])


def devices(trial: Trial, name: str, kind: str = "") -> list[dict[str, Any]]:
    """The node's devices, or those of one type."""
    return [device for device in trial.device(name)["spec"]["devices"] if kind in {"", device["type"]}]


def vendor(trial: Trial, name: str) -> str:
    """The vendor of the node's cards, by the node's label."""
    labels: dict[str, str] = trial.node(name)["metadata"]["labels"]
    return labels.get(GPU_VENDOR_LABEL, "")


def becomes(trial: Trial, name: str, minor: int, *, well: bool, kind: str = "gpu") -> dict[str, Any]:
    """Wait until the Device object reports the health of a device; returns its entry."""

    def entry() -> dict[str, Any]:
        return next(device for device in devices(trial, name, kind) if device["minor"] == minor)

    assert trial.wait(lambda: entry()["health"] is well, within=SOON), entry()
    return entry()


def counted(trial: Trial, name: str, resource: str, amount: int) -> None:
    """Wait until the node offers that much; a kubelet writes it after the Device object was written."""

    def offered() -> int:
        return int(trial.node(name)["status"]["allocatable"][resource])

    assert trial.wait(lambda: offered() == amount, within=SOON), f"{resource}: {offered()}, not {amount}"


def holders(trial: Trial, name: str) -> list[PodBuilder]:
    """A pod for each card of the node."""
    ask = ASKS[vendor(trial, name)]
    return [pod(f"a{device['minor']}").resources(dict(ask)) for device in devices(trial, name, "gpu")]


@pytest.mark.feature("DEV-2.unhealthy-on-machine", "HIL-4.device-faults-on-machine")
@pytest.mark.case("FT-040", severity="blocker")
@pytest.mark.parametrize(("whose", "fault", "reason"), FAULTS)
def test_a_card_that_fails_leaves_the_pool_and_comes_back(  # noqa: PLR0917
    trial: Trial, expect: Expect, machine: str, whose: str, fault: dict[str, Any], reason: str
) -> None:
    """The card is unhealthy with the reason and pods get the others; after recovery it is allocated again."""
    if vendor(trial, machine) != whose:
        pytest.skip(f"needs cards of {whose}; this machine's are of {vendor(trial, machine) or 'no vendor'}")
    broken = devices(trial, machine, "gpu")[0]["minor"]
    whole = int(trial.node(machine)["status"]["allocatable"][GPU_MEMORY_RATIO])
    trial.inject({"node": machine, "device": broken, **fault})

    condition = becomes(trial, machine, broken, well=False)["conditions"][0]
    assert (condition["status"], condition["reason"]) == ("False", reason)
    counted(trial, machine, GPU_MEMORY_RATIO, whole - 100)

    pods = holders(trial, machine)
    trial.submit(*pods)
    names = [pod.manifest["metadata"]["name"] for pod in pods]

    def bound() -> list[str]:
        return [pod.metadata.name for pod in trial.pods() if pod.spec.node_name]

    assert trial.wait(lambda: len(bound()) == len(names) - 1, within=30.0), trial.timeline()
    minors = {part.minor for name in bound() for part in devices_of(trial.pod(name))}
    assert broken not in minors
    assert len(minors) == len(names) - 1

    trial.heal(machine)
    becomes(trial, machine, broken, well=True)
    for name in names:
        minors |= {part.minor for part in devices_of(expect.running(name))}
    assert broken in minors


@pytest.mark.feature("DEV-2.other-events", "HIL-3.nvidia", "HIL-4.device-faults-on-machine")
@pytest.mark.case("FT-041", severity="critical")
@pytest.mark.parametrize("fault", HARMLESS)
def test_what_is_no_fault_of_the_card_changes_nothing(trial: Trial, machine: str, fault: dict[str, Any]) -> None:
    """Heat, corrected errors and errors of the application leave the card in the pool."""
    if vendor(trial, machine) != "nvidia":
        pytest.skip("needs cards of nvidia")
    assert trial.wait(lambda: all(each["health"] for each in trial.device(machine)["spec"]["devices"]), within=SOON)
    before = trial.device(machine)["spec"]
    trial.inject({"node": machine, "device": 0, **fault})
    trial.pass_time(1.5)
    assert trial.device(machine)["spec"] == before


@pytest.mark.feature("DEV-2.unhealthy-on-machine", "HIL-3.rdma", "HIL-4.device-faults-on-machine")
@pytest.mark.case("FT-042", severity="critical")
@pytest.mark.parametrize("verb", ["link", "lost"])
def test_a_nic_whose_link_is_down_leaves_the_pool_and_comes_back(trial: Trial, machine: str, verb: str) -> None:
    """The ports of NICs are read from files, which follow the fault in both directions."""
    nics = devices(trial, machine, "rdma")
    if not nics:
        pytest.skip("needs an RDMA NIC; this machine has none")
    minor = nics[0]["minor"]
    whole = int(trial.node(machine)["status"]["allocatable"][RDMA])
    trial.inject({"node": machine, "device": minor, "type": "rdma", "verb": verb})
    becomes(trial, machine, minor, well=False, kind="rdma")
    counted(trial, machine, RDMA, whole - 100)
    trial.heal(machine)
    becomes(trial, machine, minor, well=True, kind="rdma")


@pytest.mark.feature("HIL-4.nodes")
@pytest.mark.needs(Capability.NODE_FAULTS)
@pytest.mark.case("FT-043", severity="critical")
def test_a_node_that_is_not_ready_takes_no_pod(trial: Trial, expect: Expect, machine: str) -> None:
    """The node is NotReady while the fault lasts; the waiting pod runs afterwards."""
    trial.inject({"node": machine, "verb": "not_ready"})

    def ready() -> bool:
        conditions = trial.node(machine)["status"]["conditions"]
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    assert trial.wait(lambda: not ready(), within=SOON)
    trial.heal(machine)
    assert trial.wait(ready, within=SOON)
    trial.submit(pod("a").request(cpu="100m"))
    expect.running("a")
