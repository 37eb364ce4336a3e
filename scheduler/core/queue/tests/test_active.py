"""The queue of ready pods against sorting, with pods of any importance that come, go and come back."""

import math

from hypothesis import given
from hypothesis import strategies as st

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.classes import ClassRegistry
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.cache.resources import ResourceIndex
from seatrial.scheduler.core.queue.active import ActiveQueue, Entry

KEYS = [(), (-math.inf,), (0.0,), (1.0,), (1, -math.inf), (1.0, 2.0), (2,)]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from(range(len(KEYS)))),
        st.tuples(st.just("pop"), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(story=steps)
def test_pods_come_out_by_key_and_then_by_arrival(story: list[tuple[str, int]]) -> None:
    queue, there, count = ActiveQueue(), list[tuple[tuple[float, ...], int, str]](), 0
    shape = ClassRegistry(ResourceIndex()).of(Pod(ObjectMeta(name="any", uid="any")))
    for what, number in story:
        if what == "push":
            count += 1
            uid = f"u{count}"
            queue.push(Entry(PodInfo(Pod(ObjectMeta(name=uid, uid=uid)), shape), 0.0, KEYS[number]))
            there.append((KEYS[number], count, uid))
        elif what == "pop":
            entry = queue.pop()
            first = min(there, default=None)
            assert (entry.info.uid if entry else None) == (first[2] if first else None)
            if first is not None:
                there.remove(first)
        else:
            gone = [entry for entry in there if entry[2] == f"u{number}"]
            assert (queue.remove(f"u{number}") is not None) == bool(gone)
            there = [entry for entry in there if entry not in gone]
        assert len(queue) == len(there)
