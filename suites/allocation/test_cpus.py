"""Exclusive CPUs for pods of the QoS classes LSR and LSE, by the bind policies of pods and nodes.

The machine of most cases has two NUMA nodes of 16 cores with two threads each.
"""

import random

import pytest

from seatrial.fixtures.cpus import cores, cpu_numa_nodes, cpus, kept_cpus, seats, shares
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.profiles import announced
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, pods, priority_class
from seatrial.scheduler.api.numa import (
    CPU_BIND_POLICY_LABEL,
    FULL_PCPUS,
    GROUP_VERSION,
    KUBELET_CPU_MANAGER,
    NODE_RESERVATION,
    NUMA_ALLOCATE_STRATEGY_LABEL,
    NUMA_NODE_LEVEL,
    PCPU_LEVEL,
    POD_CPU_ALLOCS,
    PRIORITY_CLASS_LABEL,
    RESOURCE_STATUS,
    SPREAD_BY_PCPUS,
    SYSTEM_QOS,
)
from seatrial.scheduler.api.wire import to_json

MACHINE, EIGHT_NUMA_NODES = "cpu-64", "atlas-800t-a2"
SPREAD_CPUS, PACKING, RELEASED = "spread-cpus", "packing-numa", "released-cpu-bind"

pytestmark = [pytest.mark.needs(Capability.NODES)]


def bound(pod: PodBuilder, cpu: int | str, qos: str = "LSR") -> PodBuilder:
    return pod.qos(qos).request(cpu=cpu, memory="1Gi")


@pytest.mark.feature("CPU-1.policies", "CPU-1.configured-default")
@pytest.mark.case("CP-001", severity="blocker")
@pytest.mark.parametrize("qos", ["LSR", "LSE"])
@pytest.mark.parametrize(
    ("policy", "each"),
    [
        pytest.param("", 2, id="by-default-whole-cores"),
        pytest.param("Default", 2, id="as-by-default"),
        pytest.param(FULL_PCPUS, 2, id="whole-cores"),
        pytest.param(SPREAD_BY_PCPUS, 1, id="one-of-each-core"),
    ],
)
def test_cpus_of_their_own(trial: Trial, expect: Expect, qos: str, policy: str, each: int) -> None:
    """A pod gets as many CPUs as it requests, on one NUMA node, by its preferred policy or the scheduler's default."""
    trial.add(node("n1").server(MACHINE))
    builder = bound(pod("a"), 4, qos)
    trial.submit(builder.bind_cpus(policy) if policy else builder)

    a = expect.running("a")

    assert len(cpus(a)) == 4
    assert set(cores(trial, a).values()) == {each}
    assert len(cpu_numa_nodes(trial, a)) == 1


@pytest.mark.feature("CPU-1.policies")
@pytest.mark.case("CP-014", severity="normal")
@pytest.mark.parametrize(("count", "of_cores"), [(40, 32), (20, 16)], ids=["of-the-machine", "of-a-numa-node"])
def test_more_cpus_than_cores_are_still_spread(trial: Trial, expect: Expect, count: int, of_cores: int) -> None:
    """40 CPUs of a machine with 32 cores, or 20 of a NUMA node with 16: each core gives one, and some give both."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(bound(pod("a"), count).bind_cpus(SPREAD_BY_PCPUS))

    values = sorted(cores(trial, expect.running("a")).values())
    both = count - of_cores
    assert values == [1] * (of_cores - both) + [2] * both


@pytest.mark.feature("CPU-1.default-by-config")
@pytest.mark.profile(SPREAD_CPUS)
@pytest.mark.case("CP-012", severity="critical")
def test_the_default_policy_comes_from_the_configuration(trial: Trial, expect: Expect) -> None:
    """With defaultCPUBindPolicy SpreadByPCPUs a pod without a policy gets one CPU of each core; a policy still wins."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(bound(pod("default"), 4).scheduler(SPREAD_CPUS))
    trial.submit(bound(pod("own"), 4).bind_cpus(FULL_PCPUS).scheduler(SPREAD_CPUS))

    default, own = expect.running("default", "own")

    assert set(cores(trial, default).values()) == {1}
    assert set(cores(trial, own).values()) == {2}


@pytest.mark.feature("CPU-1.configuration-default-cpu-bind")
@pytest.mark.profile(RELEASED, SPREAD_CPUS)
@pytest.mark.case("CP-015", severity="critical")
@pytest.mark.parametrize("order", [(RELEASED, SPREAD_CPUS), (SPREAD_CPUS, RELEASED)], ids=["first", "second"])
@pytest.mark.parametrize("qos", ["LSR", "LSE"])
def test_the_released_configuration(trial: Trial, expect: Expect, qos: str, order: tuple[str, str]) -> None:
    """By the announced configuration pods without a policy get whole cores, beside a pod of a profile that spreads."""
    assert announced("v0.6/config/default-cpu-bind.config.yaml", RELEASED)
    trial.add(node("n1").server(MACHINE))
    for profile in order:
        trial.submit(bound(pod(profile), 4, qos).scheduler(profile))
        expect.running(profile)

    released, spread = expect.running(RELEASED, SPREAD_CPUS)

    assert sorted(cores(trial, released).values()) == [2, 2]
    assert sorted(cores(trial, spread).values()) == [1, 1, 1, 1]


@pytest.mark.feature("CPU-1.others-share")
@pytest.mark.case("CP-002", severity="critical")
@pytest.mark.parametrize(
    ("builder", "cpu"),
    [
        pytest.param(pod("a").qos("LS"), "4", id="ls"),
        pytest.param(pod("a").qos("BE"), "4", id="be"),
        pytest.param(pod("a"), "4", id="no-class"),
        pytest.param(pod("a").bind_cpus(FULL_PCPUS), "4", id="a-policy-alone"),
        pytest.param(pod("a").qos("LSR").label(PRIORITY_CLASS_LABEL, "koord-batch"), "4", id="batch"),
        pytest.param(pod("a").qos("LSR").bind_cpus("ConstrainedBurst"), "4", id="another-policy"),
    ],
)
def test_all_others_share(trial: Trial, expect: Expect, builder: PodBuilder, cpu: str) -> None:
    """Pods of other QoS classes get no exclusive CPUs, whatever policy they name; one of class LSR beside them does."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(builder.request(cpu=cpu), bound(pod("exclusive"), 4))

    a, exclusive = expect.running("a", "exclusive")
    assert RESOURCE_STATUS not in a.metadata.annotations
    assert RESOURCE_STATUS in exclusive.metadata.annotations


@pytest.mark.feature("CPU-1.others-share")
@pytest.mark.case(
    "NU-084", severity="normal", source="spec NUMA-R3, numa-cpu 2.1; koordinator apis/extension/priority.go@v1.7.0"
)
@pytest.mark.parametrize(
    ("priority", "named", "binds"),
    [
        (9999, "", True),
        (8999, "", True),
        (7000, "", False),
        (5999, "", False),
        (3000, "", False),
        (2999, "", True),
        (7000, "koord-prod", True),
        (9000, "koord-mid", False),
    ],
)
def test_priorities_of_pods_with_cpus_of_their_own(
    trial: Trial, expect: Expect, priority: int, named: str, binds: bool
) -> None:
    """A pod of class LSR has CPUs of its own if its priority is in the band of koord-prod, or in none of the bands; a
    priority class in its label counts instead."""
    trial.add(node("n1").server(MACHINE))
    trial.apply(priority_class(f"cpus-{priority}", priority))
    builder = bound(pod("a"), 4).priority_class(f"cpus-{priority}")
    trial.submit(builder.label(PRIORITY_CLASS_LABEL, named) if named else builder)
    assert bool(cpus(expect.running("a"))) == binds


@pytest.mark.feature("CPU-1.integer")
@pytest.mark.case("CP-003", severity="critical")
def test_half_a_cpu_cannot_be_bound(trial: Trial, expect: Expect) -> None:
    """A bound pod with a fractional CPU request is refused."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(bound(pod("a"), "3500m"))

    expect.pending("a", saying="the requested CPUs must be integer")


@pytest.mark.feature("CPU-1.required")
@pytest.mark.case("CP-004", severity="critical")
def test_a_preference_gives_way_and_a_requirement_waits(trial: Trial, expect: Expect) -> None:
    """With no whole core free, a pod that prefers whole cores gets single CPUs, and one that requires them waits."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(bound(pod("breaks"), 32).bind_cpus(required=SPREAD_BY_PCPUS))
    assert set(cores(trial, expect.running("breaks")).values()) == {1}

    trial.submit(
        bound(pod("prefers"), 2).bind_cpus(FULL_PCPUS), bound(pod("requires"), 2).bind_cpus(required=FULL_PCPUS)
    )

    assert set(cores(trial, expect.running("prefers")).values()) == {1}
    expect.pending("requires", saying="not enough cpus available to satisfy request")
    trial.delete("breaks")
    assert set(cores(trial, expect.running("requires")).values()) == {2}


@pytest.mark.case("CP-005", severity="critical")
@pytest.mark.parametrize(
    ("exclusive", "apart"),
    [
        pytest.param(PCPU_LEVEL, cores, marks=pytest.mark.feature("CPU-2.pcpu-level"), id="cores"),
        pytest.param(NUMA_NODE_LEVEL, cpu_numa_nodes, marks=pytest.mark.feature("CPU-2.numa-level"), id="numa-nodes"),
    ],
)
def test_exclusive_pods_keep_apart(trial: Trial, expect: Expect, exclusive: str, apart: object) -> None:
    """Two exclusive pods share no core (or no NUMA node) while another one is free."""
    assert callable(apart)
    trial.add(node("n1").server(MACHINE).label(NUMA_ALLOCATE_STRATEGY_LABEL, "MostAllocated"))
    for builder in pods("a", 2):
        trial.submit(bound(builder, 2).bind_cpus(SPREAD_BY_PCPUS, exclusive=exclusive))
    first, second = expect.running("a-0", "a-1")

    assert not set(apart(trial, first)) & set(apart(trial, second))
    assert len(cpu_numa_nodes(trial, first) | cpu_numa_nodes(trial, second)) == 1 + (exclusive == NUMA_NODE_LEVEL)


@pytest.mark.feature("CPU-2.pcpu-level")
@pytest.mark.case("CP-013", severity="critical")
def test_an_exclusive_pod_leaves_shared_cores_alone(trial: Trial, expect: Expect) -> None:
    """Two threads of two cores are all that is left on the NUMA node that packing prefers; another exclusive pod has
    the other two: the pod goes to the other NUMA node. One that is not exclusive takes them."""
    trial.add(node("n1").server(MACHINE).label(NUMA_ALLOCATE_STRATEGY_LABEL, "MostAllocated"))
    trial.submit(bound(pod("filler"), 28).bind_cpus(FULL_PCPUS))
    expect.running("filler")
    trial.submit(bound(pod("first"), 2).bind_cpus(SPREAD_BY_PCPUS, exclusive=PCPU_LEVEL))
    first = expect.running("first")
    trial.submit(bound(pod("second"), 2).bind_cpus(SPREAD_BY_PCPUS, exclusive=PCPU_LEVEL))
    second = expect.running("second")
    assert [sorted(cores(trial, item).values()) for item in (first, second)] == [[1, 1], [1, 1]]
    assert not set(cores(trial, first)) & set(cores(trial, second))
    trial.submit(bound(pod("third"), 2).bind_cpus(SPREAD_BY_PCPUS))
    assert set(cores(trial, expect.running("third"))) == set(cores(trial, first))


@pytest.mark.feature("CPU-2.pcpu-level")
@pytest.mark.case("CP-017", severity="normal")
def test_a_large_exclusive_pod_leaves_shared_cores_alone(trial: Trial, expect: Expect) -> None:
    """A machine has two sockets of four NUMA nodes with 12 cores each. An exclusive pod has four cores of one socket,
    which packing prefers. Another one wants 46 CPUs, more than a NUMA node has: it takes the other socket's cores. One
    that is not exclusive shares the first pod's cores."""
    trial.add(node("n1").server(EIGHT_NUMA_NODES).label(NUMA_ALLOCATE_STRATEGY_LABEL, "MostAllocated"))
    trial.submit(bound(pod("first"), 4).bind_cpus(SPREAD_BY_PCPUS, exclusive=PCPU_LEVEL))
    first = expect.running("first")
    trial.submit(bound(pod("second"), 46).bind_cpus(SPREAD_BY_PCPUS, exclusive=PCPU_LEVEL))
    second = expect.running("second")
    assert [sorted(cores(trial, item).values()) for item in (first, second)] == [[1] * 4, [1] * 46]
    assert not set(cores(trial, first)) & set(cores(trial, second))
    trial.delete("second")
    trial.submit(bound(pod("third"), 46).bind_cpus(SPREAD_BY_PCPUS))
    assert set(cores(trial, expect.running("third"))) & set(cores(trial, first))


@pytest.mark.feature("CPU-2.as-much-as-possible")
@pytest.mark.case("CP-006", severity="normal")
def test_exclusive_is_a_preference(trial: Trial, expect: Expect) -> None:
    """A third pod with NUMA node exclusivity still runs on a machine with two NUMA nodes."""
    trial.add(node("n1").server(MACHINE))
    trial.submit(*(bound(pod, 2).bind_cpus(exclusive=NUMA_NODE_LEVEL) for pod in pods("a", 3)))

    result = expect.running("a-0", "a-1", "a-2")
    assert len(frozenset[int]().union(*map(cpus, result))) == 6


@pytest.mark.case("CP-007", severity="critical")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("label", marks=pytest.mark.feature("CPU-3.full-pcpus-only")),
        pytest.param("kubelet", marks=pytest.mark.feature("CPU-3.kubelet-static")),
    ],
)
def test_a_node_that_gives_whole_cores_only(trial: Trial, expect: Expect, how: str) -> None:
    """With the node's label or the kubelet's static policy, all pods are bound to whole cores, or wait."""
    machine = node("n1").server(MACHINE)
    trial.add(
        machine.label(CPU_BIND_POLICY_LABEL, "FullPCPUsOnly")
        if how == "label"
        else machine.kubelet(full_pcpus_only=True)
    )
    trial.submit(pod("plain").request(cpu=4), bound(pod("odd"), 5), bound(pod("spread"), 4).bind_cpus(SPREAD_BY_PCPUS))
    trial.submit(bound(pod("against"), 4).bind_cpus(required=SPREAD_BY_PCPUS), pod("half").request(cpu="500m"))

    for item in expect.running("plain", "spread"):
        assert set(cores(trial, item).values()) == {2}
    expect.pending("odd", saying="node(s) requested cpus not multiple cpus per core")
    expect.pending("against", saying="node(s) cpu bind policy conflicts with pod's required cpu bind policy")
    expect.pending("half", saying="the requested CPUs must be integer")


@pytest.mark.feature("CPU-3.numa-strategy")
@pytest.mark.case("CP-008", severity="normal")
@pytest.mark.parametrize(
    ("profile", "strategy", "numa_nodes"),
    [
        pytest.param("", "MostAllocated", 1, id="fill-one-numa-node"),
        pytest.param("", "LeastAllocated", 2, id="take-them-in-turn"),
        pytest.param("", "", 2, id="in-turn-by-default"),
        pytest.param(PACKING, "", 1, id="as-the-profile-says", marks=pytest.mark.profile(PACKING)),
        pytest.param(PACKING, "LeastAllocated", 2, id="label-before-profile", marks=pytest.mark.profile(PACKING)),
        pytest.param(PACKING, "DistributeEvenly", 2, id="evenly-before-profile", marks=pytest.mark.profile(PACKING)),
    ],
)
def test_which_numa_node_cpus_come_from(
    trial: Trial, expect: Expect, profile: str, strategy: str, numa_nodes: int
) -> None:
    """The node's label, or else the profile's strategy for NUMA nodes, decides whether these are filled one by one."""
    machine = node("n1").server(MACHINE)
    trial.add(machine.label(NUMA_ALLOCATE_STRATEGY_LABEL, strategy) if strategy else machine)
    for builder in pods("a", 2):
        trial.submit(bound(builder, 4).scheduler(profile) if profile else bound(builder, 4))
        expect.running(builder.name)

    assert len({numa for pod in trial.pods() for numa in cpu_numa_nodes(trial, pod)}) == numa_nodes


@pytest.mark.feature("CPU-3.kubelet-reserved")
@pytest.mark.case("CP-009", severity="critical")
def test_cpus_that_the_kubelet_keeps_are_nobodys(trial: Trial, expect: Expect) -> None:
    """CPUs reserved by the kubelet are bound to no pod, even when all others are taken."""
    trial.add(node("n1").server(MACHINE).kubelet(reserved_cpus="0-1,32-33"))
    trial.submit(bound(pod("all"), 60), bound(pod("one"), 1))

    assert not cpus(expect.running("all")) & {0, 1, 32, 33}
    expect.pending("one", saying="not enough cpus available to satisfy request")


@pytest.mark.feature("CPU-3.kubelet-reserved")
@pytest.mark.case("CP-016", severity="critical")
@pytest.mark.parametrize(
    ("key", "result"),
    [
        pytest.param(
            POD_CPU_ALLOCS, [{"uid": "u", "cpuset": "0-1,32-33", "managedByKubelet": True}], id="pods-of-the-kubelet"
        ),
        pytest.param(
            POD_CPU_ALLOCS,
            [
                {"uid": "u", "cpuset": "0-1", "managedByKubelet": True},
                {"uid": "v", "cpuset": "4-5", "managedByKubelet": False},
                {"uid": "w", "cpuset": "6-7"},
                {"uid": "x", "cpuset": "", "managedByKubelet": True},
                {"uid": "y", "cpuset": "32-33", "managedByKubelet": True},
            ],
            id="pods-of-the-kubelet-alone",
        ),
        pytest.param(SYSTEM_QOS, {"cpuset": "0-1,32-33"}, id="system"),
    ],
)
def test_cpus_that_others_have_are_not_given(trial: Trial, expect: Expect, key: str, result: object) -> None:
    """CPUs that the kubelet gave to pods, and those of the system, are bound to no pod while they are reported."""
    trial.add(node("n1").server(MACHINE))
    path = f"/apis/{GROUP_VERSION}/noderesourcetopologies/n1"

    def reports(text: str | None) -> None:
        assert trial.call("PATCH", path, {"metadata": {"annotations": {key: text}}}).ok
        trial.settle()

    reports(to_json(result).decode())
    trial.submit(bound(pod("most"), 60), bound(pod("rest"), 4))
    assert not cpus(expect.running("most")) & {0, 1, 32, 33}
    expect.pending("rest", saying="not enough cpus available to satisfy request")
    reports(None)
    assert cpus(expect.running("rest")) == {0, 1, 32, 33}


@pytest.mark.feature("CPU-3.kubelet-static", "CPU-3.kubelet-reserved")
@pytest.mark.case("CP-018", severity="normal", source="spec NUMA-R9, NUMA-R12, NUMA-R17; topology_options.go")
@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        pytest.param(
            KUBELET_CPU_MANAGER,
            {"policy": "none", "options": {"full-pcpus-only": "true"}},
            {"policy": "static", "options": {"full-pcpus-only": "true"}},
            id="no-static-policy",
        ),
        pytest.param(
            KUBELET_CPU_MANAGER,
            {"policy": "static", "options": {"full-pcpus-only": "false"}},
            {"policy": "static", "options": {"full-pcpus-only": "true"}},
            id="static-and-half-cores",
        ),
        pytest.param(
            SYSTEM_QOS, {"cpuset": "0-1", "cpusetExclusive": False}, {"cpuset": "0-1"}, id="cpus-of-the-system"
        ),
    ],
)
def test_reports_that_take_no_cpus(
    trial: Trial, expect: Expect, key: str, before: dict[str, object], after: dict[str, object]
) -> None:
    """By the first report the node binds a pod of 63 CPUs to any of its 64, by the second one it does not."""
    trial.add(node("n1").server(MACHINE))

    def reports(result: dict[str, object]) -> None:
        path = f"/apis/{GROUP_VERSION}/noderesourcetopologies/n1"
        assert trial.call("PATCH", path, {"metadata": {"annotations": {key: to_json(result).decode()}}}).ok
        trial.settle()

    reports(before)
    trial.submit(bound(pod("first"), 63))
    assert len(cpus(expect.running("first"))) == 63
    trial.delete("first")
    reports(after)
    trial.submit(bound(pod("second"), 63))
    expect.pending("second")


@pytest.mark.feature("CPU-5.amounts")
@pytest.mark.case("CP-011", severity="critical")
@pytest.mark.parametrize(
    ("kept", "shares_fit"),
    [
        pytest.param({"resources": {"cpu": "8"}}, False, id="an-amount"),
        pytest.param({"reservedCPUs": "0-3,32-35"}, False, id="a-list"),
        pytest.param({"reservedCPUs": "0-3,32-35", "resources": {"cpu": "2"}}, False, id="a-list-beside-an-amount"),
        pytest.param(
            {"reservedCPUs": "0-3,32-35", "applyPolicy": "ReservedCPUsOnly"},
            True,
            marks=pytest.mark.feature("CPU-5.reserved-cpus-only"),
            id="only-cpus",
        ),
    ],
)
def test_what_a_node_keeps(trial: Trial, expect: Expect, kept: dict[str, object], shares_fit: bool) -> None:
    """CPUs reserved for processes outside containers go to no pod, and reduce the capacity by default."""
    trial.add(node("n1").server(MACHINE))
    marks = {"metadata": {"annotations": {NODE_RESERVATION: to_json(kept).decode()}}}
    assert trial.call("PATCH", "/api/v1/nodes/n1", marks).ok
    assert trial.wait(lambda: kept_cpus(trial, "n1") == {0, 1, 2, 3, 32, 33, 34, 35}, within=10)

    trial.submit(bound(pod("bound"), 60))
    expect.pending("bound")
    trial.submit(pod("shares").request(cpu=60))
    if shares_fit:
        expect.running("shares")
    else:
        expect.pending("shares", saying="Insufficient cpu")
    trial.delete("bound", "shares")
    trial.submit(bound(pod("rest"), 56))
    assert not cpus(expect.running("rest")) & {0, 1, 2, 3, 32, 33, 34, 35}


@pytest.mark.feature("CPU-1.policies", "CPU-2.pcpu-level")
@pytest.mark.case("CP-010", severity="blocker")
@pytest.mark.long(seconds=6)
def test_churn_gives_no_cpu_twice(trial: Trial, seed: int) -> None:
    """Pods of all kinds come and go: no CPU has two owners, and required policies hold at all times."""
    trial.add(node("n1").server(MACHINE), node("n2").server(MACHINE).numa_policy("SingleNUMANode"))
    draw = random.Random(seed)  # noqa: S311 a churn that can be repeated
    alive: list[str] = []
    judged = 0
    where = {name: seats(trial, name) for name in ("n1", "n2")}
    for step in range(50):
        if alive and draw.random() < 0.35:
            trial.delete(alive.pop(draw.randrange(len(alive))))
        else:
            one = pod(f"p{step}").request(cpu=draw.choice([2, 4, 6, 12]), memory="1Gi")
            if draw.random() < 0.8:
                required = draw.choice(["", FULL_PCPUS, SPREAD_BY_PCPUS])
                one.qos("LSR").bind_cpus(required=required, exclusive=draw.choice(["", PCPU_LEVEL]))
                one.label("required", required)
            trial.submit(one)
            alive.append(one.name)
        trial.pass_time(0.1)
        placed = [pod for pod in trial.pods() if pod.spec.node_name and not pod.terminated]
        owned = [(pod.spec.node_name, cpu) for pod in placed for cpu in cpus(pod)]
        assert len(set(owned)) == len(owned), f"a CPU has two owners: {sorted(owned)}"
        for item in placed:
            held = [where[item.spec.node_name][cpu] for cpu in cpus(item)]
            each = {[seat.core for seat in held].count(seat.core) for seat in held}
            required = item.metadata.labels.get("required", "")
            if required and held:
                judged += 1
                assert each == {2 if required == FULL_PCPUS else 1}, f"{item.metadata.name} required {required}"
            if item.spec.node_name == "n2":
                assert len(shares(item)) == 1, f"{item.metadata.name} spans NUMA nodes"
                assert {seat.numa for seat in held} <= shares(item).keys()
    assert judged >= 20, "the churn bound too little to prove anything"
