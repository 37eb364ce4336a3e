"""Upstream's default plugins: selectors, taints, spreading, affinity, ports, balance."""

from collections.abc import Sequence
from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, pods
from seatrial.suites.scoring.claims import wait_bound

pytestmark = [pytest.mark.needs(Capability.NODES)]

HOST = "kubernetes.io/hostname"
OWN = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": HOST}


def of_app(pod: PodBuilder, **spec: Any) -> PodBuilder:
    """A pod of app `a` with further fields of its spec."""
    pod.label("app", "a")
    pod.manifest["spec"].update(spec)
    return pod


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-030", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_selectors_and_taints(trial: Trial, expect: Expect) -> None:
    """A pod is placed on nodes that its selector and tolerations allow, and on no others."""
    trial.add(node("plain"), node("fast").label("disk", "fast"), node("closed").taint("team"))
    trial.submit(
        pod("choosy").select({"disk": "fast"}),
        pod("tolerant").tolerate("team").select({HOST: "closed"}),
        pod("refused").select({HOST: "closed"}),
    )
    assert expect.bound("choosy").spec.node_name == "fast"
    assert expect.bound("tolerant").spec.node_name == "closed"
    expect.pending("refused", saying="1 node(s) had untolerated taint")


@pytest.mark.feature("SCORE-4.anti-affinity")
@pytest.mark.case("SC-031", severity="critical")
def test_pods_that_keep_apart(trial: Trial, expect: Expect) -> None:
    """Required anti-affinity: one pod on each of two nodes; the third waits until one is deleted."""
    trial.add(node("n1"), node("n2"))
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [OWN]}}
    first, second, third = (of_app(pod, affinity=apart) for pod in pods("a", 3))
    trial.submit(first, second)
    both = expect.bound(first.name, second.name)
    assert {pod.spec.node_name for pod in both} == {"n1", "n2"}
    trial.submit(third)
    expect.pending(third.name, saying="2 node(s) didn't match pod anti-affinity rules")
    trial.delete(first.name)
    assert expect.bound(third.name).spec.node_name == both[0].spec.node_name


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-032", severity="critical")
def test_pods_that_want_company(trial: Trial, expect: Expect) -> None:
    """Required affinity: the first pod may be placed anywhere, all others follow it."""
    trial.add(node("n1"), node("n2"), node("n3"))
    together = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [OWN]}}
    builders = [of_app(pod, affinity=together) for pod in pods("a", 5)]
    trial.submit(*builders)
    result = expect.bound(builders[0].name, builders[1].name, *(builder.name for builder in builders[2:]))
    assert len({pod.spec.node_name for pod in result}) == 1


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-033", severity="critical")
def test_an_even_spread(trial: Trial, expect: Expect) -> None:
    """DoNotSchedule with a skew of one: nine pods are three on each node, though one node is far emptier."""
    trial.add(node("n1").cpu(256), node("n2").cpu(8), node("n3").cpu(8))
    spread = {
        "topologyKey": HOST,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    requests = [of_app(pod, topologySpreadConstraints=[spread]).request(cpu=2) for pod in pods("a", 9)]
    trial.submit(*requests)
    result = expect.bound(requests[0].name, requests[1].name, *(builder.name for builder in requests[2:]))
    where = [pod.spec.node_name for pod in result]
    assert sorted(where.count(name) for name in ("n1", "n2", "n3")) == [3, 3, 3]


@pytest.mark.feature("SCORE-4.ports")
@pytest.mark.case("SC-034", severity="normal")
def test_a_port_of_the_node_is_given_once(trial: Trial, expect: Expect) -> None:
    """Two pods with the same host port do not share a node."""
    trial.add(node("n1"), node("n2"))
    builders = pods("a", 3)
    for builder in builders:
        builder.manifest["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    trial.submit(builders[0], builders[1])
    both = expect.bound(builders[0].name, builders[1].name)
    assert {pod.spec.node_name for pod in both} == {"n1", "n2"}
    trial.submit(builders[2])
    expect.pending(builders[2].name, saying="2 node(s) didn't have free ports for the requested pod ports")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-035", severity="normal")
def test_the_emptier_node_is_preferred(trial: Trial, expect: Expect) -> None:
    """Least allocated, upstream's default: pods are placed away from a large pod."""
    trial.add(node("n1").cpu(32), node("n2").cpu(32))
    trial.submit(pod("large").request(cpu=20))
    where = expect.bound("large").spec.node_name
    trial.submit(*(pod.request(cpu=2) for pod in pods("a", 4)))
    result = expect.bound(*(pod.name for pod in pods("a", 4)))
    assert all(pod.spec.node_name != where for pod in result)


def occupy(trial: Trial, name: str, *, cpu: int, memory: str) -> None:
    """Put a pod onto a node, past the scheduler."""
    where = "fixed-" + name
    trial.submit(pod(where).request(cpu=cpu, memory=memory).node_name(name))


def images(trial: Trial, name: str, *present: str, mebibytes: int) -> None:
    """State in the node's status that these images are present, each of this size."""
    status = {"status": {"images": [{"names": [image], "sizeBytes": mebibytes << 20} for image in present]}}
    assert trial.call("PATCH", f"/api/v1/nodes/{name}/status", status).ok


each_order = pytest.mark.parametrize(
    "order", [pytest.param(("n1", "n2"), id="first-node"), pytest.param(("n2", "n1"), id="second-node")]
)


@pytest.mark.feature("SCORE-4.preferred-affinity")
@pytest.mark.case("SC-036", severity="critical")
@each_order
def test_a_preferred_node_wins_over_an_emptier_one(trial: Trial, expect: Expect, order: Sequence[str]) -> None:
    """A pod that prefers a label goes to the labelled node, which is fuller; a pod without a preference does not."""
    preferred, other = order
    trial.add(*(node(name).cpu(32).label("zone", name) for name in sorted(order)))
    occupy(trial, preferred, cpu=16, memory="1Gi")
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [preferred]}]}
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": term}]}
    }
    choosy = pod("choosy").request(cpu=1)
    choosy.manifest["spec"]["affinity"] = affinity
    trial.submit(choosy)
    assert expect.bound("choosy").spec.node_name == preferred
    trial.submit(pod("plain").request(cpu=1))
    assert expect.bound("plain").spec.node_name == other


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-037", severity="critical")
@each_order
def test_a_pod_follows_its_volume(trial: Trial, expect: Expect, order: Sequence[str]) -> None:
    """A pod goes to the node of its claim's volume, which is fuller; with that node gone from its choice, it waits."""
    home, other = order
    trial.add(*(node(name).cpu(32) for name in sorted(order)))
    occupy(trial, home, cpu=16, memory="1Gi")
    for number in (1, 2):
        volume(trial, f"{trial.name}-{number}", f"claim-{number}", home)
    trial.submit(with_claim(pod("follows").request(cpu=1), "claim-1"))
    assert expect.bound("follows").spec.node_name == home

    trial.submit(with_claim(pod("torn").request(cpu=1).select({HOST: other}), "claim-2"))
    expect.pending("torn", saying="PersistentVolume's node affinity")


def volume(trial: Trial, name: str, claim: str, where: str) -> None:
    """A volume that one node can attach, bound to a claim."""
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [where]}]}
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    trial.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": size,
                "accessModes": modes,
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": trial.name, "name": claim},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim},
            "spec": {"accessModes": modes, "resources": {"requests": size}, "storageClassName": "", "volumeName": name},
        },
    )
    wait_bound(trial, claim)


def with_claim(pod: PodBuilder, claim: str) -> PodBuilder:
    """The pod with a volume from the claim."""
    pod.manifest["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return pod


@pytest.mark.feature("SCORE-4.images")
@pytest.mark.case("SC-038", severity="normal")
@each_order
def test_a_node_that_has_the_image_is_preferred(trial: Trial, expect: Expect, order: Sequence[str]) -> None:
    """A pod with a large image goes to the node that has it, which is a little fuller; another pod does not."""
    has, other = order
    trial.add(*(node(name).cpu(32) for name in sorted(order)))
    occupy(trial, has, cpu=2, memory="1Gi")
    images(trial, has, "registry.example/model:1", mebibytes=1800)
    large, plain = pod("large").request(cpu=1), pod("plain").request(cpu=1)
    large.manifest["spec"]["containers"][0]["image"] = "registry.example/model:1"
    trial.submit(large)
    assert expect.bound("large").spec.node_name == has
    trial.submit(plain)
    assert expect.bound("plain").spec.node_name == other


@pytest.mark.feature("SCORE-4.images")
@pytest.mark.case(
    "SC-281",
    severity="normal",
    source="kubernetes 1.34 pkg/scheduler/backend/cache/cache.go: addNodeImageStates; once an image on a node counted"
    " by the nodes that had had it before",
)
@each_order
def test_all_images_of_a_pod_count(trial: Trial, expect: Expect, order: Sequence[str]) -> None:
    """A pod with two containers goes to the node that has both images, which is fuller, and not to that with one."""
    both, one = order
    model, proxy = "registry.example/model:1", "registry.example/proxy:1"
    trial.add(*(node(name).cpu(32) for name in sorted(order)))
    occupy(trial, both, cpu=3, memory="1Gi")
    images(trial, both, model, proxy, mebibytes=900)
    images(trial, one, model, mebibytes=900)
    builder = pod("asked").request(cpu=1)
    (first,) = builder.manifest["spec"]["containers"]
    builder.manifest["spec"]["containers"] = [{**first, "image": model}, {"name": "proxy", "image": proxy}]
    trial.submit(builder)
    assert expect.bound("asked").spec.node_name == both
    expect.refusal()


@pytest.mark.feature("SCORE-4.images")
@pytest.mark.case("SC-677", severity="normal", source="kubernetes plugins/imagelocality/image_locality.go@v1.35")
@pytest.mark.parametrize("rare", ["n1", "n4"])
def test_an_image_that_few_nodes_have_counts_less(trial: Trial, expect: Expect, rare: str) -> None:
    """One of four nodes has the image of one container, the others, which are a little fuller, that of another."""
    names = [f"n{number}" for number in range(1, 5)]
    trial.add(*(node(name).cpu(32) for name in names))
    for name in names:
        images(trial, name, f"registry.example/{'rare' if name == rare else 'usual'}:1", mebibytes=1800)
        if name != rare:
            occupy(trial, name, cpu=3, memory="1Gi")
    builder = pod("asked").request(cpu=1)
    (first,) = builder.manifest["spec"]["containers"]
    both = [{**first, "name": kind, "image": f"registry.example/{kind}:1"} for kind in ("rare", "usual")]
    builder.manifest["spec"]["containers"] = both
    trial.submit(builder)
    assert expect.bound("asked").spec.node_name != rare
    expect.refusal()


@pytest.mark.feature("SCORE-4.images")
@pytest.mark.case(
    "SC-705", severity="normal", source="kubernetes plugins/imagelocality/image_locality.go@v1.35: minThreshold"
)
@each_order
def test_a_small_image_counts_for_nothing(trial: Trial, expect: Expect, order: Sequence[str]) -> None:
    """A pod goes to the node that is a little emptier, though the other one has its image of 40 MiB."""
    emptier, has = order
    trial.add(*(node(name).cpu(100).memory("100Gi") for name in sorted(order)))
    occupy(trial, has, cpu=1, memory="1Gi")
    images(trial, has, "registry.example/small:1", mebibytes=40)
    builder = pod("asked").request(cpu=1, memory="1Gi")
    builder.manifest["spec"]["containers"][0]["image"] = "registry.example/small:1"
    trial.submit(builder)
    assert expect.bound("asked").spec.node_name == emptier
    expect.refusal()


@pytest.mark.feature("SCORE-4.images")
@pytest.mark.case("SC-678", severity="normal", source="kubernetes 1.35 plugins/imagelocality/image_locality.go")
@each_order
def test_images_of_init_containers_count(trial: Trial, expect: Expect, order: Sequence[str]) -> None:
    """A pod goes to the node that has the large image of its init container, which is a little fuller."""
    has, _ = order
    trial.add(*(node(name).cpu(32) for name in sorted(order)))
    occupy(trial, has, cpu=2, memory="1Gi")
    images(trial, has, "registry.example/model:1", mebibytes=1800)
    builder = pod("asked").request(cpu=1)
    builder.manifest["spec"]["initContainers"] = [{"name": "load", "image": "registry.example/model:1"}]
    trial.submit(builder)
    assert expect.bound("asked").spec.node_name == has
    expect.refusal()


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case(
    "SC-679", severity="normal", source="kubernetes pkg/scheduler/util/pod_resources.go@v1.35: DefaultMilliCPURequest"
)
@each_order
def test_pods_without_requests_count_in_scores(trial: Trial, expect: Expect, order: Sequence[str]) -> None:
    """Twelve pods without requests, each counted as 100m and 200Mi, are more than one that requests as much."""
    few, many = order
    trial.add(*(node(name).cpu(4).memory("8Gi") for name in sorted(order)))
    trial.submit(pod("small").request(cpu="100m", memory="200Mi").node_name(few))
    trial.submit(*(builder.node_name(many) for builder in pods("bare", 12)))
    trial.submit(pod("asked").request(cpu=1, memory="2Gi"))
    assert expect.bound("asked").spec.node_name == few
    expect.refusal()


@pytest.mark.feature("SCORE-4.balance")
@pytest.mark.case("SC-039", severity="normal")
@each_order
def test_balance_counts_beside_emptiness(trial: Trial, expect: Expect, order: Sequence[str]) -> None:
    """A pod goes to the node whose CPU and memory are used evenly with it, though the other has more free on average.

    It improves the balance of one node and worsens that of the other: kube-scheduler 1.37 scores the difference.
    """
    even, uneven = order
    trial.add(*(node(name).cpu(100).memory("100Gi") for name in sorted(order)))
    occupy(trial, even, cpu=15, memory="57Gi")
    occupy(trial, uneven, cpu=40, memory="5Gi")
    trial.submit(pod("a").request(cpu=40, memory="2Gi"))
    assert expect.bound("a").spec.node_name == even
    expect.refusal()


@pytest.mark.feature("SHELL-1.weights")
@pytest.mark.case("SH-005", severity="critical")
@each_order
def test_default_weights_decide_where_plugins_disagree(trial: Trial, expect: Expect, order: Sequence[str]) -> None:
    """NodeAffinity has weight 2 by default: it outweighs emptiness and an image together, which weight 1 would not.

    The nodes differ by 30 points of emptiness, so that it also outweighs three plugins that prefer empty nodes.
    """
    preferred, other = order
    trial.add(*(node(name).cpu(100).memory("100Gi").label("zone", name) for name in sorted(order)))
    occupy(trial, preferred, cpu=30, memory="30Gi")
    images(trial, other, "registry.example/model:1", mebibytes=1800)
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [preferred]}]}
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": term}]}
    }
    builder = pod("a").request(cpu=1, memory="1Gi")
    builder.manifest["spec"]["affinity"] = affinity
    builder.manifest["spec"]["containers"][0]["image"] = "registry.example/model:1"
    trial.submit(builder)
    assert expect.bound("a").spec.node_name == preferred
    expect.refusal()
