"""Taking back what a quota uses beyond its share: when, whom, and what protects a pod. `delayEvictTime` is 60 s."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, node, priority_class, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.suites.quota.quotas import counted, make, many, named, path_of, placed

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]

DELAY = 60.0  # seconds of overuse before pods are evicted


def pause(cluster: Trial, seconds: float) -> None:
    cluster.cluster.wait(lambda: False, within=seconds)


def borrowed(cluster: Trial, expect: Expect) -> list[str]:
    """Two quotas with a min of 4 on 8 cores; `a` uses all of them. Returns the names of its pods."""
    cluster.add(node("n1").cpu(8))
    make(cluster, *(quota(named(cluster, name)).min(cpu=4).max(cpu=8) for name in "ab"))
    names = [f"a-{number}" for number in range(8)]
    cluster.submit(*many(cluster, "a", 8))
    expect.bound(names[0], names[1], *names[2:])
    return names


@pytest.mark.feature("QUOTA-12.overuse")
@pytest.mark.case("QU-080", severity="normal")
@pytest.mark.long(150)
def test_short_overuse_costs_nothing(cluster: Trial, expect: Expect) -> None:
    """Demand of the lender that ends before the delay ends evicts no pod, and the next delay has its full length."""
    borrowed(cluster, expect)

    for _ in range(2):
        cluster.submit(counted(cluster, "b-0", "b", cpu=4))
        expect.pending("b-0")
        pause(cluster, DELAY * 0.7)
        assert placed(cluster, "a-") == 8
        cluster.delete("b-0")
        expect.gone("b-0")
        pause(cluster, 5)

    assert placed(cluster, "a-") == 8


@pytest.mark.feature("QUOTA-12.overuse")
@pytest.mark.case("QU-153", severity="critical", source="spec QUOTA-R68")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
@pytest.mark.long(170)
def test_the_delay_of_a_quota_that_is_made_anew_is_whole(cluster: Trial, expect: Expect) -> None:
    """A quota is overused for most of the delay, deleted, and created again with a max below its use: its pods stay for
    the whole delay, and then as many are evicted as are too many. Without admission, which keeps a quota with pods."""
    cluster.add(node("n1").cpu(8))
    make(cluster, quota(named(cluster, "a")).max(cpu=8))
    cluster.submit(*many(cluster, "a", 8))
    expect.bound("a-0", "a-7")
    path, smaller = path_of(cluster, named(cluster, "a")), quota(named(cluster, "a")).max(cpu=4)
    assert cluster.call("PATCH", path, {"spec": {"max": {"cpu": "4"}}}).ok
    pause(cluster, DELAY * 0.8)

    assert cluster.call("DELETE", path).ok
    make(cluster, smaller)

    pause(cluster, DELAY * 0.8)
    assert placed(cluster, "a-") == 8
    pause(cluster, DELAY)
    assert placed(cluster, "a-") == 4


@pytest.mark.feature("QUOTA-12.overuse", "QUOTA-8.no-victims")
@pytest.mark.case("QU-081", severity="critical")
@pytest.mark.long(120)
def test_the_least_important_go(cluster: Trial, expect: Expect) -> None:
    """Of pods beyond the share those of low priority are evicted, and a non-preemptible one of them stays."""
    cluster.apply(priority_class("quota-low", 1000), priority_class("quota-high", 9000))
    cluster.add(node("n1").cpu(8))
    make(cluster, *(quota(named(cluster, name)).min(cpu=4).max(cpu=8) for name in "ab"))
    low = ["low-0", "low-1", "low-2"]
    cluster.submit(counted(cluster, "kept", "a", cpu=1, preemptible=False).priority_class("quota-low"))
    cluster.submit(*(counted(cluster, name, "a", cpu=1).priority_class("quota-low") for name in low))
    cluster.submit(
        *(counted(cluster, f"high-{number}", "a", cpu=1).priority_class("quota-high") for number in range(4))
    )
    expect.bound("kept", *low, "high-0", "high-1", "high-2", "high-3")

    cluster.submit(counted(cluster, "b-0", "b", cpu=3))

    expect.bound("b-0", within=DELAY + 60)
    expect.gone(*low)
    expect.bound("kept", "high-0", "high-1", "high-2", "high-3")


@pytest.mark.feature("QUOTA-12.overuse")
@pytest.mark.case("QU-082", severity="normal")
@pytest.mark.long(300)
def test_a_disruption_budget_protects_what_was_borrowed(cluster: Trial, expect: Expect) -> None:
    """Evictions that a budget refuses are tried again after the next delay, and succeed once the budget is gone."""
    cluster.add(node("n1").cpu(8))
    make(cluster, *(quota(named(cluster, name)).min(cpu=4).max(cpu=8) for name in "ab"))
    cluster.apply(disruption_budget("guard", {"app": "guarded"}, min_available=8))
    cluster.submit(*(builder.label("app", "guarded") for builder in many(cluster, "a", 8)))
    names = [f"a-{number}" for number in range(8)]
    expect.running(names[0], names[1], *names[2:])

    cluster.submit(counted(cluster, "b-0", "b", cpu=4))
    expect.pending("b-0")
    pause(cluster, DELAY + 20)
    assert placed(cluster, "a-") == 8

    path = f"/apis/policy/v1/namespaces/{cluster.name}/poddisruptionbudgets/guard"
    assert cluster.call("DELETE", path).ok
    expect.bound("b-0", within=DELAY + 60)
    assert placed(cluster, "a-") == 4
