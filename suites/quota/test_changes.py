"""Quotas that change while pods come, and a scheduler that is started again."""

from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link, OfKind
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import node, pod, priority_class, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import (
    CHILD_REQUEST,
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    PARENT,
    QUOTA_NAME,
    SHARED_WEIGHT,
    SYSTEM_QUOTA,
)
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH
from seatrial.suites.faults.schedulers import link, running
from seatrial.suites.quota.quotas import annotation, counted, make, many, named, path_of, placed, read, settle

__all__ = ["link", "running"]

CHECKING_PARENTS = "checking-parent-quotas"
pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]


@pytest.mark.feature("QUOTA-10.in-place", "QUOTA-1.max-bound")
@pytest.mark.case("QU-090", severity="critical")
@pytest.mark.long(seconds=20)
def test_a_quota_changes_under_load(trial: Trial, expect: Expect) -> None:
    """Max, weight and parent change while 40 pods come; in the end each quota has what its last max admits."""
    trial.add(node("n1").cpu(64))
    make(trial, quota(named(trial, "p")).max(cpu=60).parent(), quota(named(trial, "r")).max(cpu=60).parent())
    make(trial, *(quota(named(trial, own)).max(cpu=2).below(named(trial, "p")) for own in "ab"))
    waves = [("4", "p"), ("6", "r"), ("3", "p"), ("8", "r"), ("10", "r")]
    for number, (most, parent) in enumerate(waves):
        trial.submit(*(counted(trial, f"a-{number}-{index}", "a", cpu=1) for index in range(4)))
        trial.submit(*(counted(trial, f"b-{number}-{index}", "b", cpu=1) for index in range(4)))
        labels = {"quota.scheduling.koordinator.sh/parent": named(trial, parent)}
        change = {"metadata": {"labels": labels}, "spec": {"max": {"cpu": most}}}
        assert trial.call("PATCH", path_of(trial, named(trial, "a")), change).ok
    settle(trial)

    assert (placed(trial, "a-"), placed(trial, "b-")) == (10, 2)
    expect.pending("a-4-3", "b-4-3", saying="Insufficient quotas")
    assert read(trial, named(trial, "r"))["status"]["used"] == {"cpu": "10"}
    assert read(trial, named(trial, "p"))["status"]["used"]["cpu"] == "2"


@pytest.mark.feature("QUOTA-1.max-bound", "HIL-4.scheduler-crash")
@pytest.mark.case("QU-091", severity="critical")
@pytest.mark.long(seconds=22)
def test_use_is_known_after_a_restart(trial: Trial, expect: Expect, subject: Subject | None) -> None:
    """A scheduler that is started again admits what is left of the quota, the pod that waited among it, and no more."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started; the harness did not start this one")
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).min(cpu=2).max(cpu=4))
    trial.submit(*many(trial, "a", 5))
    expect.pending("a-4")
    subject.kill()
    trial.delete("a-0")
    subject.start_again()

    expect.bound("a-4")
    trial.submit(counted(trial, "late", "a", cpu=1))
    expect.pending("late", saying="used: cpu:4")
    settle(trial)
    assert read(trial, named(trial, "a"))["status"]["used"] == {"cpu": "4"}


@pytest.mark.feature("QUOTA-5.default-and-system")
@pytest.mark.case("QU-092", severity="normal", source="spec QUOTA-R13, QUOTA-R30, QUOTA-R38")
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("first", ["quota", "pod"])
def test_what_the_system_uses_is_not_shared(trial: Trial, expect: Expect, first: str) -> None:
    """Pods of the system quota are admitted without a limit, and the others divide what they leave. Its object shows
    their use, also if they were there before any quota."""
    trial.add(node("n1").cpu(8))
    system = pod("agent").request(cpu=5).scheduler(KOORD_SCHEDULER)
    system.label("quota.scheduling.koordinator.sh/name", SYSTEM_QUOTA)
    if first == "pod":
        trial.submit(system)
        expect.bound("agent")
    make(trial, quota(named(trial, "a")).max(cpu=100))
    if first == "quota":
        trial.submit(system)
        expect.bound("agent")

    trial.submit(*many(trial, "a", 4))

    expect.bound("a-0", "a-1", "a-2")
    expect.pending("a-3", saying=f"quotaName: {named(trial, 'a')}, runtime: cpu:3, used: cpu:3")
    settle(trial)
    assert read(trial, SYSTEM_QUOTA, "koordinator-system")["status"]["used"] == {"cpu": "5"}


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-130", severity="critical")
def test_what_another_binds_counts_at_once(trial: Trial, expect: Expect) -> None:
    """A pod of one core is placed in a quota of four. A pod of three cores comes with its node already written: the
    next pod of one core waits, until that one is gone."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=4))
    trial.submit(counted(trial, "first", "a", cpu=1))
    expect.bound("first")
    trial.submit(counted(trial, "foreign", "a", cpu=3).node_name("n1"))
    expect.running("foreign")
    trial.submit(counted(trial, "second", "a", cpu=1))
    expect.pending("second", saying="Insufficient quotas")
    trial.delete("foreign")
    expect.bound("second")


@pytest.mark.feature("QUOTA-2.parent-and-child")
@pytest.mark.case("QU-131", severity="normal")
@pytest.mark.profile(CHECKING_PARENTS)
def test_the_use_of_siblings_beyond_their_share_counts_in_the_parent(trial: Trial, expect: Expect) -> None:
    """With enableCheckParentQuota: all eight cores of the parent are borrowed by one child. A pod of the other child is
    within its own share, and waits all the same, until a sibling's pod is gone."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "p")).min(cpu=8).max(cpu=8).parent())
    make(trial, *(quota(named(trial, name)).min(cpu=4).max(cpu=8).below(named(trial, "p")) for name in "ab"))
    trial.submit(*(builder.scheduler(CHECKING_PARENTS) for builder in many(trial, "a", 8)))
    expect.bound("a-0", "a-1", "a-2", "a-3", "a-4", "a-5", "a-6", "a-7")

    trial.submit(counted(trial, "b-0", "b", cpu=1).scheduler(CHECKING_PARENTS))

    path = f"[{named(trial, 'p')} {named(trial, 'b')}]"
    expect.pending("b-0", saying=f"quotaNameTopo: {path}, runtime: cpu:8, used: cpu:8")
    trial.delete("a-3")
    expect.bound("b-0")


@pytest.mark.feature("QUOTA-12.inside", "QUOTA-2.parent-and-child")
@pytest.mark.case("QU-417", severity="normal", source="spec QUOTA-R45, QUOTA-R52")
@pytest.mark.profile(CHECKING_PARENTS)
def test_what_a_victim_gives_back_counts_in_the_parent(trial: Trial, expect: Expect) -> None:
    """With enableCheckParentQuota: a quota and its parent are full, and a more important pod of it evicts one pod."""
    trial.apply(priority_class("quota-low", 1000), priority_class("quota-high", 9000))
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "p")).min(cpu=4).max(cpu=4).parent())
    make(trial, quota(named(trial, "a")).min(cpu=4).max(cpu=4).below(named(trial, "p")))
    low = [builder.scheduler(CHECKING_PARENTS).priority_class("quota-low") for builder in many(trial, "a", 4)]
    trial.submit(*low)
    expect.running(*(builder.name for builder in low))

    trial.submit(counted(trial, "high", "a", cpu=1).scheduler(CHECKING_PARENTS).priority_class("quota-high"))

    expect.running("high", within=60)
    assert placed(trial, "a-") == 3


@pytest.mark.feature("QUOTA-4.scaled-min")
@pytest.mark.case("QU-418", severity="normal", source="spec QUOTA-R43: non-preemptible pods and spec.min")
def test_non_preemptible_pods_may_use_a_min_that_is_scaled(trial: Trial, expect: Expect) -> None:
    """Two quotas have a min of six of eight cores each, and one asks for nothing: six non-preemptible pods of the other
    are bound, and no seventh."""
    trial.add(node("n1").cpu(8))
    make(trial, *(quota(named(trial, name)).min(cpu=6).max(cpu=8) for name in "ab"))
    trial.submit(*(counted(trial, f"a-{number}", "a", preemptible=False, cpu=1) for number in range(7)))

    trial.reaches(lambda: placed(trial, "a-") == 6, within=60)
    expect.stable(seconds=3)

    assert placed(trial, "a-") == 6


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-160", severity="critical", source="KEP-1287 and ElasticQuota: a pod counts with what it holds")
@pytest.mark.long(seconds=25)
def test_a_pod_that_grew_in_place_counts_with_its_new_size(trial: Trial, expect: Expect) -> None:
    """A pod of one core grows to three of a quota's four: two cores more are refused, one is admitted."""
    trial.add(node("n1").cpu(16))
    make(trial, quota(named(trial, "a")).min(cpu=2).max(cpu=4))
    trial.submit(counted(trial, "grows", "a", cpu=1))
    expect.running("grows")
    containers = [{"name": "main", "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}}]
    path = f"/api/v1/namespaces/{trial.name}/pods/grows/resize"
    assert trial.call("PATCH", path, {"spec": {"containers": containers}}, kind=STRATEGIC_MERGE_PATCH).ok
    settle(trial)

    trial.submit(counted(trial, "two", "a", cpu=2))
    expect.pending("two", saying="Insufficient quotas")
    trial.submit(counted(trial, "one", "a", cpu=1))
    expect.bound("one")
    settle(trial)
    assert read(trial, named(trial, "a"))["status"]["used"] == {"cpu": "4"}


@pytest.mark.feature("QUOTA-1.max-bound", "QUOTA-10.in-place")
@pytest.mark.case("QU-161", severity="blocker", source="spec QUOTA-R14, QUOTA-R42")
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("by", ["max", "sibling"])
def test_a_share_that_shrinks_while_pods_wait_for_a_node_holds(trial: Trial, expect: Expect, by: str) -> None:
    """A quota has room for six pods, the open node for two. The quota's share falls to two, by its max or because a
    sibling asks: when the other node is open, no pod is admitted, until the share is as before."""
    trial.add(node("n1").cpu(2), node("n2").cpu(4).taint("closed"))
    make(trial, *(quota(named(trial, name)).max(cpu=6).weight(cpu=weight) for name, weight in (("a", 1), ("b", 2))))
    trial.submit(*many(trial, "a", 6))
    settle(trial)
    assert placed(trial, "a-") == 2

    if by == "max":
        assert trial.call("PATCH", path_of(trial, named(trial, "a")), {"spec": {"max": {"cpu": "2"}}}).ok
    else:
        trial.submit(counted(trial, "b-0", "b", cpu=6))
        expect.pending("b-0")
    trial.pass_time(2)
    assert trial.call("PATCH", "/api/v1/nodes/n2", {"spec": {"taints": None}}).ok

    settle(trial)
    assert placed(trial, "a-") == 2
    if by == "max":
        assert trial.call("PATCH", path_of(trial, named(trial, "a")), {"spec": {"max": {"cpu": "6"}}}).ok
    else:
        trial.delete("b-0")
    expect.bound("a-0", "a-1", *(f"a-{number}" for number in range(2, 6)))


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-162", severity="critical", source="spec QUOTA-R42")
@pytest.mark.parametrize(
    ("over", "amounts"), [("memory", {"cpu": 1}), ("cpu", {"memory": "1Gi"})], ids=["memory", "cpu"]
)
def test_overuse_of_one_resource_holds_back_all_pods(
    trial: Trial, expect: Expect, over: str, amounts: dict[str, Any]
) -> None:
    """A quota uses two cores and two GiB of four, and then more of one than its new max: a pod that asks for the other
    one waits until that max is as before."""
    trial.add(node("n1").cpu(16).memory("64Gi"))
    make(trial, quota(named(trial, "a")).max(cpu=4, memory="4Gi"))
    trial.submit(counted(trial, "first", "a", cpu=2, memory="2Gi"))
    expect.bound("first")
    path, full = path_of(trial, named(trial, "a")), {"cpu": "4", "memory": "4Gi"}
    less = {"cpu": "1", "memory": "1Gi"}
    assert trial.call("PATCH", path, {"spec": {"max": {over: less[over]}}}).ok
    trial.pass_time(2)

    trial.submit(counted(trial, "second", "a", **amounts))

    expect.pending("second", saying=f"exceedDimensions: [{over}]")
    expect.stable(seconds=3)
    assert trial.call("PATCH", path, {"spec": {"max": full}}).ok
    expect.bound("second")


@pytest.mark.feature("QUOTA-10.in-place", "QUOTA-1.status")
@pytest.mark.case("QU-163", severity="critical", source="ours: spec QUOTA-R2, QUOTA-R10")
@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("where", ["n1", "nowhere"], ids=["running", "waiting"])
def test_a_resource_that_max_gets_later_counts_pods_that_are_there(trial: Trial, expect: Expect, where: str) -> None:
    """A quota bounds CPUs only. A pod of three GiB runs or waits; then max gets four GiB of memory: three are asked
    for, and after a second pod, of one GiB, which is bound, all four. When memory goes from max, none."""
    trial.add(node("n1").cpu(16).memory("64Gi"))
    make(trial, quota(named(trial, "a")).max(cpu=4))
    trial.submit(counted(trial, "first", "a", cpu=1, memory="3Gi").select({"kubernetes.io/hostname": where}))
    expect.bound("first") if where == "n1" else expect.pending("first")
    path = path_of(trial, named(trial, "a"))

    def requests() -> dict[str, object]:
        settle(trial)
        return {key: value for key, value in annotation(read(trial, named(trial, "a")), CHILD_REQUEST).items() if value}

    weight = {"annotations": {SHARED_WEIGHT: '{"cpu": 4, "memory": "4Gi"}'}}  # the webhook wrote one for CPUs
    assert trial.call("PATCH", path, {"metadata": weight, "spec": {"max": {"memory": "4Gi"}}}).ok
    assert requests() == {"cpu": "1", "memory": "3Gi"}
    trial.submit(counted(trial, "second", "a", cpu=1, memory="1Gi"))
    expect.bound("second")
    assert requests() == {"cpu": "2", "memory": "4Gi"}
    assert trial.call("PATCH", path, {"spec": {"max": {"memory": None}}}).ok
    assert requests().get("memory", "0") == "0"


@pytest.mark.feature("QUOTA-3.shared-weight", "QUOTA-10.in-place")
@pytest.mark.case("QU-301", severity="critical", source="spec QUOTA-R14 to QUOTA-R18")
@pytest.mark.long(seconds=25)
def test_what_a_quota_kept_is_divided_when_it_is_gone(trial: Trial) -> None:
    """Of eight cores a quota without pods keeps four, and two others, which ask for six each, have two each. The first
    is deleted: the others have four each."""
    trial.add(node("n1").cpu(8))
    make(
        trial,
        *(quota(named(trial, own)).max(cpu=8) for own in "bc"),
        quota(named(trial, "a")).min(cpu=4).max(cpu=8).keeps(),
    )
    of_both = list(zip(many(trial, "b", 6), many(trial, "c", 6), strict=True))
    for pairs in (of_both[:2], of_both[2:]):  # neither is alone at first
        trial.submit(*(one for pair in pairs for one in pair))
        settle(trial)
    assert (placed(trial, "b-"), placed(trial, "c-")) == (2, 2)

    assert trial.call("DELETE", path_of(trial, named(trial, "a"))).ok

    settle(trial)
    assert (placed(trial, "b-"), placed(trial, "c-")) == (4, 4)


def amounts(trial: Trial, own: str, key: str) -> dict[str, Any]:
    """An annotation of a quota with amounts, without zeros."""
    return {name: value for name, value in annotation(read(trial, named(trial, own)), key).items() if value != "0"}


@pytest.mark.feature("QUOTA-1.status")
@pytest.mark.case("QU-310", severity="critical", source="spec QUOTA-R2, QUOTA-R6, QUOTA-R33")
@pytest.mark.long(seconds=25)
def test_pods_from_before_the_first_quota_count_as_they_are(trial: Trial, expect: Expect) -> None:
    """Pods name a quota that does not exist: one waits, one that waited is deleted, and one is bound. Their quota is
    made: it counts what the first asks for, and what the last uses."""
    trial.add(node("n1").cpu(16))
    trial.submit(*(counted(trial, name, "a", cpu=cpu).on(zone="none") for name, cpu in (("stays", 1), ("goes", 2))))
    expect.pending("stays", "goes")
    trial.submit(counted(trial, "bound", "a", cpu=4))
    expect.bound("bound")
    trial.delete("goes")
    expect.gone("goes")

    make(trial, quota(named(trial, "a")).max(cpu=16))

    settle(trial)
    assert amounts(trial, "a", CHILD_REQUEST) == {"cpu": "5"}
    assert read(trial, named(trial, "a"))["status"]["used"] == {"cpu": "4"}


@pytest.mark.feature("QUOTA-5.by-label")
@pytest.mark.case("QU-311", severity="critical", source="spec QUOTA-R10, QUOTA-R31")
@pytest.mark.long(seconds=45)
def test_pods_that_get_the_name_of_another_quota_before_it_exists(trial: Trial, expect: Expect) -> None:
    """A running and a waiting pod name a quota that does not exist, and then another one. Both are made: the pods count
    in the second."""
    trial.add(node("n1").cpu(16))
    make(trial, quota(named(trial, "other")).max(cpu=1))
    trial.submit(counted(trial, "runs", "x", cpu=1), counted(trial, "waits", "x", cpu=2).on(zone="none"))
    expect.bound("runs")
    expect.pending("waits")
    for name in ("runs", "waits"):
        label = {"metadata": {"labels": {QUOTA_NAME: named(trial, "y")}}}
        assert trial.call("PATCH", trial.path("Pod", name), label).ok
    trial.settle()

    make(trial, *(quota(named(trial, own)).max(cpu=4) for own in "xy"))

    settle(trial)
    assert amounts(trial, "y", CHILD_REQUEST) == {"cpu": "3"}
    assert read(trial, named(trial, "y"))["status"]["used"] == {"cpu": "1"}
    assert amounts(trial, "x", CHILD_REQUEST) == {}


@pytest.mark.feature("QUOTA-8.non-preemptible", "QUOTA-10.in-place")
@pytest.mark.case("QU-312", severity="normal", source="ours: spec QUOTA-R2, QUOTA-R10")
@pytest.mark.long(seconds=65)
def test_what_non_preemptible_pods_ask_for_follows_max(trial: Trial, expect: Expect) -> None:
    """The max of a quota gets and loses a resource that a non-preemptible pod asks for: the annotations of the quota
    and of its parent follow."""
    trial.add(node("n1").cpu(16).memory("64Gi"))
    make(trial, quota(named(trial, "p")).min(cpu=4).max(cpu=8, memory="8Gi").parent())
    make(trial, quota(named(trial, "a")).min(cpu=4).max(cpu=4).below(named(trial, "p")))
    trial.submit(counted(trial, "first", "a", cpu=1, memory="3Gi", preemptible=False))
    expect.bound("first")

    def both() -> list[dict[str, Any]]:
        settle(trial)
        return [amounts(trial, own, NON_PREEMPTIBLE_REQUEST) for own in "ap"]

    path = path_of(trial, named(trial, "a"))
    weight = {"annotations": {SHARED_WEIGHT: '{"cpu": 4, "memory": "4Gi"}'}}  # the webhook wrote one for CPUs
    assert both() == [{"cpu": "1"}] * 2
    assert trial.call("PATCH", path, {"metadata": weight, "spec": {"max": {"memory": "4Gi"}}}).ok
    assert both() == [{"cpu": "1", "memory": "3Gi"}] * 2
    assert trial.call("PATCH", path, {"spec": {"max": {"memory": None}}}).ok
    assert both() == [{"cpu": "1"}] * 2


@pytest.mark.feature("QUOTA-8.non-preemptible", "QUOTA-10.in-place")
@pytest.mark.case("QU-313", severity="critical", source="spec QUOTA-R6, QUOTA-R28")
@pytest.mark.long(seconds=45)
def test_what_non_preemptible_pods_use_moves_with_their_quota(trial: Trial, expect: Expect) -> None:
    """A quota with a non-preemptible pod gets another parent: the annotations of both parents follow."""
    trial.add(node("n1").cpu(16))
    make(trial, *(quota(named(trial, name)).min(cpu=4).max(cpu=8).parent() for name in "pr"))
    make(trial, quota(named(trial, "a")).min(cpu=2).max(cpu=4).below(named(trial, "p")))
    trial.submit(counted(trial, "first", "a", cpu=2, preemptible=False))
    expect.bound("first")

    def of_parents() -> list[dict[str, Any]]:
        settle(trial)
        keys = (NON_PREEMPTIBLE_USED, NON_PREEMPTIBLE_REQUEST)
        return [amounts(trial, own, key) for own in "pr" for key in keys]

    assert of_parents() == [{"cpu": "2"}, {"cpu": "2"}, {}, {}]
    change = {"metadata": {"labels": {PARENT: named(trial, "r")}}}
    assert trial.call("PATCH", path_of(trial, named(trial, "a")), change).ok
    assert of_parents() == [{}, {}, {"cpu": "2"}, {"cpu": "2"}]


@pytest.mark.feature("QUOTA-2.parent-and-child")
@pytest.mark.case("QU-314", severity="normal", source="spec QUOTA-R45")
@pytest.mark.profile(CHECKING_PARENTS)
def test_every_quota_above_is_checked(trial: Trial, expect: Expect) -> None:
    """With enableCheckParentQuota: a grandparent of eight cores, all of them used below one of its two children. A pod
    below the other child is within the shares of its quota and of that child, and waits until a pod is gone."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "g")).min(cpu=8).max(cpu=8).parent())
    for own, above in (("p", "g"), ("r", "g"), ("a", "p"), ("b", "r")):
        one = quota(named(trial, own)).min(cpu=4).max(cpu=8).below(named(trial, above))
        make(trial, one.parent() if above == "g" else one)
    trial.submit(*(builder.scheduler(CHECKING_PARENTS) for builder in many(trial, "a", 8)))
    expect.bound("a-0", "a-1", *(f"a-{number}" for number in range(2, 8)))

    trial.submit(counted(trial, "b-0", "b", cpu=1).scheduler(CHECKING_PARENTS))

    path = " ".join(named(trial, own) for own in "grb")
    expect.pending("b-0", saying=f"quotaNameTopo: [{path}], runtime: cpu:8, used: cpu:8")
    trial.delete("a-3")
    expect.bound("b-0")


@pytest.mark.feature("QUOTA-1.status", "HIL-4.api-errors")
@pytest.mark.case("QU-317", severity="normal", source="spec QUOTA-R75, QUOTA-R76")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_statuses_that_were_refused_are_written_soon(trial: Trial, expect: Expect, link: Link) -> None:
    """The API server refuses the statuses of ten quotas while they get a pod each. Four seconds after it takes them
    again, all of them have the use of their pods."""
    trial.add(node("n1").cpu(32))
    own = [f"q{number}" for number in range(10)]
    make(trial, *(quota(named(trial, name)).max(cpu=4) for name in own))
    settle(trial)
    link.refuse(403, OfKind("elasticquotas"))
    trial.submit(*(counted(trial, f"of-{name}", name, cpu=1) for name in own))
    expect.bound("of-q0", "of-q1", *(f"of-{name}" for name in own[2:]))
    assert trial.wait(lambda: link.refused >= len(own), within=30), "the statuses were to be written"
    trial.pass_time(3)
    link.heal()

    trial.pass_time(4)

    assert [read(trial, named(trial, name))["status"]["used"] for name in own] == [{"cpu": "1"}] * len(own)


@pytest.mark.feature("QUOTA-3.shared-weight", "QUOTA-10.in-place")
@pytest.mark.case("QU-319", severity="critical", source="spec QUOTA-R18, QUOTA-R27")
@pytest.mark.long(seconds=45)
def test_a_weight_that_changes_counts_alone(trial: Trial) -> None:
    """Two quotas of equal weight ask for eight cores each. The weight of one becomes three times as much, and nothing
    else changes. Of eight cores, which come then, it gets six."""
    trial.add(node("n0").cpu(0))
    make(trial, *(quota(named(trial, own)).max(cpu=8).weight(cpu=1) for own in "ab"))
    trial.submit(*many(trial, "a", 8), *many(trial, "b", 8))
    settle(trial)
    weight = {"metadata": {"annotations": {SHARED_WEIGHT: '{"cpu": 3}'}}}
    assert trial.call("PATCH", path_of(trial, named(trial, "a")), weight).ok
    trial.settle()

    trial.add(node("n1").cpu(8))

    settle(trial)
    assert (placed(trial, "a-"), placed(trial, "b-")) == (6, 2)
