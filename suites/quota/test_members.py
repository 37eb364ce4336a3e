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
def test_a_pod_that_was_not_scheduled_counts(trial: Trial, expect: Expect) -> None:
    """One of four cores is used, then three more by a pod that names its node itself: a pod like the first waits."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).min(cpu=4).max(cpu=4))
    trial.submit(counted(trial, "nowhere", "a", cpu=4).on(zone="none"))  # the request reaches max at once
    expect.pending("nowhere")
    trial.submit(counted(trial, "first", "a", cpu=1))
    expect.bound("first")
    static = counted(trial, "static", "a", cpu=3).node_name("n1")
    static.manifest["spec"].pop("nodeSelector", None)
    trial.submit(static)
    expect.running("static")

    trial.submit(counted(trial, "late", "a", cpu=1))

    expect.pending("late", saying="used: cpu:4")
    settle(trial)
    assert not trial.pod("late").spec.node_name


@pytest.mark.feature("QUOTA-3.shared-weight")
@pytest.mark.case("QU-123", severity="critical")
@pytest.mark.long(seconds=21)
def test_shares_grow_with_the_cluster(trial: Trial, expect: Expect) -> None:
    """Eight pods of one core ask for more than the only node has: with a second node all are placed."""
    trial.add(node("n1").cpu(4))
    make(trial, quota(named(trial, "a")).max(cpu=100))
    trial.submit(*many(trial, "a", 8))
    settle(trial)
    assert placed(trial, "a-") == 4

    trial.add(node("n2").cpu(4))

    expect.bound(*(f"a-{number}" for number in range(8)))


@pytest.mark.feature("QUOTA-3.shared-weight")
@pytest.mark.case("QU-124", severity="critical")
def test_shares_follow_a_node_that_shrinks(trial: Trial, expect: Expect) -> None:
    """A quota asks for more than there is: its runtime share is what the nodes have, also when one has shrunk."""
    trial.add(node("n1").cpu(8), node("n2").cpu(4))
    make(trial, quota(named(trial, "a")).max(cpu=100))
    trial.submit(counted(trial, "greedy", "a", cpu=50))
    expect.pending("greedy")

    def share() -> object:
        return annotation(read(trial, named(trial, "a")), RUNTIME).get("cpu")

    assert trial.reaches(lambda: share() == "12", within=30), share()
    body = {"status": {"allocatable": {"cpu": "4"}}}
    assert trial.call("PATCH", "/api/v1/nodes/n1/status", body, kind=STRATEGIC_MERGE_PATCH).ok

    assert trial.reaches(lambda: share() == "8", within=30), share()


@pytest.mark.feature("QUOTA-8.non-preemptible")
@pytest.mark.case("QU-125", severity="critical")
def test_what_a_non_preemptible_pod_used_is_free_again(trial: Trial, expect: Expect) -> None:
    """Non-preemptible pods fill the min one after the other: each is placed when the one before it is gone."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).min(cpu=2).max(cpu=8))
    trial.submit(counted(trial, "first", "a", cpu=2, preemptible=False))
    expect.bound("first")
    trial.submit(counted(trial, "second", "a", cpu=2, preemptible=False))
    expect.pending("second")

    trial.delete("first")

    expect.bound("second")


@pytest.mark.feature("QUOTA-5.unlabelled")
@pytest.mark.case("QU-126", severity="critical")
def test_the_quota_of_a_namespace_counts_its_pods(trial: Trial, expect: Expect) -> None:
    """A quota has the name of the namespace that it is in: pods there without a label are bounded by it."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(trial.name).min(cpu=1).max(cpu=2))
    trial.pass_time(1)

    trial.submit(*(pod(f"p{number}").request(cpu=1).scheduler(KOORD_SCHEDULER) for number in range(3)))

    expect.bound("p0", "p1")
    expect.pending("p2", saying=f"quotaName: {trial.name}")


@pytest.mark.feature("QUOTA-7.profile")
@pytest.mark.case("QU-128", severity="normal")
def test_a_profile_may_give_a_part_of_its_nodes(trial: Trial) -> None:
    """resourceRatio 0.5: the root quota of the tree has half of what the nodes of the profile have."""
    trial.add(node("half-0").cpu(8).label("pool", "half"))
    root = f"{trial.name}-half-root"
    trial.apply(
        {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {"name": "half", "labels": {TREE_ID: f"{trial.name}-half"}},
            "spec": {
                "quotaName": root,
                "quotaLabels": {IS_PARENT: "true"},
                "resourceRatio": "0.5",
                "nodeSelector": {"matchLabels": {"pool": "half"}},
            },
        }
    )
    path = f"{QUOTAS_PATH.replace('/elasticquotas', f'/namespaces/{trial.name}/elasticquotas')}/{root}"
    assert trial.reaches(lambda: trial.call("GET", path).ok, within=30)
    results = read(trial, root)
    assert results["spec"]["min"]["cpu"] == "4"
