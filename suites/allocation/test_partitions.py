"""Linked GPUs are allocated by the node's partition table, where node or pod require it.

The machine is a DGX H100 with a table of NVLink partitions in its Device object. No other rule would choose the pairs
of this table.
"""

import json
import random
from typing import Any

import pytest

from seatrial.fixtures.allocated_devices import check_arrival, first_of, minors
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, pods
from seatrial.scheduler.api.device import GPU_MODEL_LABEL, GPU_PARTITION_POLICY_LABEL, GPU_PARTITIONS

HONOR, PREFER = "Honor", "Prefer"
TRIES, WITHIN = 4, 8.0  # to see whether the scheduler has read a table; seconds each
PAIRS = [[0, 7], [1, 6], [2, 5], [3, 4]]
FOURS = [[0, 1, 6, 7], [2, 3, 4, 5]]
BY_COUNT = {1: [[minor] for minor in range(8)], 2: PAIRS, 4: FOURS, 8: [list(range(8))]}
BLOCKS = {size: [list(range(at, at + size)) for at in range(0, 8, size)] for size in (1, 2, 4, 8)}

pytestmark = [pytest.mark.needs(Capability.NODES)]


def linked(minors_: list[int], *, score: int | str = 1, bandwidth: str = "") -> dict[str, Any]:
    row = {"minors": minors_, "gpuLinkType": "NVLink", "allocationScore": score}
    return row | ({"ringBusBandwidth": bandwidth} if bandwidth else {})


def table_of(by_count: dict[int, list[list[int]]]) -> dict[str, Any]:
    return {str(count): [linked(partition) for partition in listed] for count, listed in by_count.items()}


def partitioned(trial: Trial, table: dict[str, Any], policy: str) -> None:
    """A node n1 with the table, and a scheduler that has read it."""
    trial.add(node("n1").server("dgx-h100"))
    patch = {
        "metadata": {"annotations": {GPU_PARTITIONS: json.dumps(table)}, "labels": {GPU_PARTITION_POLICY_LABEL: policy}}
    }
    answer = trial.call("PATCH", "/apis/scheduling.koordinator.sh/v1alpha1/devices/n1", patch)
    assert answer.ok, answer.body.decode()
    size = int(min(table, key=int))

    def table_is_known() -> bool:
        return trial.pod("witness").status.phase == "Running"  # it waits for a table

    for _ in range(TRIES):  # a new pod is tried at once; schedulers differ in when they try waiting pods
        trial.submit(pod("witness").gpus(size).partition())
        known = trial.wait(table_is_known, within=WITHIN)
        refusal = trial.timeline()
        trial.delete("witness")
        if known:
            return
    pytest.fail(f"expected a pod with a partition spec to run on n1, which has a partition table\n{refusal}")


def take(trial: Trial, expect: Expect, cards: set[int]) -> None:
    """Pods of one card each on the given cards of an empty node."""
    holders = [pod.gpus(1) for pod in pods("holder", 8)]
    trial.submit(*holders)
    names = [pod.name for pod in holders]
    held = {first_of(pod): pod.metadata.name for pod in expect.running(names[0], names[1], *names[2:])}
    trial.delete(*(name for minor, name in held.items() if minor not in cards))


@pytest.mark.feature("DEV-6.table")
@pytest.mark.case("DS-040", severity="blocker")
@pytest.mark.parametrize("cards", [2, 4, 8])
@pytest.mark.parametrize("policy", [HONOR, PREFER])
def test_cards_are_a_row_of_the_table(trial: Trial, expect: Expect, policy: str, cards: int) -> None:
    """The cards of a pod are a row of the table, both as a preference and as a requirement."""
    partitioned(trial, table_of(BY_COUNT), policy)
    trial.submit(pod("a").gpus(cards))

    a = expect.running("a")

    assert minors(a) in BY_COUNT[cards]
    check_arrival(trial, a)


@pytest.mark.feature("DEV-6.honor")
@pytest.mark.case("DS-041", severity="critical")
def test_honoured_tables_are_the_only_way(trial: Trial, expect: Expect) -> None:
    """A number of cards without a row is refused, and so is one whose rows are all partly used."""
    partitioned(trial, table_of(BY_COUNT), HONOR)
    trial.submit(pod("three").gpus(3))
    expect.pending("three", saying="Unsupported number of GPU requests")

    take(trial, expect, {0, 2})
    trial.submit(pod("four").gpus(4))
    expect.pending("four", saying="Insufficient Partitioned GPU Devices")


@pytest.mark.feature("DEV-6.honor")
@pytest.mark.case("DS-038", severity="critical")
def test_a_change_of_the_device_object_alone_is_noticed(trial: Trial, expect: Expect) -> None:
    """A pod waits for a row of three cards. The Device object alone changes, its label to Prefer: the pod gets them."""
    partitioned(trial, table_of(BY_COUNT), HONOR)
    trial.submit(pod("three").gpus(3))
    expect.pending("three", saying="Unsupported number of GPU requests")
    before = trial.node("n1")["status"]["allocatable"]

    relabel = {"metadata": {"labels": {GPU_PARTITION_POLICY_LABEL: PREFER}}}
    assert trial.call("PATCH", "/apis/scheduling.koordinator.sh/v1alpha1/devices/n1", relabel).ok

    assert len(minors(expect.running("three"))) == 3
    assert trial.node("n1")["status"]["allocatable"] == before


@pytest.mark.feature("DEV-6.honor")
@pytest.mark.case("DS-042", severity="critical")
def test_preferred_tables_give_way(trial: Trial, expect: Expect) -> None:
    """Where the table is a preference, a number of cards without a row is allocated by topology."""
    partitioned(trial, table_of(BY_COUNT), PREFER)
    trial.submit(pod("three").gpus(3))

    assert len(minors(expect.running("three"))) == 3


@pytest.mark.feature("DEV-6.scores")
@pytest.mark.case("DS-043", severity="critical")
@pytest.mark.parametrize(
    ("cards", "left_whole"), [pytest.param(1, [2, 5], id="one-card"), pytest.param(2, [0, 1, 6, 7], id="two-cards")]
)
def test_small_partitions_spare_large_ones(trial: Trial, expect: Expect, cards: int, left_whole: list[int]) -> None:
    """With card 3 in use, smaller requests use the rest of its partition of four; the other four stay free."""
    partitioned(trial, table_of(BY_COUNT), HONOR)
    take(trial, expect, {3})

    trial.submit(pod("a").gpus(cards))

    numbers = minors(expect.running("a"))
    assert numbers == ([4] if cards == 1 else [2, 5]), f"{left_whole} should stay whole"


@pytest.mark.feature("DEV-6.scores")
@pytest.mark.case("DS-044", severity="critical")
@pytest.mark.parametrize("text", [pytest.param(False, id="numbers"), pytest.param(True, id="strings-as-in-the-post")])
def test_the_highest_score_first(trial: Trial, expect: Expect, text: bool) -> None:
    """Of two partitions the one with the higher score is used first, with scores as numbers or strings."""
    low, high = FOURS
    scores = ("9", "10") if text else (9, 10)
    partitioned(trial, {"4": [linked(low, score=scores[0]), linked(high, score=scores[1])]}, HONOR)
    trial.submit(pod("first").gpus(4))
    assert minors(expect.running("first")) == high

    trial.submit(pod("second").gpus(4))

    assert minors(expect.running("second")) == low


@pytest.mark.feature("DEV-6.scores")
@pytest.mark.case("DS-135", severity="normal", source="spec DEV-R39")
def test_a_partition_spares_those_of_its_size(trial: Trial, expect: Expect) -> None:
    """Two pairs have a card in common: a pod of two cards gets the pair that overlaps none, though it is the last."""
    partitioned(trial, {"2": [linked(pair) for pair in ([0, 1], [1, 2], [5, 6])]}, HONOR)
    trial.submit(pod("a").gpus(2))
    assert minors(expect.running("a")) == [5, 6]


@pytest.mark.feature("DEV-6.no-table")
@pytest.mark.case("DS-136", severity="critical", source="spec DEV-R33")
def test_a_table_that_cannot_be_read(trial: Trial, expect: Expect) -> None:
    """The node has no table then: its cards are given out, and a pod that requires a table waits."""
    trial.add(node("n1").server("dgx-h100"))
    patch = {"metadata": {"annotations": {GPU_PARTITIONS: "{4: "}, "labels": {GPU_PARTITION_POLICY_LABEL: HONOR}}}
    assert trial.call("PATCH", "/apis/scheduling.koordinator.sh/v1alpha1/devices/n1", patch).ok
    trial.settle()
    trial.submit(pod("a").gpus(3), pod("insists").gpus(4).partition())
    assert len(minors(expect.running("a"))) == 3
    expect.pending("insists", saying="missing GPU Partition Table")


@pytest.mark.feature("DEV-6.pod-requirement")
@pytest.mark.case("DS-045", severity="critical")
@pytest.mark.parametrize(
    ("policy", "waits"),
    [
        pytest.param("Restricted", True, id="restricted-wants-the-best-score-alone"),
        pytest.param("BestEffort", False, id="best-effort-takes-the-next"),
        pytest.param("", False, id="nothing-said-is-best-effort"),
    ],
)
def test_what_a_pod_may_insist_on(trial: Trial, expect: Expect, policy: str, waits: bool) -> None:
    """When the partition with the best score is taken, a pod with Restricted waits for it."""
    low, high = FOURS
    partitioned(trial, {"4": [linked(low), linked(high, score=10)]}, PREFER)
    trial.submit(pod("first").gpus(4).partition("Restricted"))
    assert minors(expect.running("first")) == high

    trial.submit(pod("second").gpus(4).partition(policy))

    if waits:
        expect.pending("second", saying="Insufficient Partitioned GPU Devices")
        trial.delete("first")
        assert minors(expect.running("second")) == high
    else:
        assert minors(expect.running("second")) == low


@pytest.mark.feature("DEV-6.pod-requirement")
@pytest.mark.case("DS-046", severity="normal")
@pytest.mark.parametrize(
    ("first", "bandwidth", "expected"),
    [
        pytest.param("200Gi", "400Gi", [2, 3, 4, 5], id="just-enough-is-enough"),
        pytest.param("200Gi", "401Gi", None, id="no-ring-is-so-fast"),
        pytest.param("200Gi", "100Gi", [0, 1, 6, 7], id="the-slow-one-will-do-and-comes-first"),
        pytest.param("", "100Gi", [2, 3, 4, 5], id="one-without-a-bandwidth-will-not-do"),
        pytest.param("", "", [0, 1, 6, 7], id="one-without-a-bandwidth-comes-first"),
    ],
)
def test_ring_bandwidth(trial: Trial, expect: Expect, first: str, bandwidth: str, expected: list[int] | None) -> None:
    """A pod that requests a ring bandwidth gets a partition that has it."""
    slow, fast = FOURS
    partitioned(trial, {"4": [linked(slow, bandwidth=first), linked(fast, bandwidth="400Gi")]}, PREFER)
    trial.submit(pod("a").gpus(4).partition("BestEffort", bandwidth=bandwidth))

    if expected is None:
        expect.pending("a", saying="Insufficient Partitioned GPU Devices")
    else:
        assert minors(expect.running("a")) == expected


@pytest.mark.feature("DEV-6.no-table")
@pytest.mark.case("DS-047", severity="critical")
def test_no_table_no_partition(trial: Trial, expect: Expect) -> None:
    """A pod that requires partitions is not placed on nodes without a table; other pods are."""
    trial.add(node("n1").gpus("a10", 4))
    trial.submit(pod("insists").gpus(2).partition("Restricted"), pod("plain").gpus(2))

    expect.running("plain")
    expect.pending("insists", saying="missing GPU Partition Table")


@pytest.mark.feature("DEV-6.no-table")
@pytest.mark.case("DS-048", severity="normal")
def test_well_known_machines_need_no_table(trial: Trial, expect: Expect) -> None:
    """Nodes labelled as H100 have built-in NVLink partitions of one, two, four and eight neighbours."""
    marked = node("n1").server("dgx-h100").label(GPU_MODEL_LABEL, "H100").label(GPU_PARTITION_POLICY_LABEL, HONOR)
    trial.add(marked)
    trial.submit(pod("three").gpus(3))
    expect.pending("three", saying="Unsupported number of GPU requests")

    trial.submit(*(pod.gpus(2) for pod in pods("pair", 2)), pod("four").gpus(4))

    four, *pairs = expect.running("four", "pair-0", "pair-1")
    assert minors(four) in BLOCKS[4]
    assert all(minors(pod) in BLOCKS[2] for pod in pairs)


@pytest.mark.feature("DEV-6.table")
@pytest.mark.case("DS-049", severity="critical")
@pytest.mark.long(seconds=5)
def test_churn_never_leaves_the_table(trial: Trial, seed: int) -> None:
    """Pods of all sizes come and go: every bound pod has a row of the table, and no card has two owners."""
    partitioned(trial, table_of(BY_COUNT), HONOR)
    draw = random.Random(seed)  # noqa: S311 a churn that can be repeated
    alive: list[str] = []
    judged = 0
    for step in range(40):
        if alive and draw.random() < 0.45:
            trial.delete(alive.pop(draw.randrange(len(alive))))
        else:
            trial.submit(pod(f"p{step}").gpus(draw.choice([1, 1, 2, 2, 3, 4])))
            alive.append(f"p{step}")
        trial.pass_time(0.1)
        bound = [pod for pod in trial.pods() if pod.spec.node_name and not pod.terminated]
        held = [minor for pod in bound for minor in minors(pod)]
        assert len(set(held)) == len(held), f"a card has two owners: {sorted(held)}"
        for bound_pod in bound:
            judged += len(minors(bound_pod)) > 1
            assert minors(bound_pod) in BY_COUNT.get(len(minors(bound_pod)), []), (
                f"{bound_pod.metadata.name} got {minors(bound_pod)}"
            )
    assert judged >= 20, "the churn bound too little to prove anything"
