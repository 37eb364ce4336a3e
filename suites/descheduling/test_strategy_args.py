"""Arguments of strategies and of DefaultEvictor that decide about a pod: whether it goes, or stays."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, priority_class
from seatrial.scheduler.api.core import Pod
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

OLD = {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}  # every pod is old soon
ZONE = "topology.kubernetes.io/zone"
EPHEMERAL = {"includingEphemeralContainers": True}
ANYWAY = {"constraints": ["ScheduleAnyway"]}


def status(trial: Trial, pod: Pod, **fields: Any) -> None:
    """Write fields of a pod's status."""
    accepted(trial.call("PATCH", f"{path_of(pod)}/status", {"status": fields}), "write the pod's status")


def gone(trial: Trial, names: set[str]) -> set[str]:
    """Those of the pods that are there no more, or are being deleted."""
    return names - {pod.metadata.name for pod in trial.pods() if not pod.deleting}


@pytest.mark.feature("DES-1.evictor")
@pytest.mark.case(
    "DC-141",
    severity="normal",
    source="koordinator 1.8 (README of descheduler v0.35): DefaultEvictor: namespaceLabelSelector",
)
@pytest.mark.long(seconds=25)
def test_the_labels_of_a_namespace_decide(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """DefaultEvictor with a namespaceLabelSelector: pods stay that have the labels themselves, and go in the next round
    when the labels of their namespace are changed to these."""
    with_nodes(trial, "n1", "n2")
    namespace = f"/api/v1/namespaces/{trial.name}"
    accepted(trial.call("PATCH", namespace, {"metadata": {"labels": {"team": "b"}}}), "label the namespace")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1).label("team", "a"))
    names = {pod.metadata.name for pod in wait_running(trial, "web", 3)}
    trial.pass_time(3)
    selector = {"namespaceLabelSelector": {"matchLabels": {"team": "a"}}}

    start_descheduler(OLD, evictor="DefaultEvictor", evictor_args=selector, deschedulingInterval="3s")

    trial.pass_time(8)
    assert gone(trial, names) == set()
    accepted(trial.call("PATCH", namespace, {"metadata": {"labels": {"team": "a"}}}), "label the namespace")
    assert trial.reaches(lambda: gone(trial, names) == names, within=15), trial.timeline()


@pytest.mark.feature("DES-1.evictor")
@pytest.mark.case(
    "DC-142", severity="normal", source="koordinator 1.8 (descheduler v0.35): pkg/framework/plugins/defaultevictor"
)
@pytest.mark.long(seconds=10)
@pytest.mark.parametrize(
    ("args", "pods", "stays"),
    [
        pytest.param({}, 110, set(), id="none"),
        pytest.param({"minPodAge": "2s"}, 110, {"pending"}, id="age-unknown"),
        pytest.param({"minPodAge": "1h"}, 110, {"pending", "web"}, id="young"),
        pytest.param({"nodeFit": True}, 110, set(), id="another-node-has-room"),
        pytest.param({"nodeFit": True}, 0, {"pending", "web"}, id="the-other-node-takes-no-pods"),
        pytest.param(
            {"nodeFit": True, "nodeSelector": "pool=a"}, 110, {"pending", "web"}, id="other-nodes-not-selected"
        ),
    ],
)
def test_default_evictor_spares_pods(
    trial: Trial, start_descheduler: StartDescheduler, args: dict[str, Any], pods: int, stays: set[str]
) -> None:
    """Two old pods on n1, of which `pending` has not started; n2 has CPUs and memory for the pods, but lacks the
    label pool=a."""
    trial.add(node("n1").cpu(16).memory("64Gi").label("pool", "a"), node("n2").cpu(16).memory("64Gi").pods(pods))
    cordon(trial, "n2")
    names = {}
    for app in ("web", "pending"):
        deployment(trial, app, 1, like=pod("x").request(cpu=1))
        names[wait_running(trial, app, 1)[0].metadata.name] = app
    status(trial, running(trial, "pending")[0], phase="Pending", startTime=None)
    cordon(trial, "n2", on=False)
    trial.pass_time(3)

    start_descheduler(OLD, evictor="DefaultEvictor", evictor_args=args, **ONE_ROUND)

    trial.pass_time(4)
    assert {names[name] for name in names.keys() - gone(trial, set(names))} == stays


@pytest.mark.feature("DES-1.evictor")
@pytest.mark.case(
    "DC-151",
    severity="normal",
    source="koordinator 1.8 (descheduler v0.35): pkg/framework/plugins/defaultevictor: podProtections",
)
@pytest.mark.long(seconds=10)
@pytest.mark.parametrize(
    ("args", "stays"),
    [
        pytest.param({}, {"local"}, id="none"),
        pytest.param({"podProtections": {"extraEnabled": ["PodsWithPVC"]}}, {"local", "claims"}, id="one-more"),
        pytest.param({"podProtections": {"defaultDisabled": ["PodsWithLocalStorage"]}}, set(), id="one-less"),
        pytest.param(
            {"podProtections": {"extraEnabled": ["PodsWithPVC"], "defaultDisabled": ["PodsWithLocalStorage"]}},
            {"claims"},
            id="another-one",
        ),
        pytest.param({"evictLocalStoragePods": True, "ignorePvcPods": True}, {"claims"}, id="older-fields"),
    ],
)
def test_kinds_of_pods_that_default_evictor_protects(
    trial: Trial, start_descheduler: StartDescheduler, args: dict[str, Any], stays: set[str]
) -> None:
    """Old pods, of which one has local storage and one a volume of a claim."""
    with_nodes(trial, "n1", "n2")
    claim = {"claimName": "data"}
    volumes: dict[str, Any] = {"local": {"emptyDir": {}}, "claims": {"persistentVolumeClaim": claim}, "plain": {}}
    names = {}
    for app, volume in volumes.items():
        like = pod("x").request(cpu=1).node_name("n1")
        like.manifest["spec"]["volumes"] = [{"name": "data", **volume}] if volume else []
        deployment(trial, app, 1, like=like)
        names[wait_running(trial, app, 1)[0].metadata.name] = app
    trial.pass_time(3)

    start_descheduler(OLD, evictor="DefaultEvictor", evictor_args=args, **ONE_ROUND)

    trial.pass_time(4)
    assert {names[name] for name in names.keys() - gone(trial, set(names))} == stays


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case(
    "DC-143", severity="normal", source="koordinator 1.8 (descheduler v0.35): pkg/utils/priority.go; spec RSV-R75"
)
@pytest.mark.long(seconds=25)
def test_a_threshold_by_a_class_that_is_not_there(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """priorityThreshold names a class, which is deleted: no pod goes. With the class again, pods below it do."""
    with_nodes(trial, "n1", "n2")
    name = f"{trial.name[-6:]}-limit"
    trial.apply(priority_class(name, 1000))
    migration = {**ALL_AT_ONCE, "priorityThreshold": {"name": name}}
    start_descheduler(OLD, migration=migration, deschedulingInterval="3s")
    accepted(trial.call("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}"), "delete the class")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 3)
    trial.pass_time(8)
    assert jobs(trial) == []
    trial.apply(priority_class(name, 1000))
    assert len(moved(trial, 3)) >= 3


def init_failed(trial: Trial, pod: Pod) -> None:
    """An init container of the pod has ended with 3, another container with 1."""
    rows = orjson.loads(accepted(trial.call("GET", path_of(pod)), "read the pod").body)["status"]["containerStatuses"]
    codes = {"containerStatuses": 1, "initContainerStatuses": 3}
    ended = {
        field: [{**row, "state": {"terminated": {"exitCode": code, "reason": "Error"}}} for row in rows]
        for field, code in codes.items()
    }
    status(trial, pod, phase="Failed", **ended)


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-144", severity="normal", source="koordinator 1.8 (descheduler v0.35); spec RSV-R97")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize(
    ("strategy", "goes"),
    [
        pytest.param({"RemoveFailedPods": {"exitCodes": [1]}}, ["failed"], id="exit-code"),
        pytest.param({"RemoveFailedPods": {"exitCodes": [3]}}, [], id="exit-code-of-init"),
        pytest.param(
            {"RemoveFailedPods": {"exitCodes": [3], "includingInitContainers": True}}, ["failed"], id="with-init"
        ),
        pytest.param({"RemoveFailedPods": {"excludeOwnerKinds": ["ReplicaSet"]}}, [], id="owner-excluded"),
        pytest.param({"RemoveFailedPods": {"minPodLifetimeSeconds": None}}, [], id="an-hour-by-default"),
        pytest.param({"PodLifeTime": {"exitCodes": [1]}}, ["failed"], id="exit-code-of-a-container"),
        pytest.param({"PodLifeTime": {"exitCodes": [3]}}, [], id="exit-code-of-an-init-container"),
        pytest.param({"PodLifeTime": {"states": ["Shutdown"]}}, ["shut"], id="reason-of-pod"),
        pytest.param({"PodLifeTime": {"states": ["Error"]}}, ["failed"], id="reason-of-container"),
        pytest.param({"PodLifeTime": {"states": ["StartError"]}}, [], id="reason-of-an-ephemeral-container"),
        pytest.param({"PodLifeTime": {"states": ["StartError"], **EPHEMERAL}}, ["shut"], id="with-ephemeral"),
        pytest.param({"PodLifeTime": {"exitCodes": [7], **EPHEMERAL}}, [], id="exit-code-of-an-ephemeral-container"),
        pytest.param(
            {"PodLifeTime": {"states": ["Running"], "ownerKinds": {"exclude": ["ReplicaSet"]}}},
            ["bare"],
            id="owner-kind-excluded",
        ),
        pytest.param(
            {"PodLifeTime": {"states": ["Running"], "ownerKinds": {"include": ["ReplicaSet"]}}},
            ["web"],
            id="owner-kind-included",
        ),
    ],
)
def test_states_and_owners_of_pods(
    trial: Trial, start_descheduler: StartDescheduler, strategy: dict[str, dict[str, Any]], goes: list[str]
) -> None:
    """Of five pods one has failed with exit codes, one with the reason Shutdown, one runs without an owner."""
    with_nodes(trial, "n1", "n2")
    for app in ("failed", "shut", "web"):
        deployment(trial, app, 1, like=pod("x").request(cpu=1))
    trial.submit(pod("bare").request(cpu=1))
    pods = {app: wait_running(trial, app, 1)[0] for app in ("failed", "shut", "web")}
    assert trial.reaches(lambda: trial.pod("bare").status.phase == "Running", within=30)
    names = {app: {each.metadata.name} for app, each in pods.items()} | {"bare": {"bare"}}
    init_failed(trial, pods["failed"])
    ended = {"name": "debug", "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
    ended["state"] = {"terminated": {"exitCode": 7, "reason": "StartError"}}
    status(trial, pods["shut"], phase="Failed", reason="Shutdown", ephemeralContainerStatuses=[ended])
    for app in ("failed", "shut"):  # the pods that come in their place are not those of the case
        names[app] = {pods[app].metadata.name}
    trial.pass_time(2)
    args = {
        name: {**({"minPodLifetimeSeconds": 1} if name == "RemoveFailedPods" else {}), **own}
        for name, own in strategy.items()
    }
    args = {name: {key: value for key, value in own.items() if value is not None} for name, own in args.items()}

    start_descheduler(args, migration={**DIRECTLY, "evictAllBarePods": True}, **ONE_ROUND)

    listed = moved(trial, len(goes))
    assert [app for app, own in names.items() if own & set(listed)] == goes


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-145", severity="normal", source="spec RSV-R97: RemovePodsViolatingNodeAffinity")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize(("third", "count"), [(2, 2), (1, 0)], ids=["more", "as-much"])
def test_weights_of_preferred_terms_add_up(
    trial: Trial, start_descheduler: StartDescheduler, third: int, count: int
) -> None:
    """Pods prefer zone a by 3, and a node's pool and tier by 2 and by the third weight. They are in zone a, the other
    node has pool and tier: together these weigh more than 3, or as much."""
    labels = {"n1": {ZONE: "a"}, "n2": {"pool": "b", "tier": "c"}}
    for name, own in labels.items():
        built = node(name).cpu(16).memory("64Gi")
        for key, value in own.items():
            built.label(key, value)
        trial.add(built)
    like = pod("x").request(cpu=1)
    preferred = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}}
        for weight, key, value in ((3, ZONE, "a"), (2, "pool", "b"), (third, "tier", "c"))
    ]
    kind = "preferredDuringSchedulingIgnoredDuringExecution"
    like.manifest["spec"]["affinity"] = {"nodeAffinity": {kind: preferred}}
    cordon(trial, "n2")
    deployment(trial, "web", 2, like=like)
    wait_running(trial, "web", 2)
    cordon(trial, "n2", on=False)

    start_descheduler(
        {"RemovePodsViolatingNodeAffinity": {"nodeAffinityType": [kind]}}, migration=DIRECTLY, **ONE_ROUND
    )

    assert len(moved(trial, count)) == count


def spread(selector: dict[str, str], **fields: Any) -> PodBuilder:
    """A pod with a constraint that spreads the selected pods over zones."""
    built = pod("x").request(cpu=1)
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", **fields}
    built.manifest["spec"]["topologySpreadConstraints"] = [{**constraint, "labelSelector": {"matchLabels": selector}}]
    return built


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case(
    "DC-146",
    severity="normal",
    source="koordinator 1.8 (README of descheduler v0.35): RemovePodsViolatingTopologySpreadConstraint; spec RSV-R97",
)
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize(("fields", "count"), [({"nodeTaintsPolicy": "Honor"}, 0), ({}, 1)], ids=["honor", "ignore"])
def test_a_tainted_domain_counts_or_not(
    trial: Trial, start_descheduler: StartDescheduler, fields: dict[str, Any], count: int
) -> None:
    """Two pods are in zone a and two in b; zone c has a node with a taint that they do not tolerate."""
    for name in ("a", "b", "c"):
        trial.add(node(f"n{name}").cpu(16).memory("64Gi").label(ZONE, name))
    cordon(trial, "nc")
    deployment(trial, "web", 4, like=spread({"app": "web"}, **fields))
    wait_running(trial, "web", 4)
    taint = {"spec": {"unschedulable": None, "taints": [{"key": "team", "effect": "NoSchedule"}]}}
    accepted(trial.call("PATCH", "/api/v1/nodes/nc", taint), "taint nc")
    trial.settle()

    start_descheduler(
        {"RemovePodsViolatingTopologySpreadConstraint": {**ANYWAY, "topologyBalanceNodeFit": False}},
        migration=DIRECTLY,
        **ONE_ROUND,
    )

    assert len(moved(trial, count)) >= count
    assert bool(jobs(trial)) == bool(count)


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-147", severity="normal", source="koordinator 1.8 (descheduler v0.35): matchLabelKeys, KEP-3243")
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize(("fields", "count"), [({"matchLabelKeys": ["rev"]}, 2), ({}, 0)], ids=["by-rev", "together"])
def test_versions_are_spread_by_themselves(
    trial: Trial, start_descheduler: StartDescheduler, fields: dict[str, Any], count: int
) -> None:
    """Two pods of one version are in zone a and two of another in zone b. Each version by itself is in one zone."""
    for name in ("a", "b"):
        trial.add(node(f"n{name}").cpu(16).memory("64Gi").label(ZONE, name))
    for rev, other in (("a", "nb"), ("b", "na")):
        cordon(trial, other)
        like = spread({"team": "x"}, **fields).label("team", "x").label("rev", rev)
        deployment(trial, rev, 2, like=like)
        wait_running(trial, rev, 2)
        cordon(trial, other, on=False)
    trial.settle()

    start_descheduler({"RemovePodsViolatingTopologySpreadConstraint": ANYWAY}, migration=DIRECTLY, **ONE_ROUND)

    assert len(moved(trial, count)) == count


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-311", severity="normal", source="spec RSV-R97; descheduler: topologyspreadconstraint.go@v0.28.0")
@pytest.mark.long(seconds=10)
@pytest.mark.parametrize(
    ("args", "leaving", "count"),
    [
        pytest.param({}, 0, 1, id="selected"),
        pytest.param({}, 1, 0, id="one-leaves"),
        pytest.param({"labelSelector": {"matchLabels": {"app": "other"}}}, 0, 0, id="other-labels"),
        pytest.param({"labelSelector": {"matchLabels": {"place": "a"}}}, 0, 2, id="labels-of-some"),
        pytest.param({"namespaces": "own"}, 0, 0, id="other-namespaces"),
    ],
)
def test_which_pods_make_a_skew(
    trial: Trial, start_descheduler: StartDescheduler, args: dict[str, Any], leaving: int, count: int
) -> None:
    """Four pods are in zone a and two in b: one leaves, unless one in a is being deleted, whose place is taken in b
    already, or the strategy is not about these pods. Where it is about those in a alone, two leave."""
    for name in ("a", "b"):
        trial.add(node(f"n{name}").cpu(16).memory("64Gi").label(ZONE, name))
    for place, other, replicas in (("a", "nb", 4), ("b", "na", 2 - leaving)):
        cordon(trial, other)
        deployment(trial, place, replicas, like=spread({"team": "x"}).label("team", "x").label("place", place))
        wait_running(trial, place, replicas)
        cordon(trial, other, on=False)
    if leaving:
        cordon(trial, "na")
        victim = trial.path("Pod", running(trial, "a")[0].metadata.name)
        accepted(trial.call("PATCH", victim, {"metadata": {"finalizers": ["example.com/stays"]}}), "keep the pod")
        accepted(trial.call("DELETE", victim), "delete the pod")
        wait_running(trial, "a", 4)
        cordon(trial, "na", on=False)
    trial.settle()
    own = {"namespaces": {"exclude": [trial.name]}} if "namespaces" in args else args

    start_descheduler(
        {"RemovePodsViolatingTopologySpreadConstraint": {**ANYWAY, **own}}, migration=DIRECTLY, **ONE_ROUND
    )

    assert len(moved(trial, count)) == count
    if leaving:
        accepted(trial.call("PATCH", victim, {"metadata": {"finalizers": None}}), "let the pod go")


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-148", severity="normal", source="spec RSV-R97: RemoveDuplicates, upper = ceil(total / nodes)")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize("excluded", [[], ["ReplicaSet"], ["Job"]], ids=["none", "owners", "other-owners"])
def test_the_mean_of_duplicates_is_rounded_up(
    trial: Trial, start_descheduler: StartDescheduler, excluded: list[str]
) -> None:
    """Three pods of a Deployment on one of two nodes: one leaves, unless excludeOwnerKinds names their owner's kind."""
    with_nodes(trial, "n1", "n2")
    spread_victim(trial, "web", 3)

    start_descheduler({"RemoveDuplicates": {"excludeOwnerKinds": excluded}}, migration=DIRECTLY, **ONE_ROUND)

    count = "ReplicaSet" not in excluded
    assert len(moved(trial, count)) == count


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-301", severity="normal", source="spec RSV-R97: RemoveDuplicates: key owner and sorted images")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize(
    ("images", "count"), [(("first", "another"), 0), (("second", "first"), 1)], ids=["another", "in-another-order"]
)
def test_pods_with_other_images_are_no_duplicates(
    trial: Trial, start_descheduler: StartDescheduler, images: tuple[str, str], count: int
) -> None:
    """Two pods of a Deployment on one of two nodes, one of which has another image by now: both stay. If it has the
    same ones in another order, one leaves."""
    with_nodes(trial, "n1", "n2")
    like = pod("x").request(cpu=1)
    like.manifest["spec"]["containers"][0]["image"] = "first"
    like.manifest["spec"]["containers"].append({"name": "second", "image": "second"})
    cordon(trial, "n2")
    deployment(trial, "web", 2, like=like)
    changed = wait_running(trial, "web", 2)[0].metadata.name
    cordon(trial, "n2", on=False)
    raw = orjson.loads(accepted(trial.call("GET", trial.path("Pod", changed)), "read the pod").body)
    containers = [{**each, "image": image} for each, image in zip(raw["spec"]["containers"], images, strict=True)]
    accepted(trial.call("PATCH", trial.path("Pod", changed), {"spec": {"containers": containers}}), "change the image")
    trial.settle()

    start_descheduler({"RemoveDuplicates": {}}, migration=DIRECTLY, **ONE_ROUND)

    assert len(moved(trial, count)) == count


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case(
    "DC-302",
    severity="normal",
    source="koordinator 1.8 (README of descheduler v0.35): LowNodeUtilization: evictionLimits; spec RSV-R97",
)
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize(
    ("more", "count"),
    [
        pytest.param({"evictionLimits": {"node": 1}}, 1, id="one-pod"),
        pytest.param({"evictionLimits": {"node": 9}}, 2, id="more-pods"),
        pytest.param({"numberOfNodes": 1}, 0, id="few-nodes"),
        pytest.param(
            {"thresholds": {"cpu": 10}, "targetThresholds": {"cpu": 15}, "useDeviationThresholds": True},
            1,
            id="beside-the-mean",
        ),
        pytest.param({"thresholds": {"cpu": 10}, "targetThresholds": {"cpu": 15}}, 3, id="of-the-node"),
    ],
)
def test_how_many_pods_of_one_node_leave_in_a_round(
    trial: Trial, start_descheduler: StartDescheduler, more: dict[str, Any], count: int
) -> None:
    """LowNodeUtilization with a target of 27 % on a node of 16 cores, of which six pods request one each: two leave,
    where evictionLimits let them. The mean of both nodes is 19 %: with a target of 15 % above it one pod leaves, and
    with one of 15 % as many as the other node takes up to there."""
    with_nodes(trial, "n1", "n2")
    spread_victim(trial, "web", 6)
    args = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 27}, **more}

    start_descheduler({"LowNodeUtilization": args}, migration={**DIRECTLY, "maxUnavailablePerWorkload": 6}, **ONE_ROUND)

    assert len(moved(trial, count)) == count


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-149", severity="normal", source="ours: spec RSV-R95, which no release has yet")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize(
    ("args", "count"),
    [
        pytest.param({}, 0, id="balanced"),
        pytest.param({"resources": ["cpu", "pods"]}, 1, id="other-resources"),
        pytest.param({"resources": ["cpu", "pods"], "elsewhere": False}, 0, id="no-other-node"),
        pytest.param({"resources": ["cpu", "pods"], "imbalanceThreshold": 0.5}, 0, id="below-the-threshold"),
        pytest.param({"resources": ["cpu", "pods"], "minImprovementThreshold": 0.1}, 0, id="too-little-gain"),
        pytest.param({"resources": ["cpu", "pods"], "selectors": ["web", "other"]}, 1, id="one-selector-of-two"),
        pytest.param({"resources": ["cpu", "pods"], "selectors": ["other"]}, 0, id="other-selector"),
    ],
)
def test_resources_that_are_used_unevenly(
    trial: Trial, start_descheduler: StartDescheduler, args: dict[str, Any], count: int
) -> None:
    """Half of the CPUs and of the memory of n1 are requested, by four pods, of 110 that it can take. A pod that no
    other node takes stays."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 4, like=pod("x").request(cpu=2, memory="8Gi"))
    wait_running(trial, "web", 4)
    cordon(trial, "n2", on=not args.get("elsewhere", True))
    selectors = [{"name": app, "selector": {"matchLabels": {"app": app}}} for app in args.get("selectors", ())]
    own = {key: value for key, value in args.items() if key not in {"selectors", "elsewhere"}}

    start_descheduler({"FragmentationAware": {**own, "podSelectors": selectors}}, migration=DIRECTLY, **ONE_ROUND)

    assert len(moved(trial, count)) == count
