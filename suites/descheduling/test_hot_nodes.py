"""What a node's usage is compared with, which hot node comes first, and which of its pods LowNodeLoad may evict."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.slo import RAW_ALLOCATABLE
from seatrial.suites.descheduling.rounds import LOAD, MINUTES, TWO_AT_ONCE, hot_node, on, reports
from seatrial.suites.descheduling.workloads import cordon, deployment, jobs, wait_running, with_nodes

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

ONE_ROUND = "1h"


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-098", source="koordinator 1.8: utilization_util.go; spec RSV-R85", severity="critical")
@pytest.mark.long(200)
def test_an_amplified_node_is_judged_by_its_real_cpus(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Pods use 7 of 16 cores, of which 8 are real: 44 % of the amplified amount and 88 % of the real one, so that three
    of seven pods leave for 60 %."""
    hot_node(trial, uses={"cpu": "1", "memory": "1Gi"})
    patch = {"metadata": {"annotations": {RAW_ALLOCATABLE: orjson.dumps({"cpu": "8"}).decode()}}}
    accepted(trial.call("PATCH", "/api/v1/nodes/n1", patch), "amplify n1")

    start_descheduler({"LowNodeLoad": LOAD}, migration=TWO_AT_ONCE)

    assert trial.reaches(lambda: len(on(trial, "web", "n1")) == 4, within=2 * MINUTES), trial.timeline()
    trial.pass_time(MINUTES)
    assert len(on(trial, "web", "n1")) == 4


@pytest.mark.feature("DES-3.order")
@pytest.mark.case("DC-099", severity="normal")
@pytest.mark.long(200)
def test_the_hottest_node_loses_pods_first(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """n1 uses 75 % of its CPU, n2 88 %, and n3, which is larger, 81 %: the only pod that a round may evict is of n2."""
    names = ("n1", "n2", "n3", "cold-1", "cold-2")
    with_nodes(trial, *names[:2], *names[3:], reports=True)
    with_nodes(trial, "n3", cpu=32, reports=True)
    for name in names:
        cordon(trial, name)
    for name, cores in (("n1", 12), ("n2", 14), ("n3", 26)):
        cordon(trial, name, on=False)
        share = {"cpu": f"{cores * 250}m", "memory": "1Gi"}
        deployment(trial, f"of-{name}", 4, like=pod("x").request(cpu=1), uses=share)
        wait_running(trial, f"of-{name}", 4)
        cordon(trial, name)
    for name in names:
        cordon(trial, name, on=False)
    reports(trial, *names)

    start_descheduler({"LowNodeLoad": LOAD}, maxNoOfPodsToEvictTotal=1, deschedulingInterval=ONE_ROUND)

    assert trial.reaches(lambda: bool(jobs(trial)), within=MINUTES), trial.timeline()
    trial.pass_time(5)
    assert [job.spec.pod_ref.name.rpartition("-n")[2][:1] for job in jobs(trial)] == ["2"]


@pytest.mark.feature("DES-3.cools")
@pytest.mark.case("DC-100", severity="critical")
@pytest.mark.long(200)
@pytest.mark.parametrize("by", ["labels", "namespaces"])
def test_load_moves_only_the_pods_that_it_may(trial: Trial, start_descheduler: StartDescheduler, by: str) -> None:
    """Two workloads make a node hot. With podSelectors for one of them, its pods move and none of the other; with the
    namespace excluded from evictableNamespaces, none moves."""
    with_nodes(trial, "n1", "n2", "n3", reports=True)
    for name in ("n2", "n3"):
        cordon(trial, name)
    for app in ("web", "also"):
        deployment(trial, app, 4, like=pod("x").request(cpu=1), uses={"cpu": "1750m", "memory": "1Gi"})
        wait_running(trial, app, 4)
    for name in ("n2", "n3"):
        cordon(trial, name, on=False)
    reports(trial)
    limits: dict[str, dict[str, Any]] = {
        "labels": {"podSelectors": [{"name": "web", "selector": {"matchLabels": {"app": "web"}}}]},
        "namespaces": {"evictableNamespaces": {"exclude": [trial.name]}},
    }

    start_descheduler({"LowNodeLoad": {**LOAD, **limits[by]}}, migration=TWO_AT_ONCE)

    amount = 1 if by == "labels" else 4  # of 87.5 %, three pods of 11 % each are above 60 %
    assert trial.reaches(lambda: len(on(trial, "web", "n1")) == amount, within=2 * MINUTES), trial.timeline()
    trial.pass_time(MINUTES)
    assert (len(on(trial, "web", "n1")), len(on(trial, "also", "n1"))) == (amount, 4)


@pytest.mark.feature("DES-1.dry-run")
@pytest.mark.case("DC-101", severity="critical")
@pytest.mark.long(100)
@pytest.mark.parametrize("switch", ["dryRun", "paused"])
def test_load_alone_is_switched_off(trial: Trial, start_descheduler: StartDescheduler, switch: str) -> None:
    """With dryRun or paused among its arguments LowNodeLoad evicts nothing; another strategy of the profile evicts."""
    hot_node(trial)
    deployment(trial, "old", 3, like=pod("x").request(cpu="100m").label("age", "old"))
    wait_running(trial, "old", 3)
    life = {"maxPodLifeTimeSeconds": 1, "labelSelector": {"matchLabels": {"age": "old"}}}

    start_descheduler({"LowNodeLoad": {**LOAD, switch: True}, "PodLifeTime": life}, migration=TWO_AT_ONCE)

    assert trial.reaches(lambda: bool(jobs(trial)), within=MINUTES), trial.timeline()
    trial.pass_time(30)
    assert {job.spec.pod_ref.name.partition("-")[0] for job in jobs(trial)} == {"old"}
