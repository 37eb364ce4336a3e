"""What makes a node hot for LowNodeLoad: which resource, for how many rounds, by which thresholds, among how many."""

from typing import Any

import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.migration import EVICTION_COST
from seatrial.scheduler.api.slo import NODE_METRICS_PATH
from seatrial.suites.descheduling.rounds import LOAD, MINUTES, SOON, TWO_AT_ONCE, hot_node, on, reports
from seatrial.suites.descheduling.workloads import (
    ALL_AT_ONCE,
    REPORT,
    annotate,
    cordon,
    deployment,
    jobs,
    metric,
    running,
    use,
    wait_running,
    with_nodes,
)
from seatrial.suites.loadaware.reports import node_use, report

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

HOST = "kubernetes.io/hostname"
SEVEN_AT_ONCE = {**ALL_AT_ONCE, "maxMigratingPerWorkload": 7, "maxUnavailablePerWorkload": 7}


def moves(trial: Trial) -> list[str]:
    """What was done, for a message: the pods on n1, and the jobs with their reasons."""
    return [
        *(pod.metadata.name for pod in on(trial, "web", "n1")),
        *(
            f"{job.status.phase} {job.status.reason}: {job.metadata.annotations.get('koordinator.sh/evict-reason')}"
            for job in jobs(trial)
        ),
    ]


def settles_at(trial: Trial, left: int) -> bool:
    """Whether n1 has this number of pods of `web` after three minutes, and still has it when moves had time to end."""
    trial.pass_time(3 * MINUTES)
    trial.reaches(lambda: len(on(trial, "web", "n1")) <= left, within=0)
    trial.pass_time(REPORT)
    return len(on(trial, "web", "n1")) == left


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-092", severity="critical")
@pytest.mark.long(300)
def test_a_node_is_hot_by_memory_alone(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """88 % of a node's memory is used and hardly any CPU; 60 % is the limit of both: three of seven pods move."""
    hot_node(trial, uses={"cpu": "100m", "memory": "8Gi"})

    thresholds = {"lowThresholds": {"cpu": 30, "memory": 30}, "highThresholds": {"cpu": 60, "memory": 60}}
    start_descheduler({"LowNodeLoad": {**LOAD, **thresholds}}, migration=TWO_AT_ONCE)

    assert settles_at(trial, 4), moves(trial)
    reasons = " ".join(job.metadata.annotations["koordinator.sh/evict-reason"] for job in jobs(trial))
    assert "node memory usage(87.50%)>threshold(60.00%)" in reasons


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("MG-321", severity="normal", source="spec RSV-R85: `pods` = pod counts")
@pytest.mark.long(200)
def test_a_node_is_hot_by_its_number_of_pods(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Seven of the 110 pods that a node may have are too many with a threshold of 5 %: two go."""
    hot_node(trial, uses={"cpu": "100m", "memory": "64Mi"})
    pods = {"lowThresholds": {"pods": 3}, "highThresholds": {"pods": 5}}

    start_descheduler({"LowNodeLoad": {**LOAD, **pods}}, migration=TWO_AT_ONCE, deschedulingInterval="1h")

    assert trial.reaches(lambda: len(jobs(trial)) >= 2, within=MINUTES), trial.timeline()
    trial.pass_time(5)
    assert len(jobs(trial)) == 2


@pytest.mark.feature("DES-3.spikes")
@pytest.mark.case("DC-093", severity="critical")
@pytest.mark.long(400)
def test_spikes_with_a_pause_between_them_are_not_added_up(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Anomaly count 4, a round every 10 s. A node is hot for one report of 30 s, then within its limits, and hot for
    another report: nothing is evicted. Then it stays hot, and a pod leaves."""
    hot_node(trial, uses={"cpu": "1", "memory": "1Gi"})

    def consume(cpu: str) -> None:
        for item in running(trial, "web"):
            use(trial, item, cpu=cpu, memory="1Gi")

    condition = {"timeout": "5m", "consecutiveAbnormalities": 4}
    start_descheduler({"LowNodeLoad": {**LOAD, "anomalyCondition": condition}})
    for cpu in ("2", "1", "2", "1"):
        consume(cpu)
        reports(trial)
    trial.pass_time(20)
    assert jobs(trial) == []

    consume("2")

    assert trial.reaches(lambda: bool(jobs(trial)), within=REPORT + MINUTES + 15)


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-094", severity="normal")
@pytest.mark.parametrize(
    ("least", "cordoned", "left"),
    [
        pytest.param(1, (), 4, id="enough-cold-nodes"),
        pytest.param(2, (), 7, id="too-few-cold-nodes"),
        pytest.param(0, ("n2", "n3"), 7, id="cordoned"),
    ],
)
@pytest.mark.long(300)
def test_few_cold_nodes_are_left_alone(
    trial: Trial, start_descheduler: StartDescheduler, least: int, cordoned: tuple[str, ...], left: int
) -> None:
    """Two nodes are cold. With a numberOfNodes of 1 three pods of the hot node move, with 2 none does. Cordoned nodes
    take no pods, though nodeFit is off."""
    hot_node(trial)
    for name in cordoned:
        cordon(trial, name)

    args = {**LOAD, "numberOfNodes": least, "nodeFit": not cordoned}
    start_descheduler({"LowNodeLoad": args}, migration=TWO_AT_ONCE)

    assert settles_at(trial, left), moves(trial)
    assert bool(jobs(trial)) == (left < 7), moves(trial)


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-095", severity="normal")
@pytest.mark.long(300)
def test_thresholds_are_distances_from_the_average(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Deviation thresholds of 10 %: the three nodes use 29 % on average, so pods leave the node with 88 % until it is
    below 39 %. That are four of seven; 10 % itself is less than any other node could take."""
    hot_node(trial)

    deviation: dict[str, Any] = {
        "useDeviationThresholds": True,
        "lowThresholds": {"cpu": 10},
        "highThresholds": {"cpu": 10},
        "anomalyCondition": SOON,
    }
    start_descheduler({"LowNodeLoad": deviation}, migration=TWO_AT_ONCE)

    assert settles_at(trial, 3), moves(trial)


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-096", severity="normal")
@pytest.mark.parametrize(
    ("own", "rounds", "left"),
    [
        pytest.param({}, (1, "1h"), 4, id="inherited"),
        pytest.param({"anomalyCondition": {"timeout": "5m"}}, (1, "1h"), 4, id="counts-inherited"),
        pytest.param({"anomalyCondition": {"consecutiveAbnormalities": 2}}, (1, "1h"), 7, id="counts-larger"),
        pytest.param({"anomalyCondition": {"consecutiveAbnormalities": 2}}, (50, "10s"), 4, id="counts-smaller"),
        pytest.param(
            {"useDeviationThresholds": True, "lowThresholds": {"cpu": 10}, "highThresholds": {"cpu": 10}},
            (1, "1h"),
            3,
            id="distances",
        ),
    ],
)
@pytest.mark.long(300)
def test_a_pool_of_nodes_has_thresholds_of_its_own(
    trial: Trial, start_descheduler: StartDescheduler, own: dict[str, Any], rounds: tuple[int, str], left: int
) -> None:
    """The limit is 95 %, and 60 % for the pool that all nodes are of: three of seven pods leave the node with 88 %.
    They do in the first round by the counts of the top level; by counts of its own, for which the rounds of the other
    pool do not count, later or sooner. Distances of 10 % from the average, 29 %, are its own too: four leave."""
    counts, interval = rounds
    hot_node(trial)
    for name in ("n1", "n2", "n3"):
        patch = {"metadata": {"labels": {"seatrial.dev/pool": "tight"}}}
        accepted(trial.call("PATCH", f"/api/v1/nodes/{name}", patch), f"label {name}")

    pool = {
        "name": "tight",
        "nodeSelector": {"matchLabels": {"seatrial.dev/pool": "tight"}},
        "lowThresholds": {"cpu": 30},
        "highThresholds": {"cpu": 60},
        **own,
    }
    condition = {"timeout": "5m", "consecutiveAbnormalities": counts}
    args = {**LOAD, "highThresholds": {"cpu": 95}, "anomalyCondition": condition, "nodePools": [pool]}
    start_descheduler({"LowNodeLoad": args}, migration=SEVEN_AT_ONCE, deschedulingInterval=interval)

    assert settles_at(trial, left), moves(trial)


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-121", severity="normal")
@pytest.mark.parametrize(
    ("pools", "first", "left"),
    [((60, 40), {}, 4), ((40, 60), {}, 3), ((60, 40), {HOST: "n1"}, 3)],
    ids=["60-before-40", "40-before-60", "first-without-targets"],
)
@pytest.mark.long(300)
def test_a_round_cools_a_node_by_one_pool(
    trial: Trial, start_descheduler: StartDescheduler, pools: tuple[int, int], first: dict[str, str], left: int
) -> None:
    """Two pools select all nodes, with limits of 60 % and 40 %. In one round the first of them alone moves pods of the
    node with 88 %: three of seven, or four; the second one does where the first has no other node."""
    hot_node(trial)

    tables = [
        {
            "name": f"limit-{limit}",
            "nodeSelector": {"matchLabels": {TRIAL_LABEL: trial.name, **({} if number else first)}},
            "lowThresholds": {"cpu": 30},
            "highThresholds": {"cpu": limit},
        }
        for number, limit in enumerate(pools)
    ]
    start_descheduler(
        {"LowNodeLoad": {**LOAD, "highThresholds": {"cpu": 95}, "nodePools": tables}},
        migration=SEVEN_AT_ONCE,
        deschedulingInterval="1h",
    )

    assert settles_at(trial, left), moves(trial)


@pytest.mark.feature("DES-3.prod-thresholds")
@pytest.mark.case("DC-111", severity="critical")
@pytest.mark.long(200)
@pytest.mark.parametrize(("low", "pods", "cores"), [(20, 4, 2), (30, 2, 4)], ids=["not-low", "no-room-for-the-pod"])
def test_prod_pods_go_where_prod_pods_use_little(
    trial: Trial, start_descheduler: StartDescheduler, low: int, pods: int, cores: int
) -> None:
    """Prod pods use 50 % of n1, 40 % is their limit. The only other node is cold, but prod pods use 25 % of it: that is
    above the low threshold, or with one more pod above the limit, and nothing moves. At 13 % one pod does."""
    with_nodes(trial, "n1", "n2", reports=True)
    prod = {"koordinator.sh/priority-class": "koord-prod"}
    for app, name, other, count, each in (("there", "n2", "n1", 2, 2), ("web", "n1", "n2", pods, cores)):
        cordon(trial, other)
        like = pod("x").request(cpu=1, memory="1Gi")
        for key, value in prod.items():
            like.label(key, value)
        deployment(trial, app, count, like=like, uses={"cpu": str(each), "memory": "1Gi"})
        assert {pod.spec.node_name for pod in wait_running(trial, app, count)} == {name}
        cordon(trial, other, on=False)
    reports(trial, "n1", "n2")

    thresholds = {
        "lowThresholds": {"cpu": 60},
        "highThresholds": {"cpu": 95},
        "prodLowThresholds": {"cpu": low},
        "prodHighThresholds": {"cpu": 40},
    }
    start_descheduler({"LowNodeLoad": {**thresholds, "anomalyCondition": SOON}}, migration=ALL_AT_ONCE)

    assert not trial.wait(lambda: bool(jobs(trial)), within=30), jobs(trial)
    for item in running(trial, "there"):
        use(trial, item, cpu="1", memory="1Gi")
    assert trial.reaches(lambda: bool(jobs(trial)), within=REPORT + MINUTES), trial.timeline()
    trial.pass_time(MINUTES)
    assert (len(on(trial, "web", "n1")), len(on(trial, "web", "n2"))) == (pods - 1, 1)


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-112", severity="critical")
@pytest.mark.long(200)
def test_what_runs_outside_of_pods_heats_a_node(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Pods use 50 % of n1, 60 % is the limit, and nothing moves. Programs of the system use 19 % besides: one pod of
    two cores leaves, with which the node is within its limit."""
    hot_node(trial, pods=4)
    start_descheduler({"LowNodeLoad": LOAD}, migration=TWO_AT_ONCE)
    assert not trial.wait(lambda: bool(jobs(trial)), within=30), jobs(trial)

    node_use(trial, "n1", cpu="3", memory="1Gi")

    assert trial.reaches(lambda: bool(jobs(trial)), within=2 * REPORT + MINUTES), trial.timeline()
    trial.pass_time(MINUTES)
    assert (len(on(trial, "web", "n1")), len(jobs(trial))) == (3, 1)


@pytest.mark.feature("DES-3.spikes")
@pytest.mark.case("DC-130", severity="normal", source="spec RSV-R88")
@pytest.mark.long(500)
def test_a_node_that_was_hot_long_ago_is_not_hot_at_its_first_spike(
    trial: Trial, start_descheduler: StartDescheduler
) -> None:
    """Anomaly count 4, a timeout of a minute, and a hundred normal rounds until a node counts as normal. A node is hot
    while its pods may not be evicted, and then within its limits for two minutes. It is hot for one report: no pod
    leaves. It stays hot: one does."""
    hot_node(trial, like=pod("x").request(cpu=1, memory="1Gi").annotation(EVICTION_COST, str(2**31 - 1)))
    condition = {"timeout": "1m", "consecutiveAbnormalities": 4, "consecutiveNormalities": 100}
    start_descheduler({"LowNodeLoad": {**LOAD, "anomalyCondition": condition}}, migration=TWO_AT_ONCE)

    def consume(cpu: str) -> None:
        for item in running(trial, "web"):
            use(trial, item, cpu=cpu, memory="1Gi")
        reports(trial)

    trial.pass_time(2 * MINUTES)
    consume("1")
    trial.pass_time(2 * MINUTES)
    for item in running(trial, "web"):
        annotate(trial, item, **{EVICTION_COST: "0"})
    for cpu in ("2", "1"):
        consume(cpu)
    trial.pass_time(20)
    assert jobs(trial) == []

    consume("2")

    assert trial.reaches(lambda: bool(jobs(trial)), within=MINUTES + 15)


HOT, NORMAL, COLD, UNSEEN = ("14", 0.0), ("7", 0.0), ("1", 0.0), ("14", 3600.0)  # cores of n1, age of the report
OWN_COUNTS = pytest.mark.case("DC-310", severity="normal", source="ours: rounds in which a node is normal count")


@pytest.mark.feature("DES-3.spikes")
@pytest.mark.case("DC-310", severity="normal", source="spec RSV-R88: a detector that is idle vanishes")
@pytest.mark.long(300)
@pytest.mark.parametrize(
    ("rounds", "acts_in"),
    [
        pytest.param([(HOT, 2), (NORMAL, 3)], 1, id="too-few-normal-rounds", marks=OWN_COUNTS),
        pytest.param([(HOT, 2), (NORMAL, 4)], 3, id="enough-normal-rounds", marks=OWN_COUNTS),
        pytest.param([(HOT, 2), (NORMAL, 2), (HOT, 1), (NORMAL, 2)], 1, id="not-in-a-row", marks=OWN_COUNTS),
        pytest.param([(HOT, 2), (COLD, 1)], 3, id="cold-for-a-round"),
        pytest.param([(HOT, 1), (UNSEEN, 1)], 1, id="unseen-for-a-moment"),
        pytest.param([(HOT, 1), (UNSEEN, 3)], 3, id="unseen-for-long"),
    ],
)
def test_which_rounds_count(
    trial: Trial, start_descheduler: StartDescheduler, rounds: list[tuple[tuple[str, float], int]], acts_in: int
) -> None:
    """A node is hot after more than two hot rounds, and normal after more than three normal ones in a row; what was
    seen of it is forgotten after 25 s. Rounds come every 10 s, and its pods may go from the last hot spell on: they do
    in its first round if the node is hot still, else in the third. One cold round makes it normal."""
    hot_node(trial, like=pod("x").request(cpu=1, memory="1Gi").annotation(EVICTION_COST, str(2**31 - 1)))
    policy = {"metricCollectPolicy": {"reportIntervalSeconds": 3600}}
    accepted(trial.call("PATCH", f"{NODE_METRICS_PATH}/n1", {"spec": policy}), "report seldom")
    trial.pass_time(REPORT + 5)
    pods = running(trial, "web")
    like = {pod.metadata.name: ("2", "1Gi", "koord-prod") for pod in pods}

    def pass_rounds(used: tuple[str, float], count: int) -> None:
        share = {name: (f"{int(used[0]) * 1000 // 7}m", *rest) for name, (_, *rest) in like.items()}
        report(trial, "n1", used[0], "7Gi", pods=share, age=used[1])  # type: ignore[arg-type]
        trial.pass_time(10 * count)

    condition = {"timeout": "5m", "consecutiveAbnormalities": 2, "consecutiveNormalities": 3}
    args = {**LOAD, "anomalyCondition": condition, "detectorCacheTimeout": "25s"}
    start_descheduler({"LowNodeLoad": args}, migration=SEVEN_AT_ONCE)
    trial.pass_time(5)  # the first round was a hot one
    for used, count in rounds:
        pass_rounds(used, count)
    assert jobs(trial) == []
    for item in pods:
        annotate(trial, item, **{EVICTION_COST: "0"})

    pass_rounds(HOT, 1)
    if acts_in > 1:
        assert jobs(trial) == [], "expected no pod to leave in the first round"
        pass_rounds(HOT, acts_in - 1)
    assert jobs(trial), f"expected pods to leave in round {acts_in}"


@pytest.mark.feature("DES-3.spikes")
@pytest.mark.case(
    "DC-320",
    severity="normal",
    source="koordinator pkg/descheduler/framework/plugins/loadaware/low_node_load.go@v1.7.0; spec RSV-R88",
)
@pytest.mark.long(200)
def test_a_node_that_was_relieved_is_judged_anew(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A node is hot after more than two hot rounds, and three of seven pods leave it. By the next report those that are
    left use as much as all did: none of them leaves in the next two rounds, and in the third one does."""
    hot_node(trial)
    policy = {"metricCollectPolicy": {"reportIntervalSeconds": 3600}}
    accepted(trial.call("PATCH", f"{NODE_METRICS_PATH}/n1", {"spec": policy}), "report seldom")
    trial.pass_time(REPORT + 5)

    def use_all(names: set[str]) -> None:
        share = {name: (f"{14000 // len(names)}m", "1Gi", "koord-prod") for name in names}
        report(trial, "n1", "14", "7Gi", pods=share)

    names = {pod.metadata.name for pod in running(trial, "web")}
    use_all(names)
    condition = {"timeout": "5m", "consecutiveAbnormalities": 2, "consecutiveNormalities": 3}
    start_descheduler({"LowNodeLoad": {**LOAD, "anomalyCondition": condition}}, migration=SEVEN_AT_ONCE)
    trial.pass_time(25)
    assert len(jobs(trial)) == 3, moves(trial)

    use_all(names - {job.spec.pod_ref.name for job in jobs(trial)})
    trial.pass_time(20)
    assert len(jobs(trial)) == 3, moves(trial)
    trial.pass_time(10)
    assert len(jobs(trial)) > 3, moves(trial)


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case(
    "DC-131", severity="critical", source="spec RSV-R85, RSV-R86: a node without a NodeMetric takes no part"
)
@pytest.mark.long(200)
def test_a_node_whose_usage_is_gone_is_left_alone(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """A node becomes hot between two rounds, and its NodeMetric is deleted: no pod leaves in the next round. There is a
    new NodeMetric: pods do."""
    hot_node(trial, uses={"cpu": "1", "memory": "1Gi"})
    start_descheduler({"LowNodeLoad": LOAD}, migration=TWO_AT_ONCE, deschedulingInterval="80s")
    trial.pass_time(5)
    for item in running(trial, "web"):
        use(trial, item, cpu="2", memory="1Gi")
    reports(trial, "n1")
    assert trial.call("DELETE", f"{NODE_METRICS_PATH}/n1").ok

    trial.pass_time(80)
    assert jobs(trial) == []

    metric(trial, "n1")
    assert trial.reaches(lambda: bool(jobs(trial)), within=180)


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-150", severity="normal", source="spec RSV-R85: a NodeMetric without data leaves its node out")
@pytest.mark.long(200)
def test_a_report_without_usage_makes_no_target(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """The newest reports of the two nodes that could take pods have no usage: none leaves the hot node. One of the two
    has a usage again: pods do."""
    hot_node(trial)
    for name in ("n1", "n2", "n3"):
        policy = {"metricCollectPolicy": {"reportIntervalSeconds": 3600}}
        accepted(trial.call("PATCH", f"{NODE_METRICS_PATH}/{name}", {"spec": policy}), "report seldom")
    trial.pass_time(REPORT + 5)
    for name in ("n2", "n3"):
        empty = {"status": {"nodeMetric": None}}
        accepted(trial.call("PATCH", f"{NODE_METRICS_PATH}/{name}/status", empty), "drop the usage")
    start_descheduler({"LowNodeLoad": {**LOAD, "nodeMetricExpirationSeconds": 3600}}, migration=TWO_AT_ONCE)
    trial.pass_time(MINUTES)
    assert jobs(trial) == []

    report(trial, "n2", "1", "1Gi", system=("1", "1Gi"))

    assert trial.reaches(lambda: bool(jobs(trial)), within=MINUTES), trial.timeline()


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-153", severity="normal", source="ours: usage is that of NodeMetrics")
@pytest.mark.long(700)
@pytest.mark.parametrize(
    ("by", "age", "cordoned", "moves"),
    [
        pytest.param("usage", 0, False, True, id="usage"),
        pytest.param("usage", 600, False, False, id="old-report"),
        pytest.param("usage", 0, True, False, id="cordoned-target"),
        pytest.param("requests", 0, False, False, id="requests"),
    ],
)
def test_low_node_utilization_by_usage(
    trial: Trial, start_descheduler: StartDescheduler, by: str, age: int, *, cordoned: bool, moves: bool
) -> None:
    """The pods of a node request 44 % of its CPU and use 88 %, and 60 % is the limit: pods leave by their usage, not by
    that of a report of ten minutes ago, and not by requests. Two other nodes must be able to take pods: not if one is
    cordoned."""
    hot_node(trial)
    for name in ("n1", "n2", "n3"):
        policy = {"metricCollectPolicy": {"reportIntervalSeconds": 3600}}
        accepted(trial.call("PATCH", f"{NODE_METRICS_PATH}/{name}", {"spec": policy}), "report seldom")
    trial.pass_time(REPORT + 5 + age)
    cordon(trial, "n3", on=cordoned)
    args = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 60}, "numberOfNodes": 1}
    real = {"metricsUtilization": {"source": "KubernetesMetrics"}} if by == "usage" else {}
    start_descheduler({"LowNodeUtilization": {**args, **real}}, migration=SEVEN_AT_ONCE, deschedulingInterval="1h")

    assert trial.wait(lambda: bool(jobs(trial)), within=15) == moves, jobs(trial)
