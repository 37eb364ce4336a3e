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
from seatrial.scheduler.api.quota import NAMESPACES, PARENT, QUOTAS_PATH
from seatrial.suites.faults.test_restarts import running
from seatrial.suites.quota.quotas import counted, make, many, named, path_of, placed, settle

__all__ = ["running"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.VIRTUAL_TIME), pytest.mark.profile(KOORD_SCHEDULER)]


def wrong(cluster: Trial, what: str) -> Sequence[QuotaBuilder]:
    """Quotas of which `a` has no path to the root."""
    a, b, c = (quota(named(cluster, name)).max(cpu=4) for name in "abc")
    if what == "orphan":
        return [a.below("nobody")]
    if what == "its-own-parent":
        return [a.below(named(cluster, "a")).parent()]
    circle = zip((a, b, c), "bca", strict=True)
    return [own.below(named(cluster, above)).parent() for own, above in circle]


@pytest.mark.feature("QUOTA-2.survived")
@pytest.mark.case("QU-067", severity="critical")
@pytest.mark.parametrize("what", ["orphan", "its-own-parent", "cycle-of-three"])
def test_a_quota_without_a_path_to_the_root_admits_nothing(cluster: Trial, expect: Expect, what: str) -> None:
    """Its pods wait with a reason. A pod of a valid quota is bound. With the root as parent, the pods are bound."""
    cluster.add(node("n1").cpu(10).memory("64Gi"))
    make(cluster, *wrong(cluster, what), quota(named(cluster, "good")).max(cpu=4))
    cluster.submit(*many(cluster, "a", 2), *many(cluster, "good", 2))
    expect.bound("good-0", "good-1")
    expect.pending("a-0", "a-1", saying="Insufficient quotas")

    path = path_of(cluster, named(cluster, "a"))
    assert cluster.call("PATCH", path, {"metadata": {"labels": {PARENT: None}}}).ok

    expect.bound("a-0", "a-1")


@pytest.mark.feature("QUOTA-2.survived")
@pytest.mark.case("QU-068", severity="critical")
def test_children_of_a_deleted_parent_wait_for_a_new_one(cluster: Trial, expect: Expect) -> None:
    """The parent of a quota with a running pod is deleted. A further pod waits, another quota goes on, and the pod is
    bound when the parent is there again. The use of the running pod still counts."""
    cluster.add(node("n1").cpu(10).memory("64Gi"))
    parent = quota(named(cluster, "p")).max(cpu=2).parent()
    child = quota(named(cluster, "a")).max(cpu=4).below(named(cluster, "p"))
    make(cluster, parent, child, quota(named(cluster, "good")).max(cpu=4))
    cluster.submit(counted(cluster, "first", "a", cpu=1))
    expect.bound("first")
    assert cluster.call("DELETE", path_of(cluster, named(cluster, "p"))).ok
    cluster.submit(*many(cluster, "a", 2), *many(cluster, "good", 1))
    expect.bound("good-0")
    expect.refusal(scheduler=KOORD_SCHEDULER)
    expect.pending("a-0", saying="Insufficient quotas")

    make(cluster, quota(named(cluster, "p")).max(cpu=2).parent())

    settle(cluster)
    assert placed(cluster, "a-") == 1, "of the parent's two cores the first pod has one"


@pytest.mark.feature("QUOTA-2.survived")
@pytest.mark.case("QU-069", severity="normal")
def test_min_above_max_is_bounded_by_max(cluster: Trial) -> None:
    """A quota with a min of six and a max of two gets two pods of five; its sibling gets the rest."""
    cluster.add(node("n1").cpu(8).memory("64Gi"))
    make(cluster, quota(named(cluster, "a")).min(cpu=6).max(cpu=2), quota(named(cluster, "b")).max(cpu=8))
    cluster.submit(*many(cluster, "a", 5), *many(cluster, "b", 8))

    settle(cluster)

    assert (placed(cluster, "a-"), placed(cluster, "b-")) == (2, 6)


@pytest.mark.feature("QUOTA-2.survived")
@pytest.mark.case("QU-072", severity="normal")
@pytest.mark.parametrize("digits", [60, 1_000_000])
def test_huge_amounts_delay_nobody(cluster: Trial, expect: Expect, digits: int) -> None:
    """A max with many digits is refused by the schema or counts as an amount; a pod of another quota is bound."""
    cluster.add(node("n1").cpu(8).memory("64Gi"))
    make(cluster, quota(named(cluster, "good")).max(cpu=4))
    path = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{cluster.name}/elasticquotas")
    huge = quota(named(cluster, "a")).min(cpu=1).max(cpu="1" + "0" * (digits - 1)).manifest
    assert cluster.call("POST", path, huge).code in {201, 400, 413, 422}

    cluster.submit(*many(cluster, "good", 1))

    expect.bound("good-0")
    expect.refusal(scheduler=KOORD_SCHEDULER)


@pytest.mark.feature("QUOTA-5.default-and-system", "QUOTA-10.in-place")
@pytest.mark.case("QU-127", severity="critical")
def test_pods_of_a_deleted_quota_belong_to_the_default_quota(cluster: Trial, expect: Expect) -> None:
    """The quota for which a pod waits is deleted: the pod belongs to the default quota, which has room.
    Koordinator's webhook does not delete a quota that has pods."""
    cluster.add(node("n1").cpu(32))
    make(cluster, quota(named(cluster, "a")).min(cpu=1).max(cpu=1), quota(named(cluster, "b")).max(cpu=1))
    cluster.submit(counted(cluster, "large", "a", cpu=4))
    expect.pending("large")

    assert cluster.call("DELETE", path_of(cluster, named(cluster, "a"))).ok

    expect.bound("large")


@pytest.mark.feature("QUOTA-1.max-bound", "QUOTA-2.parent-and-child")
@pytest.mark.case("QU-151", severity="critical", source="spec QUOTA-R6, QUOTA-R41; gate SupportParentQuotaSubmitPod")
def test_pods_of_a_parent_wait_when_its_children_use_it_up(cluster: Trial) -> None:
    """A parent of ten cores: the most important pod is its own, the next nine are those of its child and grandchild.
    Nine further pods of the parent wait until one of these is gone."""
    cluster.apply(priority_class("quota-first", 9000), priority_class("quota-second", 5000))
    p, c = named(cluster, "p"), named(cluster, "c")
    make(cluster, quota(p).max(cpu=10).parent(), quota(c).max(cpu=10).below(p).parent())
    make(cluster, quota(named(cluster, "d")).max(cpu=10).below(c))
    cluster.submit(counted(cluster, "own", "p", cpu=1).priority_class("quota-first"))
    cluster.submit(*(one.priority_class("quota-second") for one in (*many(cluster, "c", 5), *many(cluster, "d", 4))))
    cluster.submit(*many(cluster, "p", 9))
    settle(cluster)  # all requests are known before there is room

    cluster.add(node("n1").cpu(64).memory("256Gi"))

    settle(cluster)
    assert (placed(cluster, "c-"), placed(cluster, "d-"), placed(cluster, "p-")) == (5, 4, 0)
    cluster.delete("d-0")
    settle(cluster)
    assert placed(cluster, "p-") == 1


@pytest.mark.feature("QUOTA-9.namespaces", "QUOTA-2.survived")
@pytest.mark.case("QU-152", severity="critical", source="spec QUOTA-R30, edge case 13")
def test_of_two_quotas_of_one_namespace_the_older_counts(cluster: Trial, expect: Expect, running: Subject) -> None:
    """A quota of four cores lists the namespace, and later one of one core whose name comes first. Pods count in the
    older one, also after a restart of the scheduler. When that does not list the namespace any more, in the other."""
    cluster.add(node("n1").cpu(32))
    older, newer = named(cluster, "z"), named(cluster, "a")
    make(cluster, quota(older).max(cpu=4).namespaces(cluster.name))
    expect.stable(seconds=2)  # timestamps are whole seconds
    make(cluster, quota(newer).max(cpu=1).namespaces(cluster.name))
    cluster.submit(pod("first").request(cpu=2).scheduler(KOORD_SCHEDULER))
    expect.bound("first")

    running.kill()
    running.start_again()

    cluster.submit(pod("second").request(cpu=2).scheduler(KOORD_SCHEDULER))
    expect.bound("second")
    change = {"metadata": {"annotations": {NAMESPACES: None}}}
    assert cluster.call("PATCH", path_of(cluster, older), change).ok
    cluster.submit(pod("third").request(cpu=1).scheduler(KOORD_SCHEDULER))
    expect.pending("third", saying=f"quotaName: {newer}, runtime: cpu:1, used: cpu:4")
