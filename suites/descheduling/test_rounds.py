"""Descheduling rounds: a hot node cools, budgets and caps hold, nothing oscillates, stale usage stops everything."""

from typing import Any

import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.migration import DELETION_COST, EVICTION_COST
from seatrial.scheduler.api.slo import NODE_METRICS_PATH
from seatrial.suites.descheduling.rounds import LEVELS, LOAD, MINUTES, PER_POD, SOON, TWO_AT_ONCE, hot_node, on, reports
from seatrial.suites.descheduling.workloads import (
    ALL_AT_ONCE,
    OFF,
    REPORT,
    cordon,
    deployment,
    jobs,
    running,
    shown,
    use,
    wait_running,
    with_nodes,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-001", severity="blocker")
@pytest.mark.long(200)
def test_a_hot_node_cools(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """88 % of a node's CPU is used, 60 % is the limit: three of seven pods move, and no more."""
    hot_node(trial)

    start_descheduler({"LowNodeLoad": LOAD}, migration=TWO_AT_ONCE)

    assert trial.reaches(lambda: len(on(trial, "web", "n1")) == 4, within=2 * MINUTES), trial.timeline()
    trial.pass_time(2 * MINUTES)
    assert len(on(trial, "web", "n1")) == 4
    done = jobs(trial)
    assert {job.status.phase for job in done} == {"Succeeded"}
    assert len(done) == 3
    reasons = {job.metadata.annotations["koordinator.sh/evict-reason"] for job in done}
    assert "node is overutilized, node cpu usage(87.50%)>threshold(60.00%)" in reasons


@pytest.mark.feature("DES-2.workloads")
@pytest.mark.case("DC-002", severity="blocker")
@pytest.mark.long(300)
def test_a_workload_keeps_its_budget_while_its_node_cools(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """One pod of the workload may be unavailable: at no moment are fewer than six of seven pods running."""
    hot_node(trial)
    fewest = 7
    start_descheduler(
        {"LowNodeLoad": LOAD},
        migration={"maxUnavailablePerWorkload": 1, "maxMigratingPerWorkload": 1, "objectLimiters": OFF},
    )

    def cooled() -> bool:
        nonlocal fewest
        fewest = min(fewest, len(running(trial, "web")))
        return len(on(trial, "web", "n1")) == 4

    assert trial.reaches(cooled, within=4 * MINUTES), trial.timeline()
    assert fewest == 6


@pytest.mark.feature("DES-3.no-oscillation")
@pytest.mark.case("DC-003", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
@pytest.mark.long(5000)
def test_nothing_oscillates(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """500 rounds over a load that cannot be spread further: pods move in the first minutes, and never again."""
    hot_node(trial)
    start_descheduler({"LowNodeLoad": LOAD}, migration=TWO_AT_ONCE)
    trial.pass_time(5 * MINUTES)
    before = {pod.metadata.name: pod.spec.node_name for pod in running(trial, "web")}
    assert len(before) == 7

    trial.pass_time(500 * 10.0)

    assert {pod.metadata.name: pod.spec.node_name for pod in running(trial, "web")} == before


@pytest.mark.feature("DES-3.stale-usage")
@pytest.mark.case("DC-004", severity="blocker")
@pytest.mark.long(200)
def test_stale_usage_stops_everything(trial: Trial, expect: Expect, start_descheduler: StartDescheduler) -> None:
    """The nodes are Ready and report no more: after the expiry nothing is evicted, although its last report was hot."""
    hot_node(trial)
    for name in ("n1", "n2", "n3"):
        policy = {"metricCollectPolicy": {"reportIntervalSeconds": 3600}}
        trial.call("PATCH", f"{NODE_METRICS_PATH}/{name}", {"spec": policy})
    trial.pass_time(60)
    start_descheduler({"LowNodeLoad": {**LOAD, "nodeMetricExpirationSeconds": 45}})

    expect.stable(seconds=60)

    assert jobs(trial) == []


@pytest.mark.feature("DES-3.spikes")
@pytest.mark.case("DC-005", severity="critical")
@pytest.mark.long(150)
def test_a_spike_is_waited_out(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Anomaly count 5, a round every 10 s: a node that is hot for five rounds keeps its pods, the sixth evicts."""
    hot_node(trial)
    condition = {"timeout": "5m", "consecutiveAbnormalities": 5}
    start_descheduler({"LowNodeLoad": {**LOAD, "anomalyCondition": condition}})

    assert not trial.wait(lambda: bool(jobs(trial)), within=45)
    assert trial.reaches(lambda: bool(jobs(trial)), within=25)


@pytest.mark.feature("DES-3.prod-thresholds")
@pytest.mark.case("DC-006", severity="critical")
@pytest.mark.long(150)
def test_only_prod_pods_leave_a_node_with_hot_prod(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The node is within its limit, its prod pods are above theirs: prod pods move, batch pods do not."""
    with_nodes(trial, "n1", "n2", "n3", reports=True)
    for name in ("n2", "n3"):
        cordon(trial, name)
    small = pod("x").request(cpu=1, memory="1Gi")
    deployment(trial, "prod", 4, like=small.label("koordinator.sh/priority-class", "koord-prod"), uses=PER_POD)
    small = pod("x").request(cpu=1, memory="1Gi")
    deployment(trial, "batch", 3, like=small.label("koordinator.sh/priority-class", "koord-batch"), uses=PER_POD)
    wait_running(trial, "prod", 4)
    wait_running(trial, "batch", 3)
    for name in ("n2", "n3"):
        cordon(trial, name, on=False)
    reports(trial)

    args = {
        "lowThresholds": {"cpu": 30},
        "highThresholds": {"cpu": 95},
        "anomalyCondition": SOON,
        "prodLowThresholds": {"cpu": 20},
        "prodHighThresholds": {"cpu": 40},
    }
    start_descheduler({"LowNodeLoad": args})

    assert trial.reaches(lambda: len(on(trial, "prod", "n1")) == 3, within=MINUTES), trial.timeline()
    trial.pass_time(MINUTES)
    assert (len(on(trial, "prod", "n1")), len(on(trial, "batch", "n1"))) == (3, 3)
    assert (
        "prod cpu usage(50.00%)>threshold(40.00%)" in jobs(trial)[0].metadata.annotations["koordinator.sh/evict-reason"]
    )


@pytest.mark.feature("DES-3.order")
@pytest.mark.case("DC-007", severity="critical")
@pytest.mark.long(100)
def test_the_cheapest_pod_goes_first(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Pods of three priority classes make a node hot: the free one goes, batch and prod stay."""
    with_nodes(trial, "n1", "n2", "n3", reports=True)
    for name in ("n2", "n3"):
        cordon(trial, name)
    for band in ("prod", "batch", "free"):
        like = pod("x").request(cpu=1).label("koordinator.sh/priority-class", f"koord-{band}")
        deployment(trial, band, 2, like=like, uses={"cpu": "2", "memory": "1Gi"})
        wait_running(trial, band, 2)
    for name in ("n2", "n3"):
        cordon(trial, name, on=False)
    reports(trial)
    start_descheduler(
        {"LowNodeLoad": {**LOAD, "highThresholds": {"cpu": 70}}}, migration={"skipCheckExpectedReplicas": True}
    )

    assert trial.reaches(lambda: len(on(trial, "free", "n1")) == 1, within=MINUTES), trial.timeline()
    trial.pass_time(30)
    assert [len(on(trial, band, "n1")) for band in ("prod", "batch", "free")] == [2, 2, 1]


@pytest.mark.feature("DES-3.cools", "DES-1.periodic")
@pytest.mark.case("DC-008", severity="critical")
@pytest.mark.long(300)
def test_a_node_that_becomes_hot_later_cools(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Usage, not requests, decides: nothing moves at 35 % usage, and pods move when usage rises to 88 %."""
    hot_node(trial, uses={"cpu": "800m", "memory": "1Gi"})
    start_descheduler({"LowNodeLoad": LOAD})
    trial.pass_time(60)
    assert jobs(trial) == []

    for item in running(trial, "web"):
        use(trial, item, cpu="2", memory="1Gi")

    assert trial.reaches(lambda: bool(jobs(trial)), within=2 * REPORT)


@pytest.mark.feature("DES-2.caps")
@pytest.mark.case("DC-020", severity="blocker", source="spec RSV-R78, RSV-R79")
@pytest.mark.long(seconds=45)
@pytest.mark.parametrize(
    ("caps", "most"),
    [
        pytest.param({"maxNoOfPodsToEvictTotal": 5}, 5, id="in-total"),
        pytest.param({"maxNoOfPodsToEvictPerNode": 2}, 4, id="per-node"),
        pytest.param({"maxNoOfPodsToEvictPerNamespace": 3}, 3, id="per-namespace"),
    ],
)
def test_caps_of_a_round_hold(
    trial: Trial, start_descheduler: StartDescheduler, caps: dict[str, int], most: int
) -> None:
    """20 old pods on two nodes, a cap: exactly that many migration jobs come from the first round, and as many from the
    second one."""
    with_nodes(trial, "n1", "n2", cpu=64)
    deployment(trial, "web", 20, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 20)
    trial.pass_time(2)
    limits = {**ALL_AT_ONCE, "maxMigratingPerWorkload": 19, "maxUnavailablePerWorkload": 19}
    start_descheduler(
        {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, migration=limits, deschedulingInterval="30s", **caps
    )

    def made(count: int) -> bool:
        return trial.reaches(lambda: len(jobs(trial)) >= count, within=40)

    for count in (most, 2 * most):
        assert made(count), shown(trial)
        trial.pass_time(2)
        assert len(jobs(trial)) == count


@pytest.mark.feature("DES-2.caps")
@pytest.mark.case("DC-021", severity="blocker")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_caps_hold_for_a_thousand_candidates(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """1,000 candidates: a round evicts no more than its cap, and of those no more run than the limits allow."""
    trial.add(*(node(f"n{number}").cpu(64).pods(250) for number in range(5)))
    deployment(trial, "web", 1000, like=pod("x").request(cpu="100m"))
    trial.pass_time(120)
    assert len(running(trial, "web")) == 1000
    start_descheduler(
        {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}},
        migration={"maxMigratingGlobally": 4, "maxMigratingPerNode": 1},
        deschedulingInterval="1h",
        maxNoOfPodsToEvictTotal=50,
    )
    most = 0

    for _ in range(20):
        trial.pass_time(0.25)
        most = max(most, sum(job.running for job in jobs(trial)))

    assert len(jobs(trial)) == 50
    assert most == 4


@pytest.mark.feature("DES-2.gray-scale")
@pytest.mark.case("DC-022", severity="critical")
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize(
    ("namespaces", "evicted"),
    [({"include": ["{own}"]}, True), ({"exclude": ["{own}"]}, False), ({"include": ["other"]}, False)],
    ids=["included", "excluded", "another-included"],
)
def test_namespaces_are_tried_one_by_one(
    trial: Trial, start_descheduler: StartDescheduler, namespaces: dict[str, list[str]], *, evicted: bool
) -> None:
    """Gray-scale: only pods of allowed namespaces are migrated."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 3)
    trial.pass_time(2)
    own = {kind: [name.format(own=trial.name) for name in names] for kind, names in namespaces.items()}
    start_descheduler({"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, migration={"namespaces": own})

    if evicted:
        assert trial.reaches(lambda: bool(jobs(trial)), within=15)
    else:
        assert not trial.wait(lambda: bool(jobs(trial)), within=4)


@pytest.mark.feature("DES-2.workloads")
@pytest.mark.case("DC-023", severity="critical")
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_workload_loses_no_more_than_it_may(trial: Trial, start_descheduler: StartDescheduler, kind: str) -> None:
    """Ten old pods of a workload that may lose 20 %: never more than two are missing, whatever kind it is."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 10, like=pod("x").request(cpu=1), kind=kind)
    wait_running(trial, "web", 10)
    trial.pass_time(2)
    limits = {
        "maxUnavailablePerWorkload": "20%",
        "maxMigratingPerWorkload": "20%",
        "maxMigratingPerNode": 10,
        "defaultJobMode": "EvictDirectly",
        "objectLimiters": OFF,
        "evictBurst": 10,
    }
    start_descheduler({"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, migration=limits, deschedulingInterval="1h")
    fewest = 10

    def all_done() -> bool:
        nonlocal fewest
        fewest = min(fewest, len(running(trial, "web")))
        pod_migration_jobs = jobs(trial)
        return len(pod_migration_jobs) == 10 and all(not job.open for job in pod_migration_jobs)

    assert trial.reaches(all_done, within=4 * MINUTES), [job.status for job in jobs(trial)]
    assert fewest == 8


@pytest.mark.feature("DES-2.rate")
@pytest.mark.case("DC-024", severity="critical")
@pytest.mark.long(60)
def test_evictions_are_spread_by_their_rate(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """One eviction in five seconds, without a burst: after 12 seconds three of six pods are gone, not more."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 6, like=pod("x").request(cpu=1))
    old = {pod.metadata.uid for pod in wait_running(trial, "web", 6)}
    trial.pass_time(2)
    limits = {
        "maxUnavailablePerWorkload": 5,
        "maxMigratingPerWorkload": 5,
        "maxMigratingPerNode": 10,
        "defaultJobMode": "EvictDirectly",
        "objectLimiters": OFF,
        "evictQPS": "0.2",
        "evictBurst": 1,
    }
    start_descheduler({"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, migration=limits, deschedulingInterval="1h")

    def left() -> int:
        return len(old & {pod.metadata.uid for pod in trial.pods() if not pod.deleting})

    trial.pass_time(12)
    assert 3 <= left() <= 4
    assert trial.reaches(lambda: left() == 0, within=40), left()


@pytest.mark.feature("DES-1.dry-run")
@pytest.mark.case("DC-040", severity="critical")
@pytest.mark.long(18)
def test_a_dry_run_moves_nothing(trial: Trial, expect: Expect, start_descheduler: StartDescheduler) -> None:
    """dryRun: the round counts evictions in its metrics, and nothing happens."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 3)
    trial.pass_time(2)

    descheduler = start_descheduler({"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, dryRun=True)

    expect.stable(seconds=15)
    assert jobs(trial) == []
    assert 'strategy="PodLifeTime"' in descheduler.metrics()


@pytest.mark.feature("DES-1.event-triggered")
@pytest.mark.case("DC-041", severity="critical")
@pytest.mark.long(seconds=7)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            {"spec": {"taints": [{"key": "maintenance", "value": "soon", "effect": "NoSchedule"}]}}, id="taint"
        ),
        pytest.param({"metadata": {"labels": {"tier": "b"}}}, id="label"),
    ],
)
def test_a_changed_node_starts_a_round(
    trial: Trial, start_descheduler: StartDescheduler, change: dict[str, Any]
) -> None:
    """Event-triggered: the interval is an hour; a new taint on a node, or a label that its pods need and that it has no
    more, moves its pods at once."""
    trial.add(*(node(name).cpu(16).memory("64Gi").label("tier", "a") for name in ("n1", "n2")))
    cordon(trial, "n2")
    like = pod("x").request(cpu=1)
    terms = [{"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]}]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    like.manifest["spec"]["affinity"] = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}
    deployment(trial, "web", 3, like=like)
    wait_running(trial, "web", 3)
    cordon(trial, "n2", on=False)
    strategies = {
        "RemovePodsViolatingNodeTaints": {},
        "RemovePodsViolatingNodeAffinity": {"nodeAffinityType": [required]},
    }
    start_descheduler(strategies, deschedulingInterval="1h")
    trial.pass_time(5)
    assert jobs(trial) == []

    trial.call("PATCH", "/api/v1/nodes/n1", change)

    assert trial.reaches(lambda: len(jobs(trial)) == 3, within=15), shown(trial)


@pytest.mark.feature("DES-1.evictor")
@pytest.mark.case("DC-042", severity="normal")
@pytest.mark.long(seconds=5)
def test_another_evictor(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """DefaultEvictor instead of MigrationController: pods are evicted without migration jobs."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    old = {pod.metadata.uid for pod in wait_running(trial, "web", 3)}
    trial.pass_time(3)

    start_descheduler(
        {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, evictor="DefaultEvictor", deschedulingInterval="1h"
    )

    assert trial.reaches(lambda: not old & {pod.metadata.uid for pod in running(trial, "web")}, within=30), (
        trial.timeline()
    )
    assert jobs(trial) == []
    wait_running(trial, "web", 3)


@pytest.mark.feature("DES-1.evictor")
@pytest.mark.case("DC-097", severity="normal", source="koordinator 1.8 (descheduler v0.35): minReplicas")
@pytest.mark.long(seconds=5)
def test_another_evictor_has_arguments_of_its_own(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """DefaultEvictor with minReplicas 4: pods of a workload of five are evicted, and none of a workload of three."""
    with_nodes(trial, "n1", "n2")
    counts = {"few": 3, "many": 5}
    for name, count in counts.items():
        deployment(trial, name, count, like=pod("x").request(cpu=1))
    old = {name: {pod.metadata.uid for pod in wait_running(trial, name, counts[name])} for name in counts}
    trial.pass_time(3)

    start_descheduler(
        {"PodLifeTime": {"maxPodLifeTimeSeconds": 1}},
        evictor="DefaultEvictor",
        evictor_args={"minReplicas": 4},
        deschedulingInterval="1h",
    )

    def left(name: str) -> set[str]:
        return old[name] & {pod.metadata.uid for pod in trial.pods() if not pod.deleting}

    assert trial.reaches(lambda: not left("many"), within=30), trial.timeline()
    assert left("few") == old["few"]


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-043", severity="normal")
@pytest.mark.long(30)
def test_duplicates_are_spread(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Four pods of a Deployment on one of two nodes: two of them move."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 4)
    cordon(trial, "n2", on=False)

    start_descheduler({"RemoveDuplicates": {}}, migration={"objectLimiters": OFF})

    assert trial.reaches(lambda: len(on(trial, "web", "n2")) == 2, within=60), trial.timeline()
    trial.pass_time(30)
    assert (len(on(trial, "web", "n1")), len(on(trial, "web", "n2"))) == (2, 2)


SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-047", severity="normal")
@pytest.mark.long(30)
@pytest.mark.parametrize(
    ("strategy", "args", "moved"),
    [
        pytest.param(
            "RemovePodsViolatingTopologySpreadConstraint", {"constraints": ["ScheduleAnyway"]}, 3, id="spread"
        ),
        pytest.param(
            "LowNodeUtilization", {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 27}}, 2, id="requests"
        ),
        pytest.param(
            "CustomPriority",
            {"evictionOrder": LEVELS},
            6,
            id="levels",
            marks=pytest.mark.case("DC-047", severity="normal", source="koordinator 1.8: CustomPriority"),
        ),
        pytest.param(
            "FragmentationAware",
            {
                "imbalanceThreshold": 0.1,
                "minImprovementThreshold": 0.01,
                "nodeSelector": {"matchLabels": {"zone": "a"}},
                "nodeFit": False,
            },
            3,
            id="fragmentation",
            marks=pytest.mark.case("DC-047", severity="normal", source="ours: spec RSV-R95, RSV-R96: unreleased"),
        ),
    ],
)
def test_strategies_move_what_they_say(
    trial: Trial, start_descheduler: StartDescheduler, strategy: str, args: dict[str, Any], moved: int
) -> None:
    """Six pods of one core on the first of two nodes of 16 cores: that many end on the second, no more follow."""
    trial.add(
        node("n1").cpu(16).memory("64Gi").label("zone", "a"), node("n2").cpu(16).memory("64Gi").label("zone", "b")
    )
    cordon(trial, "n2")
    like = pod("x").request(cpu=1)
    like.manifest["spec"]["topologySpreadConstraints"] = [SPREAD]
    deployment(trial, "web", 6, like=like)
    wait_running(trial, "web", 6)
    cordon(trial, "n2", on=False)

    limits = {"objectLimiters": OFF, "maxUnavailablePerWorkload": 3, "maxMigratingPerWorkload": 3}
    start_descheduler({strategy: args}, migration=limits)

    assert trial.reaches(lambda: len(on(trial, "web", "n2")) == moved, within=2 * MINUTES), trial.timeline()
    trial.pass_time(30)
    assert (len(on(trial, "web", "n1")), len(on(trial, "web", "n2"))) == (6 - moved, moved)


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-048", severity="normal", source="ours: spec RSV-R95, RSV-R96: unreleased")
def test_the_last_pod_of_a_node_is_scaled_down_first(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """ScaleDownBinPack: a workload has three pods on n1 and one on n2; scaled to three it leaves n2, although without
    the strategy the controller would take a pod from the fuller node."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 3)
    cordon(trial, "n2", on=False)
    cordon(trial, "n1")
    path = f"/apis/apps/v1/namespaces/{trial.name}/deployments/web"
    trial.call("PATCH", path, {"spec": {"replicas": 4}})
    wait_running(trial, "web", 4)
    start_descheduler({"ScaleDownBinPack": {"strategy": "CalculateOnly"}})

    def ranked() -> bool:
        return all(DELETION_COST in one.metadata.annotations for one in running(trial, "web"))

    assert trial.reaches(ranked, within=15)
    trial.call("PATCH", path, {"spec": {"replicas": 3}})

    assert trial.reaches(lambda: len(running(trial, "web")) == 3, within=15)
    assert (len(on(trial, "web", "n1")), len(on(trial, "web", "n2"))) == (3, 0)


@pytest.mark.feature("DES-1.dry-run")
@pytest.mark.case("DC-120", severity="normal", source="ours: spec RSV-R95, RSV-R96: unreleased")
@pytest.mark.long(seconds=16)
def test_a_dry_run_writes_nothing_on_pods(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """ScaleDownBinPack ranks the pods of a workload by an annotation; in a dry run it writes none."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    wait_running(trial, "web", 3)

    descheduler = start_descheduler({"ScaleDownBinPack": {"strategy": "CalculateOnly"}}, dryRun=True)

    trial.pass_time(15)
    assert "descheduler" in descheduler.metrics(), "expected a descheduler that runs"
    ranked = [pod.metadata.name for pod in running(trial, "web") if DELETION_COST in pod.metadata.annotations]
    assert ranked == []


@pytest.mark.feature("DES-1.protected")
@pytest.mark.case("DC-044", severity="critical")
@pytest.mark.long(seconds=7)
def test_protected_pods_stay(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A pod whose eviction cost is the largest number, and one with local storage, stay; others go."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "kept", 3, like=pod("x").request(cpu=1).annotation(EVICTION_COST, "2147483647"))
    local = pod("x").request(cpu=1)
    local.manifest["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    deployment(trial, "local", 3, like=local)
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    for app in ("kept", "local", "web"):
        wait_running(trial, app, 3)
    trial.pass_time(3)

    start_descheduler({"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, migration=ALL_AT_ONCE, deschedulingInterval="1h")
    assert trial.reaches(lambda: len(jobs(trial)) >= 3, within=15), shown(trial)
    trial.pass_time(2)

    assert {job.spec.pod_ref.name.split("-")[0] for job in jobs(trial)} == {"web"}
    assert len(jobs(trial)) == 3
