"""Examples of upstream's own tests of the choice of CPUs, on the machines of these tests.

A machine is `sockets,NUMA nodes of a socket,cores of a NUMA node,CPUs of a core`; CPUs are numbered one after the
other, so that CPUs 0 and 1 are one core.
"""

import orjson
import pytest

from seatrial.fixtures.cpus import cpus
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.cpusets import parse_cpuset
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.numa import (
    CPU_TOPOLOGY,
    FULL_PCPUS,
    GROUP_VERSION,
    NUMA_ALLOCATE_STRATEGY_LABEL,
    NUMA_NODE_LEVEL,
    PCPU_LEVEL,
    RESOURCE_STATUS,
    SPREAD_BY_PCPUS,
)

pytestmark = [pytest.mark.needs(Capability.NODES)]

MOST, LEAST = "MostAllocated", "LeastAllocated"


def topology(machine: str) -> str:
    """The annotation of the NodeResourceTopology for a machine."""
    sockets, nodes, cores, threads = map(int, machine.split(","))
    detail = []
    for number in range(sockets * nodes * cores * threads):
        core = number // threads
        numa = core // cores
        detail.append({"id": number, "core": core, "socket": numa // nodes, "node": numa})
    return orjson.dumps({"detail": detail}).decode()


def asking(name: str, count: int, policy: str, exclusive: str = "") -> PodBuilder:
    return pod(name).qos("LSR").request(cpu=count, memory="1Gi").bind_cpus(policy, exclusive=exclusive)


def cpus_at(  # noqa: PLR0917
    trial: Trial, expect: Expect, machine: str, used: str, builder: PodBuilder, held: str
) -> frozenset[int]:
    """The CPUs of a pod on a machine on which another one has the CPUs `used`, with the exclusive policy `held`."""
    path = f"/apis/{GROUP_VERSION}/noderesourcetopologies/n1"
    assert trial.call("PATCH", path, {"metadata": {"annotations": {CPU_TOPOLOGY: topology(machine)}}}).ok
    trial.settle()
    if used:
        there = asking("there", len(parse_cpuset(used)), SPREAD_BY_PCPUS, held)
        there.annotation(RESOURCE_STATUS, orjson.dumps({"cpuset": used}).decode())
        trial.submit(there.node_name("n1"))
        trial.settle()
    trial.submit(builder)
    return cpus(expect.bound(builder.name))


@pytest.mark.feature("CPU-1.policies", "CPU-3.numa-strategy")
@pytest.mark.case(
    "CP-020",
    severity="critical",
    source="koordinator pkg/scheduler/plugins/nodenumaresource/cpu_accumulator_test.go@v1.7.0; spec NUMA E1 to E3",
)
@pytest.mark.parametrize(
    ("machine", "used", "count", "policy", "strategy", "expected"),
    [
        ("1,1,4,2", "", 2, FULL_PCPUS, MOST, "0-1"),
        ("1,1,4,2", "0-1", 2, FULL_PCPUS, LEAST, "2-3"),
        ("2,1,4,2", "", 12, FULL_PCPUS, MOST, "0-11"),
        ("2,1,4,2", "0-1", 8, FULL_PCPUS, MOST, "8-15"),
        ("2,2,4,2", "0-5,16-23", 6, FULL_PCPUS, MOST, "24-29"),
        ("2,2,4,2", "0-5,16-23", 6, FULL_PCPUS, LEAST, "8-13"),
        ("2,2,4,2", "0-5,16-23", 12, FULL_PCPUS, MOST, "6-15,24-25"),
        ("2,2,4,2", "0-5,16-23", 12, FULL_PCPUS, LEAST, "6-15,24-25"),
        ("2,2,4,2", "0-3,8-11", 4, FULL_PCPUS, MOST, "4-7"),
        ("2,2,4,2", "0-3,8-11", 4, FULL_PCPUS, LEAST, "16-19"),
        ("2,2,2,2", "0,2,4,8,12", 4, FULL_PCPUS, MOST, "10-11,14-15"),
        ("2,2,2,2", "0,2,4,8,10,12", 6, FULL_PCPUS, MOST, "5-7,13-15"),
        ("2,2,2,2", "0,2,4,8,10,12", 6, FULL_PCPUS, LEAST, "1,3,6-7,14-15"),
        ("2,2,2,2", "0,2,4,8-10,12", 6, FULL_PCPUS, MOST, "6-7,11,13-15"),
        ("2,2,4,2", "0,2,4,8-10,12", 6, FULL_PCPUS, LEAST, "16-21"),
        ("1,1,4,2", "", 4, SPREAD_BY_PCPUS, MOST, "0,2,4,6"),
        ("2,1,4,2", "0,2", 4, SPREAD_BY_PCPUS, MOST, "1,3-4,6"),
        ("2,1,4,2", "0,2", 4, SPREAD_BY_PCPUS, LEAST, "8,10,12,14"),
        ("2,1,4,2", "0-3", 4, SPREAD_BY_PCPUS, MOST, "8,10,12,14"),
        ("2,1,4,2", "0,2", 6, SPREAD_BY_PCPUS, MOST, "1,3-7"),
        ("2,1,4,2", "0,2", 6, SPREAD_BY_PCPUS, LEAST, "8-12,14"),
    ],
)
def test_which_cpus_a_pod_gets(  # noqa: PLR0917
    trial: Trial, expect: Expect, machine: str, used: str, count: int, policy: str, strategy: str, expected: str
) -> None:
    """By the CPUs that pods have, the policy of the pod and the strategy of the node."""
    trial.add(node("n1").server("cpu-64").label(NUMA_ALLOCATE_STRATEGY_LABEL, strategy))
    assert cpus_at(trial, expect, machine, used, asking("a", count, policy), "") == parse_cpuset(expected)


@pytest.mark.feature("CPU-1.policies", "CPU-3.numa-strategy")
@pytest.mark.case(
    "NU-083",
    severity="normal",
    source="spec NUMA-R24, NUMA-R28; koordinator nodenumaresource/cpu_accumulator.go@v1.7.0",
)
@pytest.mark.parametrize(
    ("machine", "used", "count", "strategy", "expected"),
    [
        pytest.param("2,1,4,2", "4", 11, MOST, "0-1,5,8-15", id="the-last-from-a-broken-core"),
        pytest.param("2,1,4,2", "4,8,12", 7, LEAST, "0-3,5-7", id="the-last-from-the-socket-of-the-others"),
        pytest.param("2,2,4,2", "0-1", 12, LEAST, "16-27", id="all-from-the-emptiest-socket"),
        pytest.param("3,1,4,2", "0-1,8-11", 10, MOST, "12-13,16-23", id="the-rest-from-the-fullest-socket"),
    ],
)
def test_which_cpus_a_large_pod_gets(  # noqa: PLR0917
    trial: Trial, expect: Expect, machine: str, used: str, count: int, strategy: str, expected: str
) -> None:
    """One socket, or whole sockets with whole cores of the fullest other one, and single CPUs that break no core."""
    trial.add(node("n1").server("cpu-64").label(NUMA_ALLOCATE_STRATEGY_LABEL, strategy))
    assert cpus_at(trial, expect, machine, used, asking("a", count, FULL_PCPUS), "") == parse_cpuset(expected)


@pytest.mark.feature("CPU-2.pcpu-level", "CPU-2.numa-level")
@pytest.mark.case(
    "CP-021",
    severity="normal",
    source="koordinator pkg/scheduler/plugins/nodenumaresource/cpu_accumulator_test.go@v1.7.0; spec NUMA E1 to E3",
)
@pytest.mark.parametrize(
    ("machine", "used", "held", "count", "policy", "exclusive", "expected"),
    [
        ("2,1,4,2", "0,2", PCPU_LEVEL, 4, SPREAD_BY_PCPUS, PCPU_LEVEL, "8,10,12,14"),
        ("2,1,4,2", "", "", 10, SPREAD_BY_PCPUS, PCPU_LEVEL, "0-4,6,8,10,12,14"),
        ("2,1,8,2", "0,2", PCPU_LEVEL, 4, SPREAD_BY_PCPUS, PCPU_LEVEL, "4,6,8,10"),
        ("2,1,8,2", "0,2", PCPU_LEVEL, 4, SPREAD_BY_PCPUS, "", "1,3-4,6"),
        ("2,1,4,2", "0,2", NUMA_NODE_LEVEL, 4, SPREAD_BY_PCPUS, NUMA_NODE_LEVEL, "8,10,12,14"),
        ("2,1,4,2", "0,2", NUMA_NODE_LEVEL, 4, SPREAD_BY_PCPUS, "", "1,3-4,6"),
        ("2,1,4,2", "0,2", NUMA_NODE_LEVEL, 4, FULL_PCPUS, NUMA_NODE_LEVEL, "8-11"),
        ("2,1,4,2", "0,2", NUMA_NODE_LEVEL, 4, FULL_PCPUS, "", "4-7"),
    ],
)
def test_which_cpus_an_exclusive_pod_gets(  # noqa: PLR0917
    trial: Trial,
    expect: Expect,
    machine: str,
    used: str,
    held: str,
    count: int,
    policy: str,
    exclusive: str,
    expected: str,
) -> None:
    """Beside a pod that has CPUs of its own exclusively, on a node that is packed."""
    trial.add(node("n1").server("cpu-64").label(NUMA_ALLOCATE_STRATEGY_LABEL, MOST))
    assert cpus_at(trial, expect, machine, used, asking("a", count, policy, exclusive), held) == parse_cpuset(expected)
