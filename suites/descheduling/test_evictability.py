"""Which pods the descheduler evicts, and which of several it evicts first."""

from collections.abc import Callable
from typing import Any

import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, priority_class
from seatrial.suites.descheduling.rounds import LOAD, reports
from seatrial.suites.descheduling.workloads import (
    ALL_AT_ONCE,
    OFF,
    cordon,
    daemon,
    deployment,
    jobs,
    migrate,
    running,
    shown,
    spread_victim,
    wait_running,
    with_nodes,
)
from seatrial.suites.scoring.rules import resize

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

OLD = {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}  # every pod is old soon
EVICT = "descheduler.alpha.kubernetes.io/evict"


def volume(trial: Trial) -> str:
    """A volume that every node reaches; its name."""
    name = f"data-{trial.name[-6:]}"
    trial.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "capacity": {"storage": "1Gi"},
                "nfs": {"server": "nfs.invalid", "path": "/"},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        }
    )
    return name


def with_local_storage() -> PodBuilder:
    built = pod("x").request(cpu=1)
    built.manifest["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    return built


def evicted(trial: Trial, *, at_least: int) -> set[str]:
    """The apps of which pods are migrated."""
    assert trial.reaches(lambda: len(jobs(trial)) >= at_least, within=20), shown(trial)
    trial.pass_time(2)
    return {job.spec.pod_ref.name.rsplit("-", 2)[0] for job in jobs(trial)}


def start(trial: Trial, start_descheduler: StartDescheduler, *apps: str, **migration: Any) -> None:
    """Once three pods of each app run and are old, one round over all of them."""
    for app in apps:
        wait_running(trial, app, 3)
    trial.pass_time(3)
    start_descheduler(OLD, migration={**ALL_AT_ONCE, **migration}, deschedulingInterval="1h")


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-081", severity="critical")
@pytest.mark.long(seconds=6)
def test_critical_pods_go_where_that_is_configured(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """evictSystemCriticalPods lifts the protection of critical pods, not that of a DaemonSet's."""
    with_nodes(trial, "n1", "n2", "n3")
    daemon(trial, "daemon")
    deployment(trial, "critical", 3, like=pod("x").request(cpu=1).priority_class("system-cluster-critical"))

    start(trial, start_descheduler, "daemon", "critical", evictSystemCriticalPods=True)

    assert evicted(trial, at_least=3) == {"critical"}


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-052", severity="critical")
@pytest.mark.long(seconds=6)
def test_a_priority_threshold_protects_its_own_value(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Pods of priority 1000 and 2000 stay under a threshold of 1000; pods of 999 go."""
    with_nodes(trial, "n1", "n2", "n3")
    for value in (999, 1000, 2000):
        name = f"{trial.name[-6:]}-{value}"
        trial.apply(priority_class(name, value))
        deployment(trial, f"of-{value}", 3, like=pod("x").request(cpu=1).priority_class(name))

    start(trial, start_descheduler, "of-999", "of-1000", "of-2000", priorityThreshold={"value": 1000})

    assert evicted(trial, at_least=3) == {"of-999"}


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-053", severity="critical")
@pytest.mark.long(seconds=6)
def test_the_evict_annotation_lifts_protections(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Of two workloads with local storage, the one whose pods are annotated for eviction goes."""
    with_nodes(trial, "n1", "n2", "n3")
    deployment(trial, "kept", 3, like=with_local_storage())
    deployment(trial, "asked", 3, like=with_local_storage().annotation(EVICT, "true"))

    start(trial, start_descheduler, "kept", "asked")

    assert evicted(trial, at_least=3) == {"asked"}


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-082", severity="critical")
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize(
    ("migration", "gone"),
    [
        pytest.param({"labelSelector": {"matchLabels": {"tier": "front"}}}, {"front"}, id="selected-by-label"),
        pytest.param({"nodeFit": True}, {"front", "claims"}, id="another-node-has-room"),
        pytest.param({"ignorePvcPods": True}, {"front", "bound"}, id="without-a-claim"),
        pytest.param({}, {"front", "bound", "claims"}, id="none"),
    ],
)
def test_other_conditions_of_an_eviction(
    trial: Trial, start_descheduler: StartDescheduler, migration: dict[str, Any], gone: set[str]
) -> None:
    """Pods of `bound` can run on n4 only, those of `claims` have a volume, and both lack the label.

    labelSelector keeps both, nodeFit `bound`, ignorePvcPods `claims`.
    """
    trial.add(*(node(name).cpu(16).memory("64Gi").label("only", "there") for name in ("n1", "n2", "n3")))
    tied, claiming = pod("x").request(cpu=1), pod("x").request(cpu=1)
    trial.add(node("n4").cpu(16).memory("64Gi").label("only", "here"))
    tied.manifest["spec"]["nodeSelector"] = {"only": "here"}
    deployment(trial, "front", 3, like=pod("x").request(cpu=1).label("tier", "front"))
    deployment(trial, "bound", 3, like=tied)
    trial.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": volume(trial),
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    claiming.manifest["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    deployment(trial, "claims", 3, like=claiming)

    start(trial, start_descheduler, "front", "bound", "claims", **migration)

    assert evicted(trial, at_least=3 * len(gone)) == gone


@pytest.mark.feature("DES-2.caps")
@pytest.mark.case("DC-083", severity="critical")
@pytest.mark.long(seconds=15)
def test_each_round_has_its_caps_anew(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Rounds of 5 s with one eviction each: jobs come one by one, not all at once, and not only the first."""
    with_nodes(trial, "n1", "n2")
    for app in ("a", "b", "c"):
        deployment(trial, app, 3, like=pod("x").request(cpu=1))
        wait_running(trial, app, 3)
    trial.pass_time(3)
    start_descheduler(OLD, migration={"objectLimiters": OFF}, deschedulingInterval="5s", maxNoOfPodsToEvictTotal=1)

    assert trial.reaches(lambda: bool(jobs(trial)), within=10)
    assert len(jobs(trial)) == 1
    assert trial.reaches(lambda: len(jobs(trial)) >= 3, within=30), shown(trial)


def hot_node(trial: Trial, fill: Callable[[], None], *cold: str) -> None:
    """n1 gets all pods that `fill` makes; the cold nodes open when these run, and all have reported since."""
    with_nodes(trial, "n1", *cold, reports=True)
    for name in cold:
        cordon(trial, name)
    fill()
    for name in cold:
        cordon(trial, name, on=False)
    reports(trial, "n1", *cold)


@pytest.mark.feature("DES-3.order")
@pytest.mark.case("DC-055", severity="critical")
@pytest.mark.long(100)
@pytest.mark.parametrize("order", [("little", "much"), ("much", "little")])
def test_the_pod_that_covers_the_excess_goes_first(
    trial: Trial, start_descheduler: StartDescheduler, order: tuple[str, str]
) -> None:
    """12 of 16 cores are used, 9.6 may be: one pod that uses 3 cores is enough, pods that use 500m would not be.

    Pods created later would go first if usage did not decide; both orders are tried.
    """
    uses = {"little": (6, "500m"), "much": (3, "3")}

    def fill() -> None:
        for app in order:
            count, cpu = uses[app]
            deployment(trial, app, count, like=pod("x").request(cpu=1), uses={"cpu": cpu, "memory": "1Gi"})
            wait_running(trial, app, count)
            trial.pass_time(2)

    hot_node(trial, fill, "n2", "n3")
    start_descheduler({"LowNodeLoad": LOAD})

    assert trial.reaches(lambda: bool(jobs(trial)), within=60), trial.timeline()
    trial.pass_time(30)
    assert evicted(trial, at_least=1) == {"much"}
    assert len(running(trial, "little")) == 6


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-057", severity="critical")
@pytest.mark.long(100)
@pytest.mark.parametrize("paused", [False, True])
def test_pods_without_a_place_yet_take_the_room(
    trial: Trial, start_descheduler: StartDescheduler, *, paused: bool
) -> None:
    """The cold node may take 9.6 cores. Two pods that use 9 each have migration jobs without a place: nothing is left.

    Without those jobs pods of the hot node move.
    """
    for name in ("n3", "n4"):
        with_nodes(trial, name, reports=True)

    def fill() -> None:
        cordon(trial, "n1")
        deployment(trial, "large", 2, like=pod("x").request(cpu=9), uses={"cpu": "9", "memory": "1Gi"})
        pods = wait_running(trial, "large", 2)
        for number, each in enumerate(pods if paused else ()):
            migrate(trial, f"waits-{number}", each.metadata.name, paused=True)
        for name in ("n3", "n4"):
            cordon(trial, name)
        cordon(trial, "n1", on=False)
        deployment(trial, "web", 7, like=pod("x").request(cpu=1), uses={"cpu": "2", "memory": "1Gi"})
        wait_running(trial, "web", 7)

    hot_node(trial, fill, "n2")
    start_descheduler({"LowNodeLoad": LOAD})

    def of_web() -> list[str]:
        return [job.name for job in jobs(trial) if job.spec.pod_ref.name.startswith("web")]

    assert trial.wait(lambda: bool(of_web()), within=60) is not paused, of_web()


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case(
    "DC-125", severity="normal", source="spec RSV-R81; descheduler: pkg/descheduler/node/node.go (NodeFit)"
)
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "runs"])
def test_pods_that_ended_take_no_room(trial: Trial, start_descheduler: StartDescheduler, *, ended: bool) -> None:
    """A pod on n2 has requested all CPUs there. With nodeFit pods of n1 go if it has ended, and stay if it has not."""
    with_nodes(trial, "n1", "n2")
    large = pod("large").request(cpu=16).select({"kubernetes.io/hostname": "n2"})
    large.manifest["spec"]["restartPolicy"] = "Never"
    trial.submit(large)
    assert trial.reaches(lambda: trial.pod("large").status.phase == "Running", within=30)
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 3)
    if ended:
        path = f"{trial.path('Pod', 'large')}/status"
        assert trial.call("PATCH", path, {"status": {"phase": "Succeeded"}}).ok

    start(trial, start_descheduler, "web", nodeFit=True)

    assert evicted(trial, at_least=3 * ended) == ({"web"} if ended else set())


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-126", severity="critical", source="spec RSV-R81; kubernetes KEP-1287")
@pytest.mark.long(seconds=25)
@pytest.mark.parametrize("change", ["shrinks", "ends", "goes", "goes-at-once"])
def test_a_node_that_gets_room_takes_pods_in_the_next_round(
    trial: Trial, start_descheduler: StartDescheduler, change: str
) -> None:
    """Round after round no pod of n1 is evicted, because a pod on n2 requests all CPUs there. It shrinks in place,
    ends, or is deleted, with and without a grace period: the next round evicts them."""
    with_nodes(trial, "n1", "n2")
    large = pod("large").resources({"cpu": 16, "memory": "1Gi"}).select({"kubernetes.io/hostname": "n2"})
    large.manifest["spec"]["restartPolicy"] = "Never"
    trial.submit(large)
    assert trial.reaches(lambda: trial.pod("large").status.phase == "Running", within=30)
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 3)
    start_descheduler(OLD, migration={**ALL_AT_ONCE, "nodeFit": True}, deschedulingInterval="3s")
    trial.pass_time(9)
    assert jobs(trial) == []

    if change == "shrinks":
        resize(trial, "large", "1")
    elif change == "ends":
        assert trial.call("PATCH", f"{trial.path('Pod', 'large')}/status", {"status": {"phase": "Succeeded"}}).ok
    elif change == "goes":
        trial.delete("large")
    else:
        assert trial.call("DELETE", f"{trial.path('Pod', 'large')}?gracePeriodSeconds=0").ok

    assert evicted(trial, at_least=3) == {"web"}


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-127", severity="critical", source="spec RSV-R78, RSV-R81")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize(
    ("closed", "goes"),
    [("NoSchedule", False), ("NoExecute", False), ("PreferNoSchedule", True), ("cordon", False), ("not-ready", False)],
)
def test_a_node_that_is_closed_takes_no_pod(
    trial: Trial, start_descheduler: StartDescheduler, closed: str, *, goes: bool
) -> None:
    """The only other node has a taint, is cordoned, or is not ready: with nodeFit no pod is evicted, but for a taint
    that is a preference. A third node has no room."""
    with_nodes(trial, "n1", "n2")
    trial.add(node("n3").cpu(1).memory("64Gi"))
    trial.submit(pod("filler").request(cpu=1).node_name("n3"))
    spread_victim(trial, "web", 3)
    if closed == "cordon":
        cordon(trial, "n2")
    elif closed == "not-ready":
        trial.inject({"node": "n2", "verb": "not_ready"})
        trial.pass_time(3)
    else:
        taint = {"key": "team", "effect": closed}
        assert trial.call("PATCH", "/api/v1/nodes/n2", {"spec": {"taints": [taint]}}).ok

    start(trial, start_descheduler, "web", nodeFit=True)

    assert evicted(trial, at_least=3 * goes) == ({"web"} if goes else set())
