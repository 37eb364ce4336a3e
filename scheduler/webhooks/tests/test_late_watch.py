"""Decisions while the watch is late, and after writes that were admitted and then not stored."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import QuotaBuilder, pod, quota
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quota import ElasticQuota
from seatrial.scheduler.webhooks.quota_topology import QuotaExceeded, QuotaGates, QuotaRefusal, QuotaTopology
from seatrial.scheduler.webhooks.reviews import VALIDATE, VALIDATE_QUOTA
from seatrial.scheduler.webhooks.tests.test_quota_pods import Watch
from seatrial.scheduler.webhooks.tests.test_quota_topology import answer, review


def stored(builder: QuotaBuilder, uid: str = "u", version: int = 1) -> ElasticQuota:
    metadata = builder.namespace("ns1").manifest["metadata"]
    return msgspec.convert(
        {**builder.manifest, "metadata": {**metadata, "uid": uid, "resourceVersion": str(version)}}, ElasticQuota
    )


def asking(name: str, cpu: int, uid: str = "", *, version: int = 1, of: str = "q", namespace: str = "team") -> Pod:
    manifest = (pod(name).request(cpu=cpu).quota(of) if of else pod(name).request(cpu=cpu)).manifest
    metadata = {**manifest["metadata"], "namespace": namespace, "uid": uid or name, "resourceVersion": str(version)}
    return msgspec.convert({**manifest, "metadata": metadata}, Pod)


def refused(topology: QuotaTopology, pod: Pod, old: Pod | None = None) -> bool:
    try:
        topology.check_pod(pod, old)
    except QuotaExceeded:
        return True
    return False


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def four(watch: Watch) -> QuotaTopology:
    """Quotas `q` and `other` of four cores each, with admission of pods."""
    topology = QuotaTopology(QuotaGates(quota_admission=True, quota_admission_on_update=True), watch)
    for name in ("q", "other"):
        topology.set_quota(stored(quota(name).max(cpu=4), name))
    return topology


# -- pods --------------------------------------------------------------------------------------------------------------


def test_a_pod_that_is_made_again_counts_although_the_watch_shows_the_first_one(four: QuotaTopology) -> None:
    """The first pod of the name was deleted; the watch tells of that after the second one was admitted. Nor do a late
    change of the first one and its end take the second one's request away."""
    first = asking("web-0", 3, "first")
    four.set_pod(first)
    four.check_pod(asking("web-0", 4, "second"))  # the first one is gone, or this one will be refused
    assert refused(four, asking("web-1", 1))

    four.set_pod(first)
    assert refused(four, asking("web-1", 1))
    four.remove_pod(first)
    assert refused(four, asking("web-1", 1))

    four.set_pod(asking("web-0", 4, "second"))
    four.remove_pod(asking("web-0", 4, "second"))
    assert not refused(four, asking("web-1", 1))


def test_a_client_that_tries_again_does_not_meet_its_first_attempt(four: QuotaTopology) -> None:
    """The API server refused the pod after its admission, so the same pod comes with another uid."""
    four.check_pod(asking("web-0", 3, "first"))
    assert not refused(four, asking("web-0", 3, "second"))
    assert refused(four, asking("web-1", 2))


def test_a_pod_that_was_not_stored_counts_for_ten_seconds(four: QuotaTopology, watch: Watch) -> None:
    four.check_pod(asking("one", 4))
    watch.now = 9.9
    assert refused(four, asking("two", 1))
    watch.now = 10.0
    assert not refused(four, asking("two", 1))


def test_pods_that_move_close_together_see_each_other(four: QuotaTopology) -> None:
    """Two pods of three cores move to a quota of four. A late event about the first one does not hide its move."""
    pods = [asking(name, 3, of="absent") for name in ("one", "two")]
    for item in pods:
        four.set_pod(item)
    assert not refused(four, asking("one", 3), pods[0])
    assert refused(four, asking("two", 3), pods[1])

    four.set_pod(pods[0])
    assert refused(four, asking("two", 3), pods[1])

    four.set_pod(asking("one", 3, version=2, of="other"))  # it moved on
    assert not refused(four, asking("two", 3), pods[1])


def test_a_dry_run_uses_nothing_up(four: QuotaTopology) -> None:
    dry = review("CREATE", pod("one").request(cpu=4).quota("q").manifest, dry_run=True)
    assert answer(four, VALIDATE, dry)["allowed"]
    assert not refused(four, asking("two", 4))


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "of-the-same-name"])
def test_pods_that_are_known_before_their_quota_count(watch: Watch, listed: bool) -> None:
    """As when the list of quotas arrives after that of pods, or a quota is created for pods that are there."""
    topology = QuotaTopology(QuotaGates(quota_admission=True), watch)
    topology.set_pod(asking("one", 3, of="", namespace="team"))
    topology.set_pod(asking("two", 3, of="later"))
    own = quota("bound").namespaces("team") if listed else quota("team")
    bound = stored(own.max(cpu=4))
    if not listed:
        bound = msgspec.structs.replace(bound, metadata=msgspec.structs.replace(bound.metadata, namespace="team"))
    topology.set_quota(bound)
    topology.set_quota(stored(quota("later").max(cpu=4), "l"))
    assert refused(topology, asking("three", 2, of="", namespace="team"))
    assert refused(topology, asking("four", 2, of="later"))

    topology.remove_quota(bound)
    topology.set_quota(stored(quota("next").max(cpu=4).namespaces("elsewhere"), "n"))
    assert not refused(topology, asking("three", 2, of="", namespace="elsewhere"))
    topology.set_quota(stored(quota("next").max(cpu=4).namespaces("team"), "n", 2))
    assert refused(topology, asking("five", 2, of="", namespace="team"))


# -- quotas ------------------------------------------------------------------------------------------------------------


def parent(topology: QuotaTopology) -> QuotaTopology:
    topology.set_quota(stored(quota("p").min(cpu=4).max(cpu=4).parent(), "p"))
    return topology


def child(name: str, least: int) -> QuotaBuilder:
    return quota(name).min(cpu=least).max(cpu=4).below("p")


def test_quotas_that_come_close_together_see_each_other(four: QuotaTopology, watch: Watch) -> None:
    """The sum of their min is bounded before the watch delivers the first one; if it is not stored, it is forgotten,
    and until then it can be sent again."""
    topology = parent(four)
    topology.create(stored(child("a", 3), "a"))
    with pytest.raises(QuotaRefusal, match="brothers"):
        topology.create(stored(child("b", 3), "b"))
    topology.create(stored(child("a", 2), "again"))
    watch.now = 10.0
    topology.create(stored(child("b", 3), "b"))
    with pytest.raises(QuotaRefusal, match="brothers"):
        topology.create(stored(child("a", 3), "third"))


def test_a_change_that_was_not_stored_is_forgotten(four: QuotaTopology, watch: Watch) -> None:
    """It counts for ten seconds, and a late event about the quota before the change does not end that."""
    topology = parent(four)
    before = stored(child("a", 1), "a", 5)
    topology.set_quota(before)
    topology.update(before, stored(child("a", 4), "a", 5))
    topology.set_quota(before)
    with pytest.raises(QuotaRefusal, match="brothers"):
        topology.create(stored(child("b", 3), "b"))
    watch.now = 10.0
    topology.create(stored(child("b", 3), "b"))


def test_what_the_watch_shows_later_replaces_what_was_admitted(four: QuotaTopology, watch: Watch) -> None:
    topology = parent(four)
    before = stored(child("a", 1), "a", 5)
    topology.set_quota(before)
    topology.update(before, stored(child("a", 4), "a", 5))
    topology.set_quota(stored(child("a", 2), "a", 7))
    topology.create(stored(child("b", 2), "b"))
    topology.set_quota(stored(child("b", 2), "b"))
    watch.now = 10.0
    with pytest.raises(QuotaRefusal, match="brothers"):
        topology.create(stored(child("c", 1), "c"))


def test_a_quota_that_is_made_again_outlives_the_end_of_the_first_one(four: QuotaTopology) -> None:
    topology = parent(four)
    first = stored(child("a", 1), "first")
    topology.create(first)
    topology.set_quota(first)
    topology.remove_quota(first)
    topology.create(stored(child("a", 3), "second"))
    topology.remove_quota(first)  # as after a gap in the watch
    with pytest.raises(QuotaRefusal, match="brothers"):
        topology.create(stored(child("b", 3), "b"))
    topology.set_quota(stored(child("a", 3), "second"))
    topology.remove_quota(stored(child("a", 3), "second"))
    topology.create(stored(child("b", 3), "b"))


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_dry_run_changes_no_quota(four: QuotaTopology, operation: str) -> None:
    topology = parent(four)
    changed: dict[str, Any] = msgspec.to_builtins(stored(child("a", 4), "a"))
    old = stored(child("a", 1), "a")
    if operation == "UPDATE":
        topology.set_quota(old)
    before = msgspec.to_builtins(old) if operation == "UPDATE" else None
    dry = review(operation, changed, before, dry_run=True)
    assert answer(topology, VALIDATE_QUOTA, dry)["allowed"]
    topology.create(stored(child("b", 3), "b"))


def test_the_namespaces_of_a_quota_that_was_just_admitted_are_its_own(four: QuotaTopology) -> None:
    four.create(stored(quota("n").max(cpu=1).namespaces("team"), "n"))
    assert refused(four, asking("one", 2, of=""))
