"""Quotas that contradict their tree, where no admission refused them: they admit no pod, and other quotas work.

Also what depends on no admission: parents with pods of their own, and quotas that list the same namespace.
In virtual time the cluster has no webhooks, so every quota that the schema allows is stored.
"""

from collections.abc import Sequence

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import QuotaBuilder, node, pod, priority_class, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import CHILD_REQUEST, DEFAULT_QUOTA, NAMESPACES, PARENT, PREEMPTIBLE, QUOTAS_PATH
from seatrial.suites.faults.schedulers import running
from seatrial.suites.gang.namespaces import second_namespace
from seatrial.suites.quota.quotas import annotation, counted, make, many, named, path_of, placed, read, settle

__all__ = ["running", "second_namespace"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.VIRTUAL_TIME), pytest.mark.profile(KOORD_SCHEDULER)]


def wrong(trial: Trial, what: str) -> Sequence[QuotaBuilder]:
    """Quotas of which `a` has no path to the root."""
    a, b, c = (quota(named(trial, name)).max(cpu=4) for name in "abc")
    if what == "orphan":
        return [a.below("nobody")]
    if what == "its-own-parent":
        return [a.below(named(trial, "a")).parent()]
    circle = zip((a, b, c), "bca", strict=True)
    return [own.below(named(trial, above)).parent() for own, above in circle]


@pytest.mark.feature("QUOTA-2.survived")
@pytest.mark.case("QU-067", severity="critical")
@pytest.mark.parametrize(
    ("what", "at"),
    [
        ("orphan", "a"),
        ("its-own-parent", "a"),
        ("cycle-of-three", "a"),
        ("cycle-of-three", "b"),
        ("cycle-of-three", "c"),
    ],
)
def test_a_quota_without_a_path_to_the_root_admits_nothing(trial: Trial, expect: Expect, what: str, at: str) -> None:
    """Its pods wait with a reason. A pod of a valid quota is bound. The root becomes the parent of the quota, or of one
    above it: the pods are bound."""
    trial.add(node("n1").cpu(10).memory("64Gi"))
    make(trial, *wrong(trial, what), quota(named(trial, "good")).max(cpu=4))
    trial.submit(*many(trial, "a", 2), *many(trial, "good", 2))
    expect.bound("good-0", "good-1")
    expect.pending("a-0", "a-1", saying="Insufficient quotas")

    path = path_of(trial, named(trial, at))
    assert trial.call("PATCH", path, {"metadata": {"labels": {PARENT: None}}}).ok

    expect.bound("a-0", "a-1")


@pytest.mark.feature("QUOTA-2.survived")
@pytest.mark.case("QU-068", severity="critical")
def test_children_of_a_deleted_parent_wait_for_a_new_one(trial: Trial, expect: Expect) -> None:
    """The parent of a quota with a running pod is deleted. A further pod waits, another quota goes on, and the pod is
    bound when the parent is there again. The use of the running pod still counts."""
    trial.add(node("n1").cpu(10).memory("64Gi"))
    parent = quota(named(trial, "p")).max(cpu=2).parent()
    child = quota(named(trial, "a")).max(cpu=4).below(named(trial, "p"))
    make(trial, parent, child, quota(named(trial, "good")).max(cpu=4))
    trial.submit(counted(trial, "first", "a", cpu=1))
    expect.bound("first")
    assert trial.call("DELETE", path_of(trial, named(trial, "p"))).ok
    trial.submit(*many(trial, "a", 2), *many(trial, "good", 1))
    expect.bound("good-0")
    expect.refusal(scheduler=KOORD_SCHEDULER)
    expect.pending("a-0", saying="Insufficient quotas")

    make(trial, quota(named(trial, "p")).max(cpu=2).parent())

    settle(trial)
    assert placed(trial, "a-") == 1, "of the parent's two cores the first pod has one"


@pytest.mark.feature("QUOTA-2.survived")
@pytest.mark.case("QU-069", severity="normal")
def test_min_above_max_is_bounded_by_max(trial: Trial) -> None:
    """A quota with a min of six and a max of two gets two pods of five; its sibling gets the rest."""
    trial.add(node("n1").cpu(8).memory("64Gi"))
    make(trial, quota(named(trial, "a")).min(cpu=6).max(cpu=2), quota(named(trial, "b")).max(cpu=8))
    trial.submit(*many(trial, "a", 5), *many(trial, "b", 8))

    settle(trial)

    assert (placed(trial, "a-"), placed(trial, "b-")) == (2, 6)


@pytest.mark.feature("QUOTA-2.survived")
@pytest.mark.case("QU-072", severity="normal")
@pytest.mark.parametrize("digits", [60, 1_000_000])
def test_huge_amounts_delay_nobody(trial: Trial, expect: Expect, digits: int) -> None:
    """A max with many digits is refused by the schema or counts as an amount; a pod of another quota is bound."""
    trial.add(node("n1").cpu(8).memory("64Gi"))
    make(trial, quota(named(trial, "good")).max(cpu=4))
    path = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{trial.name}/elasticquotas")
    huge = quota(named(trial, "a")).min(cpu=1).max(cpu="1" + "0" * (digits - 1)).manifest
    assert trial.call("POST", path, huge).code in {201, 400, 413, 422}

    trial.submit(*many(trial, "good", 1))

    expect.bound("good-0")
    expect.refusal(scheduler=KOORD_SCHEDULER)


@pytest.mark.feature("QUOTA-5.default-and-system", "QUOTA-10.in-place")
@pytest.mark.case("QU-127", severity="critical", source="spec QUOTA-R30, QUOTA-R36")
@pytest.mark.parametrize("by", ["label", "name-of-the-namespace", "list-of-namespaces"])
def test_pods_of_a_deleted_quota_belong_to_the_default_quota(trial: Trial, expect: Expect, by: str) -> None:
    """A quota of one core has a pod, and a larger one waits for it. The quota is deleted: both belong to the default
    quota, which has room, and counts them. Koordinator's webhook does not delete a quota that has pods."""
    trial.add(node("n1").cpu(32))
    own = quota(trial.name if by == "name-of-the-namespace" else named(trial, "a")).max(cpu=1)
    make(trial, own.namespaces(trial.name) if by == "list-of-namespaces" else own, quota(named(trial, "b")).max(cpu=1))
    for name, cores in (("first", 1), ("large", 4)):
        one = pod(name).request(cpu=cores).scheduler(KOORD_SCHEDULER)
        trial.submit(one.quota(own.name) if by == "label" else one)
    expect.bound("first")
    expect.pending("large", saying=f"quotaName: {own.name}")

    assert trial.call("DELETE", path_of(trial, own.name)).ok

    expect.bound("large")
    settle(trial)
    assert read(trial, DEFAULT_QUOTA, "koordinator-system")["status"]["used"] == {"cpu": "5"}


@pytest.mark.feature("QUOTA-4.scaled-min", "QUOTA-2.survived")
@pytest.mark.case(
    "QU-165", severity="normal", source="koordinator: elasticquota/core, scale_minquota_when_over_root_res.go"
)
@pytest.mark.parametrize("bounded", [False, True], ids=["no-max", "max"])
def test_a_min_without_a_max_is_scaled_with_the_others(trial: Trial, *, bounded: bool) -> None:
    """Mins of four GiB each in a cluster with four, of which one quota has no max for memory and no pods: the other one
    keeps two, and divides the rest with a quota that has no min."""
    make(trial, *(quota(named(trial, own)).max(cpu=8, memory="8Gi").weight(cpu=1, memory="1Gi") for own in "c"))
    make(trial, quota(named(trial, "b")).min(memory="4Gi").max(cpu=8, memory="8Gi").weight(cpu=1, memory="1Gi"))
    idle = quota(named(trial, "a")).min(memory="4Gi").max(cpu=8)
    make(trial, idle.max(memory="8Gi") if bounded else idle)
    trial.submit(*(counted(trial, f"{own}-{n}", own, memory="1Gi") for own in "bc" for n in range(4)))
    settle(trial)  # all requests are known before there is anything to divide

    trial.add(node("n1").cpu(8).memory("4Gi"))

    settle(trial)
    assert (placed(trial, "b-"), placed(trial, "c-")) == (3, 1)


@pytest.mark.feature("QUOTA-3.shared-weight")
@pytest.mark.case("QU-170", severity="normal", source="spec QUOTA-R18")
@pytest.mark.parametrize("least", [0, 1])
def test_a_weight_that_does_not_name_a_resource_has_none_of_it(trial: Trial, least: int) -> None:
    """Of two quotas that ask for all of four GiB, one has a weight for CPUs only: it gets its min of memory.
    Koordinator's webhook would complete the weight."""
    trial.add(node("n1").cpu(32).memory("4Gi"))
    make(trial, quota(named(trial, "a")).min(memory=f"{least}Gi").max(cpu=8, memory="8Gi").weight(cpu=1))
    make(trial, quota(named(trial, "b")).max(cpu=8, memory="8Gi").weight(cpu=1, memory="1Gi"))

    trial.submit(*(counted(trial, f"{own}-{number}", own, memory="1Gi") for own in "ab" for number in range(4)))

    settle(trial)
    assert (placed(trial, "a-"), placed(trial, "b-")) == (least, 4 - least)


@pytest.mark.feature("QUOTA-8.non-preemptible")
@pytest.mark.case("QU-166", severity="normal", source="spec QUOTA-R6, QUOTA-R43; gate SupportParentQuotaSubmitPod")
@pytest.mark.parametrize("how", ["moved", "deleted"])
def test_what_a_child_used_of_its_parents_min_is_free_when_it_leaves(trial: Trial, expect: Expect, how: str) -> None:
    """A non-preemptible pod of a child fills the min of its parent, so one of the parent waits, until the child gets
    another parent or is deleted."""
    p, r, a = named(trial, "p"), named(trial, "r"), named(trial, "a")
    trial.add(node("n1").cpu(32))
    make(trial, *(quota(name).min(cpu=2).max(cpu=8).parent() for name in (p, r)))
    make(trial, quota(a).min(cpu=2).max(cpu=8).below(p))
    trial.submit(counted(trial, "first", "a", cpu=2, preemptible=False))
    expect.bound("first")
    trial.submit(counted(trial, "own", "p", cpu=2, preemptible=False))
    expect.pending("own", saying="Insufficient non-preemptible quotas")

    change = {"metadata": {"labels": {PARENT: r}}}
    assert (
        trial.call("PATCH", path_of(trial, a), change) if how == "moved" else trial.call("DELETE", path_of(trial, a))
    ).ok

    expect.bound("own")


@pytest.mark.feature("QUOTA-8.non-preemptible")
@pytest.mark.case("QT-302", severity="normal", source="spec QUOTA-R2, QUOTA-R43")
def test_a_running_pod_becomes_non_preemptible(trial: Trial, expect: Expect) -> None:
    """A running pod gets the label of non-preemptible pods and fills the min: another such pod waits until it loses the
    label."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).min(cpu=2).max(cpu=8))
    trial.submit(counted(trial, "first", "a", cpu=2))
    expect.running("first")
    path = f"/api/v1/namespaces/{trial.name}/pods/first"
    assert trial.call("PATCH", path, {"metadata": {"labels": {PREEMPTIBLE: "false"}}}).ok
    trial.submit(counted(trial, "second", "a", cpu=2, preemptible=False))
    expect.pending("second", saying="Insufficient non-preemptible quotas")

    assert trial.call("PATCH", path, {"metadata": {"labels": {PREEMPTIBLE: None}}}).ok

    expect.bound("second")


@pytest.mark.feature("QUOTA-1.max-bound", "QUOTA-2.parent-and-child")
@pytest.mark.case("QU-151", severity="critical", source="spec QUOTA-R6, QUOTA-R41; gate SupportParentQuotaSubmitPod")
def test_pods_of_a_parent_wait_when_its_children_use_it_up(trial: Trial) -> None:
    """A parent of ten cores: the most important pod is its own, the next nine are those of its child and grandchild.
    Nine further pods of the parent wait until one of these is gone."""
    trial.apply(priority_class("quota-first", 9000), priority_class("quota-second", 5000))
    p, c = named(trial, "p"), named(trial, "c")
    make(trial, quota(p).max(cpu=10).parent(), quota(c).max(cpu=10).below(p).parent())
    make(trial, quota(named(trial, "d")).max(cpu=10).below(c))
    trial.submit(counted(trial, "own", "p", cpu=1).priority_class("quota-first"))
    trial.submit(*(one.priority_class("quota-second") for one in (*many(trial, "c", 5), *many(trial, "d", 4))))
    trial.submit(*many(trial, "p", 9))
    settle(trial)  # all requests are known before there is room

    trial.add(node("n1").cpu(64).memory("256Gi"))

    settle(trial)
    assert (placed(trial, "c-"), placed(trial, "d-"), placed(trial, "p-")) == (5, 4, 0)
    trial.delete("d-0")
    settle(trial)
    assert placed(trial, "p-") == 1


@pytest.mark.feature("QUOTA-9.namespaces", "QUOTA-2.survived")
@pytest.mark.case("QU-152", severity="critical", source="spec QUOTA-R30, edge case 13")
def test_of_two_quotas_of_one_namespace_the_older_counts(trial: Trial, expect: Expect, running: Subject) -> None:
    """A quota of four cores lists the namespace, and later one of one core whose name comes first. Pods count in the
    older one, also after a restart of the scheduler. When that does not list the namespace any more, in the other."""
    trial.add(node("n1").cpu(32))
    older, newer = named(trial, "z"), named(trial, "a")
    make(trial, quota(older).max(cpu=4).namespaces(trial.name))
    expect.stable(seconds=2)  # timestamps are whole seconds
    make(trial, quota(newer).max(cpu=1).namespaces(trial.name))
    trial.submit(pod("first").request(cpu=2).scheduler(KOORD_SCHEDULER))
    expect.bound("first")

    running.kill()
    running.start_again()

    trial.submit(pod("second").request(cpu=2).scheduler(KOORD_SCHEDULER))
    expect.bound("second")
    change = {"metadata": {"annotations": {NAMESPACES: None}}}
    assert trial.call("PATCH", path_of(trial, older), change).ok
    trial.submit(pod("third").request(cpu=1).scheduler(KOORD_SCHEDULER))
    expect.pending("third", saying=f"quotaName: {newer}, runtime: cpu:1, used: cpu:4")


@pytest.mark.feature("QUOTA-2.survived")
@pytest.mark.case("QT-330", severity="normal", source="ours: of quotas of one name the oldest counts")
@pytest.mark.parametrize(("gone", "most"), [("older", 1), ("younger", 3)])
def test_of_two_quotas_of_one_name_one_is_deleted(
    trial: Trial, expect: Expect, second_namespace: str, gone: str, most: int
) -> None:
    """A quota of three cores, and later one of one core with its name in another namespace: the older one counts. One
    of the two is deleted: the other one counts."""
    trial.add(node("n1").cpu(32))
    own = named(trial, "a")
    make(trial, quota(own).max(cpu=3))
    expect.stable(seconds=2)  # timestamps are whole seconds
    trial.accept(quota(own).max(cpu=1).manifest, path_of(trial, "", second_namespace).removesuffix("/"))
    trial.submit(counted(trial, "first", "a", cpu=2))
    expect.bound("first")
    trial.delete("first")

    assert trial.call("DELETE", path_of(trial, own, trial.name if gone == "older" else second_namespace)).ok

    trial.settle(2)
    trial.submit(counted(trial, "last", "a", cpu=4))
    expect.pending("last", saying=f"quotaName: {own}, runtime: cpu:{most}")


@pytest.mark.feature("QUOTA-4.scaled-min")
@pytest.mark.case("QU-318", severity="normal", source="spec QUOTA-R17, QUOTA-R18, QUOTA-R22")
def test_a_min_grows_again_with_what_a_sibling_asks_for(trial: Trial) -> None:
    """Two quotas with a min of four GiB below a parent that is given what they ask for; one has no weight for memory.
    It asks for six: of six it has half, its scaled min. The other one asks for two: of eight it has four."""
    trial.add(node("n1").cpu(32).memory("64Gi"))
    make(trial, quota(named(trial, "p")).min(memory="8Gi").max(cpu=16, memory="16Gi").parent())
    for own, weight in (("a", {"cpu": 1}), ("b", {"cpu": 1, "memory": "1Gi"})):
        one = quota(named(trial, own)).min(memory="4Gi").max(cpu=8, memory="8Gi").weight(**weight)
        make(trial, one.below(named(trial, "p")))
    trial.submit(*(counted(trial, f"a-{number}", "a", memory="1Gi") for number in range(6)))
    settle(trial)
    assert placed(trial, "a-") == 3

    trial.submit(*(counted(trial, f"b-{number}", "b", memory="1Gi") for number in range(2)))

    settle(trial)
    assert (placed(trial, "a-"), placed(trial, "b-")) == (4, 2)


@pytest.mark.feature("QUOTA-10.in-place")
@pytest.mark.case("QU-406", severity="normal", source="spec QUOTA-R2, QUOTA-R4")
def test_a_parent_gets_a_resource_that_its_child_has(trial: Trial, expect: Expect) -> None:
    """A quota bounds CPUs and memory, its parent CPUs alone. The parent gets memory for two of four pods, loses it, and
    gets it for three: what the child asks for counts in the parent each time."""
    trial.add(node("n1").cpu(16).memory("64Gi"))
    make(trial, quota(named(trial, "p")).max(cpu=8).parent())
    make(trial, quota(named(trial, "a")).max(cpu=8, memory="8Gi").below(named(trial, "p")))
    trial.submit(*(counted(trial, f"a-{number}", "a", cpu=1, memory="1Gi") for number in range(4)))
    settle(trial)

    for memory, count in (("2Gi", 2), (None, 2), ("3Gi", 3)):
        assert trial.call("PATCH", path_of(trial, named(trial, "p")), {"spec": {"max": {"memory": memory}}}).ok
        settle(trial)
        assert placed(trial, "a-") == count, f"max: {memory}"
        if memory is not None:
            assert annotation(read(trial, named(trial, "p")), CHILD_REQUEST)["memory"] == "4Gi"
    expect.pending("a-3", saying="Insufficient quotas")
