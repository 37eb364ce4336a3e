"""Random stories of gangs in a network of spines and blocks against an oracle of domains and their room."""

from typing import Any

import pytest
from hypothesis import strategies as st

from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, network_topology
from seatrial.scheduler.api.networktopology import TOPOLOGIES_PATH
from seatrial.suites.properties.stories import Setting, Step, bare, eventful, judge, setting
from seatrial.suites.properties.topology_rules import topology_rules

__all__ = ["setting"]

_SPINE, _BLOCK, _RACK = "spine", "block", "rack"
_LAYERS = (("SpineLayer", _SPINE), ("BlockLayer", _BLOCK))
_NODES, _GANGS = st.integers(0, 4), st.sampled_from(["g", "h"])
_STRATEGIES = st.sampled_from(["MustGather", "MustGather", "PreferGather"])


@st.composite
def _gangs(draw: st.DrawFn, name: str) -> Step:
    """A PodGroup with its members."""
    size = draw(st.integers(2, 4))
    group = gang(name, size)
    for layer, _ in draw(st.sampled_from([_LAYERS[:1], _LAYERS[1:], _LAYERS])):
        group.gather(layer, draw(_STRATEGIES))
    cpu = draw(st.integers(1, 2))
    members = [bare(f"{name}-{number}").request(cpu=cpu).in_gang(name).manifest for number in range(size)]
    return {"create": [group.manifest, *members], "whole": True}


def _pod(number: int, cpu: int, node: int) -> Step:
    return bare(f"p{number}").request(cpu=cpu).select({"kubernetes.io/hostname": f"n{node}"}).manifest


@st.composite
def _nodes(draw: st.DrawFn, number: int) -> Step:
    labels = draw(
        st.fixed_dictionaries(
            {_SPINE: st.sampled_from(["s1", "s2"]), _RACK: st.sampled_from(["r1", "r2"])},
            optional={_BLOCK: st.sampled_from(["b1", "b2"])},
        )
    )
    return {"name": f"n{number}", "cpu": draw(st.integers(2, 4)), "memory": "8Gi", "labels": labels}


@st.composite
def _labels(draw: st.DrawFn) -> Step:
    key, values = draw(st.sampled_from([(_SPINE, ["s1", "s2", None]), (_BLOCK, ["b1", "b2", None])]))
    labels: dict[str, Any] = {key: draw(st.sampled_from(values))}
    return {"patch": [f"/api/v1/nodes/n{draw(_NODES)}", {"metadata": {"labels": labels}}]}


_STEPS = st.one_of(
    _GANGS.flatmap(_gangs),
    _GANGS.flatmap(_gangs),
    st.builds(_pod, st.integers(0, 2), st.integers(1, 3), _NODES).map(lambda one: {"create": [one]}),
    st.integers(0, 2).map(lambda number: {"delete": ["Pod", f"p{number}"]}),
    _GANGS.map(lambda name: {"delete": ["Pod", f"{name}-0"]}),
    _labels(),
    _NODES.flatmap(_nodes).map(lambda one: {"nodes": [one]}),
    st.sampled_from([_BLOCK, _RACK]).map(
        lambda key: {
            "patch": [f"{TOPOLOGIES_PATH}/default", {"spec": network_topology(_LAYERS[0], ("BlockLayer", key))["spec"]}]
        }
    ),
    st.tuples(_NODES, st.booleans()).map(
        lambda drawn: {"patch": [f"/api/v1/nodes/n{drawn[0]}", {"spec": {"unschedulable": drawn[1]}}]}
    ),
)


@st.composite
def _starts(draw: st.DrawFn) -> list[Step]:
    numbers = draw(st.lists(_NODES, unique=True, min_size=2))
    pods = [draw(st.builds(_pod, st.just(number), st.integers(1, 3), _NODES)) for number in range(3)]
    return [
        {"nodes": [draw(_nodes(number)) for number in numbers]},
        {"create": [network_topology(*_LAYERS)]},
        {"create": pods[: draw(st.integers(0, 3))]},
        draw(_gangs("g")),
    ]


@pytest.mark.feature("TOPO-1.status", "TOPO-1.follows", "TOPO-2.must-gather", "TOPO-2.best-domain", "TOPO-2.waking")
@pytest.mark.case("TO-100", severity="blocker", source="koordinator: coscheduling/core/network_topology_solver.go")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_gangs_gather_where_there_is_room(setting: Setting) -> None:
    """Nodes, labels, gangs and the topology change: the status lists the domains, a gang waits if and only if no domain
    has room for all of it, and it is placed as closely together as the room allows."""
    judge(setting, eventful(_starts(), _STEPS), topology_rules)
