"""Which pods a quota admits, who is preempted, which pods are taken back, and objects that cannot be read."""

from itertools import permutations
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder, QuotaBuilder, pod, quota
from seatrial.scheduler.api.quota import IS_ROOT, SHARED_WEIGHT, TOTAL_RESOURCE, TREE_ID, ElasticQuota
from seatrial.scheduler.framework.decisions import Evict, Reject
from seatrial.scheduler.plugins.elasticquota.cache import QuotaCache
from seatrial.scheduler.plugins.elasticquota.controller import overuse, pods_to_revoke
from seatrial.scheduler.plugins.elasticquota.messages import insufficient, printed
from seatrial.scheduler.tests.rig import Rig, profile


def put(rig: Rig, *quotas: QuotaBuilder, gone: bool = False) -> None:
    for builder in quotas:
        rig.core.intake._deliver(read(builder), there=not gone)


def read(builder: QuotaBuilder, created: str | None = None, namespace: str = "quotas") -> ElasticQuota:
    quota = msgspec.convert(builder.namespace(namespace).manifest, ElasticQuota)
    return replace(quota, metadata=replace(quota.metadata, creation_timestamp=created))


def rig_with(**args: Any) -> Rig:
    return Rig(profile(pluginConfig=[{"name": "ElasticQuota", "args": args}]))


def cores(name: str, own: str, cpu: int, *, preemptible: bool = True, priority: int = 0) -> PodBuilder:
    return pod(name).request(cpu=cpu).quota(own, preemptible=preemptible).priority(priority)


def refusals(rig: Rig) -> dict[str, str]:
    return {
        decision.info.pod.metadata.name: decision.message for decision in rig.decisions if isinstance(decision, Reject)
    }


def test_messages_print_lists_sorted() -> None:
    assert printed({}) == "<empty>"
    assert insufficient("q", {"cpu": 0, "memory": 20}, {}, {"cpu": 1000, "memory": 2}, ["cpu"]) == (
        "Insufficient quotas, quotaName: q, runtime: cpu:0,memory:20, used: <empty>, "
        "pod's request: cpu:1,memory:2, exceedDimensions: [cpu]"
    )


def test_a_pod_of_a_full_quota_waits_and_is_woken_by_its_quota() -> None:
    rig = Rig()
    rig.node("n1")
    put(rig, quota("q").max(cpu=4))
    rig.submit(cores("a", "q", 3), cores("b", "q", 3), pod("c").request(cpu=3))
    rig.run()
    assert set(refusals(rig)) == {"b"}
    assert rig.core.queue.counts()["unschedulable"] + rig.core.queue.counts()["gated"] == 1
    rig.clock.advance(30)
    rig.delete("a")
    rig.run()
    assert rig.where("b") == "n1"


@pytest.mark.parametrize(
    ("args", "admitted"),
    [
        pytest.param({}, {"p1"}, id="runtime-is-the-limit"),
        pytest.param({"enableRuntimeQuota": False}, {"p1", "p2"}, id="max-is-the-limit"),
    ],
)
def test_the_limit_is_the_runtime_share_or_max(args: dict[str, Any], admitted: set[str]) -> None:
    """The sibling does not lend its min of 60, so 4 of 64 cores are left (E32)."""
    rig = rig_with(**args)
    rig.node("n1")
    put(rig, quota("keeps").min(cpu=60).max(cpu=60).keeps(), quota("q").max(cpu=60))
    rig.submit(cores("p1", "q", 3), cores("p2", "q", 3))
    rig.run()
    assert {name for name in rig.pods if rig.where(name)} == admitted


def test_the_parent_is_checked_if_told_so() -> None:
    """Two children within their shares are together above the parent's (E33)."""
    rig = rig_with(enableCheckParentQuota=True)
    rig.node("n1")
    put(rig, quota("p").max(cpu=4).parent(), quota("c1").max(cpu=4).below("p"), quota("c2").max(cpu=4).below("p"))
    rig.submit(cores("a", "c1", 3))
    rig.run()
    rig.submit(cores("b", "c2", 2))
    rig.run()
    assert "quotaNameTopo: [p c2], runtime: cpu:4, used: cpu:3, pod's request: cpu:2" in refusals(rig)["b"]


def test_non_preemptible_pods_are_bounded_by_min_and_by_the_share() -> None:
    """E34 to E36: the share is asked first."""
    rig = Rig()
    rig.node("n1", cpu="7")
    put(rig, quota("q").min(cpu=5).max(cpu=10))
    rig.submit(cores("plain", "q", 2), cores("strict", "q", 4, preemptible=False))
    rig.run()
    assert refusals(rig) == {}
    rig.submit(cores("over-min", "q", 1, preemptible=False))
    rig.run()
    rig.submit(cores("strict-2", "q", 1, preemptible=False), cores("over-share", "q", 2, preemptible=False))
    rig.run()
    assert rig.where("over-min") == "n1"
    assert "Insufficient quotas, quotaName: q, runtime: cpu:7" in refusals(rig)["over-share"]
    assert "Insufficient quotas" in refusals(rig)["strict-2"]


def test_preemption_takes_as_few_as_needed_of_its_own_quota() -> None:
    rig = Rig()
    rig.node("n1")
    put(rig, quota("q").max(cpu=6), quota("other").max(cpu=6))
    rig.submit(*(cores(f"low-{number}", "q", 2, priority=number) for number in range(3)))
    rig.submit(cores("stranger", "other", 2))
    rig.run()
    rig.submit(cores("high", "q", 2, priority=100))
    rig.run()
    assert [decision.victim.pod.metadata.name for decision in rig.decisions if isinstance(decision, Evict)] == ["low-0"]


def test_nobody_dies_if_the_quota_is_too_small_anyway() -> None:
    """The pod is larger than the share: without the less important pods there would still be no room (D6)."""
    rig = Rig()
    rig.node("n1")
    put(rig, quota("q").max(cpu=6))
    rig.submit(cores("low", "q", 2))
    rig.run()
    rig.submit(cores("high", "q", 7, priority=100))
    rig.run()
    assert not [decision for decision in rig.decisions if isinstance(decision, Evict)]


def test_pods_to_revoke_are_the_least_important_that_suffice() -> None:
    """E37: the share has 50 cores and no memory; 4 and 2 go, 3 stays."""
    rig = Rig()
    rig.node("n1", cpu="90", memory="1Gi")
    put(rig, quota("q").max(cpu=90, memory="1Gi"))
    for number, priority, cpu, memory in ((1, 10, 20, 0), (2, 9, 10, 1), (3, 8, 20, 0), (4, 7, 40, 0)):
        rig.submit(pod(f"p{number}").request(cpu=cpu, memory=memory).quota("q").priority(priority))
    rig.run()
    cache = QuotaCache.of(rig.core.handle)
    put(rig, quota("q").max(cpu=50, memory=0))
    tree = cache.trees[""]
    result = tree.find("q")
    assert result
    assert overuse(tree, result) == ["cpu", "memory"]
    assert sorted(info.pod.metadata.name for info in pods_to_revoke(cache, tree, result)) == ["p2", "p4"]
    put(rig, quota("q").max(cpu=0, memory=0))
    assert len(pods_to_revoke(cache, tree, result)) == 4


def test_pods_move_with_their_quota() -> None:
    """Counted in the default quota until theirs exists, and again when it is gone; sums stay equal."""
    rig = Rig()
    rig.node("n1")
    cache = QuotaCache.of(rig.core.handle)
    tree = cache.trees[""]
    put(rig, quota("other").max(cpu=10))
    rig.submit(cores("a", "q", 3), cores("b", "q", 2))
    rig.run()
    assert tree.default.used["cpu"] == 5000
    put(rig, quota("q").max(cpu=10))
    result = tree.find("q")
    assert result
    assert (tree.default.used["cpu"], result.used["cpu"], result.child_request["cpu"]) == (0, 5000, 5000)
    put(rig, quota("q"), gone=True)
    assert (tree.default.used["cpu"], tree.find("q"), tree.root.used["cpu"]) == (5000, None, 0)


LISTED = {"zeta": "2026-01-01T00:00:00Z", "alpha": "2026-06-01T00:00:00Z", "beta": "2026-06-01T00:00:00Z"}


def listing(name: str) -> ElasticQuota:
    return read(quota(name).max(cpu=8).namespaces("team"), LISTED[name])


@pytest.mark.parametrize("order", list(permutations(LISTED)), ids="-".join)
def test_of_quotas_that_list_one_namespace_the_oldest_counts(order: tuple[str, ...]) -> None:
    """In each order of events, which a restart changes: the oldest, then the first by name; also when one goes."""
    rig = Rig()
    rig.node("n1")
    cache = QuotaCache.of(rig.core.handle)
    for name in order:
        rig.core.intake._deliver(listing(name), there=True)
    rig.submit(pod("p").request(cpu=1).namespace("team"))
    rig.run()
    uid = rig.pods["p"].metadata.uid
    counted = [cache.accounts[uid].quota]
    rig.core.intake._deliver(listing("zeta"), there=False)
    counted.append(cache.accounts[uid].quota)
    # It lists the namespace no longer.
    rig.core.intake._deliver(read(quota("alpha").max(cpu=8), LISTED["alpha"]), there=True)
    counted.append(cache.accounts[uid].quota)
    rig.core.intake._deliver(listing("alpha"), there=True)
    counted.append(cache.accounts[uid].quota)
    assert counted == ["zeta", "alpha", "beta", "alpha"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["older-first", "newer-first"])
def test_of_quotas_with_one_name_the_oldest_counts(order: tuple[int, int]) -> None:
    """Quotas of one name in two namespaces: the newer one is reported, and counts when the older one is gone."""
    rig = Rig()
    cache = QuotaCache.of(rig.core.handle)
    both = [
        read(quota("q").max(cpu=4), "2026-01-01T00:00:00Z", "there"),
        read(quota("q").max(cpu=6), "2026-06-01T00:00:00Z", "here"),
    ]
    for which in order:
        rig.core.intake._deliver(both[which], there=True)
    result = cache.trees[""].find("q")
    assert result
    assert result.spec.max == {"cpu": 4000}
    assert rig.complaints() == ["quota here/q: quota there/q has the same name; it is ignored"]
    rig.core.intake._deliver(both[0], there=False)
    result = cache.trees[""].find("q")
    assert result
    assert result.spec.max == {"cpu": 6000}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["older-first", "newer-first"])
def test_of_two_roots_of_a_tree_the_oldest_has_its_total(order: tuple[int, int]) -> None:
    """The totals of the roots are 8 and 4 cores; when the older root is gone that of the newer one counts."""
    rig = rig_with(multiQuotaTree=True)
    cache = QuotaCache.of(rig.core.handle)

    def root(name: str, cores: str, created: str) -> ElasticQuota:
        builder = quota(name).max(cpu=100).annotation(TOTAL_RESOURCE, f'{{"cpu": "{cores}"}}')
        builder.manifest["metadata"]["labels"] = {TREE_ID: "t", IS_ROOT: "true"}
        return read(builder, created)

    both = [root("z", "8", "2026-01-01T00:00:00Z"), root("a", "4", "2026-06-01T00:00:00Z")]
    for which in order:
        rig.core.intake._deliver(both[which], there=True)
    assert cache.trees["t"].total() == {"cpu": 8000}
    rig.core.intake._deliver(both[0], there=False)
    assert cache.trees["t"].total() == {"cpu": 4000}


def test_pods_of_a_child_end_the_room_of_its_parent() -> None:
    """A parent with pods of its own: ten cores are used by one of them and nine of the child, so no other fits."""
    rig = Rig()
    rig.node("n1")
    put(rig, quota("p").max(cpu=10).parent(), quota("c").max(cpu=10).below("p"))
    rig.submit(cores("own", "p", 1, priority=9), *(cores(f"c-{n}", "c", 1, priority=5) for n in range(9)))
    rig.submit(*(cores(f"more-{n}", "p", 1) for n in range(9)))
    rig.run()
    assert sorted(name for name in rig.pods if rig.where(name)) == [*(f"c-{n}" for n in range(9)), "own"]


def test_a_quota_that_cannot_be_read_admits_nothing_and_is_reported() -> None:
    rig = Rig()
    rig.node("n1")
    bad = quota("bad").annotation(SHARED_WEIGHT, "{")
    bad.manifest["spec"] = {"max": {"cpu": "9e9999999999", "memory": "lots"}, "min": {"cpu": "9" * 10**6}}
    put(rig, bad, quota("self").max(cpu=4).below("self"), quota("fine").max(cpu=4))
    complaints = "\n".join(rig.complaints())
    assert "quota bad: spec.max.memory: 'lots' is not a quantity" in complaints
    assert "quota bad: annotation" in complaints
    assert "quota self: its parent self is the quota itself or below it" in complaints
    rig.submit(pod("a").request(cpu=1, memory="1Gi").quota("bad"), cores("b", "self", 1), cores("c", "fine", 1))
    rig.run()
    assert {name for name in rig.pods if rig.where(name)} == {"c"}


def test_without_quotas_nothing_is_counted() -> None:
    rig = Rig()
    rig.node("n1")
    rig.submit(pod("a").request(cpu=1))
    rig.run()
    cache = QuotaCache.of(rig.core.handle)
    assert (cache.active, cache.accounts) == (False, {})
    put(rig, quota("q").max(cpu=4))
    assert cache.trees[""].default.used["cpu"] == 1000


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"delayEvictTime": "0s"}, "elasticQuotaArgs error, DelayEvictTime should be a positive value"),
        ({"revokePodInterval": "0s"}, "elasticQuotaArgs error, RevokePodCycle should be a positive value"),
        (
            {"defaultQuotaGroupMax": {"cpu": -1}},
            "elasticQuotaArgs error, defaultQuotaGroupMax should be a positive value, resourceName:cpu, got -1",
        ),
    ],
)
def test_arguments_are_refused_in_upstreams_words(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rig_with(**args)
