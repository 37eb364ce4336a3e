"""Strategies that look at one pod at a time, row by row (RSV-R97)."""

import importlib
from typing import Any

import pytest

from seatrial.scheduler.api.clock import SimClock, rfc3339
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.descheduler.args import ArgsError, read_args
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.registry import PLUGINS
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import CONTROLLER, RecordingEvictor, handle_of, node, pod

JOB = {**CONTROLLER, "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"}
NOW = SimClock().now()
PLUGINS_OF = "seatrial.scheduler.descheduler.plugins"


def evicted(name: str, args: dict[str, Any], *pods: Pod, nodes: tuple[Any, ...] = ()) -> list[str]:
    """What one run of the strategy evicts, in order."""
    state = ClusterState()
    for entry in nodes or (node("n1"), node("n2")):
        state.set_node(entry)
    for entry in pods:
        state.set_pod(entry)
    handle = handle_of(state, SimClock())
    evictor = handle.evictor
    assert isinstance(evictor, RecordingEvictor)
    kind = PLUGINS[name]
    kind(read_args(kind.args, args)).run(handle, [state.nodes[key] for key in sorted(state.nodes)])  # type: ignore[call-arg]
    return evictor.evicted


def aged(name: str, seconds: float, **fields: Any) -> Pod:
    return pod(name, "n1", creationTimestamp=rfc3339(NOW - seconds), **fields)


def ended(code: int, reason: str = "Error") -> list[dict[str, Any]]:
    return [{"name": "main", "state": {"terminated": {"exitCode": code, "reason": reason}}}]


def waiting(reason: str) -> list[dict[str, Any]]:
    return [{"name": "main", "state": {"waiting": {"reason": reason}}}]


def conditions(seconds: float, **fields: str) -> dict[str, Any]:
    return {"conditions": [{**fields, "lastTransitionTime": rfc3339(NOW - seconds)}]}


STUCK = {"type": "PodReadyToStartContainers", "status": "False", "reason": "NoNetwork"}


@pytest.mark.parametrize(
    ("args", "status", "want"),
    [
        pytest.param({"states": ["Pending"]}, {"phase": "Pending"}, True, id="phase"),
        pytest.param({"states": ["Pending"]}, {}, False, id="another-phase"),
        pytest.param({"states": ["NodeLost"]}, {"reason": "NodeLost"}, True, id="reason-of-the-pod"),
        pytest.param({"states": ["Error"]}, {"containerStatuses": waiting("Error")}, True, id="container-waits"),
        pytest.param({"states": ["Error"]}, {"containerStatuses": ended(1)}, True, id="container-ended"),
        pytest.param({"states": ["Error"]}, {"initContainerStatuses": waiting("Error")}, False, id="init-container"),
        pytest.param(
            {"states": ["Error"], "includingInitContainers": True},
            {"initContainerStatuses": waiting("Error")},
            True,
            id="init-container-included",
        ),
        pytest.param(
            {"states": ["Error"]}, {"ephemeralContainerStatuses": waiting("Error")}, False, id="ephemeral-container"
        ),
        pytest.param(
            {"states": ["Error"], "includingEphemeralContainers": True},
            {"ephemeralContainerStatuses": waiting("Error")},
            True,
            id="ephemeral-container-included",
        ),
        pytest.param({"exitCodes": [137]}, {"containerStatuses": ended(137)}, True, id="exit-code"),
        pytest.param({"exitCodes": [137]}, {"containerStatuses": ended(1)}, False, id="another-exit-code"),
        pytest.param({"exitCodes": [0]}, {}, False, id="a-container-that-runs-has-no-exit-code"),
        pytest.param({"conditions": [{"type": STUCK["type"]}]}, conditions(9, **STUCK), True, id="condition"),
        pytest.param({"conditions": [STUCK]}, conditions(9, **STUCK), True, id="condition-in-all-fields"),
        pytest.param({"conditions": [{**STUCK, "reason": "Other"}]}, conditions(9, **STUCK), False, id="its-reason"),
        pytest.param({"conditions": [{**STUCK, "status": "True"}]}, conditions(9, **STUCK), False, id="its-status"),
        pytest.param(
            {"conditions": [{**STUCK, "minTimeSinceLastTransitionSeconds": 60}]},
            conditions(59, **STUCK),
            False,
            id="not-long-enough",
        ),
        pytest.param(
            {"conditions": [{**STUCK, "minTimeSinceLastTransitionSeconds": 60}]},
            conditions(60, **STUCK),
            True,
            id="long-enough",
        ),
        pytest.param(
            {"conditions": [{"type": "Other"}, {"type": STUCK["type"]}]}, conditions(9, **STUCK), True, id="any-of-two"
        ),
        pytest.param(
            {"states": ["Running"], "exitCodes": [1]}, {"containerStatuses": ended(2)}, False, id="every-criterion"
        ),
    ],
)
def test_pod_life_time_by_state(args: dict[str, Any], status: dict[str, Any], want: bool) -> None:
    assert evicted("PodLifeTime", args, pod("p", "n1", status=status)) == (["p"] if want else [])


def test_pod_life_time_by_age() -> None:
    """Older than the limit, the oldest first; the limit itself is not enough."""
    results = (aged("young", 59), aged("just", 60), aged("old", 61), aged("older", 90))
    assert evicted("PodLifeTime", {"maxPodLifeTimeSeconds": 60}, *results) == ["older", "old"]


@pytest.mark.parametrize(
    ("kinds", "want"),
    [
        pytest.param({}, ["j", "r"], id="all"),
        pytest.param({"include": ["Job"]}, ["j"], id="included"),
        pytest.param({"exclude": ["Job"]}, ["r"], id="excluded"),
    ],
)
def test_pod_life_time_by_owner(kinds: dict[str, list[str]], want: list[str]) -> None:
    results = (aged("r", 90), aged("j", 91, owner=JOB))
    assert evicted("PodLifeTime", {"maxPodLifeTimeSeconds": 60, "ownerKinds": kinds}, *results) == want


@pytest.mark.parametrize(
    ("args", "want"),
    [
        pytest.param({}, ["a", "b"], id="of-an-hour"),
        pytest.param({"minPodLifetimeSeconds": 3601}, ["b"], id="older"),
        pytest.param({"reasons": ["OOMKilled"]}, ["b"], id="reason"),
        pytest.param({"exitCodes": [1]}, ["a"], id="exit-code"),
        pytest.param({"excludeOwnerKinds": ["Job"]}, ["a"], id="owner-excluded"),
        pytest.param({"namespaces": {"exclude": ["default"]}}, [], id="other-namespaces"),
    ],
)
def test_failed_pods(args: dict[str, Any], want: list[str]) -> None:
    """One failed an hour ago with exit code 1, one of a Job was killed for its memory earlier; two others stay."""
    results = (
        aged("a", 3600, status={"phase": "Failed", "containerStatuses": ended(1)}),
        aged("b", 3700, owner=JOB, status={"phase": "Failed", "containerStatuses": ended(137, "OOMKilled")}),
        aged("new", 3599, status={"phase": "Failed", "containerStatuses": ended(1)}),
        aged("runs", 9999),
    )
    assert evicted("RemoveFailedPods", args, *results) == want


@pytest.mark.parametrize(
    ("args", "want"),
    [
        pytest.param({"podRestartThreshold": 5}, ["b", "a"], id="most-restarts-first"),
        pytest.param({"podRestartThreshold": 6}, ["b"], id="a-higher-threshold"),
        pytest.param({"podRestartThreshold": 6, "includingInitContainers": True}, ["b", "a"], id="init-containers"),
        pytest.param({"podRestartThreshold": 5, "states": ["CrashLoopBackOff"]}, ["a"], id="state"),
    ],
)
def test_pods_that_restart(args: dict[str, Any], want: list[str]) -> None:
    """a: 2 + 3 restarts and one of an init container; b: 9; c: 4."""

    def restarts(*counts: int) -> list[dict[str, Any]]:
        return [{"name": f"c{number}", "restartCount": count} for number, count in enumerate(counts)]

    init = {"initContainerStatuses": restarts(1)}
    looping = [*restarts(2), {**waiting("CrashLoopBackOff")[0], "restartCount": 3}]
    pods = (
        pod("a", "n1", status={"containerStatuses": looping, **init}),
        pod("b", "n1", status={"containerStatuses": restarts(9)}),
        pod("c", "n2", status={"containerStatuses": restarts(4)}),
    )
    assert evicted("RemovePodsHavingTooManyRestarts", args, *pods) == want


@pytest.mark.parametrize(
    ("args", "taint", "want"),
    [
        pytest.param({}, {"effect": "NoSchedule"}, True, id="no-schedule"),
        pytest.param({}, {"effect": "PreferNoSchedule"}, False, id="prefer"),
        pytest.param({"includePreferNoSchedule": True}, {"effect": "PreferNoSchedule"}, True, id="prefer-included"),
        pytest.param({"excludedTaints": ["k"]}, {"effect": "NoSchedule"}, False, id="key-excluded"),
        pytest.param({"excludedTaints": ["k=v"]}, {"effect": "NoSchedule", "value": "v"}, False, id="value-excluded"),
        pytest.param({"includedTaints": ["other"]}, {"effect": "NoSchedule"}, False, id="not-included"),
        pytest.param({"includedTaints": ["k"]}, {"effect": "NoSchedule"}, True, id="included"),
    ],
)
def test_taints(args: dict[str, Any], taint: dict[str, str], want: bool) -> None:
    """A pod that tolerates the taint stays in any case."""
    nodes = (node("n1", taints=[{"key": "k", **taint}]), node("n2"))
    tolerating = pod("tolerates", "n1", spec={"tolerations": [{"key": "k", "operator": "Exists"}]})
    evictions = evicted("RemovePodsViolatingNodeTaints", args, pod("p", "n1"), tolerating, nodes=nodes)
    assert evictions == (["p"] if want else [])


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
FAST = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}


@pytest.mark.parametrize(
    ("kind", "disks", "want"),
    [
        pytest.param(REQUIRED, ("slow", "fast"), True, id="required-and-another-node-matches"),
        pytest.param(REQUIRED, ("slow", "slow"), False, id="required-and-no-node-matches"),
        pytest.param(REQUIRED, ("fast", "fast"), False, id="its-node-matches"),
        pytest.param(PREFERRED, ("slow", "fast"), True, id="preferred-more-elsewhere"),
        pytest.param(PREFERRED, ("fast", "fast"), False, id="preferred-as-much-elsewhere"),
    ],
)
def test_node_affinity(kind: str, disks: tuple[str, str], want: bool) -> None:
    terms = {REQUIRED: {"nodeSelectorTerms": [FAST]}, PREFERRED: [{"weight": 3, "preference": FAST}]}
    one = pod("p", "n1", spec={"affinity": {"nodeAffinity": {kind: terms[kind]}}})
    nodes = tuple(node(f"n{number}", labels={"disk": disk}) for number, disk in enumerate(disks, 1))
    args = {"nodeAffinityType": [kind]}
    assert evicted("RemovePodsViolatingNodeAffinity", args, one, nodes=nodes) == (["p"] if want else [])


def test_a_pod_stays_where_the_better_node_has_no_room() -> None:
    terms = {REQUIRED: {"nodeSelectorTerms": [FAST]}}
    one = pod("p", "n1", cpu="5", spec={"affinity": {"nodeAffinity": terms}})
    nodes = (node("n1", labels={"disk": "slow"}), node("n2", labels={"disk": "fast"}))
    assert evicted("RemovePodsViolatingNodeAffinity", {"nodeAffinityType": [REQUIRED]}, one, nodes=nodes) == []


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("PodLifeTime", {}, "expected maxPodLifeTimeSeconds, states, conditions or exitCodes, found none"),
        (
            "PodLifeTime",
            {"states": ["Error"], "ownerKinds": {"include": ["a"], "exclude": ["b"]}},
            "expected include or",
        ),
        ("PodLifeTime", {"conditions": [{}]}, r"conditions\[0\]: expected type, status, reason"),
        (
            "PodLifeTime",
            {"conditions": [{"type": "Ready", "minTimeSinceLastTransitionSeconds": -1}]},
            "expected 0 or more, found -1",
        ),
        ("PodLifeTime", {"maxPodLifeTimeSeconds": -1}, "maxPodLifeTimeSeconds: expected 0 or more, found -1"),
        ("PodLifeTime", {"states": ["Running", "Sleeping"]}, "states: expected of .*OOMKilled.* found 'Sleeping'"),
        ("RemovePodsHavingTooManyRestarts", {}, "podRestartThreshold: expected 1 or more, found 0"),
        (
            "RemovePodsHavingTooManyRestarts",
            {"podRestartThreshold": 1, "states": ["Pending"]},
            "states: expected of CrashLoopBackOff, Running, found 'Pending'",
        ),
        ("RemoveFailedPods", {"minPodLifetimeSeconds": -1}, "minPodLifetimeSeconds: expected 0 or more, found -1"),
        (
            "RemovePodsViolatingNodeTaints",
            {"includedTaints": ["a"], "excludedTaints": ["b"]},
            "expected includedTaints or excludedTaints, found both",
        ),
        (
            "RemovePodsViolatingInterPodAntiAffinity",
            {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}},
            'labelSelector: "Gt" is not a valid label selector operator',
        ),
        ("RemovePodsViolatingNodeAffinity", {}, "nodeAffinityType: expected required.* found none"),
    ],
)
def test_bad_arguments_are_refused_in_words(name: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgsError, match=words):
        read_args(PLUGINS[name].args, values)


@pytest.mark.parametrize(
    ("strategy", "args", "module", "function"),
    [
        ("RemoveFailedPods", {"minPodLifetimeSeconds": 0}, "pod_strategies", "age"),
        ("RemovePodsHavingTooManyRestarts", {"podRestartThreshold": 1}, "pod_strategies", "containers"),
        ("RemovePodsViolatingNodeTaints", {}, "pod_strategies", "tolerates"),
        ("RemovePodsViolatingNodeAffinity", {"nodeAffinityType": [REQUIRED]}, "pod_strategies", "matches_node"),
        ("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, "pod_life_time", "age"),
        ("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, "", "may_evict"),
        ("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, "", "evict"),
    ],
)
def test_a_pod_at_which_a_strategy_raises_does_not_keep_the_others(
    strategy: str, args: dict[str, Any], module: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both pods are to be evicted for each of these reasons; for one of them a step raises an exception."""
    place = importlib.import_module(f"{PLUGINS_OF}.{module}") if module else RecordingEvictor
    right, clock, state = getattr(place, function), SimClock(faults=Faults()), ClusterState()

    def failing(*value: Any, **more: Any) -> Any:
        if any(getattr(each, "key", "") in {"default/a", "poison"} for each in value):
            raise TypeError("a fault")
        return right(*value, **more)

    monkeypatch.setattr(place, function, failing)
    taint = {"key": "k", "effect": "NoSchedule"}
    state.set_node(node("n1", taints=[taint]))
    state.set_node(node("n2", labels={"zone": "z"}))
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    statuses = [{"name": "main", "restartCount": 3}]
    phase = "Failed" if strategy == "RemoveFailedPods" else "Running"
    for name, key in (("a", "poison"), ("b", "other")):
        spec = {"affinity": affinity, "tolerations": [{"key": key, "operator": "Exists"}]}
        state.set_pod(pod(name, "n1", spec=spec, status={"phase": phase, "containerStatuses": statuses}))
    handle = handle_of(state, clock)
    kind = PLUGINS[strategy]
    kind(read_args(kind.args, args)).run(handle, [state.nodes["n1"], state.nodes["n2"]])  # type: ignore[call-arg]
    assert isinstance(handle.evictor, RecordingEvictor)
    assert handle.evictor.evicted == ["b"]
    assert sum(clock.faults.counts.values()) == 1
