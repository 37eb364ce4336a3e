"""Several quota trees: nodes are tied to a tree by an ElasticQuotaProfile."""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import (
    IS_PARENT,
    QUOTAS_PATH,
    ROOT_QUOTA,
    RUNTIME,
    TOTAL_RESOURCE,
    TREE_ID,
    UNSCHEDULABLE_RESOURCE,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]

POOL = "pool"


def trees(cluster: Trial, **labels: str) -> None:
    """Two pools of one node each, with 8 and 4 cores, and a tree for each; a team quota below each tree root."""
    for pool, cores in (("big", 8), ("small", 4)):
        cluster.add(node(f"{pool}-0").cpu(cores).label(POOL, pool))
        profile = {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {"name": pool, "labels": {TREE_ID: f"{cluster.name}-{pool}"}},
            "spec": {
                "quotaName": f"{cluster.name}-{pool}-root",
                "quotaLabels": {IS_PARENT: "true", **labels},
                "nodeSelector": {"matchLabels": {POOL: pool}},
            },
        }
        cluster.apply(profile)
    path = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{cluster.name}/elasticquotas")
    roots = [f"{path}/{cluster.name}-{pool}-root" for pool in ("big", "small")]
    assert cluster.reaches(lambda: all(cluster.call("GET", root).ok for root in roots), within=30)
    totals = [orjson.loads(cluster.call("GET", root).body)["metadata"]["annotations"][TOTAL_RESOURCE] for root in roots]
    assert [orjson.loads(total)["cpu"] for total in totals] == ["8", "4"]
    for pool in ("big", "small"):
        team = quota(f"{cluster.name}-{pool}-team").max(cpu=100).below(f"{cluster.name}-{pool}-root")
        team.manifest["spec"]["max"]["memory"] = "1Ti"
        cluster.apply(team.label(TREE_ID, f"{cluster.name}-{pool}").manifest)
    cluster.cluster.wait(lambda: False, within=2)  # the order of the watches for quotas and pods is not defined


def counted(cluster: Trial, name: str, pool: str, cores: int) -> PodBuilder:
    found = pod(name).request(cpu=cores).quota(f"{cluster.name}-{pool}-team").scheduler(KOORD_SCHEDULER)
    return found.select({POOL: pool})


@pytest.mark.feature("QUOTA-7.trees")
@pytest.mark.case("QU-030", severity="critical")
def test_a_tree_divides_its_own_nodes(cluster: Trial, expect: Expect) -> None:
    """The share in a tree is that of its nodes: a pod of the small tree is refused what the big tree has free."""
    trees(cluster)

    cluster.submit(counted(cluster, "in-small", "small", 5), counted(cluster, "in-big", "big", 5))

    expect.bound("in-big")
    expect.pending("in-small", saying=f"quotaName: {cluster.name}-small-team, runtime: cpu:4")


@pytest.mark.feature("QUOTA-7.profile")
@pytest.mark.case("QU-140", severity="normal")
@pytest.mark.long(seconds=10)
def test_a_tree_root_says_what_is_closed(cluster: Trial) -> None:
    """The annotation of a tree's root has nothing at first, and the resources of a node that is not ready later."""
    trees(cluster)
    path = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{cluster.name}/elasticquotas/{cluster.name}-small-root")

    def closed() -> str:
        annotations = orjson.loads(cluster.call("GET", path).body)["metadata"]["annotations"]
        return str(orjson.loads(annotations[UNSCHEDULABLE_RESOURCE]).get("cpu", "0"))

    assert closed() == "0"
    cluster.inject({"node": "small-0", "verb": "not_ready"})
    assert cluster.reaches(lambda: closed() == "4", within=60), f"expected 4 cores on closed nodes, found {closed()}"


@pytest.mark.feature("QUOTA-7.trees")
@pytest.mark.case("QU-031", severity="normal")
def test_trees_do_not_touch(cluster: Trial, expect: Expect) -> None:
    """Demand in one tree takes nothing from another, and the rest of the cluster is what no tree has."""
    trees(cluster)
    cluster.add(node("rest").cpu(2).label(POOL, "rest"))
    cluster.apply(quota(f"{cluster.name}-plain").max(cpu=100).manifest)
    root = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/koordinator-system/elasticquotas/{ROOT_QUOTA}")

    def known() -> bool:
        found = orjson.loads(cluster.call("GET", root).body).get("metadata", {}).get("annotations", {})
        return bool(orjson.loads(found.get(RUNTIME, "{}")).get("cpu") == "2")

    # A refusal keeps its message, so the total of the default tree must be known before the pods come.
    assert cluster.reaches(known, within=30)
    plain = pod("plain").request(cpu=3).quota(f"{cluster.name}-plain").scheduler(KOORD_SCHEDULER)

    cluster.submit(counted(cluster, "greedy", "big", 60), counted(cluster, "modest", "small", 4), plain)

    expect.bound("modest")
    expect.pending("greedy", saying="runtime: cpu:8")
    expect.pending("plain", saying="runtime: cpu:2")
