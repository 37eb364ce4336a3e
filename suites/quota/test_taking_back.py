"""Taking back what a quota uses beyond its share: when, whom, and what protects a pod. `delayEvictTime` is 60 s."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, node, priority_class, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.suites.preemption.nominations import freeze
from seatrial.suites.quota.quotas import counted, make, many, named, path_of, placed

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]

DELAY = 60.0  # seconds of overuse before pods are evicted


def pause(trial: Trial, seconds: float) -> None:
    trial.pass_time(seconds)


def borrowed(trial: Trial, expect: Expect) -> list[str]:
    """Two quotas with a min of 4 on 8 cores; `a` uses all of them. Returns the names of its pods."""
    trial.add(node("n1").cpu(8))
    make(trial, *(quota(named(trial, name)).min(cpu=4).max(cpu=8) for name in "ab"))
    names = [f"a-{number}" for number in range(8)]
    trial.submit(*many(trial, "a", 8))
    expect.bound(names[0], names[1], *names[2:])
    return names


@pytest.mark.feature("QUOTA-12.overuse")
@pytest.mark.case("QU-080", severity="normal")
@pytest.mark.long(150)
def test_short_overuse_costs_nothing(trial: Trial, expect: Expect) -> None:
    """Demand of the lender that ends before the delay ends evicts no pod, and the next delay has its full length."""
    borrowed(trial, expect)

    for _ in range(2):
        trial.submit(counted(trial, "b-0", "b", cpu=4))
        expect.pending("b-0")
        pause(trial, DELAY * 0.7)
        assert placed(trial, "a-") == 8
        trial.delete("b-0")
        expect.gone("b-0")
        pause(trial, 5)

    assert placed(trial, "a-") == 8


@pytest.mark.feature("QUOTA-12.overuse")
@pytest.mark.case("QU-153", severity="critical", source="spec QUOTA-R68")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
@pytest.mark.long(170)
def test_the_delay_of_a_quota_that_is_made_anew_is_whole(trial: Trial, expect: Expect) -> None:
    """A quota is overused for most of the delay, deleted, and created again with a max below its use: its pods stay for
    the whole delay, and then as many are evicted as are too many. Without admission, which keeps a quota with pods."""
    trial.add(node("n1").cpu(8))
    make(trial, quota(named(trial, "a")).max(cpu=8))
    trial.submit(*many(trial, "a", 8))
    expect.bound("a-0", "a-7")
    path, smaller = path_of(trial, named(trial, "a")), quota(named(trial, "a")).max(cpu=4)
    assert trial.call("PATCH", path, {"spec": {"max": {"cpu": "4"}}}).ok
    pause(trial, DELAY * 0.8)

    assert trial.call("DELETE", path).ok
    make(trial, smaller)

    pause(trial, DELAY * 0.8)
    assert placed(trial, "a-") == 8
    pause(trial, DELAY)
    assert placed(trial, "a-") == 4


@pytest.mark.feature("QUOTA-12.overuse", "QUOTA-8.no-victims")
@pytest.mark.case("QU-081", severity="critical")
@pytest.mark.long(120)
def test_the_least_important_go(trial: Trial, expect: Expect) -> None:
    """Of pods beyond the share those of low priority are evicted, and a non-preemptible one of them stays."""
    trial.apply(priority_class("quota-low", 1000), priority_class("quota-high", 9000))
    trial.add(node("n1").cpu(8))
    make(trial, *(quota(named(trial, name)).min(cpu=4).max(cpu=8) for name in "ab"))
    low = ["low-0", "low-1", "low-2"]
    trial.submit(counted(trial, "kept", "a", cpu=1, preemptible=False).priority_class("quota-low"))
    trial.submit(*(counted(trial, name, "a", cpu=1).priority_class("quota-low") for name in low))
    trial.submit(*(counted(trial, f"high-{number}", "a", cpu=1).priority_class("quota-high") for number in range(4)))
    expect.bound("kept", *low, "high-0", "high-1", "high-2", "high-3")

    trial.submit(counted(trial, "b-0", "b", cpu=3))

    expect.bound("b-0", within=DELAY + 60)
    expect.gone(*low)
    expect.bound("kept", "high-0", "high-1", "high-2", "high-3")


@pytest.mark.feature("QUOTA-12.overuse")
@pytest.mark.case("QU-082", severity="normal")
@pytest.mark.long(310)
def test_a_disruption_budget_protects_what_was_borrowed(trial: Trial, expect: Expect) -> None:
    """Evictions that a budget refuses are tried again after the next delay, not sooner, and succeed once the budget is
    gone."""
    trial.add(node("n1").cpu(8))
    make(trial, *(quota(named(trial, name)).min(cpu=4).max(cpu=8) for name in "ab"))
    trial.apply(disruption_budget("guard", {"app": "guarded"}, min_available=8))
    trial.submit(*(builder.label("app", "guarded") for builder in many(trial, "a", 8)))
    names = [f"a-{number}" for number in range(8)]
    expect.running(names[0], names[1], *names[2:])

    trial.submit(counted(trial, "b-0", "b", cpu=4))
    expect.pending("b-0")
    pause(trial, DELAY + 20)
    assert placed(trial, "a-") == 8

    path = f"/apis/policy/v1/namespaces/{trial.name}/poddisruptionbudgets/guard"
    assert trial.call("DELETE", path).ok
    pause(trial, 10)
    assert placed(trial, "a-") == 8
    expect.bound("b-0", within=DELAY + 60)
    assert placed(trial, "a-") == 4


@pytest.mark.feature("QUOTA-12.overuse")
@pytest.mark.case("QU-157", severity="critical", source="ours: a pod that leaves is taken back already")
@pytest.mark.long(150)
def test_pods_that_leave_already_count_as_taken_back(trial: Trial, expect: Expect) -> None:
    """Four of eight cores are used beyond the share. The node is frozen and two of its pods are being deleted: two more
    are evicted, and none after a second delay."""
    trial.add(node("n1").cpu(8))
    make(trial, *(quota(named(trial, name)).min(cpu=4).max(cpu=8) for name in "ab"))
    pods = many(trial, "a", 8)
    for one in pods:
        one.manifest["spec"]["terminationGracePeriodSeconds"] = 600
    trial.submit(*pods)
    expect.running("a-0", "a-1", *(f"a-{number}" for number in range(2, 8)))
    freeze(trial, "n1")
    trial.submit(counted(trial, "b-0", "b", cpu=4))
    expect.pending("b-0")
    for name in ("a-0", "a-1"):
        assert trial.call("DELETE", f"/api/v1/namespaces/{trial.name}/pods/{name}").ok

    for _ in range(2):
        pause(trial, DELAY + 10)
        assert sum(pod.deleting for pod in trial.pods()) == 4


@pytest.mark.feature("QUOTA-12.overuse")
@pytest.mark.case("QU-169", severity="normal", source="spec QUOTA-R69")
@pytest.mark.long(75)
@pytest.mark.parametrize("order", [("large", "small"), ("small", "large")], ids=["large-first", "small-first"])
def test_no_more_is_taken_back_than_is_too_much(trial: Trial, expect: Expect, order: tuple[str, ...]) -> None:
    """A quota uses three cores more than its new max, by a pod of four and a pod of one. The one of four is evicted;
    the other one stays, also if it is the less important one."""
    trial.add(node("n1").cpu(8))
    make(trial, quota(named(trial, "a")).max(cpu=5))
    for name in order:
        trial.submit(counted(trial, name, "a", cpu=4 if name == "large" else 1))
        expect.running(name)
        trial.pass_time(2)  # start times are whole seconds

    assert trial.call("PATCH", path_of(trial, named(trial, "a")), {"spec": {"max": {"cpu": "2"}}}).ok

    expect.gone("large", within=DELAY + 20)
    pause(trial, 5)
    assert placed(trial, "small") == 1


@pytest.mark.feature("QUOTA-12.overuse", "QUOTA-8.no-victims")
@pytest.mark.case("QU-410", severity="normal", source="spec QUOTA-R69")
@pytest.mark.long(75)
def test_what_can_be_taken_back_is_where_it_is_not_enough(trial: Trial, expect: Expect) -> None:
    """Two non-preemptible pods alone use more than the new max of their quota: its two other pods are evicted."""
    trial.add(node("n1").cpu(8))
    make(trial, quota(named(trial, "a")).min(cpu=2).max(cpu=4))
    trial.submit(*(counted(trial, f"kept-{number}", "a", cpu=1, preemptible=False) for number in range(2)))
    trial.submit(*many(trial, "a", 2))
    expect.running("kept-0", "kept-1", "a-0", "a-1")

    spec = {"min": {"cpu": "1"}, "max": {"cpu": "1"}}
    assert trial.call("PATCH", path_of(trial, named(trial, "a")), {"spec": spec}).ok

    expect.gone("a-0", "a-1", within=DELAY + 20)
    pause(trial, 5)
    assert placed(trial, "kept-") == 2
