"""Which pods are evicted from a node: those that help, that fit on another node, and that no rule protects."""

from typing import Any

import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, pod, priority_class
from seatrial.scheduler.api.migration import EVICTION_COST
from seatrial.suites.descheduling.rounds import LOAD, MINUTES, TWO_AT_ONCE, hot_node, reports
from seatrial.suites.descheduling.workloads import cordon, daemon, deployment, jobs, wait_running, with_nodes

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

OLD: dict[str, Any] = {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}


def apps_of_jobs(trial: Trial) -> set[str]:
    """The workloads of the pods that migration jobs name."""
    return {job.spec.pod_ref.name.partition("-")[0] for job in jobs(trial)}


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-071", severity="critical")
@pytest.mark.long(150)
def test_no_pod_leaves_for_a_node_that_cannot_take_it(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The cold nodes use little, but their CPU is requested: no pod of the hot node is evicted."""
    hot_node(trial, pods=5, like=pod("x").request(cpu=3, memory="1Gi"), uses={"cpu": "3", "memory": "1Gi"})
    for name in ("n2", "n3"):
        trial.submit(pod(f"filler-{name}").request(cpu=14).node_name(name))
    assert trial.reaches(lambda: trial.pod("filler-n3").status.phase == "Running", within=30)

    start_descheduler({"LowNodeLoad": LOAD}, migration=TWO_AT_ONCE)

    trial.pass_time(MINUTES)
    assert jobs(trial) == []


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-072", severity="critical")
@pytest.mark.long(150)
def test_a_round_moves_no_more_than_the_cold_nodes_take(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A node has to lose four pods of two cores; the only cold node has 5.6 cores up to its limit: three go, though
    nodeFit is off."""
    with_nodes(trial, "n1", "n2", reports=True)
    cordon(trial, "n1")
    deployment(trial, "base", 1, like=pod("x").request(cpu=1), uses={"cpu": "4", "memory": "1Gi"})
    wait_running(trial, "base", 1)
    cordon(trial, "n1", on=False)
    cordon(trial, "n2")
    deployment(trial, "web", 8, like=pod("x").request(cpu=1), uses={"cpu": "2", "memory": "1Gi"})
    wait_running(trial, "web", 8)
    cordon(trial, "n2", on=False)
    reports(trial, "n1", "n2")

    start_descheduler({"LowNodeLoad": {**LOAD, "nodeFit": False}}, migration=TWO_AT_ONCE, deschedulingInterval="1h")

    assert trial.reaches(lambda: len(jobs(trial)) >= 3, within=MINUTES), trial.timeline()
    trial.pass_time(5)
    assert len(jobs(trial)) == 3


@pytest.mark.feature("DES-3.order")
@pytest.mark.case("DC-090", severity="normal")
@pytest.mark.long(100)
@pytest.mark.parametrize("rule", ["cost", "age"])
@pytest.mark.parametrize(("goes", "stays"), [("a", "b"), ("b", "a")])
def test_of_equal_pods_cost_and_age_decide(
    trial: Trial, start_descheduler: StartDescheduler, rule: str, goes: str, stays: str
) -> None:
    """A hot node has two workloads that differ in their eviction cost or in their age. One pod goes: of the lower cost,
    though it is older; or of the younger workload."""
    with_nodes(trial, "n1", "n2", "n3", reports=True)
    for name in ("n2", "n3"):
        cordon(trial, name)
    costs = {goes: "-5", stays: "5"} if rule == "cost" else {goes: "0", stays: "0"}
    for name in (goes, stays) if rule == "cost" else (stays, goes):
        like = pod("x").request(cpu=1).annotation(EVICTION_COST, costs[name])
        deployment(trial, name, 3, like=like, uses={"cpu": "2", "memory": "1Gi"})
        wait_running(trial, name, 3)
        trial.pass_time(2)
    for name in ("n2", "n3"):
        cordon(trial, name, on=False)
    reports(trial)

    start_descheduler({"LowNodeLoad": {**LOAD, "highThresholds": {"cpu": 70}}}, migration=TWO_AT_ONCE)

    assert trial.reaches(lambda: bool(jobs(trial)), within=MINUTES), trial.timeline()
    assert apps_of_jobs(trial) == {goes}


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-091", severity="critical")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize("of_profile", [False, True], ids=["of-the-configuration", "of-the-profile"])
def test_a_profile_is_for_its_nodes(trial: Trial, start_descheduler: StartDescheduler, *, of_profile: bool) -> None:
    """Old pods on three nodes, of which the configuration selects two, or its only profile: those on the third stay,
    whatever the other one selects."""
    with_nodes(trial, "n1", "n2", "n3")
    assert trial.call("PATCH", "/api/v1/nodes/n3", {"metadata": {"labels": {"trial-kept": "yes"}}}).ok
    for name in ("n1", "n2"):
        cordon(trial, name)
    deployment(trial, "kept", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "kept", 3)
    for name in ("n1", "n2"):
        cordon(trial, name, on=False)
    cordon(trial, "n3")
    others = {"matchExpressions": [{"key": "trial-kept", "operator": "DoesNotExist"}]}
    every = {"matchLabels": {TRIAL_LABEL: trial.name}}
    selectors = (every, others) if of_profile else ({**every, **others}, every)

    check_old(trial, start_descheduler, selectors=selectors)

    assert apps_of_jobs(trial) == {"web"}


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-073", severity="blocker")
@pytest.mark.long(seconds=5)
def test_pods_of_daemon_sets_stay(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Old pods of a Deployment are migrated, those of a DaemonSet are not."""
    with_nodes(trial, "n1", "n2")
    daemon(trial, "daemon")
    wait_running(trial, "daemon", 2)

    check_old(trial, start_descheduler, nodeFit=False, skipCheckExpectedReplicas=True)

    assert apps_of_jobs(trial) == {"web"}


def check_old(
    trial: Trial, start_descheduler: StartDescheduler, *, selectors: tuple[Any, Any] | None = None, **migration: Any
) -> None:
    """Let a Deployment `web` of four become old beside what is there, and wait for the jobs of one round; `selectors`:
    of nodes, of the configuration and of the profile."""
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 4)
    trial.pass_time(2)
    of_all, own = selectors or (None, None)
    settings = {"nodeSelector": of_all, "profile": {"nodeSelector": own}} if selectors else {}
    start_descheduler(OLD, migration={**TWO_AT_ONCE, **migration}, deschedulingInterval="1h", **settings)
    assert trial.reaches(lambda: "web" in apps_of_jobs(trial), within=15), jobs(trial)
    trial.pass_time(2)


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-074", severity="critical")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize(
    ("protects", "args"),
    [
        pytest.param("system-critical", {}, id="critical-priority"),
        pytest.param("threshold", {"priorityThreshold": {"value": 1000}}, id="priority-of-the-threshold"),
        pytest.param("emptyDir", {}, id="local-storage"),
        pytest.param("bare", {}, id="no-controller"),
        pytest.param("mirror", {"evictAllBarePods": True}, id="mirror-pod"),
        pytest.param("source", {"evictAllBarePods": True}, id="static-pod"),
    ],
)
def test_protected_pods_stay(
    trial: Trial, start_descheduler: StartDescheduler, protects: str, args: dict[str, Any]
) -> None:
    """Old pods are migrated, but for those that a rule protects, whatever their number."""
    with_nodes(trial, "n1", "n2")
    kept: PodBuilder = pod("kept").request(cpu=1)
    if protects == "system-critical":
        kept.priority_class("system-cluster-critical")
    elif protects == "threshold":
        trial.apply(priority_class("trial-threshold", 1000))
        kept.priority_class("trial-threshold")
    elif protects == "emptyDir":
        kept.manifest["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    if protects in {"bare", "mirror", "source"}:
        if protects != "bare":
            value = "file" if protects == "source" else "x"
            kept.annotation(f"kubernetes.io/config.{protects}", value).node_name("n1")  # as kubelet makes them
        trial.submit(kept)
        assert trial.reaches(lambda: trial.pod("kept").status.phase == "Running", within=30)
    else:
        deployment(trial, "kept", 4, like=kept)
        wait_running(trial, "kept", 4)

    check_old(trial, start_descheduler, **args)

    assert apps_of_jobs(trial) == {"web"}


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("MG-319", severity="normal", source="koordinator 1.8: skipEvictionGates; spec RSV-R74")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize(
    ("gate", "args"),
    [
        ("SystemCritical", {}),
        ("PriorityThreshold", {"priorityThreshold": {"value": 1000}}),
        ("LocalStorage", {}),
        ("PVC", {"ignorePvcPods": True}),
        ("LabelSelector", {"labelSelector": {"matchLabels": {"app": "web"}}}),
        ("BarePods", {}),
    ],
)
def test_a_rule_that_is_skipped_protects_no_pod(
    trial: Trial, start_descheduler: StartDescheduler, gate: str, args: dict[str, Any]
) -> None:
    """An old pod that a rule protects is migrated like others where the configuration skips this rule."""
    with_nodes(trial, "n1", "n2")
    kept: PodBuilder = pod("kept").request(cpu=1).label("app", "kept").node_name("n1")
    volumes: dict[str, Any] = {
        "LocalStorage": {"hostPath": {"path": "/data"}},
        "PVC": {"persistentVolumeClaim": {"claimName": "data"}},
    }
    if gate == "SystemCritical":
        kept.priority_class("system-cluster-critical")
    elif gate == "PriorityThreshold":
        trial.apply(priority_class("trial-threshold", 1000))
        kept.priority_class("trial-threshold")
    elif gate in volumes:
        kept.manifest["spec"]["volumes"] = [{"name": "data", **volumes[gate]}]
    trial.submit(kept)
    assert trial.reaches(lambda: trial.pod("kept").status.phase == "Running", within=30)
    bare: dict[str, Any] = {} if gate == "BarePods" else {"evictAllBarePods": True}

    check_old(trial, start_descheduler, **args, **bare, skipEvictionGates=[gate])

    assert apps_of_jobs(trial) == {"kept", "web"}
