"""Quotas and nodes that come and go, and what a quota that does not lend keeps."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import QUOTA_NAME
from seatrial.suites.quota.quotas import counted, make, many, named, path_of, placed, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]


@pytest.mark.feature("QUOTA-1.keeps")
@pytest.mark.case("QU-062", severity="critical")
@pytest.mark.long(seconds=20)
def test_a_quota_that_does_not_lend_keeps_its_min(cluster: Trial, expect: Expect) -> None:
    """Ten cores. A quota with a min of six that does not lend has no pods: the other quota gets four pods of ten. Once
    it lends, the other quota gets all ten."""
    cluster.add(node("n1").cpu(10).memory("64Gi"))
    make(cluster, quota(named(cluster, "a")).min(cpu=6).max(cpu=10).keeps(), quota(named(cluster, "b")).max(cpu=10))
    cluster.submit(*many(cluster, "b", 10))
    settle(cluster)
    assert placed(cluster, "b-") == 4

    change = {"metadata": {"labels": {"quota.scheduling.koordinator.sh/allow-lent-resource": "true"}}}
    assert cluster.call("PATCH", path_of(cluster, named(cluster, "a")), change).ok

    expect.bound(*(f"b-{number}" for number in range(10)))


@pytest.mark.feature("QUOTA-1.min-guaranteed")
@pytest.mark.case("QU-063", severity="critical")
@pytest.mark.long(seconds=41)
def test_what_a_node_had_is_no_longer_divided(cluster: Trial, expect: Expect) -> None:
    """Two quotas share twelve cores by equal weights. A node with eight of them goes. Of the four that are left each
    quota gets two, although one asks first for all."""
    cluster.add(node("n1").cpu(4).memory("64Gi"), node("n2").cpu(8).memory("64Gi"))
    make(cluster, *(quota(named(cluster, name)).max(cpu=12).weight(cpu=1) for name in "ab"))
    assert cluster.call("DELETE", "/api/v1/nodes/n2").ok
    blocker = counted(cluster, "blocker", "c", cpu=4)
    make(cluster, quota(named(cluster, "c")).max(cpu=12))
    cluster.submit(blocker)
    expect.bound("blocker")
    cluster.submit(*many(cluster, "a", 4), *many(cluster, "b", 4))
    settle(cluster)

    cluster.delete("blocker")
    settle(cluster)

    assert (placed(cluster, "a-"), placed(cluster, "b-")) == (2, 2)


@pytest.mark.feature("QUOTA-10.in-place")
@pytest.mark.case("QU-064", severity="normal")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # without admission, which refuses the deletion
def test_pods_of_a_deleted_quota_belong_to_the_default_quota(cluster: Trial, expect: Expect) -> None:
    """A quota of one core has a pod, and another waits. The quota is deleted: the pod is bound, since the default quota
    has no limit."""
    cluster.add(node("n1").cpu(10).memory("64Gi"))
    make(cluster, quota(named(cluster, "a")).max(cpu=1))
    cluster.submit(*many(cluster, "a", 2))
    expect.bound("a-0")
    expect.pending("a-1", saying="Insufficient quotas")

    assert cluster.call("DELETE", path_of(cluster, named(cluster, "a"))).ok

    expect.bound("a-1")


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-065", severity="critical")
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("lacking", ["cpu", "memory"])
def test_each_resource_of_max_binds(cluster: Trial, lacking: str) -> None:
    """A quota has room for three pods by one resource and for two by another: two are bound."""
    cluster.add(node("n1").cpu(10).memory("64Gi"))
    amounts = {"cpu": "3", "memory": "3Gi", lacking: {"cpu": "2", "memory": "2Gi"}[lacking]}
    make(cluster, quota(named(cluster, "a")).max(**amounts))

    cluster.submit(*(counted(cluster, f"a-{number}", "a", cpu=1, memory="1Gi") for number in range(3)))

    settle(cluster)
    assert placed(cluster, "a-") == 2


@pytest.mark.feature("QUOTA-5.by-label")
@pytest.mark.case("QU-066", severity="normal")
def test_a_running_pod_that_gets_another_quota_counts_there(cluster: Trial, expect: Expect) -> None:
    """A pod of a full quota gets the label of another quota: the pod that waited for the first one is bound, and one of
    the other quota waits."""
    cluster.add(node("n1").cpu(10).memory("64Gi"))
    make(cluster, *(quota(named(cluster, name)).max(cpu=1) for name in "ab"))
    cluster.submit(counted(cluster, "moves", "a", cpu=1), counted(cluster, "waits", "a", cpu=1))
    expect.bound("moves")
    expect.pending("waits", saying="Insufficient quotas")

    label = {"metadata": {"labels": {QUOTA_NAME: named(cluster, "b")}}}
    assert cluster.call("PATCH", f"/api/v1/namespaces/{cluster.name}/pods/moves", label).ok

    expect.bound("waits")
    cluster.submit(counted(cluster, "late", "b", cpu=1))
    expect.pending("late", saying="Insufficient quotas")
