"""A plugin that raises an exception: its pod is tried again, nothing of it stays booked, and other pods go on."""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from seatrial.scheduler.api.builders import PodBuilder, gang, pod
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import ConfigMap, Pod
from seatrial.scheduler.app import build_core
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.config import Configuration
from seatrial.scheduler.framework.collaborators import Watch
from seatrial.scheduler.framework.decisions import SCHEDULER_ERROR, Bind
from seatrial.scheduler.framework.extension_points import (
    NO_METADATA_CHANGES,
    Filter,
    Gate,
    MetadataChanges,
    Permit,
    PostBind,
    PostFilter,
    PreBind,
    PreEnqueue,
    PreFilter,
    QueueSort,
    Reserve,
    Scope,
    Score,
)
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.preparation import Awaited, Preparation
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, PostFilterResult, Status
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig
from seatrial.scheduler.plugins.registry import Registry
from seatrial.scheduler.shell.loop import Shell
from seatrial.scheduler.shell.tests.test_binding import Scene
from seatrial.scheduler.tests.rig import Rig, profile
from seatrial.scheduler.tests.scripted import Scripted, ok

RAISES_IN = "example.com/raises-in"
LONGEST_BACKOFF = 10.0


def _raise_for(pod: Pod, method: str) -> None:
    if Raising.broken and pod.metadata.labels.get(RAISES_IN) == method:
        raise IndexError("no such row")


class _Counter(Listener):
    def is_relevant(self, pod_class: EquivalenceClass) -> bool:
        return True

    def pod_placed(self, info: PodInfo) -> None:
        _raise_for(info.pod, "pod_placed")

    def pod_gone(self, info: PodInfo) -> None:
        _raise_for(info.pod, "pod_gone")


class Raising(PreEnqueue, Gate, PreFilter, Filter, PostFilter, Score, Reserve, Permit, PreBind, PostBind):
    """Raises an IndexError in the method that the pod's label names, while `broken`."""

    name = "Raising"
    scope = Scope.NODE_PODS
    reads_labels = (RAISES_IN,)
    broken: ClassVar[bool] = True

    def __init__(self, handle: Handle) -> None:
        handle.cache.listen(_Counter())
        handle.watch(Watch("/api/v1/configmaps", ConfigMap, self._config_set, self._config_gone))

    def pre_enqueue(self, pod: Pod) -> Status:
        _raise_for(pod, "pre_enqueue")
        return SUCCESS

    def gate_key(self, pod: Pod) -> str:
        _raise_for(pod, "gate_key")
        return "gate" if pod.metadata.labels.get(RAISES_IN) == "gate" else ""

    def gate(self, info: PodInfo) -> Status:
        _raise_for(info.pod, "gate")
        return SUCCESS

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        _raise_for(pod, "pre_filter")
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        _raise_for(pod, "filter")
        return SUCCESS

    def post_filter(self, state: CycleState, info: PodInfo, failure: FitError) -> PostFilterResult:
        _raise_for(info.pod, "post_filter")
        return PostFilterResult(Status.unschedulable())

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        _raise_for(pod, "score")
        return 0

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        _raise_for(pod, "reserve")
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        _raise_for(pod, "unreserve")

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        _raise_for(pod, "permit")
        return SUCCESS

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        _raise_for(pod, "pre_bind")
        if pod.metadata.labels.get(RAISES_IN) != "check":
            return NO_METADATA_CHANGES

        def check() -> Status:
            _raise_for(pod, "check")
            return SUCCESS

        return MetadataChanges({}, {}, preparation=Preparation(awaited=(Awaited(check, 60, "too late"),)))

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        _raise_for(pod, "post_bind")

    def _config_set(self, config_map: ConfigMap) -> None:
        if self.broken and config_map.metadata.name == "bad":
            raise KeyError("rules")

    def _config_gone(self, config_map: ConfigMap) -> None:
        raise KeyError(config_map.metadata.name)


class RaisingSort(QueueSort):
    """Orders the queue by arrival. Raises an IndexError for pods with the label `sort_key`, while `Raising.broken`."""

    name = "RaisingSort"
    scope = Scope.NODE
    reads_labels = (RAISES_IN,)

    def __init__(self, handle: Handle) -> None: ...

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        _raise_for(pod, "sort_key")
        return (queued_at,)


class RaisingGate(Raising):
    """The same with one gate for all pods."""

    closed: ClassVar[bool] = False

    def gate_key(self, pod: Pod) -> str:
        super().gate_key(pod)
        return "gate"

    def gate(self, info: PodInfo) -> Status:
        super().gate(info)
        return Status.unschedulable("the gate is closed") if self.closed else SUCCESS


class RaisingForNodes(Raising):
    """The same with results that are kept until the node object changes."""

    scope = Scope.NODE


class RaisingInCluster(Raising):
    """The same, run in each cycle."""

    scope = Scope.CLUSTER


def configuration() -> Configuration:
    sort = {"enabled": [{"name": "RaisingSort"}], "disabled": [{"name": "PrioritySort"}]}
    return profile(plugins={"multiPoint": {"enabled": [{"name": "Raising"}]}, "queueSort": sort})


def rig(kind: type[Raising] = Raising) -> Rig:
    """A node with one card."""
    made = Rig(configuration(), plugins=[kind, RaisingSort], plugins_may_raise=True)
    made.node("n", gpus=1)
    return made


def raising(name: str, method: str) -> PodBuilder:
    return pod(name).gpus(1).label(RAISES_IN, method)


def errors(made: Rig) -> Mapping[tuple[str, str], int]:
    return made.core.handle.plugin_errors.counts


@pytest.mark.parametrize(
    ("kind", "method", "origin"),
    [
        pytest.param(Raising, "pre_enqueue", ("Raising", "PreEnqueue"), id="pre-enqueue"),
        pytest.param(Raising, "gate", ("Raising", "PreFilter"), id="gate"),
        pytest.param(Raising, "pre_filter", ("Raising", "PreFilter"), id="pre-filter"),
        pytest.param(Raising, "filter", ("Raising", "Filter"), id="filter"),
        pytest.param(RaisingForNodes, "filter", ("Raising", "Filter"), id="filter-of-node-objects"),
        pytest.param(RaisingInCluster, "filter", ("Raising", "Filter"), id="filter-in-each-cycle"),
        pytest.param(Raising, "score", ("Raising", "Score"), id="score"),
        pytest.param(RaisingForNodes, "score", ("Raising", "Score"), id="score-of-node-objects"),
        pytest.param(RaisingInCluster, "score", ("Raising", "Score"), id="score-in-each-cycle"),
        pytest.param(Raising, "reserve", ("Raising", "Reserve"), id="reserve"),
        pytest.param(Raising, "permit", ("Raising", "Permit"), id="permit"),
        pytest.param(Raising, "pre_bind", ("Raising", "PreBind"), id="pre-bind"),
        pytest.param(Raising, "pod_placed", ("_Counter", "pod_placed"), id="listener"),
    ],
)
def test_the_pod_is_tried_again_and_another_pod_gets_the_card(
    kind: type[Raising],
    method: str,
    origin: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The plugin raises for the first of two pods that want the only card. Later it does not, and the card is free."""
    made = rig(kind)
    made.submit(raising("bad", method), pod("good").gpus(1))
    with caplog.at_level(logging.ERROR):
        made.run()
    assert (made.where("bad"), made.where("good")) == ("", "n")
    decision = made.rejection("bad")
    assert decision.reason == SCHEDULER_ERROR
    assert decision.message == f'running {origin[1]} plugin "{origin[0]}": IndexError: no such row'

    made.delete("good")
    made.clock.advance(LONGEST_BACKOFF)
    made.run()
    assert list(errors(made)) == [origin]
    assert errors(made)[origin] >= 2
    assert [record.exc_info is not None for record in caplog.records if "IndexError" in record.message].count(True) == 1

    monkeypatch.setattr(Raising, "broken", False)
    made.clock.advance(LONGEST_BACKOFF)
    made.run()
    assert made.where("bad") == "n"


def test_an_exception_in_post_filter_leaves_the_pod_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    made = rig()
    made.submit(pod("bad").gpus(2).label(RAISES_IN, "post_filter"))
    made.run()
    assert made.message("bad") == 'running PostFilter plugin "Raising": IndexError: no such row'
    monkeypatch.setattr(Raising, "broken", False)
    made.node("large", gpus=2)
    made.clock.advance(LONGEST_BACKOFF)
    made.run()
    assert made.where("bad") == "large"


def tried(method: str, *, bind: bool = True) -> Rig:
    """A pod got the only card; the plugin raises for it in `method`."""
    made = rig()
    made.submit(raising("bad", method))
    made.run(bind=bind)
    return made


def card_is_free(made: Rig) -> bool:
    """Whether another pod gets the card now."""
    made.submit(pod("good").gpus(1))
    made.run()
    return made.where("good") == "n"


def test_unreserve_of_the_others_runs_when_one_raises() -> None:
    made = tried("unreserve", bind=False)
    made.core.bind_failed("uid-bad", "refused", retry=False)
    assert card_is_free(made)
    assert errors(made) == {("Raising", "Unreserve"): 1}


def test_a_pod_whose_post_bind_raises_is_bound() -> None:
    made = tried("post_bind")
    assert made.where("bad") == "n"
    assert errors(made) == {("Raising", "PostBind"): 1}


def test_a_listener_that_raises_when_a_pod_goes_does_not_keep_its_card() -> None:
    made = tried("pod_gone")
    with pytest.raises(IndexError):  # the informer records it
        made.delete("bad")
    assert card_is_free(made)


def test_waiting_pods_that_make_a_plugin_raise_do_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of two classes wait for a node. When it comes, a filter raises for one of them."""
    monkeypatch.setattr(Raising, "broken", False)
    made = rig()
    made.submit(pod("bad").gpus(2).label(RAISES_IN, "filter"), pod("good").gpus(2))
    made.run()
    monkeypatch.setattr(Raising, "broken", True)
    made.clock.advance(LONGEST_BACKOFF)
    made.node("large", gpus=2)
    made.run()
    assert (made.where("bad"), made.where("good")) == ("", "large")
    assert made.message("bad") == 'running Filter plugin "Raising": IndexError: no such row'


def behind_gate(method: str) -> Rig:
    """Two pods that a gate held back, which opens now; the plugin raises in `method` for `bad`."""
    made = rig(RaisingGate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Raising, "broken", False)
        patch.setattr(RaisingGate, "closed", True)
        made.submit(pod("bad").gpus(1).label(RAISES_IN, method), pod("good").gpus(1))
        made.run()
        assert all("the gate is closed" in made.message(name) for name in ("bad", "good"))
        made.clock.advance(LONGEST_BACKOFF)
        made.run()
    return made


def test_a_gate_that_raises_when_it_opens_costs_other_pods_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two pods behind one gate, the plugin raises for the first when they are asked again."""
    made = behind_gate("gate")
    made.core.handle.open_gate("gate")
    made.run()
    assert (made.where("bad"), made.where("good")) == ("", "n")
    assert made.message("bad") == 'running PreFilter plugin "Raising": IndexError: no such row'

    made.delete("good")
    monkeypatch.setattr(Raising, "broken", False)
    made.clock.advance(LONGEST_BACKOFF)
    made.run()
    assert made.where("bad") == "n"


def test_a_gate_key_that_raises_when_keys_are_read_again_is_read_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin raises for the first of two held pods while the keys of all are read again. Its gate opens by its
    former key, the other pod follows."""
    made = behind_gate("gate_key")
    made.core.handle.request_regate()
    made.core.handle.open_gate("gate")
    made.run()
    assert (made.where("bad"), made.where("good")) == ("n", "")
    assert errors(made) == {("Raising", "PreEnqueue"): 1}

    monkeypatch.setattr(Raising, "broken", False)
    made.node("large", gpus=1)
    made.clock.advance(LONGEST_BACKOFF)
    made.run()
    assert made.where("good") == "large"


@pytest.mark.parametrize("method", ["filter", "reserve", "permit", "pre_bind", "pod_placed"])
@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
def test_a_gang_goes_back_as_a_whole(mode: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin raises for the third member of a gang that fits: no member keeps a card, and all are told."""
    made = GangRig(configuration(), plugins=[Raising, RaisingSort], plugins_may_raise=True)
    made.node("n", gpus=4)
    made.group(gang("g", 4), mode=mode)
    made.submit(*((raising(f"p{n}", method) if n == 2 else pod(f"p{n}").gpus(1)).in_gang("g") for n in range(4)))
    decisions = made.run()
    assert made.placed() == []
    assert not any(isinstance(decision, Bind) for decision in decisions)
    assert {made.message(f"p{n}") for n in range(4)} == {made.message("p2")}
    assert 'plugin "' in made.message("p2")
    made.submit(pod("single").gpus(4))
    made.run()
    assert made.where("single") == "n"

    made.delete("single")
    monkeypatch.setattr(Raising, "broken", False)
    made.clock.advance(LONGEST_BACKOFF)
    made.run()
    assert made.placed() == ["p0", "p1", "p2", "p3"]


def test_a_condition_of_a_preparation_that_raises_ends_the_attempt() -> None:
    scene = Scene(configuration(), plugins=[Raising, RaisingSort])
    scene.rig.node("n", gpus=1)
    scene.rig.submit(raising("bad", "check"))
    scene.work()
    scene.rig.submit(pod("good").gpus(1))
    scene.work()
    assert scene.rig.where("good") == "n"
    (note,) = [note for reason, note in scene.notes() if reason == "FailedScheduling"]
    assert note.endswith("IndexError: no such row")


@pytest.mark.parametrize(
    ("method", "plugin", "point"),
    [
        pytest.param("gate_key", "Raising", "PreEnqueue", id="gate-key"),
        pytest.param("sort_key", "RaisingSort", "QueueSort", id="queue-sort"),
    ],
)
def test_an_object_whose_handler_raises_is_read_again(
    method: str, plugin: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two ConfigMaps makes a plugin raise when it is listed; a pod's gate key, or its key in the queue's order,
    raises when the pod is listed."""
    clock = SimClock()
    api = Scripted(clock)
    listed: dict[str, list[dict[str, Any]]] = {
        "/api/v1/configmaps": [{"metadata": {"name": name, "uid": name}} for name in ("bad", "fine")],
        "/api/v1/nodes": [
            {"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": 9}}}
        ],
        "/api/v1/pods": [
            {
                "metadata": {"name": name, "namespace": "d", "uid": name, "labels": {RAISES_IN: label}},
                "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main"}]},
            }
            for name, label in (("held", method), ("free", ""))
        ],
    }
    objects = {"/api/v1/namespaces/d/pods/held": listed["/api/v1/pods"][0]}
    api.answer = lambda request: ok(
        objects.get(request.path)
        or {"metadata": {"resourceVersion": "1"}, "items": listed.get(request.path.partition("?")[0], [])}
    )
    core = build_core(configuration(), clock, registry=Registry([Raising, RaisingSort]))
    shell = Shell(core, api, clock)
    shell.start()
    clock.settle()

    def bound() -> list[str]:
        return [request.path.split("/")[-2] for request in api.sent if request.path.endswith("/binding")]

    assert bound() == ["free"]
    assert core.handle.plugin_errors.counts == {("Raising", "_config_set"): 1, (plugin, point): 1}
    metrics = shell.metrics.render().decode()
    assert f'seatrial_plugin_errors_total{{plugin="{plugin}",extension_point="{point}"}} 1' in metrics
    (condition,) = api.bodies("PATCH", "pods/held/status")[0]["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == (
        SCHEDULER_ERROR,
        f'running {point} plugin "{plugin}": IndexError: no such row',
    )
    monkeypatch.setattr(Raising, "broken", False)
    clock.advance(LONGEST_BACKOFF)
    assert bound() == ["free", "held"]
    watch = next(stream for stream in api.streams if "configmaps" in stream.request.path)
    watch.event("DELETED", listed["/api/v1/configmaps"][1])
    assert core.handle.plugin_errors.counts["Raising", "_config_gone"] == 1
