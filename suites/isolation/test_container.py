"""A container gets the devices that the pod was allocated: no more, no less, and none of another pod."""

import random

import pytest

from seatrial.fixtures.allocated_devices import devices_of, parts
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.allocations import device_allocations
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO

pytestmark = [pytest.mark.needs(Capability.NODES)]

NPUS = {"huawei.com/npu-core": 40, GPU_MEMORY_RATIO: 200}  # two cards of twenty AI cores
MLUS = {GPU_CORE: 200, GPU_MEMORY_RATIO: 200}
LIBRARY = "/usr/local/vgpu/libvgpu.so"


def promised(pod: Pod) -> set[str]:
    """Device files of the cards that the pod was allocated."""
    return {f"/dev/nvidia{part.minor}" for part in device_allocations(pod).get("gpu", [])}


@pytest.mark.feature("DEV-1.whole-cards", "DEV-3.reaches-container", "HIL-9.container")
@pytest.mark.case("IS-001", severity="blocker")
def test_whole_cards_arrive_as_promised(trial: Trial, expect: Expect) -> None:
    """NVIDIA's environment variable and the device files agree with the annotation."""
    trial.add(node("n1").gpus("a10", 4))
    trial.submit(pod("a").gpus(2), pod("b").gpus(1))

    for running in expect.running("a", "b"):
        inside = trial.container(running.metadata.name)
        listed = inside.env["NVIDIA_VISIBLE_DEVICES"].split(",")
        assert {f"/dev/nvidia{minor}" for minor in listed} == promised(running)
        assert set(inside.cards()) == promised(running)


@pytest.mark.feature("DEV-8.library-in-container")
@pytest.mark.case("IS-002", severity="blocker")
@pytest.mark.parametrize("percent", [10, 25, 50, 75])
def test_hami_limits_a_share(trial: Trial, expect: Expect, percent: int) -> None:
    """A share on a node with HAMi-core has memory and core limits, and the library that enforces them."""
    trial.add(node("n1").gpus("a10", 1).isolation())
    trial.submit(pod("a").gpu_share(percent).isolated())

    a = expect.running("a")

    inside = trial.container("a")
    part = devices_of(a)[0]
    assert units(inside.env["CUDA_DEVICE_MEMORY_LIMIT"]) == units(part.resources[GPU_MEMORY])
    assert units(inside.env["CUDA_DEVICE_SM_LIMIT"]) == units(part.resources[GPU_CORE]) == percent
    assert inside.env["LD_PRELOAD"] == LIBRARY
    assert LIBRARY in inside.mounts


@pytest.mark.feature("DEV-8.whole-cards-alone")
@pytest.mark.case("IS-003", severity="critical")
def test_hami_leaves_whole_cards_alone(trial: Trial, expect: Expect) -> None:
    """A pod with a whole card has no limits and no library."""
    trial.add(node("n1").gpus("a10", 1).isolation())
    trial.submit(pod("a").gpus(1).isolated())

    expect.running("a")

    inside = trial.container("a")
    assert inside.cards() == ("/dev/nvidia0",)
    assert "CUDA_DEVICE_MEMORY_LIMIT" not in inside.env
    assert "LD_PRELOAD" not in inside.env
    assert LIBRARY not in inside.mounts


@pytest.mark.feature("DEV-8.avoids-nodes")
@pytest.mark.case("IS-004", severity="critical")
def test_a_share_that_must_be_isolated_avoids_nodes_that_cannot(trial: Trial, expect: Expect) -> None:
    """A pod that requests HAMi-core is placed on a node that has it, and waits if there is none."""
    trial.add(node("bare").gpus("a10", 1), node("hami").gpus("a10", 1).isolation())
    trial.submit(pod("a").gpu_share(50).isolated(), pod("b").gpu_share(50).isolated())

    a, b = expect.running("a", "b")
    assert {a.spec.node_name, b.spec.node_name} == {"hami"}

    trial.submit(pod("c").gpu_share(50).isolated())
    expect.pending("c")


@pytest.mark.feature("DEV-8.limits-add-up")
@pytest.mark.case("IS-005", severity="critical")
def test_limits_of_neighbours_add_up_to_the_card(trial: Trial, expect: Expect) -> None:
    """The limits of one card's tenants add up to no more than its memory and cores."""
    trial.add(node("n1").gpus("a10", 1).isolation())
    trial.submit(*(pod(f"p{number}").gpu_share(25).isolated() for number in range(4)))

    pods = expect.running("p0", "p1", "p2", "p3")

    inside = [trial.container(pod.metadata.name) for pod in pods]
    card = trial.device("n1")["spec"]["devices"][0]["resources"]
    assert sum(units(container.env["CUDA_DEVICE_MEMORY_LIMIT"]) for container in inside) <= units(card[GPU_MEMORY])
    assert sum(units(container.env["CUDA_DEVICE_SM_LIMIT"]) for container in inside) <= 100
    assert all(set(container.cards()) == {"/dev/nvidia0"} for container in inside)


@pytest.mark.feature("DEV-1.none-without-request")
@pytest.mark.case("IS-006", severity="critical")
def test_a_pod_without_devices_sees_none(trial: Trial, expect: Expect) -> None:
    """A pod without a device request sees no cards on a node with cards; one beside it sees those it asked for."""
    trial.add(node("n1").gpus("h100-80g", 8))
    trial.submit(pod("plain").request(cpu=1, memory="1Gi"), pod("all").gpus(8))

    expect.running("plain", "all")
    assert len(trial.container("all").cards()) == 8

    inside = trial.container("plain")
    assert inside.devices == ()
    assert inside.env.get("NVIDIA_VISIBLE_DEVICES", "void") in {"void", "none", ""}


@pytest.mark.feature("DEV-11.whole", "DEV-12.full-card")
@pytest.mark.case("IS-007", severity="critical")
@pytest.mark.parametrize(
    ("model", "ask", "prefix", "variable"),
    [
        pytest.param("ascend-910b3", NPUS, "/dev/davinci", "ASCEND_VISIBLE_DEVICES", id="ascend"),
        pytest.param("mlu370-x8", MLUS, "/dev/cambricon_dev", "CAMBRICON_VISIBLE_DEVICES", id="cambricon"),
    ],
)
def test_other_vendors_cards_arrive_as_promised(  # noqa: PLR0917
    trial: Trial, expect: Expect, model: str, ask: dict[str, int], prefix: str, variable: str
) -> None:
    """Ascend and Cambricon cards are granted under their runtimes' names, as allocated."""
    trial.add(node("n1").gpus(model, 4))
    trial.submit(pod("a").resources(dict(ask)))

    a = expect.running("a")

    minors = [part.minor for part in devices_of(a)]
    inside = trial.container("a")
    assert sorted(inside.env[variable].split(",")) == sorted(map(str, minors))
    assert {path for path in inside.devices if path.removeprefix(prefix).isdigit()} == {f"{prefix}{m}" for m in minors}


@pytest.mark.feature("DEV-1.once", "DEV-3.reaches-container")
@pytest.mark.case("IS-008", severity="blocker")
@pytest.mark.long(seconds=8)
def test_churn_never_gives_one_card_to_two(trial: Trial, seed: int) -> None:
    """Pods of random sizes come and go: at no time does a whole card have two tenants or is a card overcommitted."""
    trial.add(node("n1").gpus("a10", 4).isolation(), node("n2").gpus("h100-80g", 4).isolation())
    draw = random.Random(seed)  # noqa: S311 a churn that can be repeated
    alive: list[str] = []
    for step in range(60):
        if alive and draw.random() < 0.4:
            name = alive.pop(draw.randrange(len(alive)))
            trial.delete(name)
        else:
            name = f"p{step}"
            shape = draw.choice(["whole", "two", "share", "bytes"])
            one = pod(name)
            trial.submit(
                one.gpus(1)
                if shape == "whole"
                else one.gpus(2)
                if shape == "two"
                else one.gpu_share(draw.choice([10, 30, 50, 80])).isolated()
                if shape == "share"
                else one.gpu_memory("4Gi", core=20).isolated()
            )
            alive.append(name)
        trial.pass_time(0.1)
        check_no_overlap(trial)
    with_cards = sum(bool(pod.spec.node_name and parts(pod)) for pod in trial.pods())
    assert with_cards >= 4, f"the churn is to leave four pods with cards or more, found {with_cards}"


def check_no_overlap(trial: Trial) -> None:
    """Whole cards have one tenant; shares of a card add up to at most the card."""
    cores: dict[tuple[str, int], list[tuple[str, int, int]]] = {}
    for placed in trial.pods():
        if not placed.spec.node_name or placed.terminated:
            continue
        for part in device_allocations(placed).get("gpu", []):
            row = (placed.metadata.name, units(part.resources.get(GPU_CORE, 0)), units(part.resources[GPU_MEMORY]))
            cores.setdefault((placed.spec.node_name, part.minor), []).append(row)
    for (name, minor), rows in cores.items():
        devices = trial.device(name)["spec"]["devices"]
        card = next(device for device in devices if device["type"] == "gpu" and device["minor"] == minor)["resources"]
        assert sum(core for _, core, _ in rows) <= 100, f"GPU {minor} of {name} is over-committed: {rows}"
        assert sum(memory for _, _, memory in rows) <= units(card[GPU_MEMORY]), f"GPU {minor} of {name}: {rows}"
        if any(core == 100 for _, core, _ in rows):
            assert len(rows) == 1, f"GPU {minor} of {name} was given whole, and to others: {rows}"
