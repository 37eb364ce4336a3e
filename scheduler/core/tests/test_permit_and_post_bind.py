"""Permit after Reserve, PostBind after a binding, and declarations of plugin classes that contradict each other."""

from typing import ClassVar

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.config import ConfigError
from seatrial.scheduler.framework.decisions import Bind, Reject
from seatrial.scheduler.framework.entry_points import PluginError
from seatrial.scheduler.framework.extension_points import Filter, Permit, Plugin, PostBind, Reserve, Scope, Transformer
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.tests.rig import Rig, profile


class Recorder(Reserve, Permit, PostBind):
    """Records its calls; Permit returns `verdict`."""

    name = "Recorder"
    scope = Scope.NODE
    verdict: ClassVar[Status] = SUCCESS
    calls: ClassVar[list[str]]

    def __init__(self, handle: Handle) -> None:
        del handle

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.calls.append(f"reserve {pod.metadata.name} {node_name}")
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.calls.append(f"unreserve {pod.metadata.name} {node_name}")

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.calls.append(f"permit {pod.metadata.name} {node_name}")
        return self.verdict

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.calls.append(f"post_bind {pod.metadata.name} {node_name}")


def scheduled(monkeypatch: pytest.MonkeyPatch, verdict: Status, *, bind: bool = True) -> Rig:
    """One pod after one cycle with the recorder in the profile."""
    monkeypatch.setattr(Recorder, "verdict", verdict)
    monkeypatch.setattr(Recorder, "calls", [], raising=False)
    rig = Rig(profile(plugins={"multiPoint": {"enabled": [{"name": "Recorder"}]}}), plugins=[Recorder])
    rig.node("n")
    rig.submit(pod("p").request(cpu=1))
    rig.run(bind=bind)
    return rig


def test_a_permitted_pod_is_bound_and_post_bind_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = scheduled(monkeypatch, SUCCESS)
    assert rig.where("p") == "n"
    assert Recorder.calls == ["reserve p n", "permit p n", "post_bind p n"]


def test_post_bind_waits_for_the_answer_and_does_not_follow_a_failed_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = scheduled(monkeypatch, SUCCESS, bind=False)
    assert Recorder.calls == ["reserve p n", "permit p n"]
    rig.core.bind_failed("uid-p", "refused", retry=False)
    rig.core.bound("uid-p")
    assert Recorder.calls == ["reserve p n", "permit p n", "unreserve p n"]


@pytest.mark.parametrize("nominated", ["n", ""])
def test_a_failed_binding_clears_the_nomination(nominated: str) -> None:
    """The room is free for others again, and the pod's status says so (kubernetes `handleBindingCycleError`)."""
    rig = Rig(profile())
    rig.node("n")
    waiting = rig.pod(pod("p").request(cpu=1))
    rig.core.intake.set_pod(replace(waiting, status=replace(waiting.status, nominated_node_name=nominated)))
    rig.run(bind=False)
    (rejection,) = rig.core.bind_failed("uid-p", "refused")
    assert isinstance(rejection, Reject)
    assert rejection.nominated == ("" if nominated else None)
    assert not rig.core.handle.nominator.nominated


@pytest.mark.parametrize(
    ("verdict", "reason", "message"),
    [
        pytest.param(
            Status.unschedulable("no licence left"),
            "Unschedulable",
            "0/1 nodes are available: 1 no licence left.",
            id="denied",
        ),
        pytest.param(Status.error("licence server down"), "SchedulerError", "licence server down", id="error"),
    ],
)
def test_a_pod_that_permit_does_not_approve_gives_its_reservation_back(
    monkeypatch: pytest.MonkeyPatch, verdict: Status, reason: str, message: str
) -> None:
    rig = scheduled(monkeypatch, verdict)
    assert Recorder.calls == ["reserve p n", "permit p n", "unreserve p n"]
    (output,) = (decision for decision in rig.decisions if isinstance(decision, Reject))
    assert (output.reason, output.message) == (reason, message)
    assert not any(isinstance(decision, Bind) for decision in rig.decisions)
    assert rig.where("p") == ""


class _Passes(Filter):
    name = "Passes"

    def __init__(self, handle: Handle) -> None:
        del handle

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS


class UnknownScope(_Passes):
    scope = "node"  # type: ignore[assignment]


class ConcernsByNode(_Passes):
    scope = Scope.NODE

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.volumes)


class VersionOfCluster(_Passes):
    scope = Scope.CLUSTER

    @property
    def version(self) -> int:
        return 1


class TransformerOfNodes(_Passes, Transformer):
    scope = Scope.NODE_PODS

    def overlooked(self, state: CycleState, pod: Pod) -> dict[str, list[object]]:  # type: ignore[override]
        return {}

    def chosen(self, state: CycleState, pod: Pod, node: NodeInfo) -> None: ...


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        pytest.param(
            UnknownScope,
            "plugin Passes: scope: expected one of Scope.NODE, Scope.NODE_PODS, Scope.CLUSTER, found 'node'",
            id="no-scope",
        ),
        pytest.param(
            ConcernsByNode,
            "plugin Passes: scope: `concerns` needs Scope.CLUSTER, found Scope.NODE;"
            " change the scope, or remove `concerns`",
            id="concerns-is-never-called",
        ),
        pytest.param(
            VersionOfCluster,
            "plugin Passes: scope: `version` needs Scope.NODE, found Scope.CLUSTER;"
            " change the scope, or remove `version`",
            id="version-is-never-read",
        ),
        pytest.param(
            TransformerOfNodes,
            "plugin Passes: scope: a Transformer needs Scope.CLUSTER, found Scope.NODE_PODS",
            id="transformer",
        ),
    ],
)
def test_a_wrong_scope_is_refused(kind: type[Plugin], message: str) -> None:
    with pytest.raises(PluginError) as caught:
        Rig(profile(plugins={"filter": {"enabled": [{"name": "Passes"}]}}), plugins=[kind])
    assert str(caught.value) == message


class Fails(_Passes):
    name = "Fails"
    scope = Scope.NODE

    def __init__(self, handle: Handle) -> None:
        raise LookupError("no table")


Fails.__module__ = "elsewhere.plugin"  # as a plugin of another package


def test_a_constructor_that_fails_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError) as caught:
        Rig(profile(plugins={"filter": {"enabled": [{"name": "Fails"}]}}), plugins=[Fails])
    assert str(caught.value) == (
        "plugin Fails: the constructor of elsewhere.plugin.Fails failed: LookupError: no table"
    )
