"""What a quota counts when pods come by other ways, end, or lose their quota, and when nodes change."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node, pod, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import IS_PARENT, QUOTAS_PATH, RUNTIME, TREE_ID, UNSCHEDULABLE_RESOURCE
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH
from seatrial.suites.gang.namespaces import second_namespace
from seatrial.suites.preemption.nominations import freeze
from seatrial.suites.quota.quotas import annotation, counted, make, many, named, placed, read, settle

__all__ = ["second_namespace"]

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
@pytest.mark.case("QU-126", severity="critical", source="spec QUOTA-R30")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in-it", "in-another-namespace"])
def test_the_quota_of_a_namespace_counts_its_pods(
    trial: Trial, expect: Expect, second_namespace: str, *, elsewhere: bool
) -> None:
    """A quota has the name of the namespace that it is in: pods there without a label are bounded by it. One of that
    name in another namespace bounds none."""
    trial.add(node("n1").cpu(32))
    if elsewhere:
        path = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{second_namespace}/elasticquotas")
        trial.accept(quota(trial.name).min(cpu=1).max(cpu=2).manifest, path)
        trial.pass_time(1)
        trial.submit(*(pod(f"p{number}").request(cpu=1).scheduler(KOORD_SCHEDULER) for number in range(3)))
        expect.bound("p0", "p1", "p2")
        return
    make(trial, quota(trial.name).min(cpu=1).max(cpu=2))
    trial.pass_time(1)

    trial.submit(*(pod(f"p{number}").request(cpu=1).scheduler(KOORD_SCHEDULER) for number in range(3)))

    expect.bound("p0", "p1")
    expect.pending("p2", saying=f"quotaName: {trial.name}")


@pytest.mark.feature("QUOTA-7.profile")
@pytest.mark.case("QU-128", severity="normal")
def test_a_profile_may_give_a_part_of_its_nodes(trial: Trial) -> None:
    """resourceRatio 0.5: the root quota of the tree has half of what the nodes of the profile have, and of what closed
    ones have. Its min, which somebody changes, is written again."""
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
    assert read(trial, root)["spec"]["min"]["cpu"] == "4"
    assert trial.call("PATCH", "/api/v1/nodes/half-0", {"spec": {"unschedulable": True}}).ok

    def closed() -> object:
        return annotation(read(trial, root), UNSCHEDULABLE_RESOURCE).get("cpu")

    assert trial.reaches(lambda: closed() == "4", within=30), f"expected 4 of 8 closed cores, found {closed()}"
    assert trial.call("PATCH", path, {"spec": {"min": {"cpu": "1"}}}).ok
    assert trial.reaches(lambda: read(trial, root)["spec"]["min"]["cpu"] == "4", within=30), "a changed min stays"


def leaving(trial: Trial, expect: Expect) -> float:
    """A pod with three of a quota's four cores is deleted on a node that does not confirm it. The time is that of its
    deletionTimestamp, and its grace period is 20 s. Returns the seconds after which it counts no more."""
    trial.add(node("n1").cpu(8), node("n2").cpu(8))
    make(trial, quota(named(trial, "a")).min(cpu=4).max(cpu=4))
    old = counted(trial, "old", "a", cpu=3).select({"kubernetes.io/hostname": "n1"})
    old.manifest["spec"]["terminationGracePeriodSeconds"] = 20
    trial.submit(old)
    expect.running("old")
    freeze(trial, "n1")
    assert trial.call("DELETE", f"/api/v1/namespaces/{trial.name}/pods/old").ok
    return 2 * 20.0


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case(
    "QU-164", severity="normal", source="spec QUOTA-R34; koordinator: gate ElasticQuotaIgnoreTerminatingPod"
)
@pytest.mark.long(seconds=50)
def test_a_terminating_pod_counts_until_its_grace_period_ends(trial: Trial, expect: Expect) -> None:
    """A pod waits until the grace period after the deletionTimestamp of another pod ends. Koordinator reads the clock
    when that pod changes."""
    seconds = leaving(trial, expect)
    trial.submit(*many(trial, "a", 2))

    def touch(value: str) -> None:
        body = {"metadata": {"labels": {"touched": value}}}
        assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}/pods/old", body).ok

    trial.pass_time(0.75 * seconds)
    touch("early")
    trial.pass_time(2)
    assert placed(trial, "a-") == 1
    trial.pass_time(0.25 * seconds)
    touch("late")
    expect.bound("a-0", "a-1")


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-167", severity="normal", source="ours")
@pytest.mark.long(seconds=50)
def test_the_end_of_a_grace_period_wakes_those_that_wait(trial: Trial, expect: Expect) -> None:
    """A gang of two waits for what a terminating pod has: when the pod counts no more, the gang is bound at once."""
    seconds = leaving(trial, expect)
    trial.apply(gang("train", 2))
    trial.submit(*(counted(trial, f"train-{number}", "a", cpu=2).in_gang("train") for number in range(2)))
    trial.pass_time(seconds - 5)
    assert placed(trial, "train-") == 0
    expect.bound("train-0", "train-1", within=10)
