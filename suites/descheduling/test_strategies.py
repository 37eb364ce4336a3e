"""Strategies beside LowNodeLoad: which pods each evicts, and which it leaves."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.suites.descheduling.rounds import LEVELS, on
from seatrial.suites.descheduling.strategies import DIRECTLY, ONE_ROUND, moved, path_of
from seatrial.suites.descheduling.workloads import (
    ALL_AT_ONCE,
    cordon,
    deployment,
    jobs,
    running,
    spread_victim,
    wait_running,
    with_nodes,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

AVOID = "requiredDuringSchedulingIgnoredDuringExecution"


def label(trial: Trial, path: str, **labels: str) -> None:
    """Set labels of the object at a path."""
    accepted(trial.call("PATCH", path, {"metadata": {"labels": labels}}), f"label {path}")


def restarted(trial: Trial, pod: Pod, *counts: int) -> None:
    """The status of a pod says that its containers were restarted this often."""
    status = orjson.loads(accepted(trial.call("GET", path_of(pod)), "read the pod").body)["status"]
    rows = [{**row, "restartCount": count} for row, count in zip(status["containerStatuses"], counts, strict=True)]
    patch = {"status": {"containerStatuses": rows}}
    accepted(trial.call("PATCH", f"{path_of(pod)}/status", patch), "write the pod's status")


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-103", severity="normal")
@pytest.mark.long(seconds=5)
def test_pods_that_restart_too_often_go(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """RemovePodsHavingTooManyRestarts with a threshold of five: a pod of which one container was restarted five times
    goes, and so does one with three and two; one with two and two stays."""
    with_nodes(trial, "n1", "n2")
    like = pod("x").request(cpu=1)
    like.manifest["spec"]["containers"].append({"name": "second", "image": "i"})
    deployment(trial, "web", 4, like=like)
    once, twice, seldom, *_ = wait_running(trial, "web", 4)
    restarted(trial, once, 5, 0)
    restarted(trial, twice, 3, 2)
    restarted(trial, seldom, 2, 2)

    start_descheduler({"RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 5}}, migration=DIRECTLY, **ONE_ROUND)

    assert moved(trial, 2) == sorted([once.metadata.name, twice.metadata.name])


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case(
    "MG-311",
    severity="normal",
    source="koordinator 1.8 (README of descheduler v0.35): RemovePodsHavingTooManyRestarts; spec RSV-R97",
)
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize(
    ("args", "goes"),
    [
        pytest.param({}, {"crash", "often"}, id="containers"),
        pytest.param({"includingInitContainers": True}, {"crash", "init", "often"}, id="with-init"),
        pytest.param({"states": ["CrashLoopBackOff"]}, {"crash"}, id="state"),
    ],
)
def test_which_restarts_count(
    trial: Trial, start_descheduler: StartDescheduler, args: dict[str, Any], goes: set[str]
) -> None:
    """With a threshold of five: two pods of which a container was restarted six times, of one it is in a crash loop,
    and one pod with two restarts and four of an init container."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    pods = dict(zip(["crash", "init", "often"], wait_running(trial, "web", 4), strict=False))
    for name, each in pods.items():
        restarted(trial, each, 2 if name == "init" else 6)
    rows = orjson.loads(trial.call("GET", path_of(pods["crash"])).body)["status"]["containerStatuses"]
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    more = {
        "init": {"initContainerStatuses": [{**row, "restartCount": 4} for row in rows]},
        "crash": {"containerStatuses": [{**row, "state": waiting} for row in rows]},
    }
    for name, fields in more.items():
        accepted(trial.call("PATCH", f"{path_of(pods[name])}/status", {"status": fields}), "write the pod's status")
    trial.settle()

    restarts = {"RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 5, **args}}
    start_descheduler(restarts, migration=DIRECTLY, **ONE_ROUND)

    assert moved(trial, len(goes)) == sorted(pods[name].metadata.name for name in goes)


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case(
    "MG-312",
    severity="normal",
    source="koordinator 1.8 (descheduler v0.35): pkg/framework/plugins: podlifetime, removepods…toomanyrestarts",
)
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["a-first", "b-first"])
@pytest.mark.parametrize("strategy", ["PodLifeTime", "RemovePodsHavingTooManyRestarts"])
def test_the_pod_that_goes_first(
    trial: Trial, start_descheduler: StartDescheduler, strategy: str, names: tuple[str, str]
) -> None:
    """A round may evict one pod: of two old ones the older goes, of two with many restarts the one with more."""
    with_nodes(trial, "n1", "n2")
    for name, count in zip(names, (9, 5), strict=True):
        deployment(trial, name, 1, like=pod("x").request(cpu=1))
        restarted(trial, wait_running(trial, name, 1)[0], count)
        trial.pass_time(2)
    first = running(trial, names[0])[0].metadata.name
    args = {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}, "RemovePodsHavingTooManyRestarts": {"podRestartThreshold": 5}}

    one = {"maxNoOfPodsToEvictTotal": 1}
    start_descheduler({strategy: args[strategy]}, migration=DIRECTLY, **one, **ONE_ROUND)

    assert moved(trial, 1) == [first]


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-104", severity="normal")
@pytest.mark.long(seconds=7)
def test_failed_pods_are_removed(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """RemoveFailedPods for the reason Evicted: of two pods that failed, the one with that reason is removed."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    pods = wait_running(trial, "web", 4)[:2]
    for each, reason in zip(pods, ("Evicted", "NodeShutdown"), strict=True):
        patch = {"status": {"phase": "Failed", "reason": reason}}
        accepted(trial.call("PATCH", f"{path_of(each)}/status", patch), "write the pod's status")
    trial.pass_time(2)

    args = {"minPodLifetimeSeconds": 1, "reasons": ["Evicted"]}
    start_descheduler({"RemoveFailedPods": args}, migration=DIRECTLY, **ONE_ROUND)

    first, second = (each.metadata.name for each in pods)
    assert moved(trial, 1) == [first]
    assert trial.reaches(lambda: trial.find(first) is None, within=30)
    assert trial.find(second) is not None


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-105", severity="normal")
@pytest.mark.long(seconds=4)
def test_pods_leave_a_node_that_their_affinity_no_longer_allows(
    trial: Trial, start_descheduler: StartDescheduler
) -> None:
    """RemovePodsViolatingNodeAffinity: the label that the pods of one workload need moves from n1 to n2, and so do the
    pods. Pods of another workload stay."""
    trial.add(*(node(name).cpu(16).memory("64Gi").label("tier", tier) for name, tier in (("n1", "a"), ("n2", "b"))))
    like = pod("x").request(cpu=1)
    like.manifest["spec"]["affinity"] = {
        "nodeAffinity": {
            AVOID: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]}]}
        }
    }
    deployment(trial, "tied", 3, like=like)
    wait_running(trial, "tied", 3)
    cordon(trial, "n2")
    deployment(trial, "free", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "free", 3)
    cordon(trial, "n2", on=False)
    label(trial, "/api/v1/nodes/n1", tier="b")
    label(trial, "/api/v1/nodes/n2", tier="a")

    start_descheduler({"RemovePodsViolatingNodeAffinity": {"nodeAffinityType": [AVOID]}}, migration=ALL_AT_ONCE)

    assert trial.reaches(lambda: len(on(trial, "tied", "n2")) == 3, within=90), trial.timeline()
    assert len(on(trial, "free", "n1")) == 3


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-106", severity="normal")
@pytest.mark.parametrize("selected", [False, True], ids=["own-namespace", "selected-namespaces"])
@pytest.mark.parametrize("args", [{}, {"labelSelector": {"matchLabels": {"app": "shy"}}}], ids=["all", "some"])
def test_a_pod_leaves_the_neighbour_that_it_avoids(
    trial: Trial, start_descheduler: StartDescheduler, args: dict[str, Any], *, selected: bool
) -> None:
    """RemovePodsViolatingInterPodAntiAffinity: a pod on the node gets the label that another one avoids. The one that
    avoids it goes to the other node, and pods that avoid nothing stay. Of pods that a labelSelector leaves out none
    goes, nor is one in the way."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    shy = pod("x").request(cpu=1)
    term: dict[str, Any] = {"topologyKey": "kubernetes.io/hostname"}
    term["labelSelector"] = {"matchLabels": {"colour": "red"}}
    if selected:
        term["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": trial.name}}
    shy.manifest["spec"]["affinity"] = {"podAntiAffinity": {AVOID: [term]}}
    deployment(trial, "shy", 2, like=shy)
    deployment(trial, "web", 2, like=pod("x").request(cpu=1))
    wait_running(trial, "shy", 2)
    red = wait_running(trial, "web", 2)[0]
    cordon(trial, "n2", on=False)
    label(trial, path_of(red), colour="red")

    start_descheduler({"RemovePodsViolatingInterPodAntiAffinity": args}, migration=ALL_AT_ONCE)

    if args:
        trial.pass_time(15)
        assert jobs(trial) == []
        return
    assert trial.reaches(lambda: len(on(trial, "shy", "n2")) == 2, within=90), trial.timeline()
    assert len(on(trial, "web", "n1")) == 2


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-107", severity="normal")
@pytest.mark.long(seconds=4)
def test_a_node_with_few_requests_is_emptied(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """HighNodeUtilization with 30 %: 2 of 16 cores of n1 are requested, and 8 of n2. The pods of n1 go, for which n2
    has room; those of n2 stay."""
    with_nodes(trial, "n1", "n2")
    for name, other, count in (("n1", "n2", 2), ("n2", "n1", 8)):
        cordon(trial, other)
        deployment(trial, f"of-{name}", count, like=pod("x").request(cpu=1))
        wait_running(trial, f"of-{name}", count)
        cordon(trial, other, on=False)
    few = sorted(pod.metadata.name for pod in running(trial, "of-n1"))

    start_descheduler({"HighNodeUtilization": {"thresholds": {"cpu": 30}}}, migration=ALL_AT_ONCE, **ONE_ROUND)

    assert moved(trial, 2) == few


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case(
    "MG-313",
    severity="normal",
    source="koordinator 1.8 (README of descheduler v0.35): HighNodeUtilization; spec RSV-R97",
)
@pytest.mark.long(seconds=7)
@pytest.mark.parametrize(
    ("args", "most", "goes"),
    [
        pytest.param({}, 9, {"cpu", "memory", "three"}, id="all"),
        pytest.param({"evictionModes": ["OnlyThresholdingResources"]}, 9, {"cpu", "three"}, id="only-with-cpu"),
        pytest.param({"evictionModes": ["OnlyThresholdingResources"]}, 1, {"cpu"}, id="the-emptiest-first"),
        pytest.param({"numberOfNodes": 2}, 9, set(), id="few-nodes"),
        pytest.param({"evictableNamespaces": {"exclude": ["{own}"]}}, 9, set(), id="namespace-excluded"),
    ],
)
def test_which_pods_leave_nodes_with_few_requests(
    trial: Trial, start_descheduler: StartDescheduler, args: dict[str, Any], most: int, goes: set[str]
) -> None:
    """n1 has a pod that requests a core and one that requests memory, n2 a pod of three cores and n3 one of eight: of
    n1 and n2 less than 30 % of the CPUs are requested."""
    with_nodes(trial, "n1", "n2", "n3")
    pods = {
        "cpu": pod("x").request(cpu=1).node_name("n1"),
        "memory": pod("x").request(memory="1Gi").node_name("n1"),
        "three": pod("x").request(cpu=3).node_name("n2"),
        "eight": pod("x").request(cpu=8).node_name("n3"),
    }
    for app, like in pods.items():
        deployment(trial, app, 1, like=like)
    names = {wait_running(trial, app, 1)[0].metadata.name: app for app in pods}
    if "evictableNamespaces" in args:
        args = {"evictableNamespaces": {"exclude": [trial.name]}}

    start_descheduler(
        {"HighNodeUtilization": {"thresholds": {"cpu": 30}, **args}},
        migration=DIRECTLY,
        maxNoOfPodsToEvictTotal=most,
        **ONE_ROUND,
    )

    assert {names[name] for name in moved(trial, len(goes))} == goes


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("MG-315", severity="normal", source="koordinator 1.8: custom_priority.go; spec RSV-R94")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize("count", [4, 5])
def test_a_node_whose_pods_fit_nowhere_is_given_up(
    trial: Trial, start_descheduler: StartDescheduler, count: int
) -> None:
    """CustomPriority: some small pods of the dear node may run there alone, and a larger one may move. It does after
    four that may not, and does not after five."""
    trial.add(*(node(name).cpu(16).memory("64Gi").label("zone", zone) for name, zone in (("n1", "a"), ("n2", "b"))))
    deployment(trial, "tied", count, like=pod("x").request(cpu=1).select({"zone": "a"}))
    wait_running(trial, "tied", count)
    free = spread_victim(trial, "web", 1, cpu=2)

    start_descheduler({"CustomPriority": {"evictionOrder": LEVELS}}, migration=DIRECTLY, **ONE_ROUND)

    assert moved(trial, count == 4) == ([free] if count == 4 else [])


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-108", severity="normal", source="koordinator 1.8: custom_priority.go; spec RSV-R94")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("fits", [True, False], ids=["all-fit", "one-does-not-fit"])
def test_a_node_is_drained_whole_or_not_at_all(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler, *, fits: bool
) -> None:
    """CustomPriority with mode DrainNode: where the cheap node takes all three pods, the dear one is cordoned and loses
    them; where it takes two of them, nothing happens."""
    trial.add(
        node("n1").cpu(16).memory("64Gi").label("zone", "a"),
        node("n2").cpu(16 if fits else 5).memory("64Gi").label("zone", "b"),
    )
    spread_victim(trial, "web", 3, cpu=2)
    drain = {"evictionOrder": LEVELS, "mode": "DrainNode", "autoCordon": True}

    start_descheduler({"CustomPriority": drain}, migration=ALL_AT_ONCE)

    if fits:
        assert trial.reaches(lambda: len(on(trial, "web", "n2")) == 3, within=90), trial.timeline()
    else:
        expect.stable(seconds=15)
        assert jobs(trial) == []
    assert bool(trial.node("n1")["spec"].get("unschedulable")) == fits


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-300", severity="normal", source="koordinator 1.8: custom_priority.go; spec RSV-R94")
@pytest.mark.long(seconds=5)
def test_a_node_whose_drain_is_refused_is_open_again(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """CustomPriority with mode DrainNode where no eviction is allowed: the pods of the dear node stay, and it does not
    stay cordoned. That it was for a moment starts no other round."""
    trial.add(*(node(name).cpu(16).memory("64Gi").label("zone", zone) for name, zone in (("n1", "a"), ("n2", "b"))))
    spread_victim(trial, "web", 3, cpu=2)
    drain = {"evictionOrder": LEVELS, "mode": "DrainNode", "autoCordon": True}

    start_descheduler({"CustomPriority": drain}, migration=ALL_AT_ONCE, maxNoOfPodsToEvictTotal=0, **ONE_ROUND)

    trial.pass_time(4)
    assert trial.reaches(lambda: not trial.node("n1")["spec"].get("unschedulable"), within=15), "n1 is still cordoned"
    assert jobs(trial) == []
    opened = trial.node("n1")["metadata"]["resourceVersion"]
    trial.pass_time(6)
    assert trial.node("n1")["metadata"]["resourceVersion"] == opened, "expected no other try within the hour"


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-152", severity="normal", source="koordinator 1.8: custom_priority.go; spec RSV-R94")
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize(("cpu", "count"), [(1, 0), (5, 2), (16, 3)], ids=["no-room", "room-for-two", "room"])
def test_a_node_of_two_levels_is_of_the_first(
    trial: Trial, start_descheduler: StartDescheduler, cpu: int, count: int
) -> None:
    """The second level of CustomPriority selects all nodes, the first one the node with the pods: only as many go as
    the other node takes."""
    trial.add(
        node("n1").cpu(16).memory("64Gi").label("zone", "a"), node("n2").cpu(cpu).memory("64Gi").label("zone", "b")
    )
    spread_victim(trial, "web", 3, cpu=2)
    everywhere = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    levels = [
        {"name": "dear", "nodeSelector": {"matchLabels": {"zone": "a"}}},
        {"name": "cheap", "nodeSelector": everywhere},
    ]

    start_descheduler({"CustomPriority": {"evictionOrder": levels}}, migration=ALL_AT_ONCE, **ONE_ROUND)

    trial.reaches(lambda: len(jobs(trial)) >= count, within=10)
    trial.pass_time(5)
    assert len(jobs(trial)) == count


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-109", severity="critical")
@pytest.mark.long(seconds=16)
@pytest.mark.parametrize("second", ["absent", "not-ready"])
def test_the_last_ready_node_keeps_its_pods(trial: Trial, start_descheduler: StartDescheduler, second: str) -> None:
    """Old pods on the only node, or the only one that is ready: none is evicted. With a further node they are."""
    with_nodes(trial, "n1")
    if second == "not-ready":
        with_nodes(trial, "n0")
        trial.inject({"node": "n0", "verb": "not_ready"})
        trial.pass_time(3)
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 3)
    trial.pass_time(2)
    start_descheduler({"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, migration=ALL_AT_ONCE, deschedulingInterval="3s")

    assert not trial.wait(lambda: bool(jobs(trial)), within=12), jobs(trial)

    with_nodes(trial, "n2")
    assert trial.reaches(lambda: len(jobs(trial)) >= 3, within=30)


@pytest.mark.feature("DES-1.periodic")
@pytest.mark.case("DC-110", severity="normal")
@pytest.mark.long(seconds=5)
def test_strategies_for_single_pods_come_before_those_for_balance(
    trial: Trial, start_descheduler: StartDescheduler
) -> None:
    """A round may evict one pod. RemoveDuplicates, which the profile names first, would take one of `web`, and
    RemovePodsViolatingNodeTaints the pod of `tainted`: that one goes."""
    with_nodes(trial, "n1", "n2", "n3")
    cordon(trial, "n1")
    cordon(trial, "n3")
    deployment(trial, "tainted", 1, like=pod("x").request(cpu=1))
    wait_running(trial, "tainted", 1)
    cordon(trial, "n2")
    cordon(trial, "n1", on=False)
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 4)
    for name in ("n2", "n3"):
        cordon(trial, name, on=False)
    taint = {"key": "maintenance", "value": "soon", "effect": "NoSchedule"}
    assert trial.call("PATCH", "/api/v1/nodes/n2", {"spec": {"taints": [taint]}}).ok

    start_descheduler(
        {"RemoveDuplicates": {}, "RemovePodsViolatingNodeTaints": {}},
        migration=ALL_AT_ONCE,
        maxNoOfPodsToEvictTotal=1,
        **ONE_ROUND,
    )

    assert [name.partition("-")[0] for name in moved(trial, 1)] == ["tainted"]


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-128", severity="critical", source="spec RSV-R80")
@pytest.mark.long(seconds=6)
def test_a_pod_that_two_strategies_choose_gets_one_job(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """In one round the pods of a workload are too old, and their node has a taint that they do not tolerate: each of
    them gets one migration job."""
    with_nodes(trial, "n1", "n2")
    spread_victim(trial, "web", 3)
    taint = {"key": "maintenance", "effect": "NoSchedule"}
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": [taint]}}).ok
    trial.pass_time(3)

    strategies = {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}, "RemovePodsViolatingNodeTaints": {}}
    start_descheduler(strategies, migration=ALL_AT_ONCE, **ONE_ROUND)

    names = moved(trial, 3)
    assert len(names) == len(set(names)) == 3, names


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-129", severity="normal", source="ours: pods that a round sends to a node take room there")
@pytest.mark.long(seconds=6)
def test_a_round_sends_no_more_to_a_node_than_it_takes(
    trial: Trial, expect: Expect, start_descheduler: StartDescheduler
) -> None:
    """HighNodeUtilization with 40 %: n1 has three pods of two cores, of which n2 and n3 have room for one each: two are
    evicted, although three cores are free on each."""
    with_nodes(trial, "n1", "n2", "n3")
    for name in ("n2", "n3"):
        trial.submit(pod(f"filler-{name}").request(cpu=13).node_name(name))
        cordon(trial, name)
    expect.running("filler-n2", "filler-n3")
    deployment(trial, "web", 3, like=pod("x").request(cpu=2))
    wait_running(trial, "web", 3)
    for name in ("n2", "n3"):
        cordon(trial, name, on=False)

    start_descheduler({"HighNodeUtilization": {"thresholds": {"cpu": 40}}}, migration=ALL_AT_ONCE, **ONE_ROUND)

    assert len(moved(trial, 2)) == 2


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case(
    "DC-132",
    severity="normal",
    source="koordinator 1.8 (README of descheduler v0.35): taints by key, or by key=value; spec RSV-R97",
)
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize(
    ("args", "goes"),
    [
        pytest.param({"excludedTaints": ["maintenance"]}, False, id="key-excluded"),
        pytest.param({"excludedTaints": ["maintenance=soon"]}, False, id="value-excluded"),
        pytest.param({"excludedTaints": ["maintenance=later"]}, True, id="other-value-excluded"),
        pytest.param({"includedTaints": ["maintenance=soon"]}, True, id="value-included"),
        pytest.param({"includedTaints": ["maintenance=later"]}, False, id="other-value-included"),
        pytest.param({"includePreferNoSchedule": False}, False, id="preference"),
        pytest.param({"includePreferNoSchedule": True}, True, id="preference-included"),
    ],
)
def test_taints_are_excluded_by_key_or_value(
    trial: Trial, start_descheduler: StartDescheduler, args: dict[str, Any], *, goes: bool
) -> None:
    """RemovePodsViolatingNodeTaints on a node with the taint maintenance=soon, which may be a preference."""
    with_nodes(trial, "n1", "n2")
    spread_victim(trial, "web", 3)
    effect = "PreferNoSchedule" if "includePreferNoSchedule" in args else "NoSchedule"
    taint = {"key": "maintenance", "value": "soon", "effect": effect}
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": [taint]}}).ok
    trial.settle()

    start_descheduler({"RemovePodsViolatingNodeTaints": args}, migration=ALL_AT_ONCE, **ONE_ROUND)

    assert len(moved(trial, 3 * goes)) == 3 * goes
