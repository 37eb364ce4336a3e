"""The stories against the reference notice each part of a rollback that is left out.

A rollback unreserves a member, forgets it in the cache, tells its gang, and drops it from the table of placed members.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.core.groups.engine import GroupEngine
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.coscheduling.tests.test_gang_oracle import Story
from seatrial.scheduler.tests.rig import profile

Fault = Callable[[Story], None]


@contextmanager
def silent(target: object, method: str) -> Iterator[None]:
    """The method of this object does nothing."""
    own = vars(target).get(method)
    setattr(target, method, lambda *_: None)
    try:
        yield
    finally:
        delattr(target, method)
        if own is not None:
            setattr(target, method, own)


def while_releasing(pick: Callable[[Story], tuple[object, str]]) -> Fault:
    """A call that the release of a member makes is left out."""

    def fault(story: Story) -> None:
        members = story.core.groups.members
        release = members.release

        def broken(placed: Any) -> None:
            with silent(*pick(story)):
                release(placed)

        members.release = broken  # type: ignore[method-assign]

    return fault


def keeps(table: str) -> Fault:
    """A released member stays in a table of placed members."""

    def fault(story: Story) -> None:
        members = story.core.groups.members
        release = members.release

        def broken(placed: Any) -> None:
            before = dict(getattr(members, table))
            groups = {key: dict(members) for key, members in before.items()} if table == "_by_group" else before
            release(placed)
            setattr(members, table, groups)

        members.release = broken  # type: ignore[method-assign]

    return fault


def leaves_the_first(story: Story) -> None:
    """A rollback that begins with the second member."""
    members = story.core.groups.members
    release = members.release

    def broken(placed: Any) -> None:
        first = next(iter(members._by_group[placed.key].values()))
        if placed is not first:
            release(placed)

    members.release = broken  # type: ignore[method-assign]


FAULTS: dict[str, Fault] = {
    "places-stay-reserved": while_releasing(lambda story: (story.core.runners["default-scheduler"], "unreserve")),
    "pods-stay-assumed": while_releasing(lambda story: (story.core.cache, "forget")),
    "gangs-are-not-told": while_releasing(lambda story: (story.cache, "released")),
    "members-stay-in-the-group": keeps("_by_group"),
    "members-stay-waiting": keeps("_by_uid"),
    "the-first-member-stays": leaves_the_first,
}


class Ledger:
    """What the Reserve plugins hold for members and pods."""

    def __init__(self, story: Story) -> None:
        self.story, self.held = story, set[str]()
        runner = story.core.runners["default-scheduler"]
        reserve, unreserve = runner.reserve, runner.unreserve

        def reserved(state: CycleState, pod: Pod, node: str) -> Status:
            status = reserve(state, pod, node)
            if status.ok:
                self.held.add(pod.metadata.uid)
            return status

        def unreserved(state: CycleState, pod: Pod, node: str) -> None:
            self.held.discard(pod.metadata.uid)
            unreserve(state, pod, node)

        vars(runner).update(reserve=reserved, unreserve=unreserved)

    def act(self, kind: str, value: Any) -> None:
        """One event, after which no attempt is open."""
        story = self.story
        story.act(kind, value)
        assert not story.core.groups.members._by_group, "members wait for their group after a rollback"
        assert len(story.core.groups.members) == 0, "the engine counts members that are gone"
        assert all(not gang.waiting for gang in story.cache.gangs.values()), "gangs count places that no member has"
        assert {uid for node in story.core.cache for uid in node.pods} == story.bound.keys(), "pods are still assumed"
        assert self.held == story.bound.keys(), "Reserve plugins hold something for pods without a place"


def tell(story: Story) -> None:
    """A gang of four cards on a node with two fails; single pods take the room; then nodes come for the gang."""
    ledger = Ledger(story)
    ledger.act("node", ("n0", 6, 2))
    for _ in range(4):
        ledger.act("pod", ("c", 2))
    for group, shape in (("", 2), ("", 2), ("a", 1), ("a", 1)):
        ledger.act("pod", (group, shape))
    for name in ("n1", "n2"):
        ledger.act("node", (name, 6, 2))
        ledger.act("time", 11)
    ledger.act("time", 301)


def test_the_story_is_told_without_a_fault() -> None:
    story = Story(profile())
    tell(story)
    assert len(story.bound) == 8
    assert isinstance(story.core.groups, GroupEngine)


@pytest.mark.parametrize("name", list(FAULTS))
def test_each_fault_of_a_rollback_is_noticed(name: str) -> None:
    story = Story(profile())
    FAULTS[name](story)
    with pytest.raises((AssertionError, KeyError)):
        tell(story)
