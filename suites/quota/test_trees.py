"""Several quota trees: nodes are tied to a tree by an ElasticQuotaProfile."""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import (
    IGNORE_DEFAULT_TREE,
    IS_PARENT,
    IS_ROOT,
    PROFILE,
    QUOTAS_PATH,
    RESOURCE_KEYS,
    ROOT_QUOTA,
    RUNTIME,
    TOTAL_RESOURCE,
    TREE_ID,
    UNSCHEDULABLE_RESOURCE,
)
from seatrial.suites.quota.quotas import make, many, named, placed, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]

POOL = "pool"


def trees(trial: Trial, **labels: str) -> None:
    """Two pools of one node each, with 8 and 4 cores, and a tree for each; a team quota below each tree root."""
    for pool, cores in (("big", 8), ("small", 4)):
        trial.add(node(f"{pool}-0").cpu(cores).label(POOL, pool))
        profile = {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {"name": pool, "labels": {TREE_ID: f"{trial.name}-{pool}"}},
            "spec": {
                "quotaName": f"{trial.name}-{pool}-root",
                "quotaLabels": {IS_PARENT: "true", **labels},
                "nodeSelector": {"matchLabels": {POOL: pool}},
            },
        }
        trial.apply(profile)
    path = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{trial.name}/elasticquotas")
    roots = [f"{path}/{trial.name}-{pool}-root" for pool in ("big", "small")]
    assert trial.reaches(lambda: all(trial.call("GET", root).ok for root in roots), within=30)
    totals = [orjson.loads(trial.call("GET", root).body)["metadata"]["annotations"][TOTAL_RESOURCE] for root in roots]
    assert [orjson.loads(total)["cpu"] for total in totals] == ["8", "4"]
    for pool in ("big", "small"):
        team = quota(f"{trial.name}-{pool}-team").max(cpu=100).below(f"{trial.name}-{pool}-root")
        team.manifest["spec"]["max"]["memory"] = "1Ti"
        trial.apply(team.label(TREE_ID, f"{trial.name}-{pool}").manifest)
    trial.pass_time(2)  # the order of the watches for quotas and pods is not defined


def counted(trial: Trial, name: str, pool: str, cores: int) -> PodBuilder:
    builder = pod(name).request(cpu=cores).quota(f"{trial.name}-{pool}-team").scheduler(KOORD_SCHEDULER)
    return builder.select({POOL: pool})


@pytest.mark.feature("QUOTA-7.trees")
@pytest.mark.case("QU-030", severity="critical")
def test_a_tree_divides_its_own_nodes(trial: Trial, expect: Expect) -> None:
    """The share in a tree is that of its nodes: a pod of the small tree is refused what the big tree has free."""
    trees(trial)

    trial.submit(counted(trial, "in-small", "small", 5), counted(trial, "in-big", "big", 5))

    expect.bound("in-big")
    expect.pending("in-small", saying=f"quotaName: {trial.name}-small-team, runtime: cpu:4")


@pytest.mark.feature("QUOTA-7.trees")
@pytest.mark.case(
    "QT-350",
    severity="normal",
    source="koordinator elasticquota/quota_handler.go@v1.7.0: handlerQuotaWhenRoot; spec QUOTA-R59",
)
def test_the_total_of_a_tree_changes_alone(trial: Trial, expect: Expect) -> None:
    """A root that an administrator makes has a total of four cores: a pod of five waits until it is eight."""
    trial.add(node("own-0").cpu(16).label(POOL, "own"))
    tree, root = f"{trial.name}-own", f"{trial.name}-own-root"
    top = quota(root).max(cpu=100).label(TREE_ID, tree).label(IS_ROOT, "true").label(IS_PARENT, "true")
    trial.apply(top.annotation(TOTAL_RESOURCE, '{"cpu":"4","memory":"1Ti"}').manifest)
    trial.apply(quota(f"{tree}-team").max(cpu=100).below(root).label(TREE_ID, tree).manifest)
    trial.settle(2)
    trial.submit(counted(trial, "a", "own", 5))
    expect.pending("a", saying=f"quotaName: {tree}-team, runtime: cpu:4")

    change = {"metadata": {"annotations": {TOTAL_RESOURCE: '{"cpu":"8","memory":"1Ti"}'}}}
    assert trial.call("PATCH", trial.path("ElasticQuota", root), change).ok

    expect.bound("a", within=60)


@pytest.mark.feature("QUOTA-7.profile")
@pytest.mark.case("QU-140", severity="normal")
@pytest.mark.long(seconds=10)
def test_a_tree_root_says_what_is_closed(trial: Trial) -> None:
    """The annotation of a tree's root has nothing at first, and the resources of a node that is not ready later."""
    trees(trial)
    path = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{trial.name}/elasticquotas/{trial.name}-small-root")

    def closed() -> str:
        annotations = orjson.loads(trial.call("GET", path).body)["metadata"]["annotations"]
        return str(orjson.loads(annotations[UNSCHEDULABLE_RESOURCE]).get("cpu", "0"))

    assert closed() == "0"
    trial.inject({"node": "small-0", "verb": "not_ready"})
    assert trial.reaches(lambda: closed() == "4", within=60), f"expected 4 cores on closed nodes, found {closed()}"


@pytest.mark.feature("QUOTA-7.trees")
@pytest.mark.case("QU-031", severity="normal")
def test_trees_do_not_touch(trial: Trial, expect: Expect) -> None:
    """Demand in one tree takes nothing from another, and the rest of the cluster is what no tree has."""
    trees(trial)
    trial.add(node("rest").cpu(2).label(POOL, "rest"))
    trial.apply(quota(f"{trial.name}-plain").max(cpu=100).manifest)
    root = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/koordinator-system/elasticquotas/{ROOT_QUOTA}")

    def known() -> bool:
        annotations = orjson.loads(trial.call("GET", root).body).get("metadata", {}).get("annotations", {})
        return bool(orjson.loads(annotations.get(RUNTIME, "{}")).get("cpu") == "2")

    # A refusal keeps its message, so the total of the default tree must be known before the pods come.
    assert trial.reaches(known, within=30)
    plain = pod("plain").request(cpu=3).quota(f"{trial.name}-plain").scheduler(KOORD_SCHEDULER)

    trial.submit(counted(trial, "greedy", "big", 60), counted(trial, "modest", "small", 4), plain)

    expect.bound("modest")
    expect.pending("greedy", saying="runtime: cpu:8")
    expect.pending("plain", saying="runtime: cpu:2")


@pytest.mark.feature("QUOTA-7.trees")
@pytest.mark.case(
    "QT-310", severity="normal", source="spec QUOTA-R59; koordinator: elasticquota/quota_handler.go@v1.7.0"
)
@pytest.mark.parametrize(("ignored", "most"), [("true", 4), ("false", 2)], ids=["shared", "deducted"])
def test_whose_nodes_trees_have(trial: Trial, ignored: str, most: int) -> None:
    """Of fourteen cores two trees have twelve: the others divide two, or all where the trees are not deducted."""
    trees(trial, **{IGNORE_DEFAULT_TREE: ignored})
    trial.add(node("rest").cpu(2).label(POOL, "rest"))
    make(trial, quota(named(trial, "c")).max(cpu=14))
    trial.submit(*many(trial, "c", 4))
    settle(trial)
    assert placed(trial, "c-") == most


@pytest.mark.feature("QUOTA-7.profile")
@pytest.mark.case(
    "QT-311", severity="normal", source="spec QUOTA-R62, E41; koordinator: quota-controller/profile@v1.7.0"
)
@pytest.mark.parametrize(
    ("annotations", "keys"), [({}, {"cpu", "memory"}), ({RESOURCE_KEYS: '["cpu"]'}, {"cpu"})], ids=["default", "cpu"]
)
def test_resources_of_a_tree_root(trial: Trial, annotations: dict[str, str], keys: set[str]) -> None:
    """Min and max of a tree root have CPUs and memory, or what the profile says; its total has all resources."""
    trial.add(node("own-0").cpu(2).label(POOL, "own"))
    name = f"{trial.name}-own-root"
    trial.apply(
        {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {"name": "own", "labels": {TREE_ID: f"{trial.name}-own"}, "annotations": annotations},
            "spec": {"quotaName": name, "nodeSelector": {"matchLabels": {POOL: "own"}}},
        }
    )
    path = trial.path("ElasticQuota", name)
    assert trial.reaches(lambda: trial.call("GET", path).ok, within=30)
    root = orjson.loads(trial.call("GET", path).body)

    assert root["spec"]["min"].keys() == root["spec"]["max"].keys() == keys
    assert (root["spec"]["min"]["cpu"], root["spec"]["max"]["cpu"]) == ("2", "4611686018427387")
    assert {"cpu", "memory", "pods"} <= orjson.loads(root["metadata"]["annotations"][TOTAL_RESOURCE]).keys()


@pytest.mark.feature("QUOTA-7.trees")
@pytest.mark.case("QU-315", severity="normal", source="spec QUOTA-R59, QUOTA-R64")
def test_the_nodes_of_a_tree_that_ends_belong_to_the_cluster(trial: Trial, expect: Expect) -> None:
    """The rest of the cluster has two cores, so a pod of three waits. A tree of four cores loses its profile, team and
    root: the pod is bound."""
    trees(trial)
    trial.add(node("rest").cpu(2).label(POOL, "rest"))
    trial.apply(quota(f"{trial.name}-plain").max(cpu=100).manifest)
    trial.submit(pod("plain").request(cpu=3).quota(f"{trial.name}-plain").scheduler(KOORD_SCHEDULER))
    expect.pending("plain", saying="runtime: cpu:2")

    assert trial.call("DELETE", trial.path("ElasticQuotaProfile", "small")).ok
    for name in ("team", "root"):
        assert trial.call("DELETE", trial.path("ElasticQuota", f"{trial.name}-small-{name}")).ok

    expect.bound("plain")


@pytest.mark.feature("QUOTA-7.profile")
@pytest.mark.case("QU-320", severity="normal", source="spec QUOTA-R60")
def test_a_profile_without_a_tree_gets_one(trial: Trial) -> None:
    """The ID of its tree is the FNV-1a hash of its namespace and name, and is written to the profile and its root."""
    trial.add(node("own-0").cpu(2).label(POOL, "own"))
    spec = {"quotaName": f"{trial.name}-own-root", "nodeSelector": {"matchLabels": {POOL: "own"}}}
    kind = {"apiVersion": "quota.koordinator.sh/v1alpha1", "kind": "ElasticQuotaProfile"}
    trial.apply({**kind, "metadata": {"name": "own"}, "spec": spec})
    digest = 0xCBF29CE484222325
    for byte in f"{trial.name}/own".encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64

    def ids() -> list[str]:
        paths = (trial.path("ElasticQuotaProfile", "own"), trial.path("ElasticQuota", f"{trial.name}-own-root"))
        bodies = [orjson.loads(trial.call("GET", path).body) for path in paths]
        return [(body["metadata"].get("labels") or {}).get(TREE_ID, "") for body in bodies]

    assert trial.reaches(lambda: ids() == [str(digest)] * 2, within=30), ids()


@pytest.mark.feature("QUOTA-7.profile")
@pytest.mark.case("QU-411", severity="normal", source="spec QUOTA-R62")
def test_labels_of_a_tree_root(trial: Trial) -> None:
    """A tree root has the labels of its profile, but for those that say which tree it is the root of."""
    trial.add(node("own-0").cpu(2).label(POOL, "own"))
    target = {PROFILE: "alias", TREE_ID: f"{trial.name}-own", IS_ROOT: "true", IS_PARENT: "true", "team": "red"}
    labels = target | {TREE_ID: "other", IS_ROOT: "false"}
    spec = {"quotaName": f"{trial.name}-own-root", "quotaLabels": labels}
    profile = {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"name": "own", "labels": {TREE_ID: f"{trial.name}-own"}},
        "spec": {**spec, "nodeSelector": {"matchLabels": {POOL: "own"}}},
    }
    trial.apply(profile)
    path = trial.path("ElasticQuota", f"{trial.name}-own-root")

    assert trial.reaches(lambda: trial.call("GET", path).ok, within=30)

    def labelled() -> bool:
        own = orjson.loads(trial.call("GET", path).body)["metadata"]["labels"]
        return {key: own.get(key) for key in target} == target

    assert labelled()
    assert trial.call("PATCH", path, {"metadata": {"labels": {"team": "blue"}}}).ok
    assert not labelled()
    assert trial.reaches(labelled, within=30)


@pytest.mark.feature("QUOTA-7.profile")
@pytest.mark.case("QT-321", severity="normal", source="spec QUOTA-R61; koordinator: quota-controller/profile@v1.7.0")
def test_parts_of_nodes(trial: Trial) -> None:
    """Profiles have eight cores and a ratio: one that is no number above 0 and up to 1 counts as 1, and what it gives
    is rounded down."""
    trial.add(node("own-0").cpu(8).label(POOL, "own"))
    rows = {"1": "8", "1.5": "8", "0": "8", "half": "8", "0.3333": "2666m"}
    for number, ratio in enumerate(rows):
        selector = {"matchLabels": {POOL: "own"}}
        spec = {"quotaName": f"{trial.name}-root-{number}", "nodeSelector": selector, "resourceRatio": ratio}
        metadata = {"name": f"own-{number}", "labels": {TREE_ID: f"{trial.name}-{number}"}}
        kind = {"apiVersion": "quota.koordinator.sh/v1alpha1", "kind": "ElasticQuotaProfile"}
        trial.apply({**kind, "metadata": metadata, "spec": spec})
    paths = [trial.path("ElasticQuota", f"{trial.name}-root-{number}") for number in range(len(rows))]
    assert trial.reaches(lambda: all(trial.call("GET", path).ok for path in paths), within=30)
    least = [orjson.loads(trial.call("GET", path).body)["spec"]["min"]["cpu"] for path in paths]
    assert dict(zip(rows, least, strict=True)) == rows


@pytest.mark.feature("QUOTA-7.trees")
@pytest.mark.case("QU-321", severity="normal", source="spec QUOTA-R57")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # Koordinator's webhook refuses the change
def test_a_quota_stays_in_its_first_tree(trial: Trial, expect: Expect) -> None:
    """The team of the small tree gets the label of the big one: a pod is refused by the share in the small tree."""
    trees(trial)
    path = trial.path("ElasticQuota", f"{trial.name}-small-team")
    change = {"metadata": {"labels": {TREE_ID: f"{trial.name}-big"}}, "spec": {"max": {"cpu": "90"}}}
    assert trial.call("PATCH", path, change).ok
    trial.pass_time(2)

    trial.submit(counted(trial, "late", "small", 5))

    expect.pending("late", saying=f"quotaName: {trial.name}-small-team, runtime: cpu:4")
