"""GPU allocation: whole cards, several cards, and shares by percent or by bytes."""

import json

import pytest

from seatrial.fixtures.allocated_devices import card_memory, devices_of, first_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.allocations import device_allocations
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.audit.running import RunningAudit
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ApiRefused
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


def minors(pod: Pod) -> list[int]:
    return sorted(part.minor for part in devices_of(pod))


def amounts_of(pod: Pod, resource: str) -> list[int]:
    return [units(part.resources[resource]) for part in devices_of(pod)]


@pytest.mark.feature("DEV-1.whole-cards", "DEV-3.annotation")
@pytest.mark.case("DS-001", severity="blocker")
def test_whole_gpu(trial: Trial, expect: Expect) -> None:
    """A pod that requests one GPU gets all of one card, and its container sees that card only."""
    trial.add(node("n1").cards(2))
    trial.submit(pod("a").gpus(1))

    a = expect.running("a")

    assert amounts_of(a, GPU_CORE) == [100]
    assert amounts_of(a, GPU_MEMORY_RATIO) == [100]
    assert amounts_of(a, GPU_MEMORY) == [card_memory(trial, "n1")]
    assert trial.visible_devices(a) == (f"/dev/nvidia{first_of(a)}",)


@pytest.mark.feature("DEV-1.whole-cards")
@pytest.mark.case("DS-002", severity="blocker")
@pytest.mark.parametrize("cards", [2, 4, 8])
def test_several_whole_gpus(trial: Trial, expect: Expect, cards: int) -> None:
    """A pod that requests several GPUs gets that many different cards, all of each."""
    trial.add(node("n1").cards(max(4, cards)))
    trial.submit(pod("a").gpus(cards))

    a = expect.running("a")

    assert len(set(minors(a))) == cards
    assert amounts_of(a, GPU_CORE) == [100] * cards
    assert len(trial.visible_devices(a)) == cards


@pytest.mark.feature("DEV-1.nvidia-com-gpu")
@pytest.mark.case("DS-003", severity="blocker")
def test_the_spelling_of_nvidia(trial: Trial, expect: Expect) -> None:
    """nvidia.com/gpu requests whole GPUs, and the allocation is in Koordinator's annotation."""
    trial.add(node("n1").cards(4))
    trial.submit(pod("a").nvidia(2))

    a = expect.running("a")

    assert len(set(minors(a))) == 2
    assert amounts_of(a, GPU_CORE) == [100, 100]


@pytest.mark.feature("DEV-1.share-by-percent", "DEV-3.annotation")
@pytest.mark.case("DS-004", severity="blocker")
def test_share_by_percent(trial: Trial, expect: Expect) -> None:
    """Half a GPU is half of the cores and half of the memory of one card, also in bytes."""
    trial.add(node("n1").cards(1))
    trial.submit(pod("a").gpu_share(50))

    a = expect.running("a")

    assert amounts_of(a, GPU_CORE) == [50]
    assert amounts_of(a, GPU_MEMORY_RATIO) == [50]
    assert amounts_of(a, GPU_MEMORY) == [card_memory(trial, "n1") // 2]


@pytest.mark.feature("DEV-1.share-by-bytes", "DEV-3.annotation")
@pytest.mark.case("DS-005", severity="critical")
def test_share_by_bytes(trial: Trial, expect: Expect) -> None:
    """Memory requested in bytes is allocated in bytes, and the percentage follows from the card's size."""
    trial.add(node("n1").cards(1))
    trial.submit(pod("a").gpu_memory("8Gi", core=30))

    a = expect.running("a")

    assert amounts_of(a, GPU_MEMORY) == [8 << 30]
    assert amounts_of(a, GPU_CORE) == [30]
    assert amounts_of(a, GPU_MEMORY_RATIO) == [(8 << 30) * 100 // card_memory(trial, "n1")]


@pytest.mark.feature("DEV-1.share-by-percent")
@pytest.mark.case("DS-006", severity="critical")
def test_two_halves_share_one_card(trial: Trial, expect: Expect) -> None:
    """Two pods of half a GPU each fit on the only card, and both containers see it."""
    trial.add(node("n1").cards(1))
    trial.submit(pod("a").gpu_share(50), pod("b").gpu_share(50))

    a, b = expect.running("a", "b")

    assert minors(a) == minors(b) == [first_of(a)]
    assert trial.visible_devices(a) == trial.visible_devices(b) == (f"/dev/nvidia{first_of(a)}",)
    expect.stable(seconds=2)


@pytest.mark.feature("DEV-1.once")
@pytest.mark.case("DS-007", severity="blocker")
def test_a_card_is_never_given_out_twice(trial: Trial, expect: Expect) -> None:
    """A third pod that needs more than is left of each of two cards, though less than of both together, stays pending,
    however often it is tried again."""
    trial.add(node("n1").cards(2))
    trial.submit(pod("a").gpu_share(60), pod("b").gpu_share(60))
    expect.bound("a", "b")

    trial.submit(pod("c").gpu_share(50))

    expect.pending("c", saying="Insufficient")
    expect.stable(seconds=2)


@pytest.mark.feature("DEV-1.once")
@pytest.mark.case("DS-117", severity="critical")
def test_percent_is_not_given_out_beyond_the_bytes(trial: Trial, expect: Expect) -> None:
    """Two pods hold 1.5 % of a card's memory each, in bytes. A pod of 98 % would need some of theirs and stays pending,
    though each of the two counts as 1 % only; a pod of 97 % is bound."""
    trial.add(node("n1").cards(1))
    memory = str(card_memory(trial, "n1") * 15 // 1000)
    trial.submit(pod("a").gpu_memory(memory, core=1), pod("b").gpu_memory(memory, core=1))
    expect.bound("a", "b")

    trial.submit(pod("too-large").gpu_share(98))
    expect.pending("too-large", saying="Insufficient")
    expect.stable(seconds=2)
    trial.delete("too-large")
    trial.submit(pod("fits").gpu_share(97))

    assert amounts_of(expect.bound("fits"), GPU_MEMORY_RATIO) == [97]


@pytest.mark.feature("DEV-1.share-by-percent")
@pytest.mark.case("DS-137", severity="normal", source="spec DEV-R10")
def test_a_percentage_takes_whole_bytes(trial: Trial, expect: Expect) -> None:
    """A pod has 3 % of a card in bytes, rounded up to a byte: a pod of 97 %, which is rounded down, takes the rest."""
    trial.add(node("n1").cards(1))
    memory = str(-(-card_memory(trial, "n1") * 3 // 100))
    trial.submit(pod("a").gpu_memory(memory, core=1))
    expect.bound("a")
    trial.submit(pod("rest").gpu_share(97))
    assert amounts_of(expect.bound("rest"), GPU_MEMORY_RATIO) == [97]


@pytest.mark.feature("DEV-1.once")
@pytest.mark.case("DS-008", severity="critical")
def test_two_halves_are_not_a_whole(trial: Trial, expect: Expect) -> None:
    """Half of one card and half of another do not make a whole GPU."""
    trial.add(node("n1").cards(2))
    trial.submit(pod("a").gpu_share(60), pod("b").gpu_share(60))
    a, b = expect.bound("a", "b")
    assert minors(a) != minors(b)

    trial.submit(pod("whole").gpus(1))

    expect.pending("whole", saying="Insufficient")


@pytest.mark.feature("DEV-1.given-back")
@pytest.mark.case("DS-009", severity="critical")
def test_what_is_freed_is_given_out_again(trial: Trial, expect: Expect) -> None:
    """A waiting pod gets the card as soon as the pod that holds it is deleted."""
    trial.add(node("n1").cards(1))
    trial.submit(pod("first").gpus(1))
    first = expect.running("first")
    trial.submit(pod("second").gpus(1))
    expect.pending("second", saying="Insufficient")

    trial.delete("first")

    second = expect.running("second")
    assert minors(second) == minors(first)


@pytest.mark.feature("DEV-1.once")
@pytest.mark.case("DS-010", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_a_full_node_takes_nothing_more(trial: Trial, expect: Expect) -> None:
    """Eight pods fill an eight-GPU node with eight different cards; the ninth waits."""
    trial.add(node("n1").cards(8))
    names = [f"p{number}" for number in range(8)]
    trial.submit(*(pod(name).gpus(1) for name in names))
    bound = expect.bound(names[0], names[1], *names[2:])
    assert sorted(minor for pod in bound for minor in minors(pod)) == list(range(8))

    trial.submit(pod("ninth").gpus(1))

    expect.pending("ninth", saying="0/1 nodes are available")


@pytest.mark.needs(Capability.DEVICE_FAULTS)
@pytest.mark.feature("DEV-2.unhealthy-leaves")
@pytest.mark.case("DS-011", severity="critical")
def test_an_unhealthy_card_is_not_given_out(trial: Trial, expect: Expect) -> None:
    """A card with an XID error is not allocated; the pod gets the other one."""
    trial.add(node("n1").cards(2))
    trial.inject({"node": "n1", "verb": "critical", "device": 0, "xid": 79})

    def sick() -> bool:
        devices = trial.device("n1")["spec"]["devices"]
        return any(device["type"] == "gpu" and device["minor"] == 0 and not device.get("health") for device in devices)

    assert trial.wait(sick, within=30), "expected GPU 0 to be unhealthy in the Device object"
    trial.submit(pod("a").gpus(1), pod("b").gpus(1))

    assert trial.wait(lambda: len([pod for pod in trial.pods() if pod.spec.node_name]) == 1, within=30)
    expect.stable(seconds=2)
    assert [minors(pod) for pod in trial.pods() if pod.spec.node_name] == [[1]]


@pytest.mark.feature("DEV-1.whole-cards")
@pytest.mark.case("DS-014", severity="critical")
def test_an_allocation_that_another_component_changes(
    trial: Trial, expect: Expect, seatrial_audit: RunningAudit
) -> None:
    """Another component moves a running pod from card 0 to card 1 in its annotation: the next pod gets card 0."""
    trial.add(node("n1").gpus("a10", 2))
    trial.submit(pod("a").gpus(1))
    a = expect.running("a")
    assert minors(a) == [0]
    seatrial_audit.auditor.excuse("AUD-202", a.metadata.uid)
    share = device_allocations(a)["gpu"][0]
    other = next(card for card in trial.device("n1")["spec"]["devices"] if card["minor"] == 1)
    moved = {"gpu": [{"minor": 1, "id": other["id"], "resources": share.resources}]}
    body = {"metadata": {"annotations": {DEVICE_ALLOCATED: json.dumps(moved)}}}
    assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}/pods/a", body).ok

    trial.submit(pod("b").gpus(1))
    assert minors(expect.bound("b")) == [0]


@pytest.mark.feature("DEV-1.refusals")
@pytest.mark.case("DS-012", severity="normal")
@pytest.mark.parametrize(
    ("resources", "saying"),
    [
        pytest.param({"koordinator.sh/gpu": 150}, "invalid", id="more-than-one-card-but-not-whole-cards"),
        pytest.param({GPU_CORE: 150, GPU_MEMORY_RATIO: 150}, "invalid", id="a-share-above-one-card"),
        pytest.param({"nvidia.com/gpu": 1, "koordinator.sh/gpu": 100}, "invalid", id="two-spellings-at-once"),
    ],
)
def test_invalid_combinations_are_refused(trial: Trial, expect: Expect, resources: dict[str, int], saying: str) -> None:
    """A combination of resources that the protocol does not define is refused, and nothing is allocated. A webhook for
    pods, as there is one beside quotas, may refuse the pod before the scheduler sees it."""
    trial.add(node("n1").cards(4))
    message = ""
    try:
        trial.submit(pod("odd").resources(dict(resources)))
    except ApiRefused as refused:
        message = refused.message
    if message:
        assert saying in message.lower()
    else:
        expect.pending("odd", saying=saying)

    trial.submit(pod("whole").gpus(4))
    expect.bound("whole")


@pytest.mark.feature("DEV-1.share-by-percent")
@pytest.mark.case("DS-013", severity="normal")
def test_slices_of_several_cards(trial: Trial, expect: Expect) -> None:
    """A request for two slices that add up to one card gets halves of two different cards."""
    trial.add(node("n1").cards(2))
    trial.submit(pod("a").resources({GPU_SHARED: 2, GPU_CORE: 100, GPU_MEMORY_RATIO: 100}))

    a = expect.running("a")

    assert len(set(minors(a))) == 2
    assert amounts_of(a, GPU_CORE) == [50, 50]
    assert len(trial.visible_devices(a)) == 2
