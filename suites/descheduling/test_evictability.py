"""Which pods the descheduler evicts, and which of several it evicts first."""

from collections.abc import Callable
from typing import Any

import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, priority_class
from seatrial.suites.descheduling.test_rounds import LOAD, reports
from seatrial.suites.descheduling.workloads import (
    ALL_AT_ONCE,
    OFF,
    cordon,
    daemon,
    deployment,
    jobs,
    migrate,
    running,
    wait_running,
    with_nodes,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

OLD = {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}  # every pod is old soon
EVICT = "descheduler.alpha.kubernetes.io/evict"


def volume(cluster: Trial) -> str:
    """A volume that every node reaches; its name."""
    name = f"data-{cluster.name[-6:]}"
    cluster.apply(
        {
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteMany"], "storageClassName": "", "capacity": {"storage": "1Gi"},
                "nfs": {"server": "nfs.invalid", "path": "/"}, "persistentVolumeReclaimPolicy": "Retain",
            },
        }
    )  # fmt: skip
    return name


def with_local_storage() -> PodBuilder:
    built = pod("x").request(cpu=1)
    built.manifest["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    return built


def evicted(cluster: Trial, *, at_least: int) -> set[str]:
    """The apps of which pods are migrated."""
    assert cluster.reaches(lambda: len(jobs(cluster)) >= at_least, within=20), jobs(cluster)
    cluster.cluster.wait(lambda: False, within=2)
    return {job.spec.pod_ref.name.rsplit("-", 2)[0] for job in jobs(cluster)}


def start(cluster: Trial, start_descheduler: StartDescheduler, *apps: str, **migration: Any) -> None:
    """Once three pods of each app run and are old, one round over all of them."""
    for app in apps:
        wait_running(cluster, app, 3)
    cluster.cluster.wait(lambda: False, within=3)
    start_descheduler(OLD, migration={**ALL_AT_ONCE, **migration}, deschedulingInterval="1h")


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-081", severity="critical")
@pytest.mark.long(seconds=6)
def test_critical_pods_go_where_that_is_configured(cluster: Trial, start_descheduler: StartDescheduler) -> None:
    """evictSystemCriticalPods lifts the protection of critical pods, not that of a DaemonSet's."""
    with_nodes(cluster, "n1", "n2", "n3")
    daemon(cluster, "daemon")
    deployment(cluster, "critical", 3, like=pod("x").request(cpu=1).priority_class("system-cluster-critical"))

    start(cluster, start_descheduler, "daemon", "critical", evictSystemCriticalPods=True)

    assert evicted(cluster, at_least=3) == {"critical"}


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-052", severity="critical")
@pytest.mark.long(seconds=6)
def test_a_priority_threshold_protects_its_own_value(cluster: Trial, start_descheduler: StartDescheduler) -> None:
    """Pods of priority 1000 and 2000 stay under a threshold of 1000; pods of 999 go."""
    with_nodes(cluster, "n1", "n2", "n3")
    for value in (999, 1000, 2000):
        name = f"{cluster.name[-6:]}-{value}"
        cluster.apply(priority_class(name, value))
        deployment(cluster, f"of-{value}", 3, like=pod("x").request(cpu=1).priority_class(name))

    start(cluster, start_descheduler, "of-999", "of-1000", "of-2000", priorityThreshold={"value": 1000})

    assert evicted(cluster, at_least=3) == {"of-999"}


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-053", severity="critical")
@pytest.mark.long(seconds=6)
def test_the_evict_annotation_lifts_protections(cluster: Trial, start_descheduler: StartDescheduler) -> None:
    """Of two workloads with local storage, the one whose pods are annotated for eviction goes."""
    with_nodes(cluster, "n1", "n2", "n3")
    deployment(cluster, "kept", 3, like=with_local_storage())
    deployment(cluster, "asked", 3, like=with_local_storage().annotation(EVICT, "true"))

    start(cluster, start_descheduler, "kept", "asked")

    assert evicted(cluster, at_least=3) == {"asked"}


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
    cluster: Trial, start_descheduler: StartDescheduler, migration: dict[str, Any], gone: set[str]
) -> None:
    """Pods of `bound` can run on n4 only, those of `claims` have a volume, and both lack the label.

    labelSelector keeps both, nodeFit `bound`, ignorePvcPods `claims`.
    """
    with_nodes(cluster, "n1", "n2", "n3")
    tied, claiming = pod("x").request(cpu=1), pod("x").request(cpu=1)
    cluster.add(node("n4").cpu(16).memory("64Gi").label("only", "here"))
    tied.manifest["spec"]["nodeSelector"] = {"only": "here"}
    deployment(cluster, "front", 3, like=pod("x").request(cpu=1).label("tier", "front"))
    deployment(cluster, "bound", 3, like=tied)
    cluster.apply(
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeName": volume(cluster),
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )  # fmt: skip
    claiming.manifest["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    deployment(cluster, "claims", 3, like=claiming)

    start(cluster, start_descheduler, "front", "bound", "claims", **migration)

    assert evicted(cluster, at_least=3 * len(gone)) == gone


@pytest.mark.feature("DES-2.caps")
@pytest.mark.case("DC-083", severity="critical")
@pytest.mark.long(seconds=15)
def test_each_round_has_its_caps_anew(cluster: Trial, start_descheduler: StartDescheduler) -> None:
    """Rounds of 5 s with one eviction each: jobs come one by one, not all at once, and not only the first."""
    with_nodes(cluster, "n1", "n2")
    for app in ("a", "b", "c"):
        deployment(cluster, app, 3, like=pod("x").request(cpu=1))
        wait_running(cluster, app, 3)
    cluster.cluster.wait(lambda: False, within=3)
    start_descheduler(OLD, migration={"objectLimiters": OFF}, deschedulingInterval="5s", maxNoOfPodsToEvictTotal=1)

    assert cluster.reaches(lambda: bool(jobs(cluster)), within=10)
    assert len(jobs(cluster)) == 1
    assert cluster.reaches(lambda: len(jobs(cluster)) >= 3, within=30), jobs(cluster)


def hot_node(cluster: Trial, fill: Callable[[], None], *cold: str) -> None:
    """n1 gets all pods that `fill` makes; the cold nodes open when these run, and all have reported since."""
    with_nodes(cluster, "n1", *cold, reports=True)
    for name in cold:
        cordon(cluster, name)
    fill()
    for name in cold:
        cordon(cluster, name, on=False)
    reports(cluster, "n1", *cold)


@pytest.mark.feature("DES-3.order")
@pytest.mark.case("DC-055", severity="critical")
@pytest.mark.long(100)
@pytest.mark.parametrize("order", [("little", "much"), ("much", "little")])
def test_the_pod_that_covers_the_excess_goes_first(
    cluster: Trial, start_descheduler: StartDescheduler, order: tuple[str, str]
) -> None:
    """12 of 16 cores are used, 9.6 may be: one pod that uses 3 cores is enough, pods that use 500m would not be.

    Pods created later would go first if usage did not decide; both orders are tried.
    """
    uses = {"little": (6, "500m"), "much": (3, "3")}

    def fill() -> None:
        for app in order:
            count, cpu = uses[app]
            deployment(cluster, app, count, like=pod("x").request(cpu=1), uses={"cpu": cpu, "memory": "1Gi"})
            wait_running(cluster, app, count)
            cluster.cluster.wait(lambda: False, within=2)

    hot_node(cluster, fill, "n2", "n3")
    start_descheduler({"LowNodeLoad": LOAD})

    assert cluster.reaches(lambda: bool(jobs(cluster)), within=60), cluster.timeline()
    cluster.cluster.wait(lambda: False, within=30)
    assert evicted(cluster, at_least=1) == {"much"}
    assert len(running(cluster, "little")) == 6


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-057", severity="critical")
@pytest.mark.long(100)
@pytest.mark.parametrize("paused", [False, True])
def test_pods_without_a_place_yet_take_the_room(
    cluster: Trial, start_descheduler: StartDescheduler, *, paused: bool
) -> None:
    """The cold node may take 9.6 cores. Two pods that use 9 each have migration jobs without a place: nothing is left.

    Without those jobs pods of the hot node move.
    """
    for name in ("n3", "n4"):
        with_nodes(cluster, name, reports=True)

    def fill() -> None:
        cordon(cluster, "n1")
        deployment(cluster, "large", 2, like=pod("x").request(cpu=9), uses={"cpu": "9", "memory": "1Gi"})
        found = wait_running(cluster, "large", 2)
        for number, each in enumerate(found if paused else ()):
            migrate(cluster, f"waits-{number}", each.metadata.name, paused=True)
        for name in ("n3", "n4"):
            cordon(cluster, name)
        cordon(cluster, "n1", on=False)
        deployment(cluster, "web", 7, like=pod("x").request(cpu=1), uses={"cpu": "2", "memory": "1Gi"})
        wait_running(cluster, "web", 7)

    hot_node(cluster, fill, "n2")
    start_descheduler({"LowNodeLoad": LOAD})

    def of_web() -> list[str]:
        return [job.name for job in jobs(cluster) if job.spec.pod_ref.name.startswith("web")]

    assert cluster.cluster.wait(lambda: bool(of_web()), within=60) is not paused, of_web()
