"""The way of a plain pod: caches of gangs, quotas, nominations and claims are not called for it."""

import sys
from pathlib import Path
from types import FrameType
from typing import Self

from msgspec.structs import replace

from seatrial.scheduler import core
from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.tests.rig import Rig

SCHEDULER = Path(core.__file__).parent.parent
NOT_CONCERNED = {
    "core/groups/engine.py",
    "core/groups/nominations.py",
    "core/groups/placed_members.py",
    "core/permit_waiters.py",
    "framework/nominator.py",
    "plugins/coscheduling/cache.py",
    "plugins/dynamicresources/claims.py",
    "plugins/elasticquota/cache.py",
}
MOST_RETURNS = 30  # to files that it was in before, on the way into the queue


class Walk:
    """The files that calls enter and come back to, in order."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        entered = frame if event == "call" else frame.f_back if event == "return" else None
        path = Path(entered.f_code.co_filename) if entered is not None else None
        if path is not None and path.is_relative_to(SCHEDULER) and "tests" not in path.parts:
            name = path.relative_to(SCHEDULER).as_posix()
            if self.files[-1:] != [name]:
                self.files.append(name)

    def __enter__(self) -> Self:
        sys.setprofile(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    @property
    def returns(self) -> int:
        return len(self.files) - len(set(self.files))


def walks(pod: PodBuilder) -> list[Walk]:
    """Into the queue, the cycle, and the confirmed binding; another pod of the same spec came before."""
    rig = Rig()
    rig.node("node")
    first = rig.pod(PodBuilder("first").request(cpu=1))
    second = replace(rig.pod(pod.request(cpu=1)), spec=first.spec)
    parts: list[Walk] = []
    for each in (first, second):
        parts = [Walk(), Walk(), Walk()]
        with parts[0]:
            rig.core.intake.set_pod(each)
        with parts[1]:
            decisions = rig.core.decide()
        (bind,) = decisions
        assert isinstance(bind, Bind)
        with parts[2]:
            rig.core.bound(each.metadata.uid)
            rig.core.intake.set_pod(replace(each, spec=replace(each.spec, node_name=bind.node)))
    return parts


def test_a_plain_pod_concerns_no_cache_of_other_pods() -> None:
    parts = walks(PodBuilder("plain").label("app", "web").annotation("note", "plain"))
    for part in parts:
        assert part.files
        assert not NOT_CONCERNED.intersection(part.files)
    assert parts[0].returns <= MOST_RETURNS, parts[0].files


def test_a_member_of_a_gang_concerns_them() -> None:
    """So the tracer sees them."""
    queue, cycle, _ = walks(PodBuilder("member").in_light_gang("gang", 1))
    assert "plugins/coscheduling/cache.py" in queue.files
    assert "core/groups/placed_members.py" in cycle.files
