"""Upstream's default plugins: selectors, taints, spreading, affinity, ports, balance."""

from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, pods

pytestmark = [pytest.mark.feature("SCORE-4"), pytest.mark.needs(Capability.NODES)]

HOST = "kubernetes.io/hostname"
OWN = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": HOST}


def of_app(pod: PodBuilder, **spec: Any) -> PodBuilder:
    """A pod of app `a` with further fields of its spec."""
    pod.label("app", "a")
    pod.manifest["spec"].update(spec)
    return pod


@pytest.mark.case("SC-020", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_selectors_and_taints(cluster: Trial, expect: Expect) -> None:
    """A pod is placed on nodes that its selector and tolerations allow, and on no others."""
    cluster.add(node("plain"), node("fast").label("disk", "fast"), node("closed").taint("team"))
    cluster.submit(
        pod("choosy").select({"disk": "fast"}),
        pod("tolerant").tolerate("team").select({HOST: "closed"}),
        pod("refused").select({HOST: "closed"}),
    )
    assert expect.bound("choosy").spec.node_name == "fast"
    assert expect.bound("tolerant").spec.node_name == "closed"
    expect.pending("refused", saying="1 node(s) had untolerated taint")


@pytest.mark.case("SC-021", severity="critical")
def test_pods_that_keep_apart(cluster: Trial, expect: Expect) -> None:
    """Required anti-affinity: one pod on each of two nodes; the third waits until one is deleted."""
    cluster.add(node("n1"), node("n2"))
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [OWN]}}
    first, second, third = (of_app(pod, affinity=apart) for pod in pods("a", 3))
    cluster.submit(first, second)
    both = expect.bound(first.name, second.name)
    assert {pod.spec.node_name for pod in both} == {"n1", "n2"}
    cluster.submit(third)
    expect.pending(third.name, saying="2 node(s) didn't match pod anti-affinity rules")
    cluster.delete(first.name)
    assert expect.bound(third.name).spec.node_name == both[0].spec.node_name


@pytest.mark.case("SC-022", severity="critical")
def test_pods_that_want_company(cluster: Trial, expect: Expect) -> None:
    """Required affinity: the first pod may be placed anywhere, all others follow it."""
    cluster.add(node("n1"), node("n2"), node("n3"))
    together = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [OWN]}}
    asked = [of_app(pod, affinity=together) for pod in pods("a", 5)]
    cluster.submit(*asked)
    found = expect.bound(asked[0].name, asked[1].name, *(one.name for one in asked[2:]))
    assert len({pod.spec.node_name for pod in found}) == 1


@pytest.mark.case("SC-023", severity="critical")
def test_an_even_spread(cluster: Trial, expect: Expect) -> None:
    """DoNotSchedule with a skew of one: nine pods on three nodes are three on each."""
    cluster.add(node("n1"), node("n2"), node("n3"))
    spread = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
              "labelSelector": {"matchLabels": {"app": "a"}}}  # fmt: skip
    asked = [of_app(pod, topologySpreadConstraints=[spread]) for pod in pods("a", 9)]
    cluster.submit(*asked)
    found = expect.bound(asked[0].name, asked[1].name, *(one.name for one in asked[2:]))
    where = [pod.spec.node_name for pod in found]
    assert sorted(where.count(name) for name in ("n1", "n2", "n3")) == [3, 3, 3]


@pytest.mark.case("SC-024", severity="normal")
def test_a_port_of_the_node_is_given_once(cluster: Trial, expect: Expect) -> None:
    """Two pods with the same host port do not share a node."""
    cluster.add(node("n1"), node("n2"))
    asked = pods("a", 3)
    for one in asked:
        one.manifest["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    cluster.submit(asked[0], asked[1])
    both = expect.bound(asked[0].name, asked[1].name)
    assert {pod.spec.node_name for pod in both} == {"n1", "n2"}
    cluster.submit(asked[2])
    expect.pending(asked[2].name, saying="2 node(s) didn't have free ports for the requested pod ports")


@pytest.mark.case("SC-025", severity="normal")
def test_the_emptier_node_is_preferred(cluster: Trial, expect: Expect) -> None:
    """Least allocated, upstream's default: pods are placed away from a large pod."""
    cluster.add(node("n1").cpu(32), node("n2").cpu(32))
    cluster.submit(pod("large").request(cpu=20))
    where = expect.bound("large").spec.node_name
    cluster.submit(*(pod.request(cpu=2) for pod in pods("a", 4)))
    found = expect.bound(*(pod.name for pod in pods("a", 4)))
    assert all(pod.spec.node_name != where for pod in found)
