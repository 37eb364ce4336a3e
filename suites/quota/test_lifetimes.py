"""Quotas and nodes that come and go, and what a quota that does not lend keeps."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import BindingsOf, Link
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import QUOTA_NAME
from seatrial.suites.faults.schedulers import link, running
from seatrial.suites.quota.quotas import counted, make, many, named, path_of, placed, settle

__all__ = ["link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]


@pytest.mark.feature("QUOTA-1.keeps")
@pytest.mark.case("QU-062", severity="critical")
@pytest.mark.long(seconds=20)
def test_a_quota_that_does_not_lend_keeps_its_min(trial: Trial, expect: Expect) -> None:
    """Ten cores. A quota with a min of six that does not lend has no pods: the other quota gets four pods of ten. Once
    it lends, the other quota gets all ten."""
    trial.add(node("n1").cpu(10).memory("64Gi"))
    make(trial, quota(named(trial, "a")).min(cpu=6).max(cpu=10).keeps(), quota(named(trial, "b")).max(cpu=10))
    trial.submit(*many(trial, "b", 10))
    settle(trial)
    assert placed(trial, "b-") == 4

    change = {"metadata": {"labels": {"quota.scheduling.koordinator.sh/allow-lent-resource": "true"}}}
    assert trial.call("PATCH", path_of(trial, named(trial, "a")), change).ok

    expect.bound(*(f"b-{number}" for number in range(10)))


@pytest.mark.feature("QUOTA-1.min-guaranteed")
@pytest.mark.case("QU-063", severity="critical")
@pytest.mark.long(seconds=41)
def test_what_a_node_had_is_no_longer_divided(trial: Trial, expect: Expect) -> None:
    """Two quotas share twelve cores by equal weights. A node with eight of them goes. Of the four that are left each
    quota gets two, although one asks first for all."""
    trial.add(node("n1").cpu(4).memory("64Gi"), node("n2").cpu(8).memory("64Gi"))
    make(trial, *(quota(named(trial, name)).max(cpu=12).weight(cpu=1) for name in "ab"))
    assert trial.call("DELETE", "/api/v1/nodes/n2").ok
    blocker = counted(trial, "blocker", "c", cpu=4)
    make(trial, quota(named(trial, "c")).max(cpu=12))
    trial.submit(blocker)
    expect.bound("blocker")
    trial.submit(*many(trial, "a", 4), *many(trial, "b", 4))
    settle(trial)

    trial.delete("blocker")
    settle(trial)

    assert (placed(trial, "a-"), placed(trial, "b-")) == (2, 2)


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-065", severity="critical")
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("lacking", ["cpu", "memory"])
def test_each_resource_of_max_binds(trial: Trial, lacking: str) -> None:
    """A quota has room for three pods by one resource and for two by another: two are bound."""
    trial.add(node("n1").cpu(10).memory("64Gi"))
    amounts = {"cpu": "3", "memory": "3Gi", lacking: {"cpu": "2", "memory": "2Gi"}[lacking]}
    make(trial, quota(named(trial, "a")).max(**amounts))

    trial.submit(*(counted(trial, f"a-{number}", "a", cpu=1, memory="1Gi") for number in range(3)))

    settle(trial)
    assert placed(trial, "a-") == 2


@pytest.mark.feature("QUOTA-5.by-label")
@pytest.mark.case("QU-066", severity="normal")
def test_a_running_pod_that_gets_another_quota_counts_there(trial: Trial, expect: Expect) -> None:
    """A pod of a full quota gets the label of another quota: the pod that waited for the first one is bound, and one of
    the other quota waits."""
    trial.add(node("n1").cpu(10).memory("64Gi"))
    make(trial, *(quota(named(trial, name)).max(cpu=1) for name in "ab"))
    trial.submit(counted(trial, "moves", "a", cpu=1))
    expect.bound("moves")
    trial.submit(counted(trial, "waits", "a", cpu=1))
    expect.pending("waits", saying="Insufficient quotas")

    label = {"metadata": {"labels": {QUOTA_NAME: named(trial, "b")}}}
    assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}/pods/moves", label).ok

    expect.bound("waits")
    trial.submit(counted(trial, "late", "b", cpu=1))
    expect.pending("late", saying="Insufficient quotas")


@pytest.mark.feature("QUOTA-5.by-label")
@pytest.mark.case("QU-316", severity="critical", source="spec QUOTA-R10, QUOTA-R30")
@pytest.mark.long(seconds=25)
def test_a_waiting_pod_that_gets_another_quota_waits_for_that(trial: Trial, expect: Expect) -> None:
    """A pod waits for its full quota, and gets the label of one with room: it is bound. Another one waits for a node,
    and gets the label of the full quota: it waits when there is a node."""
    trial.add(node("n1").cpu(2).memory("64Gi"))
    make(trial, *(quota(named(trial, name)).max(cpu=1) for name in "ab"), quota(named(trial, "c")).max(cpu=4))
    trial.submit(counted(trial, "fills", "a", cpu=1))
    expect.bound("fills")
    trial.submit(counted(trial, "frees", "a", cpu=1))
    expect.pending("frees", saying="Insufficient quotas")

    def label(name: str, own: str) -> None:
        body = {"metadata": {"labels": {QUOTA_NAME: named(trial, own)}}}
        assert trial.call("PATCH", trial.path("Pod", name), body).ok
        trial.settle()

    label("frees", "b")
    expect.bound("frees")

    trial.submit(counted(trial, "closes", "c", cpu=1))
    expect.pending("closes", saying="Insufficient cpu")
    label("closes", "a")
    trial.add(node("n2").cpu(4).memory("64Gi"))
    expect.pending("closes", saying=f"quotaName: {named(trial, 'a')}")
    expect.stable(seconds=3)
    label("closes", "c")
    expect.bound("closes")


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case(
    "QU-331",
    severity="critical",
    source="kubernetes pkg/scheduler/schedule_one.go@v1.34: a binding that failed moves waiting pods",
)
@pytest.mark.long(seconds=12)
def test_what_a_refused_binding_leaves_is_given_to_the_next(trial: Trial, expect: Expect, link: Link) -> None:
    """A quota has room for one of two pods. The binding of the first one is refused again and again: while it backs
    off, the second one is bound."""
    trial.add(node("n1").cpu(8))
    make(trial, quota(named(trial, "a")).max(cpu=1))
    settle(trial)
    link.delay = 3.0  # seconds, so that the second pod waits when the answer comes
    link.refuse(500, BindingsOf("a-0"))
    trial.submit(*many(trial, "a", 2))

    expect.bound("a-1", within=60)

    assert link.refused, "the binding of the first pod must have been refused"
    link.heal()
    expect.pending("a-0", saying="Insufficient quotas")
