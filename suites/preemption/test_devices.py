"""Preemption for devices: victims are pods whose devices help, and their devices are returned."""

import json

import pytest

from seatrial.fixtures.allocated_devices import card_memory, check_arrival, first_of, functions, minors, switches
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, disruption_budget, node, pod, pods, priority_class
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU_PARTITION_POLICY_LABEL, GPU_PARTITIONS
from seatrial.suites.preemption.nominations import freeze, thaw

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.fixture
def classes(trial: Trial) -> Trial:
    """Two priorities."""
    trial.apply(priority_class("device-low", 1000), priority_class("device-high", 9000))
    return trial


def low(pod: PodBuilder) -> PodBuilder:
    return pod.priority_class("device-low")


def high(pod: PodBuilder) -> PodBuilder:
    return pod.priority_class("device-high")


def fill(trial: Trial, expect: Expect, count: int) -> list[Pod]:
    """The given number of low-priority pods of one card each, running."""
    trial.submit(*(low(pod.gpus(1)) for pod in pods("low", count)))
    names = [f"low-{number}" for number in range(count)]
    return list(expect.running(names[0], names[1], *names[2:]))


def left(trial: Trial) -> set[str]:
    return {pod.metadata.name for pod in trial.pods() if pod.metadata.name.startswith("low") and not pod.deleting}


@pytest.mark.feature("DEV-15.gives-back")
@pytest.mark.case("PR-020", severity="blocker")
def test_pods_without_cards_are_left_alone(classes: Trial, expect: Expect) -> None:
    """A pod that needs a card does not preempt pods without cards."""
    classes.add(node("n1").gpus("a10", 1))
    classes.submit(*(low(pod.request(cpu=1)) for pod in pods("low-plain", 3)), low(pod("low-card").gpus(1)))
    expect.running("low-plain-0", "low-plain-1", "low-plain-2", "low-card")

    classes.submit(high(pod("high").gpus(1)))

    check_arrival(classes, expect.running("high"))
    assert left(classes) == {"low-plain-0", "low-plain-1", "low-plain-2"}


@pytest.mark.feature("DEV-15.victims-by-device")
@pytest.mark.case("PR-021", severity="critical")
def test_all_tenants_of_one_card_rather_than_some_of_each(classes: Trial, expect: Expect) -> None:
    """For a whole card the two tenants of one card are the victims, not one tenant of each card."""
    classes.add(node("n1").gpus("a10", 2))
    classes.submit(*(low(pod.gpu_share(50)) for pod in pods("low", 4)))
    before = {pod.metadata.name: minors(pod) for pod in expect.running("low-0", "low-1", "low-2", "low-3")}

    classes.submit(high(pod("high").gpus(1)))

    one = expect.running("high")
    check_arrival(classes, one)
    expect.stable(seconds=2)
    stayed = left(classes)
    assert len(stayed) == 2, f"expected two of four tenants to stay, found {stayed}"
    assert all(before[name] != minors(one) for name in stayed)


@pytest.mark.feature("DEV-5.nearest", "DEV-15.victims-by-device")
@pytest.mark.case("PR-022", severity="critical")
def test_victims_are_near_each_other_where_it_matters(classes: Trial, expect: Expect) -> None:
    """For two cards of one PCIe switch the two pods on one switch are the victims, and no others."""
    classes.add(node("n1").server("hgx-a100"))
    before = {pod.metadata.name: switches(classes, pod) for pod in fill(classes, expect, 8)}

    classes.submit(high(pod("high").gpus(2).hint("gpu", requiredTopologyScope="PCIe")))

    one = expect.running("high")
    check_arrival(classes, one)
    expect.stable(seconds=2)
    gone = before.keys() - left(classes)
    assert len(gone) == 2, f"expected two victims, found {sorted(gone)}"
    assert all(before[name] == switches(classes, one) for name in gone)


@pytest.mark.feature("DEV-6.table", "DEV-15.victims-by-device")
@pytest.mark.case("PR-023", severity="critical")
def test_victims_are_one_partition(classes: Trial, expect: Expect) -> None:
    """With a required partition table, the four pods of one partition are the victims."""
    fours = [[0, 1, 6, 7], [2, 3, 4, 5]]
    classes.add(node("n1").server("dgx-h100"))
    rows = {"1": [{"minors": [minor]} for minor in range(8)], "4": [{"minors": minor} for minor in fours]}
    patch = {
        "metadata": {"annotations": {GPU_PARTITIONS: json.dumps(rows)}, "labels": {GPU_PARTITION_POLICY_LABEL: "Honor"}}
    }
    assert classes.call("PATCH", "/apis/scheduling.koordinator.sh/v1alpha1/devices/n1", patch).ok
    classes.submit(pod("witness").gpus(1).partition())  # once it runs the scheduler has seen the table
    expect.running("witness")
    classes.delete("witness")
    before = {pod.metadata.name: first_of(pod) for pod in fill(classes, expect, 8)}

    classes.submit(high(pod("high").gpus(4).partition("Restricted")))

    one = expect.running("high")
    check_arrival(classes, one)
    expect.stable(seconds=2)
    assert minors(one) in fours
    assert sorted(before[name] for name in before.keys() - left(classes)) == minors(one)


@pytest.mark.feature("DEV-7.held-and-returned", "DEV-15.gives-back")
@pytest.mark.case("PR-024", severity="critical")
def test_nics_and_functions_come_back_too(classes: Trial, expect: Expect) -> None:
    """The victim's virtual function is released: the preemptor of the same shape gets card and function."""

    def shape(name: str) -> PodBuilder:
        return pod(name).gpus(1).rdma(100).jointly("gpu", "rdma", same_pcie=True).hint("rdma", vfSelector={})

    classes.add(node("n1").gpus("a10", 1).nics("connectx-7", 1))
    classes.submit(low(shape("low")))
    victim = expect.running("low")

    classes.submit(high(shape("high")))

    expect.gone("low")
    one = expect.running("high")
    check_arrival(classes, one)
    assert (minors(one), minors(one, "rdma"), functions(one)) == (
        minors(victim),
        minors(victim, "rdma"),
        functions(victim),
    )


@pytest.mark.feature("DEV-15.victims-by-device")
@pytest.mark.case("PR-025", severity="critical")
def test_the_node_with_the_cheaper_victims(classes: Trial, expect: Expect) -> None:
    """Where one node needs one victim and another two for the same cards, the first is chosen."""
    classes.add(node("many").gpus("a10", 2).label("at", "many"), node("few").gpus("a10", 2).label("at", "few"))
    classes.submit(
        *(low(pod.gpus(1).on(at="many")) for pod in pods("low-many", 2)), low(pod("low-few").gpus(2).on(at="few"))
    )
    expect.running("low-many-0", "low-many-1", "low-few")

    classes.submit(high(pod("high").gpus(2)))

    assert expect.running("high").spec.node_name == "few"
    assert left(classes) == {"low-many-0", "low-many-1"}


@pytest.mark.feature("PRE-1.budgets", "DEV-15.victims-by-device")
@pytest.mark.case("PR-227", severity="critical", source="spec FWK-R16, FWK-R78, FWK-R81")
@pytest.mark.parametrize("guarded", ["n1", "n2"])
def test_what_distinguishes_two_equal_nodes(classes: Trial, expect: Expect, guarded: str) -> None:
    """Two nodes differ in the budget of their pods alone: for all cards of a node the other pod is evicted. While that
    one ends, its cards are nominated: a second such pod takes those under the budget."""
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    for name in ("n1", "n2"):
        classes.add(node(name).server("hgx-a100"))
    classes.submit(*(low(built.gpus(8)) for built in pods("low", 2)))
    where = {placed.spec.node_name: placed.metadata.name for placed in expect.running("low-0", "low-1")}
    path = classes.path("Pod", where.pop(guarded))
    assert classes.call("PATCH", path, {"metadata": {"labels": {"app": "guarded"}}}).ok
    classes.settle(3)  # the budget's status counts the pod
    ((free, victim),) = where.items()
    freeze(classes, free)

    classes.submit(high(pod("first").gpus(8).hint("gpu", requiredTopologyScope="Node")))
    expect.nominated("first", free)
    classes.submit(high(pod("second").gpus(8).hint("gpu", requiredTopologyScope="Node")))

    assert expect.running("second").spec.node_name == guarded
    assert classes.pod(victim).deleting
    thaw(classes, free)
    assert expect.running("first").spec.node_name == free


@pytest.mark.feature("PRE-1.minimal-victims", "DEV-15.victims-by-device")
@pytest.mark.case("PR-026", severity="critical")
def test_no_pod_is_evicted_where_no_eviction_helps(classes: Trial, expect: Expect) -> None:
    """For five cards of a NUMA node with four, no pod is evicted, whatever its priority."""
    classes.add(node("n1").server("hgx-a100"))
    fill(classes, expect, 8)

    classes.submit(high(pod("high").gpus(5).hint("gpu", requiredTopologyScope="NUMANode")))

    expect.pending("high")
    expect.stable(seconds=2)
    assert len(left(classes)) == 8


@pytest.mark.feature("DEV-15.victims-by-device")
@pytest.mark.case("PR-051", severity="critical")
def test_nothing_is_freed_for_percent_beyond_the_bytes(classes: Trial, expect: Expect) -> None:
    """Two pods of high priority hold 1.5 % of a card's memory each, in bytes. For a pod of 98 % the third tenant is
    left alone, for it would not fit either way; for a pod of 97 % it goes."""
    classes.add(node("n1").gpus("a10", 1))
    memory = str(card_memory(classes, "n1") * 15 // 1000)
    classes.submit(*(high(pod(name).gpu_memory(memory, core=1)) for name in ("keeps-0", "keeps-1")))
    classes.submit(low(pod("low").gpu_share(90)))
    expect.running("keeps-0", "keeps-1", "low")

    classes.submit(high(pod("too-large").gpu_share(98)))
    expect.pending("too-large", saying="Insufficient")
    expect.stable(seconds=2)
    assert left(classes) == {"low"}
    classes.delete("too-large")
    classes.submit(high(pod("fits").gpu_share(97)))

    check_arrival(classes, expect.running("fits"))
    assert left(classes) == set()
