"""Machines of the worked examples: uniform CPUs, NUMA nodes with memory, and topology objects."""

from collections.abc import Mapping
from typing import Any

from seatrial.scheduler.api.numa import (
    AMPLIFICATION_RATIO,
    CPU_TOPOLOGY,
    NodeResourceTopology,
    Zone,
    ZoneResource,
    parse_cpuset,
)
from seatrial.scheduler.api.wire import ObjectMeta, to_json
from seatrial.scheduler.plugins.nodenuma.accumulator import CpuPreference
from seatrial.scheduler.plugins.nodenuma.allocation import Need
from seatrial.scheduler.plugins.nodenuma.options import ZoneAmounts, options_of
from seatrial.scheduler.plugins.nodenuma.states import NumaAllocation, NumaState, StateCache
from seatrial.scheduler.plugins.nodenuma.topology import uniform

GIB = 1 << 30
Shape = tuple[int, int, int, int]
BIG: Shape = (2, 1, 26, 2)  # two NUMA nodes of 52 CPUs
SMALL: Shape = (2, 1, 4, 2)


def topology_of(
    name: str,
    shape: Shape,
    *,
    memory: int = 128,
    policy: str = "None",
    annotations: Mapping[str, Any] | None = None,
    more: Mapping[str, int] | None = None,
    zones: bool = True,
    cpus: bool = True,
) -> NodeResourceTopology:
    """The objects an agent reports for a machine; `memory` in GiB per NUMA node, `more` further amounts of each."""
    machine = uniform(*shape)
    detail = [
        {"id": cpu.id, "core": cpu.core[1], "socket": cpu.socket, "node": cpu.node} for cpu in machine.cpus.values()
    ]
    known = {CPU_TOPOLOGY: {"detail": detail if cpus else []}, **(annotations or {})}
    amounts = {"cpu": machine.per_node, "memory": memory * GIB, **(more or {})}
    resources = tuple(ZoneResource(key, value, value, value) for key, value in amounts.items())
    return NodeResourceTopology(
        ObjectMeta(name=name, annotations={key: to_json(value).decode() for key, value in known.items()}),
        (policy,),
        tuple(Zone(f"node-{node}", "Node", resources) for node in machine.nodes) if zones else (),
    )


def state(
    booked: str = "",
    *,
    shape: Shape = BIG,
    amounts: ZoneAmounts = (),
    ratio: float = 1.0,
    exclusive: str = "",
    more: Mapping[str, int] | None = None,
) -> NumaState:
    """A machine with these CPUs bound, and these amounts taken of its NUMA nodes."""
    marks = {AMPLIFICATION_RATIO: to_json({"cpu": ratio}).decode()} if ratio != 1.0 else {}
    options, wrong = options_of({}, marks, topology_of("m", shape, more=more))
    assert not wrong
    states = StateCache()
    cpus = parse_cpuset(booked)
    return states.state(states.options(options), [NumaAllocation(cpus, exclusive, amounts)] if cpus or amounts else [])


def need(policy: str = "", more: Mapping[str, int] | None = None, **requests: int) -> Need:
    """A request, cpu in milli; with a policy its CPUs are bound by it, whatever it takes."""
    amounts = {**requests, **(more or {})}
    return Need(tuple(sorted(amounts.items())), CpuPreference(policy, required=True) if policy else None)
