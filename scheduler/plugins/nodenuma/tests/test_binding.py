"""CPU binding, and refusals of nodes: NUMA-E5, NUMA-E6, NUMA-E16, NUMA-E17."""

from typing import Any

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.numa import (
    CPU_BIND_POLICY_LABEL,
    CPU_TOPOLOGY,
    FULL_PCPUS,
    KUBELET_CPU_MANAGER,
    NODE_RESERVATION,
    NUMA_ALLOCATE_STRATEGY_LABEL,
    NUMA_NODE_LEVEL,
    NUMA_TOPOLOGY_POLICY_LABEL,
    NUMA_TOPOLOGY_SPEC,
    PCPU_LEVEL,
    POD_CPU_ALLOCS,
    PRIORITY_CLASS_LABEL,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    SPREAD_BY_PCPUS,
    SYSTEM_QOS,
)
from seatrial.scheduler.plugins.nodenuma.cache import NumaCache
from seatrial.scheduler.plugins.nodenuma.tests.machines import topology_of
from seatrial.scheduler.plugins.nodenuma.tests.numarig import Machines, lsr, scored, share

POLICY, BIND = NUMA_TOPOLOGY_POLICY_LABEL, CPU_BIND_POLICY_LABEL
STATIC = {"annotations": {KUBELET_CPU_MANAGER: {"policy": "static", "options": {"full-pcpus-only": "true"}}}}
INTEGER = "the requested CPUs must be integer"
ODD = "node(s) requested cpus not multiple cpus per core"
CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
MISSING = "node(s) missing NUMA resources"
SPANS = "Unaligned NUMA Hint cause cpu prefer [11] among [11],memory prefer [11] among [11]"


@pytest.mark.parametrize(
    ("args", "pod", "cpuset", "spec"),
    [
        pytest.param({}, lsr("p").bind_cpus(FULL_PCPUS), "0-3", None, id="preferred"),
        pytest.param({}, lsr("p").qos("LSE").bind_cpus(SPREAD_BY_PCPUS), "0,2,4,6", None, id="preferred-spread"),
        pytest.param({}, lsr("p").bind_cpus(required=FULL_PCPUS), "0-3", None, id="required"),
        pytest.param({}, lsr("p"), "0-3", '{"preferredCPUBindPolicy":"FullPCPUs"}', id="by-default"),
        pytest.param(
            {"defaultCPUBindPolicy": SPREAD_BY_PCPUS},
            lsr("p").bind_cpus(required="Default"),
            "0,2,4,6",
            '{"requiredCPUBindPolicy":"SpreadByPCPUs"}',
            id="required-default",
        ),
        pytest.param(
            {"defaultCPUBindPolicy": SPREAD_BY_PCPUS},
            lsr("p").bind_cpus("Default"),
            "0,2,4,6",
            '{"preferredCPUBindPolicy":"SpreadByPCPUs"}',
            id="preferred-default",
        ),
        pytest.param(
            {},
            lsr("p").bind_cpus("Default", required=SPREAD_BY_PCPUS, exclusive=PCPU_LEVEL),
            "0,2,4,6",
            '{"requiredCPUBindPolicy":"SpreadByPCPUs","preferredCPUBindPolicy":"SpreadByPCPUs",'
            '"preferredCPUExclusivePolicy":"PCPULevel"}',
            id="exclusive-is-kept",
        ),
        pytest.param({}, lsr("p").priority(8000), "0-3", '{"preferredCPUBindPolicy":"FullPCPUs"}', id="no-band"),
        pytest.param({}, lsr("p").priority(9500), "0-3", '{"preferredCPUBindPolicy":"FullPCPUs"}', id="prod"),
        pytest.param({}, lsr("p").priority(5500), None, None, id="batch-does-not-bind"),
        pytest.param({}, lsr("p").label(PRIORITY_CLASS_LABEL, "koord-batch"), None, None, id="labelled-batch"),
        pytest.param({}, lsr("p").qos("BE").bind_cpus(FULL_PCPUS), None, None, id="be-does-not-bind"),
        pytest.param({}, lsr("p").bind_cpus("test"), None, None, id="an-unknown-policy"),
        pytest.param({}, lsr("p").bind_cpus("ConstrainedBurst"), None, None, id="constrained-burst-is-not-there"),
        pytest.param({"defaultCPUBindPolicy": ""}, lsr("p").qos("LSE"), None, None, id="no-default"),
        pytest.param({}, share("p").bind_cpus(required=FULL_PCPUS), None, None, id="who-has-no-qos-does-not-bind"),
        pytest.param({}, pod("p").qos("LSE"), None, None, id="asks-for-nothing"),
    ],
)
def test_who_is_bound(args: dict[str, Any], pod: PodBuilder, cpuset: str | None, spec: str | None) -> None:
    rig = Machines(scored(**args))
    rig.machine("n")
    rig.submit(pod)
    rig.run()
    marks = rig.binding("p").annotations
    assert (rig.resource_status("p").cpuset if RESOURCE_STATUS in marks else None) == cpuset
    assert marks.get(RESOURCE_SPEC) == spec


def test_priority_distinguishes_otherwise_equal_pods() -> None:
    rig = Machines()
    rig.machine("n")
    rig.submit(lsr("batch").priority(5500), lsr("prod").priority(9500), lsr("none"))
    rig.run()
    assert [RESOURCE_STATUS in rig.binding(name).annotations for name in ("batch", "prod", "none")] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("labels", "report", "pod", "message"),
    [
        pytest.param({}, {}, lsr("p", "3500m"), INTEGER, id="half-a-cpu"),
        pytest.param({}, {"cpus": False}, lsr("p"), "node(s) invalid CPU Topology", id="no-cpus-are-known"),
        pytest.param({BIND: "FullPCPUsOnly"}, {}, lsr("p", "5"), ODD, id="odd"),
        pytest.param({BIND: "FullPCPUsOnly"}, {}, share("p", "5"), ODD, id="odd-of-anybody"),
        pytest.param({BIND: "FullPCPUsOnly"}, {}, share("p", "5200m"), INTEGER, id="half-of-anybody"),
        pytest.param({BIND: "FullPCPUsOnly"}, {}, lsr("p").bind_cpus(SPREAD_BY_PCPUS), "", id="a-preference-gives-way"),
        pytest.param(
            {BIND: "SpreadByPCPUs"}, {}, lsr("p").bind_cpus(required=FULL_PCPUS), CONFLICT, id="a-requirement-does-not"
        ),
        pytest.param({}, STATIC, lsr("p", "5"), ODD, id="static-odd"),
        pytest.param(
            {BIND: "SpreadByPCPUs"},
            STATIC,
            lsr("p").bind_cpus(required=SPREAD_BY_PCPUS),
            CONFLICT,
            id="static-beats-the-label",
        ),
        pytest.param({}, STATIC, lsr("p").bind_cpus(required=FULL_PCPUS), "", id="static-agrees"),
        pytest.param({POLICY: "Restricted"}, {"zones": False}, share("p"), MISSING, id="no-zones"),
        pytest.param({POLICY: "None"}, {}, share("p", "9"), "", id="none-is-no-policy"),
        pytest.param({POLICY: "Sometimes"}, {}, share("p", "9"), "", id="nor-is-an-unknown-policy"),
        pytest.param({POLICY: "SingleNUMANode"}, {}, share("p", "9"), SPANS, id="larger-than-one"),
        pytest.param({POLICY: "Restricted"}, {}, share("p", "9"), "", id="restricted-spans"),
        pytest.param(
            {POLICY: "Restricted"},
            {"policy": "SingleNUMANodeContainerLevel"},
            share("p", "9"),
            SPANS,
            id="the-kubelet-knows-better",
        ),
        pytest.param(
            {POLICY: "Restricted"},
            {},
            share("p").align("SingleNUMANode"),
            "node(s) NUMA Topology policy not match",
            id="pod-and-node-differ",
        ),
        pytest.param({}, {}, share("p", "9").align("Restricted"), "", id="the-pods-policy"),
    ],
)
def test_requests_a_node_refuses(labels: dict[str, str], report: dict[str, Any], pod: PodBuilder, message: str) -> None:
    rig = Machines()
    rig.machine("n", labels=labels, **report)
    rig.submit(pod)
    rig.run()
    if message:
        assert rig.filter_message("p") in {f"1 {message}.", f"{message}."}
    assert rig.where("p") == ("" if message else "n")


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        pytest.param(
            share("p").annotation(NUMA_TOPOLOGY_SPEC, "{"), f"{NUMA_TOPOLOGY_SPEC}: Input data was truncated", id="json"
        ),
        pytest.param(
            share("p").align("Nearby"),
            f"{NUMA_TOPOLOGY_SPEC}: numaTopologyPolicy: expected one of BestEffort, Restricted, SingleNUMANode, "
            "found 'Nearby'",
            id="policy",
        ),
        pytest.param(
            lsr("p").annotation(RESOURCE_SPEC, '{"requiredCPUBindPolicy":1}'),
            f"{RESOURCE_SPEC}: Expected `str`, got `int` - at `$.requiredCPUBindPolicy`",
            id="kind",
        ),
    ],
)
def test_invalid_labels_and_annotations(pod: PodBuilder, message: str) -> None:
    rig = Machines()
    rig.machine("n")
    rig.submit(pod)
    rig.run()
    assert rig.filter_message("p") == f"{message}."


def test_the_label_may_override_the_kubelet() -> None:
    rig = Machines(scored(nodeLabelFirst=True))
    rig.machine("n", labels={POLICY: "Restricted"}, policy="SingleNUMANodePodLevel")
    rig.submit(share("p", "9"))
    rig.run()
    assert rig.where("p") == "n"


@pytest.mark.parametrize(
    ("annotations", "reserved", "left"),
    [
        pytest.param(
            {
                KUBELET_CPU_MANAGER: {"policy": "static", "reservedCPUs": "0-1"},
                SYSTEM_QOS: {"cpuset": "4-5"},
                POD_CPU_ALLOCS: [{"uid": "u", "cpuset": "0-3", "managedByKubelet": True}],
                NODE_RESERVATION: {"reservedCPUs": "6-7"},
            },
            set(range(8)),
            (0, 8),
            id="a-whole-numa-node",
        ),
        pytest.param(
            {
                KUBELET_CPU_MANAGER: {"reservedCPUs": "0-1"},
                SYSTEM_QOS: {"cpuset": "4-5"},
                POD_CPU_ALLOCS: None,
                NODE_RESERVATION: {"reservedCPUs": "6-7"},
            },
            {0, 1, 4, 5, 6, 7},
            (2, 8),
            id="without-the-kubelets-pods",
        ),
        pytest.param({SYSTEM_QOS: {"cpuset": "4-5", "cpusetExclusive": False}}, set[int](), (8, 8), id="not-exclusive"),
        pytest.param({NODE_RESERVATION: {"reservedCPUs": "9-8"}}, set[int](), (8, 8), id="not-understood"),
    ],
)
def test_reserved_cpus(annotations: dict[str, Any], reserved: set[int], left: tuple[int, int]) -> None:
    rig = Machines()
    rig.machine("n", annotations=annotations)
    numa = NumaCache.of(rig.core.handle).find("n")
    assert numa is not None
    assert numa.state.options.reserved == reserved
    assert tuple(numa.state.totals[node]["cpu"] // 1000 for node in (0, 1)) == left
    assert bool(rig.complaints()) == (NODE_RESERVATION in annotations and not reserved)


def test_exclusive_pods_avoid_each_other() -> None:
    rig = Machines()
    rig.machine("n", labels={NUMA_ALLOCATE_STRATEGY_LABEL: "MostAllocated"})
    rig.submit(lsr("a", "2").bind_cpus(SPREAD_BY_PCPUS, exclusive=PCPU_LEVEL))
    rig.submit(lsr("b", "2").bind_cpus(SPREAD_BY_PCPUS, exclusive=PCPU_LEVEL))
    rig.submit(lsr("c", "2").bind_cpus(SPREAD_BY_PCPUS))
    rig.submit(lsr("d", "2").bind_cpus(exclusive=NUMA_NODE_LEVEL))
    rig.submit(lsr("e", "2").bind_cpus(exclusive=NUMA_NODE_LEVEL))
    rig.run()
    cpusets = {name: rig.resource_status(name).cpuset for name in "abcde"}
    assert cpusets == {"a": "0,2", "b": "4,6", "c": "1,3", "d": "8-9", "e": "10-11"}


def test_cpus_of_a_deleted_pod_are_free() -> None:
    rig = Machines()
    rig.machine("n", (1, 1, 2, 2))
    rig.submit(lsr("a", "4"))
    rig.run()
    rig.submit(lsr("b", "2"))
    rig.run()
    assert not rig.where("b")
    rig.delete("a")
    rig.clock.advance(20)
    rig.run()
    assert rig.resource_status("b").cpuset == "0-1"


def test_allocations_outlive_the_topology_object() -> None:
    rig = Machines()
    rig.machine("n", (1, 1, 4, 2))
    rig.holds(lsr("a", "4").bind_cpus(FULL_PCPUS), "n", '{"cpuset":"2-5"}')
    rig.core.intake.set_topology("n", None)
    rig.submit(lsr("early"))
    rig.run()
    assert rig.filter_message("early") == "1 node(s) invalid CPU Topology."
    rig.core.intake.set_topology("n", topology_of("n", (1, 1, 4, 2)))
    rig.clock.advance(20)
    rig.run()
    assert rig.resource_status("early").cpuset == "0-1,6-7"


def test_a_failed_binding_releases_its_cpus() -> None:
    rig = Machines()
    rig.machine("n", (1, 1, 2, 2))
    rig.submit(lsr("a", "4"))
    rig.run(bind=False)
    assert rig.resource_status("a").cpuset == "0-3"
    rig.core.bind_failed("uid-a", "no", retry=False)
    rig.submit(lsr("b", "4"))
    rig.run()
    assert rig.resource_status("b").cpuset == "0-3"


def test_a_pod_without_a_report_is_refused_only_if_it_needs_one() -> None:
    rig = Machines()
    rig.node("n")
    rig.submit(share("plain"), lsr("bound"), share("aligned").align("Restricted"))
    rig.run()
    assert rig.where("plain") == "n"
    assert rig.filter_message("bound") == "1 node(s) invalid CPU Topology."
    assert rig.filter_message("aligned") == f"1 {MISSING}."


def test_core_ids_repeat_across_sockets() -> None:
    detail = [{"id": item, "core": item // 2 % 2, "socket": item // 4, "node": item // 4} for item in range(8)]
    rig = Machines()
    rig.machine("n", (2, 1, 2, 2), annotations={CPU_TOPOLOGY: {"detail": detail}})
    rig.submit(lsr("p", "6").bind_cpus(required=FULL_PCPUS))
    rig.run()
    assert rig.resource_status("p").cpuset == "0-5"


@pytest.mark.parametrize("message", ['{"cpuset":"6-7"}', '{"cpuset":"0-63"}', "no JSON"])
def test_an_allocation_on_an_unscheduled_pod_is_overwritten(message: str) -> None:
    """NUMA-R6: CPUs are settled here, whatever stands in the annotation of a pod that has no node yet."""
    rig = Machines()
    rig.machine("n")
    rig.submit(lsr("p").annotation(RESOURCE_STATUS, message))
    rig.run()
    assert rig.resource_status("p").cpuset == "0-3"
    rig.running(lsr("p").annotation(RESOURCE_STATUS, rig.binding("p").annotations[RESOURCE_STATUS]), "n")
    rig.submit(lsr("q"), lsr("r"), lsr("s"))
    rig.run()
    assert sorted(rig.resource_status(name).cpuset for name in "qrs") == ["12-15", "4-7", "8-11"]
