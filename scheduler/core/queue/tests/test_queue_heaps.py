"""Backoffs hold whatever wakes a class of pods, and no heap of the queue grows with the attempts."""

from collections.abc import Sized

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.classes import ClassRegistry
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.cache.resources import ResourceIndex
from seatrial.scheduler.core.queue.active import SLACK, ActiveQueue, Entry
from seatrial.scheduler.core.queue.backoff import BackoffQueue
from seatrial.scheduler.core.queue.entry_heap import EntryHeap
from seatrial.scheduler.core.queue.unschedulable import ClassGroup, UnschedulablePods
from seatrial.scheduler.tests.rig import Rig

SHAPE = ClassRegistry(ResourceIndex()).of(Pod(ObjectMeta(name="any", uid="any")))


def entry(name: str, key: float = 0.0) -> Entry:
    return Entry(PodInfo(Pod(ObjectMeta(name=name, uid=name)), SHAPE), 0.0, (key,))


@given(st.lists(st.tuples(st.sampled_from(["push", "remove", "pop"]), st.integers(0, 3), st.integers(0, 5))))
def test_an_entry_counts_once_with_its_last_key(story: list[tuple[str, int, int]]) -> None:
    """Entries are added, removed and added again with other keys; a model keeps the last key of each."""
    heap, model, entries = EntryHeap(), dict[str, tuple[int, int]](), [entry(str(number)) for number in range(4)]
    for step, (what, number, key) in enumerate(story):
        if what == "push":
            heap.push(key, entries[number])
            model[str(number)] = (key, step)
        elif what == "remove":
            assert (heap.remove(str(number)) is not None) == (model.pop(str(number), None) is not None)
        else:
            due = sorted(uid for uid in model if model[uid][0] <= key)
            assert [one.info.uid for one in heap.pop_until(key)] == sorted(due, key=model.__getitem__)
            for uid in due:
                del model[uid]
        first = heap.first()
        assert (first and first[2].info.uid) == min(model, key=model.__getitem__, default=None)
        assert {one.info.uid for one in heap} == set(model)


@pytest.mark.parametrize("others", [0, 1, 40])
def test_heaps_do_not_grow_with_attempts(others: int) -> None:
    """A pod fails a thousand times beside others that stay where they are."""
    group, backoff, active = ClassGroup(), BackoffQueue(), ActiveQueue()
    tried = entry("tried", 5.0)
    for number in range(others):
        for part in (group, active):
            (part.add if isinstance(part, ClassGroup) else part.push)(entry(f"p{number}", number % 10))
        backoff.push(0.0, entry(f"p{number}"))
    for second in range(1000):
        tried.ready_at = float(second)
        group.add(tried)
        group.first(second - 0.5 if second % 2 else second)
        group.remove("tried")
        backoff.push(tried.ready_at, tried)
        backoff.remove("tried")
        active.push(tried)
        active.remove("tried")
    heaps: list[Sized] = [group._ready._heap, group._cooling._heap, backoff._heap, active._line, active._heap]
    assert max(map(len, heaps)) <= 2 * (others + 1) + SLACK + 1


def test_a_pod_that_is_taken_out_of_its_backoff_has_the_later_one() -> None:
    """Its first backoff would end at 1, its second one ends at 10."""
    backoff, tried = BackoffQueue(), entry("tried")
    backoff.push(1.0, tried)
    backoff.remove("tried")
    backoff.push(10.0, tried)
    assert (list(backoff.pop_until(9.0)), backoff.next_ready()) == ([], 10.0)


@pytest.mark.parametrize("mates", [0, 1, 5])
def test_a_pod_keeps_its_backoff_when_another_pod_of_its_class_waits(mates: int) -> None:
    """Each half second the room gets free, and a more important pod takes it at once: the first pod of the class is
    tried after 1, 2, 4, 8 and 10 s, however many wait beside it."""
    rig = Rig()
    rig.node("n", cpu="4")
    rig.running(pod("holder0").request(cpu=4), "n")
    rig.submit(pod("a").request(cpu=4), *(pod(f"mate{number}").request(cpu=4) for number in range(mates)))
    rig.run()
    waiting = rig.core.queue.find("uid-a")
    assert waiting is not None
    before = waiting.attempts
    for number in range(1, 60):
        rig.clock.advance(0.5)
        rig.delete(f"holder{number - 1}")
        rig.submit(pod(f"holder{number}").request(cpu=4).priority(100))
        rig.run()
    assert 3 <= waiting.attempts - before <= 5


def test_a_regrouped_entry_waits_since_it_came() -> None:
    waiting, group, other = UnschedulablePods(), ("", 0, ""), ("", 0, "apart")
    for moment, name in enumerate("abc"):
        one = entry(name)
        one.waiting_since = float(moment)
        waiting.add(group, one)

    waiting.regroup("a", other)

    assert waiting.oldest == 0.0
    assert [one.info.uid for one in waiting.overdue(1.0)] == ["a", "b"]
    assert [one.info.uid for one in waiting.members(other)] == ["a"]
    assert waiting.wide_classes() == [other]
    waiting.remove("a")
    assert waiting.oldest == 1.0
    assert not waiting.has_class(other)
