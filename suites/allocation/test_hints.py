"""Hints and names of device requests: selector, exclusive switches, resource names of v0.7, annotations for plugins."""

import pytest

from seatrial.fixtures.allocated_devices import minors, switches
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU_CORE, GPU_MEMORY_RATIO, RDMA
from seatrial.suites.allocation.listed import occupy, relist

pytestmark = [pytest.mark.needs(Capability.NODES)]

PAIRS = "hgx-a100"  # two cards on a switch
HOST = "kubernetes.io/hostname"


def of_v07(text: str) -> str:
    return text.replace("koordinator.sh/gpu", "kubernetes.io/gpu")


@pytest.mark.feature("DEV-5.required-scope")
@pytest.mark.case("DS-110", severity="normal")
def test_a_selector_limits_the_devices(trial: Trial, expect: Expect) -> None:
    """A hint whose selector no card matches keeps the pod waiting beside free cards; one that all match does not."""
    trial.add(node("n1").gpus("a10", 2))
    trial.submit(
        pod("nothing").gpus(1).hint("gpu", selector={"matchLabels": {"example.com/kind": "none"}}),
        pod("all")
        .gpus(1)
        .hint("gpu", selector={"matchExpressions": [{"key": "example.com/kind", "operator": "DoesNotExist"}]}),
    )
    assert len(minors(expect.bound("all"))) == 1
    expect.pending("nothing")
    expect.stable(seconds=3)


@pytest.mark.feature("DEV-5.required-scope")
@pytest.mark.case("DS-111", severity="normal")
def test_exclusive_switches_are_not_shared(trial: Trial, expect: Expect) -> None:
    """Pods with exclusive policy PCIeLevel leave the other card of a switch alone: four of them fill four switches."""
    trial.add(node("n1").server(PAIRS))
    names = [f"a-{number}" for number in range(5)]
    trial.submit(*(pod(name).gpus(1).hint("gpu", exclusivePolicy="PCIeLevel") for name in names[:4]))
    pods = expect.running(names[0], names[1], *names[2:4])
    used = {switch for name in pods for switch in switches(trial, name)}
    assert len(used) == 4
    trial.submit(pod(names[4]).gpus(1).hint("gpu", exclusivePolicy="PCIeLevel"))
    expect.pending(names[4])
    expect.stable(seconds=3)


@pytest.mark.feature("DEV-1.share-by-percent")
@pytest.mark.case("DS-112", severity="critical")
def test_resource_names_of_v07(trial: Trial, expect: Expect) -> None:
    """`kubernetes.io/gpu-core` and `kubernetes.io/gpu-memory-ratio` are shares, counted with those of today."""
    trial.add(node("n1").gpus("a10", 1))
    old: dict[str, str | int | float] = {of_v07(name): 60 for name in (GPU_CORE, GPU_MEMORY_RATIO)}
    trial.submit(pod("old").resources(old))
    assert minors(expect.bound("old")) == [0]
    trial.submit(pod("new").gpu_share(60))
    expect.pending("new")


@pytest.mark.feature("DEV-1.share-by-percent", "DEV-1.once")
@pytest.mark.case("DS-241", severity="normal", source="spec DEV-R1")
def test_allocations_and_devices_with_names_of_v07(trial: Trial, expect: Expect) -> None:
    """A pod that runs has 60 % of a card under the old names, and the Device object lists these: the card has no room
    for as much again."""
    trial.add(node("n1").gpus("a10", 2))
    occupy(trial, "there", gpu={0: 60})
    there = trial.pod("there").metadata.annotations[DEVICE_ALLOCATED]
    trial.delete("there")
    trial.settle()
    relist(trial, "n1", lambda one: {"resources": {of_v07(name): value for name, value in one["resources"].items()}})
    trial.submit(pod("old").gpu_share(60).annotation(DEVICE_ALLOCATED, of_v07(there)).node_name("n1"))
    trial.settle()
    trial.submit(pod("next").gpu_share(60))
    assert minors(expect.bound("next")) == [1]
    trial.submit(pod("last").gpu_share(60))
    expect.pending("last")


@pytest.mark.feature("DEV-1.once")
@pytest.mark.case("DS-271", severity="normal", source="spec DEV-R1")
def test_the_old_name_of_nics(trial: Trial, expect: Expect) -> None:
    """`kubernetes.io/rdma` is a share of a NIC, counted with those of today."""
    trial.add(node("n1").nics("connectx-7", 1))
    trial.submit(pod("old").resources({"kubernetes.io/rdma": 60}))
    assert minors(expect.bound("old"), "rdma") == [0]
    trial.submit(pod("new").rdma(60))
    expect.pending("new")


@pytest.mark.profile("vendor-plugins")
@pytest.mark.feature("DEV-3.annotation")
@pytest.mark.case("DS-113", severity="normal")
def test_gpu_minors_lists_gpus_only(trial: Trial, expect: Expect) -> None:
    """A pod with two cards and two NICs has the minors of its cards in `gpu-minors`."""
    trial.add(node("n1").server("dgx-h100"))
    builder = pod("a").gpus(2).resources({RDMA: 100}).jointly("gpu", "rdma").scheduler("vendor-plugins")
    trial.submit(builder)
    a = expect.bound("a")
    assert minors(a, "rdma")
    assert a.metadata.annotations.get("scheduling.koordinator.sh/gpu-minors") == ",".join(map(str, minors(a)))


@pytest.mark.profile("spreading")
@pytest.mark.feature("DEV-4.spread-nodes")
@pytest.mark.case("DS-114", severity="normal")
@pytest.mark.parametrize(("better", "worse"), [("n1", "n2"), ("n2", "n1")])
def test_a_score_counts_the_pod_itself(trial: Trial, expect: Expect, better: str, worse: str) -> None:
    """Half of eight cards or two of three are free: with the pod's card counted, the first has more left."""
    trial.add(node(better).gpus("a10", 8), node(worse).gpus("a10", 3))
    trial.submit(
        *(pod(f"on-{number}").gpus(1).select({HOST: better}) for number in range(4)),
        pod("on-worse").gpus(1).select({HOST: worse}),
    )
    expect.bound("on-0", "on-1", "on-2", "on-3", "on-worse")
    trial.submit(pod("a").gpus(1).scheduler("spreading"))
    assert expect.bound("a").spec.node_name == better
    assert len(minors(trial.pod("a"))) == 1
