"""Joint allocation of GPUs and RDMA NICs: topology, virtual functions, and required scopes.

DGX H100 has a GPU and a NIC on each PCIe switch; HGX A100 two GPUs and a NIC. Every NIC has eight virtual functions.
"""

import random

import pytest

from seatrial.fixtures.allocated_devices import amounts, check_arrival, first_of, functions, minors, parts, switches
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, pods
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import RDMA, DeviceType

ONE_EACH, TWO_TO_ONE = "dgx-h100", "hgx-a100"  # servers by GPUs to a NIC
FUNCTIONS = 8  # of a NIC
NO_SELECTOR = {"matchExpressions": [{"key": "a", "operator": "Near"}]}

pytestmark = [pytest.mark.needs(Capability.NODES)]


def joint(name: str, gpus: int, rdma: int = 100, *, same: bool = False, virtual: bool = False) -> PodBuilder:
    """A pod with GPUs as the primary devices, and NICs with them."""
    one = pod(name).gpus(gpus).rdma(rdma).jointly("gpu", "rdma", same_pcie=same)
    return one.hint("rdma", vfSelector={}) if virtual else one


def together(trial: Trial, pod: Pod) -> bool:
    return switches(trial, pod, "gpu") == switches(trial, pod, "rdma")


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case("DS-050", severity="blocker")
@pytest.mark.parametrize("same", [pytest.param(False, id="best-effort"), pytest.param(True, id="same-pcie")])
@pytest.mark.parametrize("cards", [1, 2, 4, 8])
def test_a_nic_for_each_gpu(trial: Trial, expect: Expect, cards: int, same: bool) -> None:
    """With one GPU and one NIC on each switch, a pod gets one whole NIC for each of its GPUs, on the same switches."""
    trial.add(node("n1").server(ONE_EACH))
    trial.submit(joint("a", cards, same=same))

    a = expect.running("a")

    assert len(minors(a)) == len(minors(a, "rdma")) == cards
    assert amounts(a, RDMA, "rdma") == [100] * cards
    assert together(trial, a)
    check_arrival(trial, a)
    listed = {(device["type"], device["minor"]): device["id"] for device in trial.device("n1")["spec"]["devices"]}
    kinds: tuple[DeviceType, ...] = ("gpu", "rdma")
    for kind in kinds:
        ids = {(kind, part.minor): part.id for part in parts(a, kind)}
        assert ids == {key: listed[key] for key in ids}, "each device is named by the id of the Device object"


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case("DS-051", severity="critical")
@pytest.mark.parametrize(("cards", "nics"), [(1, 1), (2, 1), (3, 2), (4, 2), (8, 4)])
def test_a_nic_for_each_switch(trial: Trial, expect: Expect, cards: int, nics: int) -> None:
    """GPUs that share a switch share its NIC."""
    trial.add(node("n1").server(TWO_TO_ONE))
    trial.submit(joint("a", cards, same=True))

    a = expect.running("a")

    assert (len(minors(a)), len(minors(a, "rdma"))) == (cards, nics)
    assert together(trial, a)
    check_arrival(trial, a)


@pytest.mark.feature("DEV-7.vf")
@pytest.mark.case("DS-052", severity="blocker")
@pytest.mark.parametrize("cards", [1, 2, 4])
def test_virtual_functions(trial: Trial, expect: Expect, cards: int) -> None:
    """A pod that requests virtual functions gets one of each NIC; its container sees the function, not the NIC."""
    trial.add(node("n1").server(ONE_EACH))
    trial.submit(joint("a", cards, 1, virtual=True))

    a = expect.running("a")

    assert len(functions(a)) == len(minors(a, "rdma")) == cards
    assert together(trial, a)
    seen = check_arrival(trial, a).devices
    assert not [path for path in seen if path in {f"/dev/infiniband/uverbs{nic}" for nic in range(8)}], seen


@pytest.mark.feature("DEV-7.vf")
@pytest.mark.case("DS-053", severity="critical")
def test_functions_of_a_nic_one_by_one(trial: Trial, expect: Expect) -> None:
    """Tenants of one NIC get different functions until none is left; a released function is allocated again."""
    trial.add(node("n1").devices("a10", 1).nics("connectx-7", 1))
    tenants = [
        pod.gpu_share(10).rdma(1).jointly("gpu", "rdma").hint("rdma", vfSelector={})
        for pod in pods("tenant", FUNCTIONS + 1)
    ]
    trial.submit(*tenants[:FUNCTIONS])
    names = [pod.name for pod in tenants]
    bound = expect.running(names[0], names[1], *names[2:FUNCTIONS])
    values = [function for pod in bound for function in functions(pod)]
    assert len(set(values)) == FUNCTIONS
    nodes = [path for pod in bound for path in check_arrival(trial, pod).devices if "uverbs" in path]
    assert len(set(nodes)) == FUNCTIONS

    trial.submit(tenants[FUNCTIONS])
    expect.pending(names[FUNCTIONS], saying="Insufficient rdma devices")
    trial.delete(names[3])

    assert functions(expect.running(names[FUNCTIONS])) == functions(bound[3])


@pytest.mark.feature("DEV-7.vf")
@pytest.mark.case("DS-054", severity="critical")
def test_a_whole_nic_is_nobody_elses(trial: Trial, expect: Expect) -> None:
    """A NIC allocated as a whole has no function left; a NIC with a tenant cannot be allocated as a whole."""
    trial.add(node("n1").devices("a10", 1).nics("connectx-7", 1))
    trial.submit(pod("whole").rdma(100))
    expect.running("whole")
    trial.submit(pod("tenant").rdma(1).hint("rdma", vfSelector={}))
    expect.pending("tenant", saying="Insufficient")

    trial.delete("whole")

    expect.running("tenant")
    trial.submit(pod("again").rdma(100))
    expect.pending("again", saying="Insufficient")


@pytest.mark.feature("DEV-7.waits")
@pytest.mark.case("DS-055", severity="blocker")
def test_a_joint_pod_waits_for_its_nic(trial: Trial, expect: Expect) -> None:
    """A joint pod waits while another pod holds the only NIC, and runs when the NIC is released."""
    trial.add(node("n1").gpus("a10", 2).nics("connectx-7", 1))
    trial.submit(pod("taker").rdma(100))
    expect.running("taker")

    trial.submit(joint("strict", 1, same=True))

    expect.pending("strict")
    expect.stable(seconds=2)
    trial.delete("taker")
    strict = expect.running("strict")
    assert together(trial, strict)
    check_arrival(trial, strict)


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case("DS-056", severity="blocker")
@pytest.mark.parametrize("same", [pytest.param(False, id="best-effort"), pytest.param(True, id="same-pcie")])
def test_when_the_near_nic_is_taken(trial: Trial, expect: Expect, same: bool) -> None:
    """With best effort a pod gets another NIC of the node; a pod that requires the same switch waits."""
    trial.add(node("n1").server(ONE_EACH))
    trial.submit(joint("pilot", 1))
    pilot = expect.running("pilot")
    near = minors(pilot, "rdma")
    trial.delete("pilot")  # what a first pod got is what the next one would get
    holders = [pod.rdma(100) for pod in pods("holder", 8)]
    trial.submit(*holders)
    names = [pod.name for pod in holders]
    by_nic = {first_of(pod, "rdma"): pod.metadata.name for pod in expect.running(names[0], names[1], *names[2:])}
    kept = by_nic.pop(near[0])
    trial.delete(*by_nic.values())

    trial.submit(joint("a", 1, same=same))

    if same:
        expect.pending("a")
        expect.stable(seconds=2)
        trial.delete(kept)
    a = expect.running("a")
    assert minors(a) == minors(pilot), "the GPU is chosen by its own lights"
    assert (minors(a, "rdma") == near) == same, f"NIC {near} is {kept}'s"
    assert together(trial, a) == same
    check_arrival(trial, a)


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case("DS-057", severity="normal")
@pytest.mark.parametrize(
    ("rdma", "hint", "nics", "each"),
    [
        pytest.param(300, {}, 3, 100, id="hundreds-are-nics"),
        pytest.param(4, {"allocateStrategy": "RequestsAsCount"}, 4, 1, id="requests-as-count"),
        pytest.param(
            2,
            {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": "DeviceLevel"},
            2,
            100,
            id="requests-as-count-of-whole-nics",
        ),
        pytest.param(5, {"allocateStrategy": "ApplyForAll"}, 8, 5, id="apply-for-all"),
        pytest.param(100, {"allocateStrategy": "ApplyForAll"}, 8, 100, id="apply-for-all-whole"),
        pytest.param(30, {}, 1, 30, id="a-share-of-one"),
        pytest.param(30, {"exclusivePolicy": "DeviceLevel"}, 1, 30, id="a-policy-without-its-strategy"),
    ],
)
def test_how_many_nics(trial: Trial, expect: Expect, rdma: int, hint: dict[str, str], nics: int, each: int) -> None:  # noqa: PLR0917
    """The hint defines what a number of `koordinator.sh/rdma` means."""
    trial.add(node("n1").server(ONE_EACH))
    trial.submit(pod("a").rdma(rdma).hint("rdma", **hint))

    a = expect.running("a")

    assert amounts(a, RDMA, "rdma") == [each] * nics
    check_arrival(trial, a)


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case("DS-180", severity="normal", source="spec DEV-R17")
def test_nics_of_all_switches_are_not_joint(trial: Trial, expect: Expect) -> None:
    """A pod asks for one GPU and, by ApplyForAll, for a part of every NIC, jointly on one switch: what is for all NICs
    is not joint, and it gets its part of each."""
    trial.add(node("n1").server(ONE_EACH))
    builder = pod("a").gpus(1).rdma(5).hint("rdma", allocateStrategy="ApplyForAll")
    trial.submit(builder.jointly("gpu", "rdma", same_pcie=True))

    assert amounts(expect.running("a"), RDMA, "rdma") == [5] * 8


@pytest.mark.feature("DEV-7.refusals")
@pytest.mark.case("DS-058", severity="normal")
@pytest.mark.parametrize(
    ("pod", "saying"),
    [
        pytest.param(joint("a", 1), "Insufficient", id="a-node-without-nics"),
        pytest.param(
            pod("a").gpus(1).annotation("scheduling.koordinator.sh/device-joint-allocate", "{"),
            "invalid DeviceJointAllocate annotation",
            id="an-annotation-that-is-no-json",
        ),
        pytest.param(pod("a").rdma(150), "invalid resource unit koordinator.sh/rdma", id="one-nic-and-a-half"),
        pytest.param(
            pod("a").gpus(1).annotation("scheduling.koordinator.sh/device-allocate-hint", "{"),
            "invalid DeviceAllocateHint annotation",
            id="a-hint-that-is-no-json",
        ),
        pytest.param(
            pod("a").gpus(1).annotation("scheduling.koordinator.sh/gpu-partition-spec", "{"),
            "invalid GPUPartitionSpec annotation",
            id="a-partition-that-is-no-json",
        ),
        pytest.param(
            pod("a").gpus(1).hint("gpu", selector=NO_SELECTOR),
            "invalid Selector of DeviceHint, deviceType: gpu",
            id="a-selector-with-an-unknown-operator",
        ),
        pytest.param(
            pod("a").rdma(1).hint("rdma", vfSelector=NO_SELECTOR),
            "invalid VFSelector of DeviceHint, deviceType: rdma",
            id="a-function-selector-with-an-unknown-operator",
        ),
    ],
)
def test_what_cannot_be_had_is_said(trial: Trial, expect: Expect, pod: PodBuilder, saying: str) -> None:
    """A request that no node can satisfy is refused with the reason."""
    trial.add(node("n1").gpus("a10", 2))
    trial.submit(pod)

    expect.pending("a", saying=saying)


@pytest.mark.feature("DEV-7.waits")
@pytest.mark.case("DS-059", severity="blocker")
@pytest.mark.long(seconds=5)
def test_churn_never_splits_a_joint_request(trial: Trial, seed: int) -> None:
    """Joint pods of all shapes come and go: required GPUs and NICs share switches, and nothing is allocated twice."""
    trial.add(node("one-each").server(ONE_EACH), node("two-to-one").server(TWO_TO_ONE))
    draw = random.Random(seed)  # noqa: S311 a churn that can be repeated
    alive: list[str] = []
    judged = 0
    for step in range(40):
        if alive and draw.random() < 0.4:
            trial.delete(alive.pop(draw.randrange(len(alive))))
        else:
            virtual, same = draw.random() < 0.5, draw.random() < 0.7
            asking = joint(f"p{step}", draw.choice([1, 1, 2, 4]), 1 if virtual else 100, same=same, virtual=virtual)
            trial.submit(asking.label("same", str(same)))
            alive.append(asking.name)
        trial.pass_time(0.1)
        bound = [pod for pod in trial.pods() if pod.spec.node_name and not pod.terminated]
        judged += sum(check_joint(trial, pod) for pod in bound)
        check_nothing_twice(bound)
    assert judged >= 40, "the churn bound too little to prove anything"
    for stored in trial.pods():
        if stored.status.phase == "Running" and not stored.deleting:
            check_arrival(trial, stored)


def check_joint(trial: Trial, pod: Pod) -> bool:
    """Check a joint pod; whether there was something to check."""
    gpu, rdma = minors(pod), minors(pod, "rdma")
    assert gpu, f"{pod.metadata.name} has no GPU"
    assert rdma, f"{pod.metadata.name} has no NIC"
    if pod.metadata.labels["same"] == "True":
        assert together(trial, pod), f"{pod.metadata.name}: GPUs {gpu} and NICs {rdma} are on different switches"
        return True
    return False


def check_nothing_twice(bound: list[Pod]) -> None:
    """No GPU and no function has two owners; no NIC is allocated beyond its capacity."""
    gpus = [(pod.spec.node_name, minor) for pod in bound for minor in minors(pod)]
    assert len(set(gpus)) == len(gpus), f"a GPU has two owners: {sorted(gpus)}"
    node_names = [(pod.spec.node_name, function) for pod in bound for function in functions(pod)]
    assert len(set(node_names)) == len(node_names), f"a function has two owners: {sorted(node_names)}"
    used: dict[tuple[str, int], int] = {}
    for bound_pod in bound:
        for part in parts(bound_pod, "rdma"):
            where = bound_pod.spec.node_name, part.minor
            used[where] = used.get(where, 0) + units(part.resources[RDMA])
    assert max(used.values(), default=0) <= 100, f"a NIC is given out beyond what it has: {used}"
