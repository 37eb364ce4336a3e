"""Cambricon MLUs: whole cards and dynamic sMLU slices, requested with Koordinator's and the plugin's resource names.

The plugin's names (cambricon.com/*) make kubelet call the plugin; Koordinator's names decide the card.
"""

import random

import pytest

from seatrial.fixtures.allocated_devices import amounts, check_arrival, devices_of, first_of, minors, numa_nodes
from seatrial.fixtures.cpus import cpus
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, pods
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED
from seatrial.suites.allocation.mlus import CARD, LOCK, MLU, PLUGINS, SERVER, UNIT, VCORE, VMEMORY, slice_of

CARD_MEMORY = 48 << 30
ASSIGNED, PROFILE = "CAMBRICON_DSMLU_ASSIGHED", "CAMBRICON_DSMLU_PROFILE"  # the plugin's spelling

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


def whole(name: str, cards: int) -> PodBuilder:
    return pod(name).resources({GPU_CORE: 100 * cards, GPU_MEMORY_RATIO: 100 * cards, MLU: cards})


@pytest.mark.feature("DEV-12.full-card")
@pytest.mark.case("DS-070", severity="blocker")
@pytest.mark.parametrize("cards", [1, 2, 4, 8])
def test_full_cards(trial: Trial, expect: Expect, cards: int) -> None:
    """Whole MLUs come from one NUMA node if it has enough, and the container gets their control nodes."""
    trial.add(node("n1").server(SERVER))
    trial.submit(whole("a", cards))

    a = expect.running("a")

    assert amounts(a, GPU_CORE) == [100] * cards
    assert amounts(a, GPU_MEMORY) == [CARD_MEMORY] * cards
    assert len(numa_nodes(trial, a)) == (2 if cards == 8 else 1)
    seen = check_arrival(trial, a).devices
    assert {f"/dev/cambricon_ipcm{minor}" for minor in minors(a)} <= set(seen)
    assert "/dev/cambricon_ctl" in seen


@pytest.mark.feature("DEV-12.full-card")
@pytest.mark.case("DS-071", severity="critical")
def test_a_full_node_takes_nothing_more(trial: Trial, expect: Expect) -> None:
    """Allocated cards are not allocated again under either resource name; a released card is."""
    trial.add(node("n1").gpus(CARD, 2))
    trial.submit(whole("first", 1), whole("second", 1))
    first, second = expect.running("first", "second")
    assert minors(first) != minors(second)

    trial.submit(slice_of("slice", 10, 1 << 30))
    expect.pending("slice", saying="Insufficient")
    trial.delete("first")

    assert minors(expect.running("slice")) == minors(first)


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("DEV-12.dynamic-smlu")
@pytest.mark.case("DS-072", severity="blocker")
@pytest.mark.parametrize(
    ("core", "memory", "profile"),
    [
        pytest.param(10, 1 << 30, "10_4", id="the-pod-of-the-release-post"),
        pytest.param(50, 24 << 30, "50_96", id="half-a-card"),
    ],
)
def test_dynamic_slices(trial: Trial, expect: Expect, core: int, memory: int, profile: str) -> None:
    """A slice is allocated in percent and bytes; the plugin gets card and size, and answers on the pod."""
    trial.add(node("n1").server(SERVER))
    trial.submit(slice_of("a", core, memory).scheduler(PLUGINS))

    a = expect.running("a")

    assert amounts(a, GPU_CORE) == [core]
    assert amounts(a, GPU_MEMORY) == [memory]
    assert amounts(a, GPU_MEMORY_RATIO) == [memory * 100 // CARD_MEMORY]
    assert a.metadata.annotations.get(PROFILE) == f"{first_of(a)}_{profile}"
    check_arrival(trial, a)

    def answered() -> bool:
        return trial.pod("a").metadata.annotations.get(ASSIGNED) == "true"

    assert trial.wait(answered, within=30), "expected the plugin to mark the slice as assigned"


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("DEV-12.dynamic-smlu")
@pytest.mark.case("DS-073", severity="critical")
def test_the_node_is_unlocked_for_the_next_slice(trial: Trial, expect: Expect) -> None:
    """The plugin serves one pod at a time under a lock on the node; one after the other, all pods get their slices."""
    trial.add(node("n1").gpus(CARD, 1))
    trial.submit(*(slice_of(pod.name, 20, 8 << 30).scheduler(PLUGINS) for pod in pods("slice", 5)))

    bound = expect.running("slice-0", "slice-1", "slice-2", "slice-3", "slice-4", within=120)

    profiles = [pod.metadata.annotations.get(PROFILE, "") for pod in bound]
    assert profiles == ["0_20_32"] * 5
    for bound_pod in bound:
        check_arrival(trial, bound_pod)

    def unlocked() -> bool:
        return LOCK not in trial.node("n1")["metadata"].get("annotations", {})

    assert trial.wait(unlocked, within=30), "the lock of the last slice was never taken away"


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("DEV-12.dynamic-smlu")
@pytest.mark.case("DS-077", severity="critical")
@pytest.mark.needs(Capability.DEVICE_FAULTS)
def test_the_node_is_locked_while_a_slice_is_cut(trial: Trial, expect: Expect) -> None:
    """The node is frozen, so that its plugin does not answer: of two slices that come together one gets the lock, which
    stays, and the other one and the next wait for it."""
    trial.add(node("n1").gpus(CARD, 1))
    trial.inject({"node": "n1", "verb": "frozen"})
    names = ("first", "second")
    trial.submit(*(slice_of(name, 20, 8 << 30).scheduler(PLUGINS) for name in names))

    def bound() -> list[str]:
        return [name for name in names if trial.pod(name).spec.node_name]

    assert trial.reaches(lambda: bool(bound()), within=30)
    assert LOCK in trial.node("n1")["metadata"].get("annotations", {}), "expected the lock of a slice"
    trial.submit(slice_of("next", 20, 8 << 30).scheduler(PLUGINS))
    expect.pending("next")
    assert len(bound()) == 1


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("DEV-12.dynamic-smlu")
@pytest.mark.case("DS-116", severity="normal")
@pytest.mark.long(seconds=7)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # the lock has the real name of the holder's namespace
def test_a_lock_that_is_old_is_void(trial: Trial, expect: Expect) -> None:
    """A pod of the node has its lock, and the plugin never takes it away: after five minutes the next slice is cut, and
    the one after it once that pod is gone."""
    trial.add(node("n1").gpus(CARD, 1))
    trial.submit(pod("holder").request(cpu=1))
    expect.running("holder")

    def lock(age: float) -> None:
        value = f"{rfc3339(trial.cluster.clock.now() - age)},{trial.name},holder"
        assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"annotations": {LOCK: value}}}).ok

    lock(0)
    trial.submit(slice_of("next", 20, 8 << 30).scheduler(PLUGINS))
    expect.pending("next")
    expect.stable(seconds=3)
    lock(310)
    expect.bound("next")
    lock(0)
    trial.submit(slice_of("last", 20, 8 << 30).scheduler(PLUGINS))
    expect.pending("last")
    trial.delete("holder")
    expect.bound("last")


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("DEV-12.dynamic-smlu")
@pytest.mark.case("DS-277", severity="normal", source="spec DEV-R73")
def test_a_lock_that_cannot_be_read(trial: Trial, expect: Expect) -> None:
    """The node has a lock in another format: a slice waits and says so."""
    trial.add(node("n1").gpus(CARD, 1))
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"annotations": {LOCK: "locked"}}}).ok
    trial.submit(slice_of("a", 20, 8 << 30).scheduler(PLUGINS))
    expect.pending("a", saying='invalid node lock value "locked"')


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("DEV-12.dynamic-smlu", "CPU-1.policies")
@pytest.mark.case("DS-118", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # the lock has the real name of the holder's namespace
def test_a_slice_that_waits_for_the_lock_keeps_no_cpus(trial: Trial, expect: Expect) -> None:
    """A pod with eight exclusive CPUs and a slice fits, but another pod has the lock of the node: it gets nothing,
    and a pod gets 127 of the node's 128 CPUs."""
    trial.add(node("n1").server(SERVER))
    trial.submit(pod("holder").request(cpu="100m"))
    expect.running("holder")
    value = f"{rfc3339(trial.cluster.clock.now())},{trial.name},holder"
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"annotations": {LOCK: value}}}).ok
    sliced = slice_of("sliced", 20, 8 << 30).qos("LSR").request(cpu=8)
    trial.submit(sliced.scheduler(PLUGINS))
    expect.pending("sliced", saying="locked")

    trial.submit(pod("others").qos("LSR").request(cpu=127).scheduler(PLUGINS))

    assert len(cpus(expect.bound("others"))) == 127
    assert not trial.pod("sliced").spec.node_name


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("DEV-12.full-card")
@pytest.mark.case("DS-074", severity="normal")
def test_whole_cards_need_no_lock(trial: Trial, expect: Expect) -> None:
    """Whole cards do not involve the slice plugin: no profile on the pod and no lock on the node."""
    trial.add(node("n1").gpus(CARD, 2))
    trial.submit(whole("first", 1).scheduler(PLUGINS), whole("second", 1).scheduler(PLUGINS))

    for running in expect.running("first", "second"):
        assert PROFILE not in running.metadata.annotations
        check_arrival(trial, running)
    assert LOCK not in trial.node("n1")["metadata"].get("annotations", {})


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("DEV-12.refusals")
@pytest.mark.case("DS-075", severity="normal")
def test_slices_that_the_plugin_cannot_cut(trial: Trial) -> None:
    """Less memory than the plugin's unit is refused before binding."""
    trial.add(node("n1").gpus(CARD, 1))
    tiny = pod("tiny").resources({GPU_SHARED: 1, GPU_CORE: 5, GPU_MEMORY: UNIT // 2, VCORE: 5, VMEMORY: 1})
    trial.submit(tiny.scheduler(PLUGINS))

    def refused() -> bool:
        return any("must not be less than" in event.message for event in trial.events("tiny"))

    assert trial.wait(refused, within=30), trial.timeline()
    assert not trial.pod("tiny").spec.node_name


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("DEV-12.dynamic-smlu")
@pytest.mark.case("DS-076", severity="critical")
@pytest.mark.long(seconds=7)
def test_churn_never_gives_out_more_than_a_card(trial: Trial, seed: int) -> None:
    """Slices and whole cards come and go: no card is allocated beyond its capacity, in percent or in bytes."""
    trial.add(node("n1").gpus(CARD, 2))
    draw = random.Random(seed)  # noqa: S311 a churn that can be repeated
    alive: list[str] = []
    judged = 0
    for step in range(30):
        if alive and draw.random() < 0.4:
            trial.delete(alive.pop(draw.randrange(len(alive))))
        else:
            name = f"p{step}"
            sliced = slice_of(name, draw.choice([10, 30, 60]), draw.choice([4, 12, 30]) << 30)
            trial.submit((whole(name, 1) if draw.random() < 0.2 else sliced).scheduler(PLUGINS))
            alive.append(name)
        trial.pass_time(0.2)
        cores: dict[int, int] = {}
        memory: dict[int, int] = {}
        for placed in trial.pods():
            if placed.spec.node_name and not placed.terminated:
                assert len(devices_of(placed)) == 1
                card = first_of(placed)
                cores[card] = cores.get(card, 0) + amounts(placed, GPU_CORE)[0]
                memory[card] = memory.get(card, 0) + amounts(placed, GPU_MEMORY)[0]
                judged += 1
        assert max(cores.values(), default=0) <= 100, cores
        assert max(memory.values(), default=0) <= CARD_MEMORY, memory
    assert judged >= 20, "the churn bound too little to prove anything"
