"""What is counted pod by pod is what counting everybody again would give, whatever happened in between."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from seatrial.scheduler.api.core import Affinity, Node, NodeStatus, Pod, PodAffinity, PodAffinityTerm, PodSpec
from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta, Requirement
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.classes import ClassRegistry
from seatrial.scheduler.cache.columns import NodeColumns
from seatrial.scheduler.cache.matching import PodMatcher
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.cache.resources import ResourceIndex
from seatrial.scheduler.cache.tallies import MIN_TALLIES, Tallies
from seatrial.scheduler.plugins.interpodaffinity.terms import HeldTerms

SELECTORS = (
    LabelSelector({"app": "a"}),
    LabelSelector({"app": "a", "tier": "x"}),
    LabelSelector({}, (Requirement("app", "In", ("a", "b")),)),
    LabelSelector({}, (Requirement("app", "NotIn", ("a",)),)),
    LabelSelector(),
    None,
)
MATCHERS = [
    PodMatcher(namespaces, selector, namespace_selector)
    for selector in SELECTORS
    for namespaces, namespace_selector in ((["d"], None), ([], LabelSelector({"team": "x"})), (["e"], LabelSelector()))
]

labels = st.sampled_from([{}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"}])
AFFINITIES = (
    None,
    Affinity(pod_anti_affinity=PodAffinity((PodAffinityTerm("zone", LabelSelector({"app": "a"})),))),
    Affinity(pod_anti_affinity=PodAffinity((PodAffinityTerm("zone", LabelSelector({"app": "b"})),))),
)


def numbered(number: int, marks: dict[str, str], node: int) -> Pod:
    """What of a pod may not change follows from its number."""
    metadata = ObjectMeta(name=f"p{number}", namespace="de"[number % 2], uid=f"u{number}", labels=marks)
    return Pod(metadata, PodSpec(affinity=AFFINITIES[number % 3], node_name=f"n{node}"))


pods = st.builds(numbered, st.integers(0, 9), labels, st.integers(0, 2))
steps = st.one_of(
    st.tuples(st.just("set"), pods),
    st.tuples(st.just("set"), pods),
    st.tuples(st.just("assume"), pods),
    st.tuples(st.just("leaving"), pods),
    st.tuples(st.just("gone"), st.integers(0, 9)),
    st.tuples(st.just("namespace"), st.tuples(st.sampled_from(["d", "e"]), st.sampled_from([{"team": "x"}, {}, None]))),
)


def new_cache() -> Cache:
    columns = NodeColumns(ResourceIndex())
    cache = Cache(columns, ClassRegistry(columns.resources))
    for number in range(3):
        cache.set_node(Node(ObjectMeta(name=f"n{number}"), status=NodeStatus(allocatable={"pods": 110})))
    return cache


def act(cache: Cache, kind: str, what: Any) -> None:
    match what:
        case Pod() as pod if kind == "assume":
            if cache.placed(pod.metadata.uid) is None:
                cache.assume(PodInfo(pod, cache.classes.of(pod)), pod.spec.node_name)
        case Pod() as pod:
            if kind == "leaving":
                pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
            cache.set_pod(pod)
        case int() as number:
            cache.remove_pod(f"u{number}")
        case (name, result):
            cache.set_namespace(name, result)


@settings(max_examples=150)
@given(early=st.lists(steps, max_size=10), late=st.lists(steps, max_size=40))
def test_counts_are_those_of_counting_again(early: list[tuple[str, object]], late: list[tuple[str, object]]) -> None:
    cache = new_cache()
    for kind, what in early:
        act(cache, kind, what)
    tallies, held = Tallies(cache), HeldTerms(cache)
    requests: list[tuple[tuple[PodMatcher, ...], bool]] = [
        ((matcher,), staying) for matcher in MATCHERS for staying in (False, True)
    ]
    requests.append(((MATCHERS[0], MATCHERS[6]), False))
    for matchers, staying in requests:
        tallies.of(*matchers, staying=staying)
    for kind, what in late:
        act(cache, kind, what)
    anew, held_anew = Tallies(cache), HeldTerms(cache)
    for matchers, staying in requests:
        kept, fresh = (counter.of(*matchers, staying=staying) for counter in (tallies, anew))
        assert kept.rows.tolist() == fresh.rows.tolist()
        assert kept.total == fresh.total
    assert {term: held.rows(term).tolist() for term in held._rows} == {
        term: held_anew.rows(term).tolist() for term in held_anew._rows
    }
    probe = Pod(ObjectMeta(namespace="d", labels={"app": "a"}))
    assert set(held.about(probe)) == {term for term in held._rows if term.matches(probe, cache.namespaces)}


def test_a_tally_counts_pods_that_were_there_before_it() -> None:
    cache = new_cache()
    act(cache, "set", Pod(ObjectMeta(namespace="d", uid="u1", labels={"app": "a"}), PodSpec(node_name="n1")))
    tally = Tallies(cache).of(PodMatcher(["d"], LabelSelector({"app": "a"})))
    assert tally.rows[cache.columns.rows["n1"]] == tally.total == 1


def test_tallies_of_pods_that_are_gone_are_dropped() -> None:
    """Workloads come and go, each with its own selector; one that stays is still counted."""
    cache = new_cache()
    tallies = Tallies(cache)
    cache.set_pod(numbered(0, {"app": "a"}, 0))
    stays = PodMatcher(["d"], LabelSelector({"app": "a"}), None)
    for number in range(3 * MIN_TALLIES):
        tallies.of(PodMatcher(["d"], LabelSelector({"app": f"gone{number}"}), None))
        assert tallies.of(stays).total == 1
    cache.set_pod(numbered(2, {"app": "a"}, 1))
    assert tallies.of(stays).rows.tolist()[:2] == [1, 1]
    assert len(tallies) <= MIN_TALLIES + 1
