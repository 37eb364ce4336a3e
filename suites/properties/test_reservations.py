"""Random stories of reservations and their owners against an oracle of who may use what."""

from typing import Any

import pytest
from hypothesis import strategies as st

from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import reservation
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH, RESTRICTED_OPTIONS
from seatrial.suites.properties.reservation_rules import reservation_rules
from seatrial.suites.properties.stories import Setting, Step, again, bare, eventful, judge, setting

__all__ = ["setting"]

_PODS, _NAMES = st.integers(0, 5), ("r", "s", "t")
_VALUES = st.sampled_from(["x", "y"])
_NODES = st.sampled_from(["n1", "n2"])
_EXPRESSIONS = st.lists(
    st.builds(
        lambda key, operator, value: {"key": key, "operator": operator, "values": [value]},
        st.sampled_from(["kind", "zone"]),
        st.sampled_from(["In", "In", "NotIn"]),
        _VALUES,
    ),
    min_size=1,
    max_size=2,
)
_DEDICATED = {"key": "for", "operator": "Exists"}


@st.composite
def _reservations(draw: st.DrawFn, name: str) -> Step:
    template = bare("template").request(cpu=draw(st.integers(1, 5)))
    if draw(st.booleans()):
        template.request(memory=f"{draw(st.integers(1, 4))}Gi")
    one = reservation(name).like(template).label("kind", draw(_VALUES))
    for _ in range(draw(st.integers(1, 2))):
        owner: dict[str, Any] = draw(
            st.sampled_from(
                [
                    {"labelSelector": {"matchLabels": {"app": "x"}}},
                    {"labelSelector": {"matchLabels": {"app": "x", "team": "x"}}},
                    {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}},
                    {"object": {"kind": "Pod", "name": "p0", "namespace": "story"}},
                    {"object": {"name": "p1"}, "labelSelector": {"matchLabels": {"app": "x"}}},
                ]
            )
        )
        one.owner(**owner)
    if draw(st.booleans()):
        one.many()
    if policy := draw(st.sampled_from(["", "", "Aligned", "Restricted", "Restricted"])):
        one.policy(policy)
    match draw(st.integers(0, 9)):
        case 0:
            one.closed()
        case 1:
            one.taint("for", "x", draw(st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])))
        case 2 | 3:
            one.ttl("50s")
        case 4:
            one.ttl("0s")
        case 5:
            one.manifest["spec"]["expires"] = "2001-01-01T00:00:00Z"
        case 6:
            one.manifest["spec"]["template"]["spec"]["nodeName"] = draw(_NODES)
        case 7:
            one.manifest["metadata"]["annotations"] = {RESTRICTED_OPTIONS: '{"resources": ["cpu"]}'}
    return one.manifest


@st.composite
def _pods(draw: st.DrawFn, number: int) -> Step:
    one = bare(f"p{number}").request(cpu=draw(st.integers(1, 4))).label("app", draw(_VALUES))
    if draw(st.booleans()):
        one.label("team", draw(_VALUES))
    if draw(st.booleans()):
        one.request(memory=f"{draw(st.integers(1, 3))}Gi")
    match draw(st.integers(0, 9)):
        case 0:
            one.ignores_reservations()
        case 1:
            one.into_reservation()
        case 2:
            one.into_reservation(name=draw(st.sampled_from(_NAMES)))
        case 3:
            one.into_reservation(tolerations=[_DEDICATED])
        case 4:
            one.into_reservation(reservationSelector={"kind": draw(_VALUES), "zone": draw(_VALUES)})
        case 5:
            one.exactly("cpu", "memory")
        case 6:
            terms = draw(st.lists(_EXPRESSIONS, min_size=1, max_size=2))
            required = {"reservationSelectorTerms": [{"matchExpressions": each} for each in terms]}
            one.into_reservation(requiredDuringSchedulingIgnoredDuringExecution=required)
    return one.manifest


def _node(name: str, cores: int) -> Step:
    return {"name": name, "cpu": cores, "memory": "8Gi", "labels": {"zone": "x" if name == "n1" else "y"}}


_STEPS = st.one_of(
    _PODS.flatmap(_pods).map(lambda one: {"create": [one]}),
    _PODS.flatmap(_pods).map(lambda one: {"create": [one]}),
    st.sampled_from(_NAMES).flatmap(_reservations).map(lambda one: {"create": [one]}),
    _PODS.flatmap(_pods).map(again),
    _PODS.map(lambda number: {"delete": ["Pod", f"p{number}"]}),
    st.sampled_from(_NAMES).flatmap(_reservations).map(again),
    st.tuples(_NODES, _VALUES).map(
        lambda drawn: {"patch": [f"/api/v1/nodes/{drawn[0]}", {"metadata": {"labels": {"zone": drawn[1]}}}]}
    ),
    st.tuples(st.sampled_from(_NAMES), _VALUES).map(
        lambda drawn: {"patch": [f"{RESERVATIONS_PATH}/{drawn[0]}", {"metadata": {"labels": {"kind": drawn[1]}}}]}
    ),
    st.sampled_from(_NAMES).map(lambda name: {"delete": ["Reservation", name]}),
    st.tuples(st.sampled_from(_NAMES), st.booleans()).map(
        lambda drawn: {"patch": [f"{RESERVATIONS_PATH}/{drawn[0]}", {"spec": {"unschedulable": drawn[1]}}]}
    ),
    st.just({"pass": 60}),
    st.integers(2, 6).map(lambda cores: {"nodes": [_node("n2", cores)]}),
    st.booleans().map(lambda closed: {"patch": ["/api/v1/nodes/n1", {"spec": {"unschedulable": closed}}]}),
)


@st.composite
def _starts(draw: st.DrawFn) -> list[Step]:
    names = draw(st.lists(st.sampled_from(_NAMES), unique=True, min_size=1))
    numbers = draw(st.lists(_PODS, unique=True, min_size=1, max_size=4))
    return [
        {"nodes": [_node("n1", draw(st.integers(4, 10)))]},
        {"create": [draw(_reservations(name)) for name in names]},
        {"create": [draw(_pods(number)) for number in numbers]},
    ]


@pytest.mark.feature("RSV-1.held", "RSV-1.expires", "RSV-2.allocate-once", "RSV-2.policies", "RSV-3.affinity")
@pytest.mark.case("FA-300", severity="blocker", source="koordinator: pkg/scheduler/plugins/reservation")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_reservations_are_for_their_owners(setting: Setting) -> None:
    """Reservations, owners and other pods come and go: who waits has nowhere to go, who is in a reservation may use
    it, what it withholds stays free, and its status shows its owners and what they have."""
    judge(setting, eventful(_starts(), _STEPS), reservation_rules)
