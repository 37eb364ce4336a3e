"""What a quota counts when pods come by other ways, end, or lose their quota, and when nodes change."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import IS_PARENT, QUOTAS_PATH, RUNTIME, TREE_ID
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH
from seatrial.suites.quota.quotas import annotation, counted, make, many, named, placed, read, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-122", severity="blocker")
@pytest.mark.long(seconds=20)
def test_a_pod_that_was_not_scheduled_counts(cluster: Trial, expect: Expect) -> None:
    """One of four cores is used, then three more by a pod that names its node itself: a pod like the first waits."""
    cluster.add(node("n1").cpu(32))
    make(cluster, quota(named(cluster, "a")).min(cpu=4).max(cpu=4))
    cluster.submit(counted(cluster, "nowhere", "a", cpu=4).on(zone="none"))  # the request reaches max at once
    expect.pending("nowhere")
    cluster.submit(counted(cluster, "first", "a", cpu=1))
    expect.bound("first")
    static = counted(cluster, "static", "a", cpu=3).node_name("n1")
    static.manifest["spec"].pop("nodeSelector", None)
    cluster.submit(static)
    expect.running("static")

    cluster.submit(counted(cluster, "late", "a", cpu=1))

    expect.pending("late", saying="used: cpu:4")
    settle(cluster)
    assert not cluster.pod("late").spec.node_name


@pytest.mark.feature("QUOTA-3.shared-weight")
@pytest.mark.case("QU-123", severity="critical")
@pytest.mark.long(seconds=21)
def test_shares_grow_with_the_cluster(cluster: Trial, expect: Expect) -> None:
    """Eight pods of one core ask for more than the only node has: with a second node all are placed."""
    cluster.add(node("n1").cpu(4))
    make(cluster, quota(named(cluster, "a")).max(cpu=100))
    cluster.submit(*many(cluster, "a", 8))
    settle(cluster)
    assert placed(cluster, "a-") == 4

    cluster.add(node("n2").cpu(4))

    expect.bound(*(f"a-{number}" for number in range(8)))


@pytest.mark.feature("QUOTA-3.shared-weight")
@pytest.mark.case("QU-124", severity="critical")
def test_shares_follow_a_node_that_shrinks(cluster: Trial, expect: Expect) -> None:
    """A quota asks for more than there is: its runtime share is what the nodes have, also when one has shrunk."""
    cluster.add(node("n1").cpu(8), node("n2").cpu(4))
    make(cluster, quota(named(cluster, "a")).max(cpu=100))
    cluster.submit(counted(cluster, "greedy", "a", cpu=50))
    expect.pending("greedy")

    def share() -> object:
        return annotation(read(cluster, named(cluster, "a")), RUNTIME).get("cpu")

    assert cluster.reaches(lambda: share() == "12", within=30), share()
    body = {"status": {"allocatable": {"cpu": "4"}}}
    assert cluster.call("PATCH", "/api/v1/nodes/n1/status", body, kind=STRATEGIC_MERGE_PATCH).ok

    assert cluster.reaches(lambda: share() == "8", within=30), share()


@pytest.mark.feature("QUOTA-8.non-preemptible")
@pytest.mark.case("QU-125", severity="critical")
def test_what_a_non_preemptible_pod_used_is_free_again(cluster: Trial, expect: Expect) -> None:
    """Non-preemptible pods fill the min one after the other: each is placed when the one before it is gone."""
    cluster.add(node("n1").cpu(32))
    make(cluster, quota(named(cluster, "a")).min(cpu=2).max(cpu=8))
    cluster.submit(counted(cluster, "first", "a", cpu=2, preemptible=False))
    expect.bound("first")
    cluster.submit(counted(cluster, "second", "a", cpu=2, preemptible=False))
    expect.pending("second")

    cluster.delete("first")

    expect.bound("second")


@pytest.mark.feature("QUOTA-5.unlabelled")
@pytest.mark.case("QU-126", severity="critical")
def test_the_quota_of_a_namespace_counts_its_pods(cluster: Trial, expect: Expect) -> None:
    """A quota has the name of the namespace that it is in: pods there without a label are bounded by it."""
    cluster.add(node("n1").cpu(32))
    make(cluster, quota(cluster.name).min(cpu=1).max(cpu=2))
    cluster.cluster.wait(lambda: False, within=1)

    cluster.submit(*(pod(f"p{number}").request(cpu=1).scheduler(KOORD_SCHEDULER) for number in range(3)))

    expect.bound("p0", "p1")
    expect.pending("p2", saying=f"quotaName: {cluster.name}")


@pytest.mark.feature("QUOTA-7.profile")
@pytest.mark.case("QU-128", severity="normal")
def test_a_profile_may_give_a_part_of_its_nodes(cluster: Trial) -> None:
    """resourceRatio 0.5: the root quota of the tree has half of what the nodes of the profile have."""
    cluster.add(node("half-0").cpu(8).label("pool", "half"))
    root = f"{cluster.name}-half-root"
    cluster.apply(
        {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {"name": "half", "labels": {TREE_ID: f"{cluster.name}-half"}},
            "spec": {
                "quotaName": root,
                "quotaLabels": {IS_PARENT: "true"},
                "resourceRatio": "0.5",
                "nodeSelector": {"matchLabels": {"pool": "half"}},
            },
        }
    )
    path = f"{QUOTAS_PATH.replace('/elasticquotas', f'/namespaces/{cluster.name}/elasticquotas')}/{root}"
    assert cluster.reaches(lambda: cluster.call("GET", path).ok, within=30)
    found = read(cluster, root)
    assert found["spec"]["min"]["cpu"] == "4"
