"""Rules of NUMA nodes and CPUs that one default scenario does not tell apart.

The machine has two NUMA nodes of 16 cores with two threads each and 128 GiB. The rules are those of koordinator
`pkg/scheduler/plugins/nodenumaresource` (`node_allocation.go`, `resource_manager.go`, `topology_options.go`).
"""

from collections.abc import Callable

import orjson
import pytest

from seatrial.fixtures.cpus import cores, cpu_numa_nodes, cpus, seats, shares
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.audit.running import RunningAudit
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.numa import (
    AMPLIFICATION_RATIO,
    BEST_EFFORT,
    CPU_BIND_POLICY_LABEL,
    FULL_PCPUS,
    GROUP_VERSION,
    NUMA_ALLOCATE_STRATEGY_LABEL,
    NUMA_TOPOLOGY_POLICY_LABEL,
    PCPU_LEVEL,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    SPREAD_BY_PCPUS,
    SYSTEM_QOS,
)

MACHINE, EIGHT_NUMA_NODES = "cpu-64", "atlas-800t-a2"
TOPOLOGY = f"/apis/{GROUP_VERSION}/noderesourcetopologies/n1"
UNALIGNED = "Unaligned NUMA Hint cause"
NO_AMPLIFIED = "Insufficient amplified cpu"

pytestmark = [pytest.mark.needs(Capability.NODES)]


def plain(name: str, cpu: int, memory: str = "1Gi") -> PodBuilder:
    return pod(name).request(cpu=cpu, memory=memory)


def bound(name: str, cpu: int) -> PodBuilder:
    return plain(name, cpu).qos("LSR")


@pytest.mark.feature("NUMA-1.node-policy")
@pytest.mark.case("NU-020", severity="critical", source="spec NUMA-R34, NUMA-R36, NUMA-R38, NUMA-R42 to NUMA-R44")
@pytest.mark.parametrize(
    ("server", "policy", "builder", "expected"),
    [
        pytest.param(MACHINE, SINGLE_NUMA_NODE, plain("a", 4, "100Gi"), {0: 4000}, id="memory-of-one"),
        pytest.param(MACHINE, SINGLE_NUMA_NODE, plain("a", 4, "200Gi"), None, id="memory-of-two"),
        pytest.param(EIGHT_NUMA_NODES, RESTRICTED, plain("a", 60), {0: 20_000, 1: 20_000, 2: 20_000}, id="three"),
        pytest.param(MACHINE, RESTRICTED, bound("a", 34), {0: 17_000, 1: 17_000}, id="single-cpus"),
        pytest.param(
            MACHINE, RESTRICTED, bound("a", 34).bind_cpus(required=FULL_PCPUS), {0: 16_000, 1: 18_000}, id="whole-cores"
        ),
    ],
)
def test_how_a_pod_is_divided(
    trial: Trial, expect: Expect, *, server: str, policy: str, builder: PodBuilder, expected: dict[int, int] | None
) -> None:
    """In equal parts over the fewest NUMA nodes that have enough of all resources; whole cores stay together."""
    trial.add(node("n1").server(server).numa_policy(policy))
    trial.submit(builder)
    if expected is None:
        expect.pending("a", saying=UNALIGNED)
        return
    assert sorted(shares(expect.running("a")).values()) == sorted(expected.values())


@pytest.mark.feature("NUMA-1.node-policy")
@pytest.mark.case("NU-055", severity="normal", source="spec NUMA-R42, NUMA-R44")
@pytest.mark.parametrize(("policy", "fits"), [(RESTRICTED, False), (BEST_EFFORT, True)])
def test_a_numa_node_without_a_resource(trial: Trial, expect: Expect, policy: str, fits: bool) -> None:
    """All memory of one NUMA node is taken. A pod whose CPUs need both NUMA nodes has memory of one alone: it waits
    where all its resources must come from the same ones."""
    trial.add(node("n1").server(MACHINE).numa_policy(policy))
    placed(trial, plain("first", 1, "128Gi"), "", {0: "1"}, memory="128Gi")
    trial.submit(plain("a", 40, "4Gi"))
    if not fits:
        expect.pending("a", saying="NUMA")
        trial.delete("first")
    assert len(shares(expect.running("a"))) == 2


@pytest.mark.feature("NUMA-2.exclusive")
@pytest.mark.case("NU-022", severity="critical", source="spec NUMA-R15, NUMA-R46")
@pytest.mark.parametrize(("exclusive", "fits"), [("Required", False), ("", False), ("Preferred", True)])
def test_a_pod_of_two_numa_nodes_avoids_one_that_a_pod_has_alone(
    trial: Trial, expect: Expect, exclusive: str, fits: bool
) -> None:
    """A pod has four CPUs of one NUMA node; an exclusive pod of 40 needs both NUMA nodes."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(bound("narrow", 4).align(SINGLE_NUMA_NODE, exclusive="Preferred"))
    expect.running("narrow")
    trial.submit(plain("wide", 40).align(RESTRICTED, exclusive=exclusive))
    if not fits:
        expect.pending("wide", saying=UNALIGNED)
        trial.delete("narrow")
    assert len(shares(expect.running("wide"))) == 2


@pytest.mark.feature("NUMA-2.exclusive")
@pytest.mark.case("NU-080", severity="normal", source="spec NUMA-R15: no exclusivity if only the node did")
def test_a_policy_of_the_node_alone_excludes_no_pod(trial: Trial, expect: Expect) -> None:
    """A pod has four CPUs of one NUMA node, and the node aligns all pods: one of 40 that names no policy gets both."""
    trial.add(node("n1").server(MACHINE).numa_policy(RESTRICTED))
    trial.submit(bound("narrow", 4))
    assert len(shares(expect.running("narrow"))) == 1
    trial.submit(plain("wide", 40))
    assert len(shares(expect.running("wide"))) == 2


@pytest.mark.feature("NUMA-2.exclusive")
@pytest.mark.case("NU-040", severity="normal", source="ours: a pod that fits now is tried now; spec NUMA-R15")
def test_a_numa_node_that_a_pod_no_longer_has_alone(trial: Trial, expect: Expect) -> None:
    """An exclusive pod of 40 avoids the NUMA node that a pod has alone. A pod that spans both NUMA nodes comes: none is
    one pod's alone any more, and the waiting pod is bound."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(bound("narrow", 4).align(SINGLE_NUMA_NODE, exclusive="Preferred"))
    expect.running("narrow")
    trial.submit(plain("wide", 40).align(RESTRICTED, exclusive="Required"))
    expect.pending("wide", saying=UNALIGNED)
    trial.submit(bound("other", 16).request(memory="160Gi").align(RESTRICTED, exclusive="Preferred"))
    assert len(shares(expect.running("other"), "memory")) == 2
    assert len(shares(expect.running("wide"))) == 2


@pytest.mark.feature("NUMA-2.exclusive")
@pytest.mark.case("NU-051", severity="normal", source="spec NUMA-R46")
@pytest.mark.parametrize("order", [("wide", "narrow"), ("narrow", "wide")], ids="-".join)
def test_a_numa_node_that_pods_share(trial: Trial, expect: Expect, order: tuple[str, str]) -> None:
    """A pod has CPUs of both NUMA nodes, and one has four of one of them: an exclusive pod fits on neither, whichever
    came first. When the wide one is gone it gets its NUMA node."""
    builders = {
        "wide": bound("wide", 34).align(RESTRICTED, exclusive="Preferred"),
        "narrow": bound("narrow", 4).align(SINGLE_NUMA_NODE, exclusive="Preferred"),
    }
    trial.add(node("n1").server(MACHINE))
    for name in order:
        trial.submit(builders[name])
        expect.running(name)
    assert len(cpu_numa_nodes(trial, trial.pod("wide"))) == 2
    trial.submit(plain("alone", 4).align(SINGLE_NUMA_NODE, exclusive="Required"))
    expect.pending("alone", saying=UNALIGNED)
    trial.delete("wide")
    expect.running("alone")


@pytest.mark.feature("NUMA-1.not-overbooked")
@pytest.mark.case(
    "NU-110", severity="normal", source="spec NUMA-R47; koordinator nodenumaresource/topology_options.go@v1.7.0"
)
@pytest.mark.parametrize(("memory", "fits"), [("180Gi", True), ("200Gi", False)], ids=["within", "beyond"])
def test_memory_of_a_numa_node_is_amplified(trial: Trial, expect: Expect, memory: str, *, fits: bool) -> None:
    """Memory counts one and a half times: a NUMA node of 128Gi has room for a pod of 180Gi, and not of 200Gi."""
    trial.add(node("n1").server(MACHINE).annotation(AMPLIFICATION_RATIO, '{"memory":1.5}'))
    trial.settle(2)

    trial.submit(plain("a", 4, memory).align(SINGLE_NUMA_NODE))

    if fits:
        assert len(shares(expect.running("a"))) == 1
    else:
        expect.pending("a", saying=UNALIGNED)


@pytest.mark.feature("NUMA-1.node-policy")
@pytest.mark.case("NU-052", severity="normal", source="spec NUMA-R47")
@pytest.mark.parametrize("amplified", [False, True])
def test_numa_nodes_that_are_amplified_already(trial: Trial, expect: Expect, *, amplified: bool) -> None:
    """CPUs count one and a half times: each NUMA node of 32 CPUs has room for a pod of 40. Where the
    NodeResourceTopology has a ratio of its own, its 32 CPUs are amplified already, and the pod waits."""
    trial.add(node("n1").server(MACHINE).annotation(AMPLIFICATION_RATIO, '{"cpu":1.5}'))
    trial.settle(2)
    if amplified:
        assert trial.call("PATCH", TOPOLOGY, {"metadata": {"annotations": {AMPLIFICATION_RATIO: '{"cpu":1.5}'}}}).ok
        trial.settle()
    trial.submit(plain("a", 40).align(SINGLE_NUMA_NODE))
    if amplified:
        expect.pending("a", saying=UNALIGNED)
        trial.submit(plain("b", 32).align(SINGLE_NUMA_NODE))
    assert len(shares(expect.running("b" if amplified else "a"))) == 1


@pytest.mark.feature("NUMA-1.not-overbooked")
@pytest.mark.case("NU-023", severity="critical", source="spec NUMA-R21, NUMA-R48")
def test_cpus_of_pods_without_a_policy_count_for_their_numa_node(trial: Trial, expect: Expect) -> None:
    """A pod without policy is bound to 20 CPUs of one NUMA node, and an aligned one has 28 of the other. 16 CPUs are
    left, twelve and four: a pod of 14 does not fit, and one of 12 does."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(bound("first", 20))
    taken = cpu_numa_nodes(trial, expect.running("first"))
    assert len(taken) == 1
    trial.submit(plain("second", 28).align(SINGLE_NUMA_NODE))
    assert not shares(expect.running("second")).keys() & taken
    trial.submit(plain("large", 14).align(SINGLE_NUMA_NODE))
    expect.pending("large", saying=UNALIGNED)
    trial.submit(plain("small", 12).align(SINGLE_NUMA_NODE))
    assert shares(expect.running("small")).keys() == taken


@pytest.mark.feature("CPU-3.kubelet-reserved", "NUMA-1.not-overbooked")
@pytest.mark.case("NU-024", severity="critical", source="spec NUMA-R17, NUMA-R47")
@pytest.mark.parametrize(("ratio", "cpu", "count"), [("", 12, 2), ("1.5", 16, 3)], ids=["plain", "amplified"])
def test_reserved_cpus_are_taken_off_their_numa_node(
    trial: Trial, expect: Expect, ratio: str, cpu: int, count: int
) -> None:
    """24 of the first NUMA node's 32 CPUs are reserved: eight are left, or twelve of 48 where CPUs count one and a half
    times. Aligned pods fit the second one alone."""
    machine = node("n1").server(MACHINE).kubelet(reserved_cpus="0-11,32-43").numa_policy(SINGLE_NUMA_NODE)
    trial.add(machine.annotation(AMPLIFICATION_RATIO, f'{{"cpu":{ratio}}}') if ratio else machine)
    trial.settle(12)
    for number in range(count):
        trial.submit(plain(f"a-{number}", cpu))
        expect.running(f"a-{number}")
    trial.submit(plain("b", cpu))
    expect.pending("b", saying="NUMA")


@pytest.mark.feature("CPU-4.scheduled-by-ratio")
@pytest.mark.case("NU-025", severity="critical", source="spec NUMA-R48, NUMA-R49; nodenumaresource/plugin.go")
@pytest.mark.parametrize(
    ("ratio", "first", "builder", "saying"),
    [
        pytest.param('{"cpu":1.5}', None, bound("a", 42), "", id="bound-42-as-63"),
        pytest.param('{"cpu":1.5}', None, bound("a", 43), NO_AMPLIFIED, id="bound-43-as-64.5"),
        pytest.param('{"cpu":1.5}', bound("b", 20), plain("a", 34), "", id="34-beside-20-as-30"),
        pytest.param('{"cpu":1.5}', bound("b", 20), plain("a", 35), NO_AMPLIFIED, id="35-beside-20-as-30"),
        pytest.param('{"cpu":1.5}', plain("b", 20), plain("a", 44), "", id="44-beside-20-shared"),
        pytest.param(
            '{"cpu":1.3335}', pod("b").request(cpu="62667m"), bound("a", 1), NO_AMPLIFIED, id="1-as-1.334-beside-62.667"
        ),
        pytest.param('{"cpu":"x"}', None, bound("a", 4), "node(s) invalid CPU amplification ratio", id="invalid"),
    ],
)
def test_bound_cpus_count_with_the_ratio(
    trial: Trial, expect: Expect, *, ratio: str, first: PodBuilder | None, builder: PodBuilder, saying: str
) -> None:
    """The node offers 64 CPUs, one and a half for each real one: a bound CPU takes one and a half of them."""
    trial.add(node("n1").server(MACHINE).annotation(AMPLIFICATION_RATIO, ratio))
    trial.settle(2)
    if first is not None:
        trial.submit(first)
        expect.running("b")
    trial.submit(builder)
    if saying:
        expect.pending("a", saying=saying)
    else:
        expect.running("a")
        expect.refusal()


@pytest.mark.feature("CPU-4.scheduled-by-ratio", "CPU-3.full-pcpus-only")
@pytest.mark.case("NU-085", severity="normal", source="spec NUMA-R9, NUMA-R49; nodenumaresource/plugin.go")
def test_cpus_that_the_node_binds_count_with_the_ratio(trial: Trial, expect: Expect) -> None:
    """The node offers 64 CPUs, one and a half for each real one, and binds all pods to theirs: there is room for a pod
    of 42 real ones, and not for one of 44."""
    machine = node("n1").server(MACHINE).label(CPU_BIND_POLICY_LABEL, "FullPCPUsOnly")
    trial.add(machine.annotation(AMPLIFICATION_RATIO, '{"cpu":1.5}'))
    trial.settle(2)
    trial.submit(plain("large", 44))
    expect.pending("large", saying=NO_AMPLIFIED)
    trial.submit(plain("a", 42))
    assert len(cpus(expect.running("a"))) == 42


@pytest.mark.feature("CPU-3.full-pcpus-only")
@pytest.mark.case("NU-086", severity="normal", source="spec NUMA-R9, NUMA-R10; nodenumaresource/plugin.go")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # in real time the node's agent writes the object again
@pytest.mark.parametrize(
    ("label", "value", "saying"),
    [
        pytest.param(CPU_BIND_POLICY_LABEL, "FullPCPUsOnly", "node(s) invalid CPU Topology", id="cpus"),
        pytest.param(NUMA_TOPOLOGY_POLICY_LABEL, RESTRICTED, "node(s) missing NUMA resources", id="numa-nodes"),
    ],
)
def test_a_node_binds_cpus_without_saying_which_it_has(
    trial: Trial, expect: Expect, label: str, value: str, saying: str
) -> None:
    """A node without NodeResourceTopology binds or aligns all pods by its label: none is placed, until the label is
    gone."""
    trial.add(node("n1").server(MACHINE))
    assert trial.call("DELETE", TOPOLOGY).ok
    trial.settle()
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {label: value}}}).ok
    trial.settle()
    trial.submit(plain("a", 4))
    expect.pending("a", saying=saying)
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {label: None}}}).ok
    expect.bound("a")


@pytest.mark.feature("CPU-4.scheduled-by-ratio")
@pytest.mark.profile("spreading-numa")
@pytest.mark.case("NU-053", severity="normal", source="spec NUMA-R58")
@pytest.mark.parametrize("qos", ["LSR", ""], ids=["bound", "shared"])
@pytest.mark.parametrize(("first", "second"), [("n1", "n2"), ("n2", "n1")], ids=["first", "second"])
def test_bound_cpus_count_with_the_ratio_in_the_score_of_a_node(
    trial: Trial, expect: Expect, qos: str, first: str, second: str
) -> None:
    """Two nodes without NUMA policies, whose CPUs count one and a half times. 20 CPUs of one are used, which count as
    30 if they are bound, and 24 of the other one are shared: spreading puts a pod on the one with less."""
    for name in ("n1", "n2"):
        trial.add(node(name).server(MACHINE).annotation(AMPLIFICATION_RATIO, '{"cpu":1.5}'))
    trial.settle(2)
    for name, builder in ((first, plain("a", 20).qos(qos) if qos else plain("a", 20)), (second, plain("b", 24))):
        trial.submit(builder.select({"kubernetes.io/hostname": name}))
        expect.running(builder.name)
    trial.submit(plain("c", 4).scheduler("spreading-numa"))
    assert expect.running("c").spec.node_name == (second if qos else first)
    expect.refusal()


@pytest.mark.feature("NUMA-3.scores")
@pytest.mark.profile("packing-numa", "spreading-numa")
@pytest.mark.case(
    "NU-100", severity="normal", source="spec NUMA-R59; koordinator nodenumaresource/scoring.go@v1.7.0, scoring_test.go"
)
@pytest.mark.parametrize("packing", [True, False], ids=["packing", "spreading"])
@pytest.mark.parametrize(("first", "second"), [("n1", "n2"), ("n2", "n1")], ids=["first", "second"])
def test_bound_cpus_of_the_whole_node_count_in_the_score_of_numa_nodes(
    trial: Trial, expect: Expect, first: str, second: str, packing: bool
) -> None:
    """Of two nodes with a NUMA policy one has eight bound CPUs, which count wherever they are, and the other one 16
    that a pod shares, which do not: packing puts a bound pod beside the former."""
    for name in ("n1", "n2"):
        trial.add(node(name).server(MACHINE).numa_policy(SINGLE_NUMA_NODE))
    for name, builder in ((first, bound("a", 8)), (second, plain("b", 16))):
        trial.submit(builder.select({"kubernetes.io/hostname": name}))
        expect.running(builder.name)
    trial.submit(bound("c", 4).scheduler("packing-numa" if packing else "spreading-numa"))
    assert expect.running("c").spec.node_name == (first if packing else second)


@pytest.mark.feature("CPU-4.scheduled-by-ratio", "NUMA-1.not-overbooked")
@pytest.mark.case("NU-056", severity="normal", source="spec NUMA-R38, NUMA-R48")
def test_real_cpus_beside_amplified_ones(trial: Trial, expect: Expect) -> None:
    """CPUs count one and a half times, and all memory of one NUMA node is taken. The other one has 18 CPUs of 48 left
    beside a pod that shares them: that is room for twelve real ones."""
    machine = node("n1").server(MACHINE).numa_policy(SINGLE_NUMA_NODE)
    trial.add(machine.annotation(AMPLIFICATION_RATIO, '{"cpu":1.5}'))
    trial.settle(2)
    placed(trial, plain("full", 1, "128Gi"), "", {1: "1"}, memory="128Gi")
    trial.submit(plain("first", 30))
    assert shares(expect.running("first")) == {0: 30_000}
    trial.submit(bound("large", 14))
    expect.pending("large", saying="NUMA")
    trial.submit(bound("small", 12))
    assert len(shares(expect.running("small"))) == 1


@pytest.mark.feature("CPU-4.scheduled-by-ratio")
@pytest.mark.profile("packing-numa")
@pytest.mark.case("NU-026", severity="critical", source="spec NUMA-R47, NUMA-R48")
@pytest.mark.parametrize("qos", ["LSR", ""], ids=["bound", "shared"])
def test_bound_cpus_count_with_the_ratio_on_their_numa_node(trial: Trial, expect: Expect, qos: str) -> None:
    """Each NUMA node offers 48 CPUs. A pod has 28 of one, which count as 42 if they are bound to it: packing puts a pod
    of eight beside it where they are shared."""
    machine = node("n1").server(MACHINE).annotation(AMPLIFICATION_RATIO, '{"cpu":1.5}')
    trial.add(machine.numa_policy(SINGLE_NUMA_NODE))
    trial.settle(2)
    first = plain("first", 28)
    trial.submit(first.qos(qos) if qos else first)
    taken = shares(expect.running("first")).keys()
    trial.submit(plain("a", 8).scheduler("packing-numa"))
    assert (shares(expect.running("a")).keys() == taken) == (not qos)


def placed(trial: Trial, builder: PodBuilder, cpuset: str, zones: dict[int, str], *, memory: str = "0") -> None:
    """Create the pod as one that is on the node already, as a scheduler finds it when it starts; `zones`: its CPU on
    each NUMA node; `memory`: on each of these."""
    parts = [{"node": number, "resources": {"cpu": cpu, "memory": memory}} for number, cpu in zones.items()]
    text = orjson.dumps({"cpuset": cpuset, "numaNodeResources": parts}).decode()
    trial.submit(builder.annotation(RESOURCE_STATUS, text).node_name("n1"))
    trial.settle()


@pytest.mark.feature("NUMA-1.node-policy")
@pytest.mark.case("NU-101", severity="normal", source="spec NUMA-R41; koordinator frameworkext/topologymanager@v1.7.0")
@pytest.mark.parametrize("policy", [RESTRICTED, SINGLE_NUMA_NODE])
def test_each_resource_that_no_numa_nodes_have_is_named(trial: Trial, expect: Expect, policy: str) -> None:
    """A pod that is there holds all CPUs and memory of both NUMA nodes: the next one is told of both."""
    trial.add(node("n1").server(MACHINE).numa_policy(policy))
    placed(trial, plain("full", 1), "", {0: "32", 1: "32"}, memory="128Gi")
    trial.submit(plain("a", 4))
    for name in ("cpu", "memory"):
        expect.pending("a", saying=f"Unsatisfied NUMA {name}")


@pytest.mark.feature("NUMA-1.not-overbooked")
@pytest.mark.case("NU-027", severity="critical", source="spec NUMA-R20")
def test_each_numa_node_of_a_pod_counts(trial: Trial, expect: Expect) -> None:
    """A pod holds 20 CPUs of each NUMA node: an aligned pod of 16 fits on neither, and one of twelve does."""
    trial.add(node("n1").server(MACHINE))
    placed(trial, plain("first", 40), "", {0: "20", 1: "20"})
    trial.submit(plain("a", 16).align(SINGLE_NUMA_NODE))
    expect.pending("a", saying=UNALIGNED)
    trial.submit(plain("b", 12).align(SINGLE_NUMA_NODE))
    expect.running("b")


@pytest.mark.feature("CPU-1.policies")
@pytest.mark.case("NU-031", severity="normal", source="spec NUMA-R20: booked under its UID (replace)")
def test_cpus_that_another_component_moves(trial: Trial, expect: Expect, seatrial_audit: RunningAudit) -> None:
    """Another component moves a running pod to four other CPUs: a pod of the 60 that remain gets them."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(bound("first", 4))
    first = expect.running("first")
    seatrial_audit.auditor.excuse("AUD-302", first.metadata.uid)
    assert not cpus(first) & {12, 13, 14, 15}
    moved = {"metadata": {"annotations": {RESOURCE_STATUS: '{"cpuset":"12-15"}'}}}
    assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}/pods/first", moved).ok
    trial.settle()
    trial.submit(bound("rest", 60))
    assert cpus(expect.bound("rest")) == set(range(64)) - {12, 13, 14, 15}


@pytest.mark.feature("CPU-2.pcpu-level")
@pytest.mark.case("NU-028", severity="normal", source="spec NUMA-R20, NUMA-R30")
def test_a_pod_that_was_there_keeps_its_exclusivity(trial: Trial, expect: Expect) -> None:
    """A pod with exclusive cores has one thread of two cores. The NUMA node that packing prefers has no others left:
    the next exclusive pod goes to the other one, and one that is not exclusive takes the other threads."""
    trial.add(node("n1").server(MACHINE).label(NUMA_ALLOCATE_STRATEGY_LABEL, "MostAllocated"))
    placed(trial, bound("first", 2).bind_cpus(SPREAD_BY_PCPUS, exclusive=PCPU_LEVEL), "4-5", {})
    first = set(cores(trial, trial.pod("first")))
    trial.submit(bound("filler", 28).bind_cpus(FULL_PCPUS))
    assert not set(cores(trial, expect.running("filler"))) & first
    trial.submit(bound("second", 2).bind_cpus(SPREAD_BY_PCPUS, exclusive=PCPU_LEVEL))
    assert not set(cores(trial, expect.running("second"))) & first
    trial.submit(bound("third", 2).bind_cpus(SPREAD_BY_PCPUS))
    assert set(cores(trial, expect.running("third"))) == first


def changed(trial: Trial) -> None:
    assert trial.call("PATCH", TOPOLOGY, {"metadata": {"annotations": {SYSTEM_QOS: '{"cpuset":"31"}'}}}).ok


def made_anew(trial: Trial) -> None:
    body = orjson.loads(trial.call("GET", TOPOLOGY).body)
    assert trial.call("DELETE", TOPOLOGY).ok
    trial.settle()
    if trial.call("GET", TOPOLOGY).code == 404:
        for name in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            body["metadata"].pop(name, None)
        assert trial.call("POST", TOPOLOGY.rpartition("/")[0], body).ok


def another_kind_of_zone(trial: Trial) -> None:
    zones = orjson.loads(trial.call("GET", TOPOLOGY).body)["zones"]
    more = {"name": "node-2", "type": "Socket", "resources": zones[0]["resources"]}
    assert trial.call("PATCH", TOPOLOGY, {"zones": [*zones, more]}).ok


@pytest.mark.feature("CPU-1.policies", "NUMA-1.not-overbooked")
@pytest.mark.profile("packing-numa", "spreading-numa")
@pytest.mark.case(
    "NU-029",
    severity="critical",
    source="spec NUMA-R20, NUMA-R22; koordinator nodenumaresource/topology_eventhandler.go",
)
@pytest.mark.parametrize("event", [changed, made_anew, another_kind_of_zone])
def test_pods_keep_what_they_have_when_the_topology_changes(
    trial: Trial, expect: Expect, event: Callable[[Trial], None]
) -> None:
    """A pod has four CPUs of the NUMA node that packing prefers, and 26 CPUs of the other one are taken. After its
    NodeResourceTopology was written again the next pod gets four others there; and a pod of 28 fits on neither NUMA
    node."""
    trial.add(node("n1").server(MACHINE).label(NUMA_ALLOCATE_STRATEGY_LABEL, "MostAllocated"))
    trial.submit(bound("first", 4).align(SINGLE_NUMA_NODE, exclusive="Preferred"))
    first = expect.running("first")
    event(trial)
    trial.settle()
    trial.submit(bound("second", 4).align(SINGLE_NUMA_NODE, exclusive="Preferred").scheduler("packing-numa"))
    second = expect.running("second")
    assert not cpus(first) & cpus(second)
    assert shares(first).keys() == shares(second).keys()
    trial.submit(plain("third", 26).align(SINGLE_NUMA_NODE).scheduler("spreading-numa"))
    assert shares(expect.running("third")).keys() != shares(first).keys()
    trial.submit(plain("large", 28).align(SINGLE_NUMA_NODE))
    expect.pending("large", saying=UNALIGNED)


@pytest.mark.feature("NUMA-1.node-policy", "CPU-3.full-pcpus-only")
@pytest.mark.case("NU-081", severity="normal", source="spec NUMA-R7, NUMA-R12, NUMA-R22")
@pytest.mark.parametrize(
    ("label", "value"), [(NUMA_TOPOLOGY_POLICY_LABEL, SINGLE_NUMA_NODE), (CPU_BIND_POLICY_LABEL, "FullPCPUsOnly")]
)
@pytest.mark.parametrize("event", [changed, made_anew])
def test_labels_of_a_node_stay_in_force_when_the_topology_changes(
    trial: Trial, expect: Expect, label: str, value: str, event: Callable[[Trial], None]
) -> None:
    """By a label of the node a pod of 33 CPUs is refused: also after its NodeResourceTopology was written again."""
    trial.add(node("n1").server(MACHINE).label(label, value))
    event(trial)
    trial.settle()
    trial.submit(plain("a", 33))
    expect.pending("a")


@pytest.mark.feature("NUMA-1.not-overbooked")
@pytest.mark.case(
    "NU-082", severity="normal", source="spec NUMA-R21, NUMA-R66; koordinator nodenumaresource/topology_eventhandler.go"
)
def test_what_zones_list(trial: Trial, expect: Expect) -> None:
    """Zones are NUMA nodes by their name, wherever they are in the list, and give what is allocatable of them, whatever
    their capacity is and what an agent found available."""
    trial.add(node("n1").server(MACHINE))
    zones = orjson.loads(trial.call("GET", TOPOLOGY).body)["zones"]
    for zone in zones:
        for resource in zone["resources"]:
            if resource["name"] == "cpu":
                resource |= {"allocatable": {"node-0": "8", "node-1": "16"}[zone["name"]], "available": "4"}
    zones.sort(key=lambda zone: zone["name"], reverse=True)
    assert trial.call("PATCH", TOPOLOGY, {"zones": zones}).ok
    trial.settle()
    trial.submit(plain("large", 18).align(SINGLE_NUMA_NODE))
    expect.pending("large", saying=UNALIGNED)
    for name, cpu, zone in (("a", 16, 1), ("b", 8, 0)):
        trial.submit(plain(name, cpu).align(SINGLE_NUMA_NODE))
        assert shares(expect.running(name)) == {zone: 1000 * cpu}


@pytest.mark.feature("CPU-3.full-pcpus-only")
@pytest.mark.case("NU-030", severity="normal", source="spec NUMA-R61")
@pytest.mark.parametrize(
    ("label", "builder", "expected"),
    [
        pytest.param("FullPCPUsOnly", bound("a", 4), {"requiredCPUBindPolicy": FULL_PCPUS}, id="of-the-node"),
        pytest.param("", bound("a", 4), {"preferredCPUBindPolicy": FULL_PCPUS}, id="of-the-profile"),
        pytest.param(
            "", bound("a", 4).bind_cpus(SPREAD_BY_PCPUS), {"preferredCPUBindPolicy": SPREAD_BY_PCPUS}, id="of-the-pod"
        ),
        pytest.param(
            "FullPCPUsOnly",
            bound("a", 4).bind_cpus(SPREAD_BY_PCPUS, exclusive=PCPU_LEVEL),
            {
                "requiredCPUBindPolicy": FULL_PCPUS,
                "preferredCPUBindPolicy": SPREAD_BY_PCPUS,
                "preferredCPUExclusivePolicy": PCPU_LEVEL,
            },
            id="of-the-node-beside-the-pods",
        ),
        pytest.param(
            "",
            bound("a", 4).bind_cpus(exclusive=PCPU_LEVEL),
            {"preferredCPUBindPolicy": FULL_PCPUS, "preferredCPUExclusivePolicy": PCPU_LEVEL},
            id="of-the-profile-beside-exclusivity",
        ),
        pytest.param("", bound("a", 4).bind_cpus("Default"), {"preferredCPUBindPolicy": FULL_PCPUS}, id="default"),
        pytest.param(
            "",
            bound("a", 4).bind_cpus(required="Default"),
            {"requiredCPUBindPolicy": FULL_PCPUS},
            id="default-is-required",
        ),
    ],
)
def test_the_policy_in_force_is_written(
    trial: Trial, expect: Expect, label: str, builder: PodBuilder, expected: dict[str, str]
) -> None:
    """The pod's annotation has the policy by which its CPUs were chosen, for the node agent."""
    machine = node("n1").server(MACHINE)
    trial.add(machine.label(CPU_BIND_POLICY_LABEL, label) if label else machine)
    trial.submit(builder)
    written = orjson.loads(expect.running("a").metadata.annotations.get(RESOURCE_SPEC) or "{}")
    assert written == expected


@pytest.mark.feature("CPU-1.policies", "CPU-3.numa-strategy")
@pytest.mark.case("NU-032", severity="normal", source="spec NUMA-R24")
@pytest.mark.parametrize("strategy", ["MostAllocated", "LeastAllocated"])
def test_more_whole_cores_than_a_socket_has(trial: Trial, expect: Expect, strategy: str) -> None:
    """Four CPUs of one socket are taken. A pod of 40 gets all 32 of the other one, and eight of the first."""
    trial.add(node("n1").server(MACHINE).label(NUMA_ALLOCATE_STRATEGY_LABEL, strategy))
    trial.submit(bound("first", 4))
    (taken,) = cpu_numa_nodes(trial, expect.running("first"))
    trial.submit(bound("a", 40))
    on = [seats(trial, "n1")[number].numa for number in cpus(expect.running("a"))]
    assert (on.count(taken), on.count(1 - taken)) == (8, 32)


@pytest.mark.feature("CPU-1.policies", "CPU-3.numa-strategy")
@pytest.mark.case("NU-054", severity="normal", source="spec NUMA-R24, NUMA-R25, NUMA-R27; cpu_accumulator.go")
@pytest.mark.parametrize("policy", [FULL_PCPUS, SPREAD_BY_PCPUS])
@pytest.mark.parametrize(
    ("strategy", "taken", "joins"),
    [
        ("LeastAllocated", 0, False),
        ("LeastAllocated", 7, False),
        ("MostAllocated", 0, True),
        ("MostAllocated", 7, True),
    ],
)
def test_of_equal_numa_nodes_the_socket_decides(  # noqa: PLR0917
    trial: Trial, expect: Expect, strategy: str, taken: int, joins: bool, policy: str
) -> None:
    """Two sockets of four NUMA nodes each. One NUMA node is full, the others are free: packing goes to another one of
    its socket, and spreading to the other socket."""
    trial.add(node("n1").server(EIGHT_NUMA_NODES).label(NUMA_ALLOCATE_STRATEGY_LABEL, strategy))
    places = seats(trial, "n1")
    full = [number for number, seat in places.items() if seat.numa == taken]
    placed(trial, bound("first", len(full)), ",".join(map(str, full)), {})
    trial.submit(bound("a", 4).bind_cpus(policy))
    sockets = {places[number].core[0] for number in cpus(expect.running("a"))}
    assert (sockets == {places[full[0]].core[0]}) == joins
    assert len(sockets) == 1


@pytest.mark.feature("NUMA-1.node-policy", "CPU-3.full-pcpus-only")
@pytest.mark.case("NU-057", severity="normal", source="spec NUMA-R12, NUMA-R20: Node events")
@pytest.mark.parametrize(
    ("label", "value"), [(NUMA_TOPOLOGY_POLICY_LABEL, SINGLE_NUMA_NODE), (CPU_BIND_POLICY_LABEL, "FullPCPUsOnly")]
)
def test_a_label_of_a_node_comes_and_goes(trial: Trial, expect: Expect, label: str, value: str) -> None:
    """A pod of 33 CPUs is placed on a node of two NUMA nodes. With the label none is, as they fit on no NUMA node and
    fill no whole cores; without it the waiting one is bound."""
    trial.add(node("n1").server(MACHINE))

    def labelled(value: str | None) -> None:
        assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {label: value}}}).ok
        trial.settle()

    trial.submit(plain("before", 33))
    expect.running("before")
    trial.delete("before")
    labelled(value)
    trial.submit(plain("within", 33))
    expect.pending("within")
    labelled(None)
    expect.running("within")
