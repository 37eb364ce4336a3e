"""NUMA alignment: all resources of a pod from the same NUMA nodes, by the policy of node label, kubelet or pod.

The machines: one with two NUMA nodes of 32 CPUs and 128 GiB, one with eight H100, four on each of two NUMA nodes of
112 CPUs and 1 TiB.
"""

from collections.abc import Collection

import orjson
import pytest

from seatrial.fixtures.allocated_devices import check_arrival, minors, numa_nodes
from seatrial.fixtures.cpus import cpu_numa_nodes, cpus, shares
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.profiles import announced
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder, node, pod, pods
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.numa import (
    BEST_EFFORT,
    GROUP_VERSION,
    NUMA_TOPOLOGY_SPEC,
    RESOURCE_SPEC,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    SYSTEM_QOS,
)
from seatrial.suites.scoring.rules import HOST

MACHINE, CARDS = "cpu-64", "dgx-h100"
PACKING, SPREADING, RELEASED = "packing-numa", "spreading-numa", "released-numa-scoring"
MIXED = "packing-numa-spreading-nodes"
GIB = 1 << 30

pytestmark = [pytest.mark.needs(Capability.NODES)]


def only(numa_nodes: Collection[int]) -> int:
    """The one NUMA node that a pod has."""
    assert len(numa_nodes) == 1, f"expected one NUMA node, found {sorted(numa_nodes)}"
    return next(iter(numa_nodes))


def labelled(policy: str, server: str = MACHINE, name: str = "n1") -> NodeBuilder:
    return node(name).server(server).numa_policy(policy)


def plain(name: str, cpu: int, memory: str = "16Gi") -> PodBuilder:
    return pod(name).request(cpu=cpu, memory=memory)


@pytest.mark.feature("NUMA-1.node-policy")
@pytest.mark.case("NU-001", severity="blocker")
@pytest.mark.parametrize(
    ("policy", "cpu", "spans"),
    [
        pytest.param("None", 33, 0, id="none-does-not-align"),
        pytest.param(BEST_EFFORT, 8, 1, id="best-effort-aligns"),
        pytest.param(BEST_EFFORT, 33, 2, id="best-effort-spans"),
        pytest.param(RESTRICTED, 8, 1, id="restricted-aligns"),
        pytest.param(RESTRICTED, 33, 2, id="restricted-spans-what-is-larger"),
        pytest.param(SINGLE_NUMA_NODE, 32, 1, id="single-takes-a-whole-one"),
        pytest.param(SINGLE_NUMA_NODE, 33, None, id="single-refuses-what-is-larger"),
    ],
)
def test_the_nodes_policy(trial: Trial, expect: Expect, policy: str, cpu: int, spans: int | None) -> None:
    """The node's policy decides over how many NUMA nodes a pod spans; the amounts add up to the request."""
    trial.add(labelled(policy))
    trial.submit(plain("a", cpu))

    if spans is None:
        expect.pending("a", saying="Unaligned NUMA Hint cause cpu prefer [11] among [11]")
        return
    a = expect.running("a")
    assert len(shares(a)) == spans
    assert sum(shares(a).values()) == (cpu * 1000 if spans else 0)
    assert sum(shares(a, "memory").values()) == (16 * GIB if spans else 0)
    expect.refusal()


@pytest.mark.feature("NUMA-1.kubelet-wins")
@pytest.mark.case("NU-002", severity="critical")
@pytest.mark.parametrize(
    ("policy", "more"),
    [
        ("SingleNUMANodePodLevel", ()),
        ("SingleNUMANodeContainerLevel", ()),
        pytest.param(
            "SingleNUMANodePodLevel",
            ("None", "BestEffort"),
            id="of-several",
            marks=pytest.mark.needs(Capability.VIRTUAL_TIME),  # in real time the node's agent writes the object again
        ),
    ],
)
def test_the_kubelets_policy_wins(trial: Trial, expect: Expect, policy: str, more: tuple[str, ...]) -> None:
    """A pod that the label allows to span NUMA nodes but the kubelet does not is not placed there. Of several policies
    the first counts that is one."""
    trial.add(labelled(RESTRICTED).kubelet(topology_policy=policy))
    if more:
        path = f"/apis/{GROUP_VERSION}/noderesourcetopologies/n1"
        assert trial.call("PATCH", path, {"topologyPolicies": [more[0], policy, *more[1:]]}).ok
        trial.settle()
    trial.submit(plain("large", 33), plain("small", 32))

    assert len(shares(expect.running("small"))) == 1
    expect.pending("large", saying="Unaligned NUMA Hint cause")


@pytest.mark.feature("NUMA-1.node-policy")
@pytest.mark.case("NU-003", severity="critical")
def test_a_full_numa_node_is_waited_for(trial: Trial, expect: Expect) -> None:
    """A pod that must be on one NUMA node waits, although two NUMA nodes together have enough."""
    trial.add(labelled(SINGLE_NUMA_NODE))
    trial.submit(plain("a", 24), plain("b", 24))
    expect.running("a", "b")
    trial.submit(plain("c", 12))

    expect.pending("c", saying="Unaligned NUMA Hint cause")
    expect.stable(seconds=2)
    trial.delete("a")
    assert len(shares(expect.running("c"))) == 1


@pytest.mark.feature("NUMA-2.pod-policy")
@pytest.mark.case("NU-004", severity="blocker")
@pytest.mark.parametrize(
    ("policy", "cpu", "spans"),
    [
        pytest.param(RESTRICTED, 8, 1, id="restricted"),
        pytest.param(RESTRICTED, 33, 2, id="restricted-larger-than-one"),
        pytest.param(SINGLE_NUMA_NODE, 32, 1, id="single"),
        pytest.param(SINGLE_NUMA_NODE, 33, None, id="single-larger-than-one"),
        pytest.param(BEST_EFFORT, 33, 2, id="best-effort"),
    ],
)
def test_the_pods_policy(trial: Trial, expect: Expect, policy: str, cpu: int, spans: int | None) -> None:
    """A pod with a policy is aligned on a node without one; other pods there are not."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(plain("a", cpu).align(policy), plain("b", 1))

    assert not shares(expect.running("b"))
    if spans is None:
        expect.pending("a", saying="Unaligned NUMA Hint cause")
    else:
        assert len(shares(expect.running("a"))) == spans


@pytest.mark.feature("NUMA-2.pod-policy")
@pytest.mark.case("NU-005", severity="critical")
def test_policies_that_differ(trial: Trial, expect: Expect) -> None:
    """A pod is placed on nodes with its own policy or with none."""
    trial.add(labelled(RESTRICTED))
    trial.submit(plain("other", 8).align(SINGLE_NUMA_NODE), plain("same", 8).align(RESTRICTED))

    assert len(shares(expect.running("same"))) == 1
    expect.pending("other", saying="node(s) NUMA Topology policy not match")
    trial.add(labelled(SINGLE_NUMA_NODE, name="n2"))
    assert expect.running("other").spec.node_name == "n2"


@pytest.mark.feature("NUMA-2.pod-policy")
@pytest.mark.case("NU-123", severity="normal", source="spec NUMA-R7, NUMA-R44; kubernetes framework/types.go, FitError")
def test_each_node_is_refused_by_its_own_reason(trial: Trial, expect: Expect) -> None:
    """One node has another policy than the pod, and the NUMA nodes of the other are too small: it is told of both."""
    trial.add(labelled(RESTRICTED), labelled(SINGLE_NUMA_NODE, name="n2"))
    trial.submit(plain("a", 33).align(SINGLE_NUMA_NODE))
    expect.pending("a", saying="1 node(s) NUMA Topology policy not match")
    expect.pending("a", saying="1 Unaligned NUMA Hint cause")


@pytest.mark.feature("NUMA-2.pod-policy", "CPU-1.policies")
@pytest.mark.case("NU-124", severity="normal", source="spec NUMA-R2; koordinator nodenumaresource/plugin.go@v1.7.0")
@pytest.mark.parametrize("key", [RESOURCE_SPEC, NUMA_TOPOLOGY_SPEC])
def test_a_request_that_cannot_be_read(trial: Trial, expect: Expect, key: str) -> None:
    """A pod waits whose annotation is no JSON, and is placed when it has none."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(plain("a", 4).qos("LSR").annotation(key, "{"))
    expect.pending("a")
    path = f"/api/v1/namespaces/{trial.name}/pods/a"
    assert trial.call("PATCH", path, {"metadata": {"annotations": {key: None}}}).ok
    assert len(cpus(expect.running("a"))) == 4


@pytest.mark.feature("CPU-1.policies")
@pytest.mark.case("NU-125", severity="normal", source="spec NUMA-R22; koordinator nodenumaresource/plugin.go@v1.7.0")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # in real time the node's agent writes the object again
@pytest.mark.parametrize("event", ["added", "changed"])
def test_a_topology_wakes_the_pod_that_waits_for_it(trial: Trial, expect: Expect, event: str) -> None:
    """A pod waits for CPUs of its own on a node without NodeResourceTopology, or where the system has all but two: it
    is bound when the object comes, or is changed."""
    trial.add(node("n1").server(MACHINE))
    path = f"/apis/{GROUP_VERSION}/noderesourcetopologies/n1"
    body = orjson.loads(trial.call("GET", path).body)
    if event == "added":
        assert trial.call("DELETE", path).ok
    else:
        kept = {"metadata": {"annotations": {SYSTEM_QOS: '{"cpuset":"0-61"}'}}}
        assert trial.call("PATCH", path, kept).ok
    trial.settle()
    trial.submit(plain("a", 4).qos("LSR"))
    expect.pending("a")
    if event == "added":
        metadata = {name: body["metadata"][name] for name in ("name", "annotations")}
        assert trial.call("POST", path.rpartition("/")[0], {**body, "metadata": metadata}).ok
    else:
        assert trial.call("PATCH", path, {"metadata": {"annotations": {SYSTEM_QOS: None}}}).ok
    assert len(cpus(expect.bound("a"))) == 4


@pytest.mark.feature("NUMA-2.exclusive")
@pytest.mark.case("NU-006", severity="critical")
@pytest.mark.parametrize(
    ("exclusive", "fits"),
    [
        pytest.param("Required", False, id="required"),
        pytest.param("", False, id="required-by-default"),
        pytest.param("Preferred", True, id="preferred"),
    ],
)
def test_single_numa_node_exclusive(trial: Trial, expect: Expect, exclusive: str, fits: bool) -> None:
    """An exclusive pod on one NUMA node avoids NUMA nodes that a pod with CPUs of both spans."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(plain("wide", 40).qos("LSR").align(RESTRICTED))
    assert cpu_numa_nodes(trial, expect.running("wide")) == {0, 1}

    trial.submit(plain("a", 4).align(SINGLE_NUMA_NODE, exclusive=exclusive))

    if fits:
        assert len(shares(expect.running("a"))) == 1
    else:
        expect.pending("a", saying="Unaligned NUMA Hint cause")
        trial.delete("wide")
        assert len(shares(expect.running("a"))) == 1


@pytest.mark.feature("NUMA-3.scores")
@pytest.mark.case("NU-007", severity="critical")
@pytest.mark.parametrize(
    ("profile", "on_nodes", "on_numa_nodes"),
    [
        pytest.param(PACKING, 1, 1, id="packing-fills-one-numa-node", marks=pytest.mark.profile(PACKING)),
        pytest.param(SPREADING, 2, 2, id="spreading-goes-in-turn", marks=pytest.mark.profile(SPREADING)),
        pytest.param(MIXED, 2, 1, id="each-has-a-strategy-of-its-own", marks=pytest.mark.profile(MIXED)),
    ],
)
def test_scores(trial: Trial, expect: Expect, profile: str, on_nodes: int, on_numa_nodes: int) -> None:
    """The profile decides how nodes, and how NUMA nodes, are filled."""
    trial.add(labelled(SINGLE_NUMA_NODE), labelled(SINGLE_NUMA_NODE, name="n2"))
    for builder in pods("a", 4):
        trial.submit(builder.request(cpu=4, memory="16Gi").scheduler(profile))
        expect.running(builder.name)

    used: dict[str, set[int]] = {}
    for entry in trial.pods():
        used.setdefault(entry.spec.node_name, set()).update(shares(entry))
    assert len(used) == on_nodes
    assert {len(item) for item in used.values()} == {on_numa_nodes}


@pytest.mark.feature("NUMA-3.scores")
@pytest.mark.profile(MIXED)
@pytest.mark.case("NU-120", severity="normal", source="spec NUMA-R57; koordinator nodenumaresource/scoring.go@v1.7.0")
@pytest.mark.parametrize(("better", "worse"), [("n1", "n2"), ("n2", "n1")], ids=["first", "second"])
def test_resources_have_weights_between_nodes(trial: Trial, expect: Expect, better: str, worse: str) -> None:
    """Memory has three times the weight of CPU, and nodes are spread: most CPUs of one are used, and half the memory of
    the other. A pod with CPUs of its own goes to the one with free memory."""
    trial.add(node("n1").server(MACHINE), node("n2").server(MACHINE))
    trial.submit(plain("cpus", 40, "1Gi").select({HOST: better}), plain("memory", 1, "128Gi").select({HOST: worse}))
    expect.running("cpus", "memory")
    trial.submit(plain("a", 2, "1Gi").qos("LSR").scheduler(MIXED))
    assert expect.running("a").spec.node_name == better
    expect.refusal()


@pytest.mark.feature("NUMA-3.scores")
@pytest.mark.profile(PACKING)
@pytest.mark.case("NU-122", severity="normal", source="spec NUMA-R59; koordinator nodenumaresource/scoring.go@v1.7.0")
@pytest.mark.parametrize(("better", "worse"), [("n1", "n2"), ("n2", "n1")], ids=["first", "second"])
def test_a_node_is_scored_by_the_numa_nodes_of_the_pod(trial: Trial, expect: Expect, better: str, worse: str) -> None:
    """24 CPUs of one NUMA node are used, and of the other node 16 of each: packing puts a pod beside the 24."""
    trial.add(labelled(SINGLE_NUMA_NODE), labelled(SINGLE_NUMA_NODE, name="n2"))
    for name, cpu, home in (("one", 24, better), ("two", 16, worse), ("three", 16, worse)):
        trial.submit(plain(name, cpu, "1Gi").select({HOST: home}))
        expect.running(name)
    assert shares(trial.pod("two")).keys() != shares(trial.pod("three")).keys()
    trial.submit(plain("a", 4, "1Gi").scheduler(PACKING))
    assert expect.running("a").spec.node_name == better
    expect.refusal()


@pytest.mark.feature("NUMA-3.scores")
@pytest.mark.profile(MIXED)
@pytest.mark.case("NU-121", severity="normal", source="ours: numaScoringStrategy has weights of its own; spec NUMA-R57")
@pytest.mark.parametrize("order", [("cpus", "memory"), ("memory", "cpus")], ids="-".join)
def test_resources_have_other_weights_between_numa_nodes(trial: Trial, expect: Expect, order: tuple[str, str]) -> None:
    """There CPU has three times the weight of memory, and NUMA nodes are packed: a pod goes to the one whose CPUs are
    used, and not to the one whose memory is."""
    builders = {"cpus": plain("cpus", 24, "1Gi"), "memory": plain("memory", 1, "110Gi")}
    trial.add(labelled(SINGLE_NUMA_NODE))
    for name in order:
        trial.submit(builders[name])
        expect.running(name)
    of_cpus, of_memory = (only(shares(trial.pod(name))) for name in ("cpus", "memory"))
    assert of_cpus != of_memory
    trial.submit(plain("a", 1, "1Gi").scheduler(MIXED))
    assert only(shares(expect.running("a"))) == of_cpus


@pytest.mark.feature("NUMA-3.configuration-numa-scoring")
@pytest.mark.case("NU-013", severity="critical")
@pytest.mark.profile(RELEASED)
@pytest.mark.parametrize(
    ("profile", "joins"),
    [
        pytest.param(RELEASED, True, id="released-fills-up"),
        pytest.param(KOORD_SCHEDULER, False, id="by-default-it-goes-to-the-emptier"),
    ],
)
def test_the_released_configuration(trial: Trial, expect: Expect, profile: str, joins: bool) -> None:
    """By the announced configuration a pod joins the used one of two NUMA nodes, which is not the first."""
    assert announced("v1.4/config/numa-scoring.config.yaml", RELEASED)
    trial.add(labelled(SINGLE_NUMA_NODE))
    for name, cpu in (("first", 30), ("second", 16)):
        trial.submit(plain(name, cpu))
        expect.running(name)
    first, second = (only(shares(trial.pod(name))) for name in ("first", "second"))
    assert first < second
    trial.delete("first")

    trial.submit(plain("a", 4).scheduler(profile))

    value = only(shares(expect.running("a")))
    assert value == (second if joins else first)


@pytest.mark.feature("DEV-5.with-cpus", "NUMA-4.cards-and-cpus")
@pytest.mark.case("NU-008", severity="blocker")
@pytest.mark.parametrize("policy", [RESTRICTED, SINGLE_NUMA_NODE])
@pytest.mark.parametrize("qos", ["", "LSR"])
def test_cards_cpus_and_memory_together(trial: Trial, expect: Expect, policy: str, qos: str) -> None:
    """The release's example pod: two cards, 64 CPUs and 500Gi from one NUMA node; a second pod gets the other."""
    trial.add(node("n1").server(CARDS))
    for builder in pods("a", 2):
        builder.request(cpu=64, memory="500Gi").gpus(2).align(policy, exclusive="Preferred")
        trial.submit(builder.qos(qos) if qos else builder)
    result = expect.running("a-0", "a-1")

    for bound_pod in result:
        check_arrival(trial, bound_pod)
        numa = only(numa_nodes(trial, bound_pod))
        assert shares(bound_pod) == {numa: 64_000}
        assert shares(bound_pod, "memory") == {numa: 500 * GIB}
        assert len(cpus(bound_pod)) == (64 if qos else 0)
        assert cpu_numa_nodes(trial, bound_pod) <= {numa}
    assert {len(numa_nodes(trial, pod)) for pod in result} == {1}
    assert shares(result[0]).keys() != shares(result[1]).keys()


@pytest.mark.feature("DEV-5.with-cpus", "NUMA-4.cards-and-cpus")
@pytest.mark.case("NU-009", severity="critical")
def test_cards_follow_the_cpus(trial: Trial, expect: Expect) -> None:
    """Cards of a NUMA node without free CPUs are not allocated to a pod that needs both from one NUMA node."""
    trial.add(labelled(SINGLE_NUMA_NODE, CARDS))
    trial.submit(plain("busy", 100))
    taken = only(shares(expect.running("busy")))
    trial.submit(*(pod.request(cpu=20, memory="16Gi").gpus(1) for pod in pods("a", 5)))

    names = [f"a-{number}" for number in range(5)]
    assert trial.wait(lambda: sum(bool(pod.spec.node_name) for pod in trial.pods()) == 5, within=30)
    expect.stable(seconds=2)
    placed = [pod for pod in trial.pods() if pod.spec.node_name and pod.metadata.name in names]
    assert {numa for pod in placed for numa in numa_nodes(trial, pod)} == {1 - taken}
    assert sorted(minor for pod in placed for minor in minors(pod)) == sorted(
        {minor for pod in placed for minor in minors(pod)}
    )
    waiting = next(name for name in names if name not in {pod.metadata.name for pod in placed})
    expect.pending(waiting, saying="Unaligned NUMA Hint cause")


@pytest.mark.feature("NUMA-4.cards-and-cpus")
@pytest.mark.case("NU-010", severity="critical")
@pytest.mark.parametrize(("cpu", "count"), [(120, 1), (8, 5)], ids=["cpus-of-two", "cards-of-two"])
def test_a_pod_that_needs_two_numa_nodes_for_one_resource(trial: Trial, expect: Expect, cpu: int, count: int) -> None:
    """With Restricted a pod spans NUMA nodes where its CPUs must, although one card is on one NUMA node, or where its
    cards must, although one has enough CPUs."""
    trial.add(labelled(RESTRICTED, CARDS))
    trial.submit(plain("a", cpu).gpus(count))

    a = expect.running("a")
    assert shares(a) == {0: cpu * 500, 1: cpu * 500}
    assert len(minors(a)) == count


@pytest.mark.feature("NUMA-4.rdma")
@pytest.mark.case("NU-011", severity="critical")
def test_a_nic_as_well(trial: Trial, expect: Expect) -> None:
    """CPUs, memory, a card and a NIC of one pod come from one NUMA node."""
    trial.add(labelled(SINGLE_NUMA_NODE, CARDS))
    for builder in pods("a", 4):
        trial.submit(builder.request(cpu=16, memory="64Gi").gpus(1).rdma(100).jointly("gpu", "rdma"))

    for item in expect.running("a-0", "a-1", "a-2", "a-3"):
        numa = only(shares(item))
        assert numa_nodes(trial, item) == {numa}
        assert numa_nodes(trial, item, "rdma") == {numa}


@pytest.mark.feature("NUMA-1.not-overbooked")
@pytest.mark.case("NU-012", severity="normal")
def test_numa_nodes_are_not_overbooked(trial: Trial, expect: Expect) -> None:
    """Many pods share the NUMA nodes without exceeding their capacity."""
    trial.add(labelled(SINGLE_NUMA_NODE))
    trial.submit(*(pod.request(cpu=6, memory="8Gi") for pod in pods("a", 12)))

    assert trial.wait(lambda: sum(bool(pod.spec.node_name) for pod in trial.pods()) == 10, within=30)
    expect.stable(seconds=2)
    used = {0: 0, 1: 0}
    for item in trial.pods():
        for numa, cpu in shares(item).items():
            used[numa] += cpu
    assert used == {0: 30_000, 1: 30_000}
