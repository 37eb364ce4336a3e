"""Pods that wait on Permit for a plugin of another package: a licence server that answers later."""

from typing import ClassVar

import pytest

from seatrial.scheduler.api.builders import gang, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.framework.decisions import Bind, Reject
from seatrial.scheduler.framework.extension_points import Permit, Reserve, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, member
from seatrial.scheduler.tests.rig import Rig, profile


class Licences(Reserve, Permit):
    """Has every pod wait for 60 seconds; the tests answer for the licence server."""

    name = "Licences"
    scope = Scope.NODE
    seconds: ClassVar[float] = 60
    handle: ClassVar[Handle]
    returned: ClassVar[list[str]] = []

    def __init__(self, handle: Handle) -> None:
        Licences.handle = handle
        Licences.returned = []

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.returned.append(pod.metadata.name)

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status.wait(self.seconds)


class Budget(Licences):
    """A second plugin that has pods wait."""

    name = "Budget"
    seconds = 30


def waiting(*plugins: type[Licences]) -> Rig:
    """A pod that fills its node and waits on Permit, and another one that waits for room."""
    enabled = [{"name": plugin.name} for plugin in plugins]
    rig = Rig(profile(plugins={"multiPoint": {"enabled": enabled}}), plugins=plugins)
    rig.node("n", cpu="1")
    rig.submit(pod("p").request(cpu=1))
    rig.run()
    return rig


def bindings(rig: Rig) -> list[str]:
    return [d.info.pod.metadata.name for d in rig.decisions if isinstance(d, Bind)]


def test_a_pod_keeps_its_place_while_it_waits() -> None:
    rig = waiting(Licences)
    rig.submit(pod("other").request(cpu=1))
    rig.run()
    rig.clock.advance(59)
    rig.run()
    assert bindings(rig) == []
    assert rig.where("p") == "n"
    assert rig.where("other") == ""
    assert [pod.pod.metadata.name for pod in Licences.handle.waiting_pods()] == ["p"]
    placed = rig.core.cache.placed("uid-p")
    assert placed is not None
    assert "waits on Permit for Licences" in rig.core.held_back(placed)


def test_an_allowed_pod_is_bound() -> None:
    rig = waiting(Licences)
    pod = Licences.handle.waiting_pod("uid-p")
    assert pod is not None
    pod.allow("Licences")
    rig.run()
    assert bindings(rig) == ["p"]
    assert Licences.handle.waiting_pod("uid-p") is None
    rig.clock.advance(3600)
    rig.run()
    assert rig.where("p") == "n"


def test_all_plugins_must_allow() -> None:
    rig = waiting(Licences, Budget)
    pod = Licences.handle.waiting_pod("uid-p")
    assert pod is not None
    assert pod.pending_plugins == ["Budget", "Licences"]
    pod.allow("Budget")
    pod.allow("Budget")
    rig.run()
    assert bindings(rig) == []
    assert pod.pending_plugins == ["Licences"]
    pod.allow("Licences")
    rig.run()
    assert bindings(rig) == ["p"]


def test_a_rejected_pod_gives_its_place_back() -> None:
    rig = waiting(Licences)
    rig.submit(pod("other").request(cpu=1))
    rig.run()
    result = Licences.handle.waiting_pod("uid-p")
    assert result is not None
    result.reject("Licences", "no licence left")
    rig.clock.advance(0)
    rig.run()
    assert Licences.returned == ["p"]
    assert rig.message("p").startswith("0/1 nodes are available: 1 no licence left.") or rig.where("p") == ""
    rig.clock.advance(2)
    rig.run()
    assert rig.where("other") == "n", "the next pod got the place, and waits on Permit itself"


@pytest.mark.parametrize(
    ("plugins", "seconds", "text"),
    [
        pytest.param([Licences], 60, "1m0s at plugin Licences", id="one"),
        pytest.param([Licences, Budget], 30, "30s at plugin Budget", id="the-shorter-of-two"),
    ],
)
def test_a_pod_that_waits_too_long_gives_its_place_back(plugins: list[type[Licences]], seconds: int, text: str) -> None:
    rig = waiting(*plugins)
    rig.clock.advance(seconds - 1)
    rig.run()
    assert rig.where("p") == "n"
    rig.clock.advance(1)
    (message,) = [d for d in rig.core.decide() if isinstance(d, Reject)]
    assert message.message == f"0/1 nodes are available: 1 rejected due to timeout after waiting {text}."
    assert "p" in Licences.returned


def test_a_pod_that_is_deleted_while_it_waits_leaves_nothing() -> None:
    rig = waiting(Licences)
    rig.delete("p")
    rig.clock.advance(3600)
    rig.run()
    assert Licences.returned == ["p"]
    assert bindings(rig) == []
    rig.submit(pod("next").request(cpu=1))
    rig.run()
    assert rig.where("next") == "n"


def test_members_of_a_gang_wait_each_for_itself() -> None:
    """The gang has places for both; one is allowed, and the other one rejected."""
    rig = GangRig(profile(plugins={"multiPoint": {"enabled": [{"name": "Licences"}]}}), plugins=[Licences])
    rig.node("n", cpu="2")
    rig.group(gang("train", 2))
    rig.submit(member("a", "train"), member("b", "train"))
    rig.run()
    assert bindings(rig) == []
    first, second = (Licences.handle.waiting_pod(f"uid-{name}") for name in ("a", "b"))
    assert first is not None
    assert second is not None
    first.allow("Licences")
    rig.run()
    second.reject("Licences", "no licence left")
    assert bindings(rig) == ["a"]
    assert rig.gang("default/train").pending.keys() == {"uid-b"}
