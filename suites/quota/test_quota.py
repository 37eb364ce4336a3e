"""Elastic quotas: borrowing and giving back, parents, fair shares, scaled mins, and which pods a quota counts.

Each case has nodes with room for more than the quota admits, or pods that would go first without quotas.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import QuotaBuilder, node, pod, priority_class, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import CHILD_REQUEST, REQUEST, ROOT_QUOTA, RUNTIME, SPECIAL
from seatrial.suites.quota.quotas import SETTLED, annotation, counted, make, many, named, path_of, placed, read, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]

CARD = "nvidia.com/gpu"
SYSTEM = "koordinator-system"  # the namespace of the special quotas


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-001", severity="blocker")
def test_max_binds_and_room_wakes(trial: Trial, expect: Expect) -> None:
    """A pod beyond max waits, although the node has room, and starts when another pod of the quota ends."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).min(cpu=2).max(cpu=4))
    trial.submit(counted(trial, "first", "a", cpu=3))
    expect.bound("first")

    trial.submit(counted(trial, "second", "a", cpu=2))

    expect.pending(
        "second",
        saying=f"Insufficient quotas, quotaName: {named(trial, 'a')}, runtime: cpu:4, used: cpu:3,"
        " pod's request: cpu:2, exceedDimensions: [cpu]",
    )
    trial.delete("first")
    expect.bound("second")


@pytest.mark.feature("QUOTA-1.borrow", "QUOTA-1.give-back", "QUOTA-1.min-guaranteed")
@pytest.mark.case("QU-002", severity="blocker")
def test_borrowed_room_is_given_back(trial: Trial, expect: Expect) -> None:
    """A quota borrows what its sibling does not use; room that becomes free goes to the lender, not to the borrower.

    The borrower's waiting pod is older.
    """
    trial.add(node("n1").cpu(8))
    make(trial, *(quota(named(trial, name)).min(cpu=4).max(cpu=8) for name in "ab"))
    trial.submit(*many(trial, "a", 8))
    names = [f"a-{number}" for number in range(8)]
    expect.bound(names[0], names[1], *names[2:])
    trial.submit(counted(trial, "a-more", "a", cpu=1))
    expect.pending("a-more")
    trial.submit(counted(trial, "b-first", "b", cpu=1))
    expect.pending("b-first", saying="Insufficient cpu")

    trial.delete("a-0")

    expect.bound("b-first")
    expect.pending("a-more", saying="Insufficient quotas")


@pytest.mark.feature("QUOTA-2.parent-and-child")
@pytest.mark.case("QU-003", severity="critical")
def test_the_limit_of_a_parent_binds_its_child(trial: Trial, expect: Expect) -> None:
    """A child whose own max is larger gets no more than its parent's max."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "p")).min(cpu=2).max(cpu=4).parent())
    make(trial, quota(named(trial, "c")).min(cpu=1).max(cpu=16).below(named(trial, "p")))
    trial.submit(counted(trial, "first", "c", cpu=3))
    expect.bound("first")

    trial.submit(counted(trial, "second", "c", cpu=3))

    expect.pending("second", saying=f"quotaName: {named(trial, 'c')}, runtime: cpu:4, used: cpu:3")


def shares(trial: Trial, expect: Expect, total: int, first: QuotaBuilder, second: QuotaBuilder) -> tuple[int, int]:
    """How many one-core pods of two quotas get a node when `total` cores become free while 12 of each wait."""
    trial.add(node("n1").cpu(12))
    blockers = [("rest", 12 - total), ("blocker", total)]
    trial.submit(*(pod(name).request(cpu=cores).scheduler(KOORD_SCHEDULER) for name, cores in blockers if cores))
    expect.bound("blocker")
    make(trial, first, second)
    trial.submit(*many(trial, "a", 12))
    trial.submit(*many(trial, "b", 12))
    expect.pending("a-11", "b-11")
    trial.delete("blocker")
    settle(trial)
    return placed(trial, "a-"), placed(trial, "b-")


@pytest.mark.feature("QUOTA-3.shared-weight")
@pytest.mark.case("QU-004", severity="critical")
@pytest.mark.long(seconds=20)
def test_what_is_left_is_divided_by_weight(trial: Trial, expect: Expect) -> None:
    """Two quotas that both want everything get room in proportion to their weights, not in the order of their pods."""
    first = quota(named(trial, "a")).max(cpu=12).weight(cpu=1)
    second = quota(named(trial, "b")).max(cpu=12).weight(cpu=2)
    assert shares(trial, expect, 12, first, second) == (4, 8)


@pytest.mark.feature("QUOTA-3.shared-weight")
@pytest.mark.case("QU-132", severity="critical")
@pytest.mark.long(seconds=23)
def test_what_a_satisfied_quota_leaves_is_divided_again(trial: Trial, expect: Expect) -> None:
    """Three quotas of equal weight share 13 cores. One wants a single core: the others get six each, not a third."""
    make(trial, *(quota(named(trial, name)).max(cpu=12).weight(cpu=1) for name in "abc"))
    trial.submit(*many(trial, "a", 1), *many(trial, "b", 10), *many(trial, "c", 10))
    expect.stable(seconds=2)  # all requests are known before there is anything to divide

    trial.add(node("n1").cpu(13).memory("64Gi"))

    expect.bound("a-0")
    settle(trial)
    assert (placed(trial, "b-"), placed(trial, "c-")) == (6, 6)


@pytest.mark.feature("QUOTA-3.weight-default")
@pytest.mark.case("QU-005", severity="normal")
@pytest.mark.long(seconds=20)
def test_the_weight_is_max_where_none_is_given(trial: Trial, expect: Expect) -> None:
    """Quotas without a weight share in proportion to max."""
    first, second = quota(named(trial, "a")).max(cpu=9), quota(named(trial, "b")).max(cpu=27)
    assert shares(trial, expect, 12, first, second) == (3, 9)


@pytest.mark.feature("QUOTA-3.weight-default")
@pytest.mark.case(
    "QT-300", severity="normal", source="koordinator: apis/extension/elastic_quota.go@v1.7.0 (GetSharedWeight)"
)
@pytest.mark.long(seconds=20)
def test_the_weight_is_max_where_only_zeros_are_given(trial: Trial, expect: Expect) -> None:
    """Quotas with weights of 0 share in proportion to max."""
    first, second = (quota(named(trial, own)).max(cpu=most).weight(cpu=0) for own, most in (("a", 9), ("b", 27)))
    assert shares(trial, expect, 12, first, second) == (3, 9)


@pytest.mark.feature("QUOTA-4.scaled-min")
@pytest.mark.case("QU-006", severity="critical")
@pytest.mark.long(seconds=20)
def test_mins_shrink_in_proportion_where_the_cluster_is_too_small(trial: Trial, expect: Expect) -> None:
    """Mins of 12 and 6 in a cluster with 6 cores left: 4 and 2, with any weights."""
    first = quota(named(trial, "a")).min(cpu=6).max(cpu=12).weight(cpu=100)
    second = quota(named(trial, "b")).min(cpu=12).max(cpu=12).weight(cpu=1)
    assert shares(trial, expect, 6, first, second) == (2, 4)


@pytest.mark.feature("QUOTA-5.by-label", "QUOTA-5.default-and-system")
@pytest.mark.case("QU-007", severity="critical")
def test_only_labelled_pods_count_in_a_quota(trial: Trial, expect: Expect) -> None:
    """Pods without the label, and pods that name a quota that does not exist, count in the default quota: the latter
    also where their namespace has a quota."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=2))

    trial.submit(counted(trial, "labelled", "a", cpu=3))
    trial.submit(pod("plain").request(cpu=3).scheduler(KOORD_SCHEDULER))
    trial.submit(counted(trial, "unknown", "missing", cpu=3))

    expect.bound("plain", "unknown")
    expect.pending("labelled", saying="Insufficient quotas")
    make(trial, quota(named(trial, "b")).max(cpu=2).namespaces(trial.name))
    settle(trial)
    trial.submit(counted(trial, "later", "missing", cpu=3))
    expect.bound("later")


@pytest.mark.feature("QUOTA-5.by-label")
@pytest.mark.case("QU-008", severity="normal")
@pytest.mark.long(seconds=20)
def test_a_quota_that_comes_later_counts_its_pods(trial: Trial, expect: Expect) -> None:
    """A running pod that names a quota that is created afterwards counts in it."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "other")).max(cpu=4))
    trial.submit(counted(trial, "first", "a", cpu=3))
    expect.bound("first")

    make(trial, quota(named(trial, "a")).max(cpu=4))
    settle(trial)
    trial.submit(counted(trial, "second", "a", cpu=2))

    expect.pending("second", saying="used: cpu:3")
    assert read(trial, named(trial, "a"))["status"]["used"] == {"cpu": "3"}


@pytest.mark.feature("QUOTA-6.root-quota")
@pytest.mark.case("QU-009", severity="normal")
@pytest.mark.long(seconds=20)
def test_the_root_is_an_object(trial: Trial, expect: Expect) -> None:
    """The root quota has an object, whose use and request are those of all pods."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=4))
    trial.submit(counted(trial, "one", "a", cpu=3), counted(trial, "two", "a", cpu=3))
    trial.submit(pod("plain").request(cpu=5).scheduler(KOORD_SCHEDULER))
    expect.bound("plain")
    settle(trial)

    root = read(trial, ROOT_QUOTA, SYSTEM)

    labels = root["metadata"].get("labels") or {}
    assert labels.get("quota.scheduling.koordinator.sh/is-parent") == "true", f"found {root}"
    assert root["status"]["used"]["cpu"] == "8"
    assert annotation(root, REQUEST)["cpu"] == "9"  # 4 of the quota, whose max is 4, and 5 of the default quota


@pytest.mark.feature("QUOTA-6.root-quota", "QUOTA-5.default-and-system")
@pytest.mark.case("QU-150", severity="critical", source="v1.4: the root quota as a custom resource; spec QUOTA-R37")
@pytest.mark.long(seconds=40)
def test_the_special_quotas_exist_without_a_quota_of_a_user(trial: Trial, expect: Expect) -> None:
    """Nobody makes a quota. Root, system and default quota exist half a minute after the start of the scheduler, and
    the root quota shows what a pod uses, and what is left for quotas."""
    trial.add(node("n1").cpu(32))
    trial.submit(pod("plain").request(cpu=5).scheduler(KOORD_SCHEDULER))
    expect.bound("plain")

    def missing() -> list[str]:
        return [name for name in sorted(SPECIAL) if read(trial, name, SYSTEM)["kind"] != "ElasticQuota"]

    assert trial.reaches(lambda: not missing(), within=30), f"expected the special quotas, missing: {missing()}"
    settle(trial)
    root = read(trial, ROOT_QUOTA, SYSTEM)
    assert (annotation(root, RUNTIME)["cpu"], root["status"]["used"]["cpu"]) == ("27", "5")


@pytest.mark.feature("QUOTA-1.status")
@pytest.mark.case("QU-010", severity="normal", source="spec QUOTA-R3")
@pytest.mark.long(seconds=20)
def test_the_status_has_request_and_runtime(trial: Trial, expect: Expect) -> None:
    """The annotations of a quota show what its pods want, pending ones included, and what it may use. A quota that does
    not lend asks for its min at least."""
    trial.add(node("n1").cpu(32))
    make(trial, *(quota(named(trial, own)).min(cpu=2).max(cpu=4).keeps() for own in "ab"))
    trial.submit(counted(trial, "one", "a", cpu=3), counted(trial, "two", "a", cpu=3))
    expect.bound("one")
    settle(trial)

    results, idle = (read(trial, named(trial, own)) for own in "ab")

    assert results["status"]["used"] == {"cpu": "3"}
    assert (annotation(results, CHILD_REQUEST), annotation(results, RUNTIME)) == ({"cpu": "6"}, {"cpu": "4"})
    assert (annotation(results, REQUEST), annotation(idle, REQUEST)) == ({"cpu": "6"}, {"cpu": "2"})


@pytest.mark.feature("QUOTA-1.status")
@pytest.mark.case("QT-301", severity="critical", source="spec QUOTA-R76")
@pytest.mark.long(seconds=20)
def test_the_status_has_nothing_that_is_no_longer_used(trial: Trial, expect: Expect) -> None:
    """Of two pods the one with memory goes, then the other: the status shows what is left, and then nothing."""
    trial.add(node("n1").cpu(32).memory("64Gi"))
    make(trial, quota(named(trial, "a")).max(cpu=4, memory="4Gi"))
    trial.submit(counted(trial, "one", "a", cpu=1), counted(trial, "two", "a", cpu=2, memory="2Gi"))
    expect.bound("one", "two")

    def used() -> dict[str, str]:
        return {key: text for key, text in read(trial, named(trial, "a"))["status"]["used"].items() if text != "0"}

    assert trial.reaches(lambda: used() == {"cpu": "3", "memory": "2Gi"}, within=SETTLED), used()
    trial.delete("two")
    assert trial.reaches(lambda: used() == {"cpu": "1"}, within=SETTLED), used()
    trial.delete("one")
    assert trial.reaches(lambda: not used(), within=SETTLED), used()


@pytest.mark.feature("QUOTA-8.non-preemptible")
@pytest.mark.case("QU-011", severity="critical")
def test_pods_that_are_not_preemptible_stay_within_min(trial: Trial, expect: Expect) -> None:
    """A non-preemptible pod beyond min waits, and a preemptible one of the same size starts."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).min(cpu=2).max(cpu=8))
    trial.submit(counted(trial, "first", "a", cpu=2, preemptible=False))
    expect.bound("first")

    trial.submit(counted(trial, "strict", "a", cpu=1, preemptible=False), counted(trial, "plain", "a", cpu=1))

    expect.bound("plain")
    expect.pending(
        "strict",
        saying=f"Insufficient non-preemptible quotas, quotaName: {named(trial, 'a')}, min: cpu:2,"
        " nonPreemptibleUsed: cpu:2, pod's request: cpu:1, exceedDimensions: [cpu]",
    )


@pytest.mark.feature("QUOTA-9.namespaces")
@pytest.mark.case("QU-012", severity="critical")
def test_a_quota_for_namespaces(trial: Trial, expect: Expect) -> None:
    """Pods without a label count in the quota that lists their namespace; after its removal they do not."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=4).namespaces("somewhere-else", trial.name))
    trial.submit(pod("first").request(cpu=3).scheduler(KOORD_SCHEDULER))
    expect.bound("first")
    trial.submit(pod("second").request(cpu=3).scheduler(KOORD_SCHEDULER))
    expect.pending("second", saying="Insufficient quotas")

    change = {"metadata": {"annotations": {"quota.scheduling.koordinator.sh/namespaces": '["somewhere-else"]'}}}
    trial.call("PATCH", path_of(trial, named(trial, "a")), change)

    expect.bound("second")


@pytest.mark.feature("QUOTA-10.in-place")
@pytest.mark.case("QU-013", severity="critical")
@pytest.mark.long(seconds=60)
def test_a_changed_quota_holds_at_once(trial: Trial, expect: Expect) -> None:
    """A larger max starts waiting pods; a smaller one lets running pods be and holds new ones back."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=2))
    trial.submit(*many(trial, "a", 6))
    expect.bound("a-0", "a-1")
    expect.pending("a-5")

    trial.call("PATCH", path_of(trial, named(trial, "a")), {"spec": {"max": {"cpu": "4"}}})
    settle(trial)
    assert placed(trial, "a-") == 4

    trial.call("PATCH", path_of(trial, named(trial, "a")), {"spec": {"max": {"cpu": "3"}}})
    settle(trial)
    assert placed(trial, "a-") == 4
    trial.delete("a-0")
    settle(trial)
    assert placed(trial, "a-") == 3


@pytest.mark.feature("QUOTA-11.ignore-overhead")
@pytest.mark.case("QU-014", severity="normal")
@pytest.mark.long(seconds=20)
def test_overhead_is_not_counted(trial: Trial, expect: Expect) -> None:
    """With the gate ElasticQuotaIgnorePodOverhead a pod fits whose request alone is within the quota."""
    trial.add(node("n1").cpu(32))
    name = named(trial, "secure")
    body = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "1", "memory": "1Gi"}},
    }
    trial.accept(body, "/apis/node.k8s.io/v1/runtimeclasses")
    make(trial, quota(named(trial, "a")).max(cpu=4, memory="4Gi"))
    secure = counted(trial, "secure", "a", cpu=4, memory="4Gi")
    secure.manifest["spec"] |= {"runtimeClassName": name, "overhead": {"cpu": "1", "memory": "1Gi"}}
    trial.submit(secure)

    assert expect.bound("secure").spec.overhead == {"cpu": "1", "memory": "1Gi"}

    trial.call("DELETE", f"/apis/node.k8s.io/v1/runtimeclasses/{name}")
    settle(trial)
    assert read(trial, named(trial, "a"))["status"]["used"] == {"cpu": "4", "memory": "4Gi"}


@pytest.mark.feature("QUOTA-12.inside")
@pytest.mark.case("QU-015", severity="critical")
def test_preemption_stays_inside_the_quota(trial: Trial, expect: Expect) -> None:
    """A more important pod of a full quota takes the place of a less important one of the same quota."""
    trial.apply(priority_class("quota-low", 1000), priority_class("quota-high", 9000))
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=4), quota(named(trial, "b")).max(cpu=4))
    for own in "ab":
        trial.submit(counted(trial, f"{own}-low", own, cpu=4).priority_class("quota-low"))
    expect.bound("a-low", "b-low")

    trial.submit(counted(trial, "a-high", "a", cpu=4).priority_class("quota-high"))

    expect.bound("a-high")
    expect.gone("a-low")
    expect.bound("b-low")


@pytest.mark.feature("QUOTA-8.no-victims")
@pytest.mark.case("QU-016", severity="normal")
def test_pods_that_are_not_preemptible_are_no_victims(trial: Trial, expect: Expect) -> None:
    """A more important pod waits if only non-preemptible pods fill its quota."""
    trial.apply(priority_class("quota-low", 1000), priority_class("quota-high", 9000))
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).min(cpu=4).max(cpu=4))
    trial.submit(counted(trial, "low", "a", cpu=4, preemptible=False).priority_class("quota-low"))
    expect.bound("low")

    trial.submit(counted(trial, "high", "a", cpu=4).priority_class("quota-high"))

    expect.pending("high", saying="Insufficient quotas")
    expect.stable(seconds=20)


@pytest.mark.feature("QUOTA-12.overuse", "QUOTA-1.min-guaranteed")
@pytest.mark.case("QU-017", severity="critical")
@pytest.mark.long(seconds=81)
def test_the_lender_takes_back(trial: Trial, expect: Expect) -> None:
    """A quota that uses more than its share for longer than delayEvictTime loses its least important pods.

    It loses no more than what is above the share, and the lender's pods start.
    """
    trial.add(node("n1").cpu(8))
    make(trial, *(quota(named(trial, name)).min(cpu=4).max(cpu=8) for name in "ab"))
    trial.submit(*many(trial, "a", 8))
    names = [f"a-{number}" for number in range(8)]
    expect.bound(names[0], names[1], *names[2:])

    trial.submit(*many(trial, "b", 4))

    expect.bound("b-0", "b-1", "b-2", "b-3", within=120)
    settle(trial)
    assert placed(trial, "a-") == 4


@pytest.mark.feature("QUOTA-1.devices")
@pytest.mark.case("QU-018", severity="normal")
def test_cards_are_quota_too(trial: Trial, expect: Expect) -> None:
    """A quota of GPUs admits its cards and no more, while the node has others free."""
    trial.add(node("n1").gpus("a10", 4))
    make(trial, quota(named(trial, "a")).limits({CARD: 1}, {CARD: 2}))

    trial.submit(
        *(pod(f"p-{number}").nvidia(1).quota(named(trial, "a")).scheduler(KOORD_SCHEDULER) for number in range(3))
    )

    expect.bound("p-0", "p-1")
    expect.pending("p-2", saying=f"exceedDimensions: [{CARD}]")
