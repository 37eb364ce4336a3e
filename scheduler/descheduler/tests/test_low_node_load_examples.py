"""LowNodeLoad: the worked examples of the specification (E9, Koordinator low_node_load_test.go TestLowNodeLoad).

n1 has the pods p1 to p8, of which p6 to p8 may not be evicted, and n2 has p9. Each pod uses what it requests: 400m of
4 cores, and no memory unless a row says so.
"""

from typing import Any

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.descheduler.args import read_args
from seatrial.scheduler.descheduler.limits import EvictionLimiter
from seatrial.scheduler.descheduler.plugins.low_node_load import LowNodeLoad, LowNodeLoadArgs
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import RecordingEvictor, handle_of, node, pod, usage

BATCH = {"labels": {"koordinator.sh/priority-class": "koord-batch"}}


def both(percent: float) -> dict[str, float]:
    """The same percentage for CPU and pods."""
    return {"cpu": percent, "pods": percent}


def node_limits(low: float, high: float) -> dict[str, Any]:
    return {"lowThresholds": both(low), "highThresholds": both(high)}


def prod_limits(low: float, high: float) -> dict[str, Any]:
    return {"prodLowThresholds": both(low), "prodHighThresholds": both(high)}


def evictions(
    args: dict[str, Any],
    *,
    pods: dict[str, int] | None = None,
    places: tuple[int, int, int] = (9, 10, 10),
    cordoned: bool = True,
    memory: tuple[int, int] = (0, 0),
    batch: tuple[str, ...] = (),
    namespaces: dict[str, str] | None = None,
    total: int | None = None,
) -> list[str]:
    """The pods that one round evicts.

    `pods`: pods beside p1 to p9, by name, with the number of their node. `places`: pods that each node may have; 0: the
    node does not exist. `memory`: bytes of each pod on n1, and of p9. `total`: maxNoOfPodsToEvictTotal.
    """
    state, clock = ClusterState(), SimClock()
    on: dict[str, list[tuple[str, int]]] = {"n1": [(f"p{number}", memory[0]) for number in range(1, 9)]}
    on |= {"n2": [("p9", memory[1])], "n3": []}
    for name, number in (pods or {}).items():
        on[f"n{number}"].append((name, memory[0]))
    for (name, there), allowed in zip(on.items(), places, strict=True):
        if not allowed:
            continue
        state.set_node(node(name, memory="3000", pods=allowed, unschedulable=cordoned and name == "n3"))
        for key, amount in there:
            fields: dict[str, Any] = {
                **(BATCH if key in batch else {}),
                "namespace": (namespaces or {}).get(key, "default"),
            }
            state.set_pod(pod(key, name, cpu="400m", memory=str(amount) if amount else "", **fields))
        used = {key: {"cpu": "400m", "memory": str(amount)} for key, amount in there}
        state.set_metric(usage(name, used, at=clock.now()))
    handle = handle_of(state, clock, EvictionLimiter(total=total))
    evictor = handle.evictor
    assert isinstance(evictor, RecordingEvictor)
    evictor.protected |= {"p6", "p7", "p8"}
    values = {**args, "anomalyCondition": {"timeout": "1m", "consecutiveAbnormalities": 1}}
    LowNodeLoad(read_args(LowNodeLoadArgs, values)).run(handle, list(state.nodes.values()))
    return evictor.evicted


AROUND_50 = node_limits(30, 50)
THREE_BATCH = ("p3", "p4", "p5")
ON_N3 = {f"p{number}": 3 for number in range(10, 16)}


@pytest.mark.parametrize(
    ("args", "cluster", "want"),
    [
        pytest.param(AROUND_50, {}, 4, id="cpu-and-pods-30-50"),
        pytest.param({**AROUND_50, "evictableNamespaces": {"exclude": ["default"]}}, {}, 0, id="namespace-excluded"),
        pytest.param(
            {**AROUND_50, "evictableNamespaces": {"include": ["default"]}},
            {"namespaces": dict.fromkeys(THREE_BATCH, "other")},
            2,
            id="one-of-two-namespaces-included",
        ),
        pytest.param(AROUND_50, {"memory": (300, 2100)}, 3, id="memory-room-runs-out"),
        pytest.param({**node_limits(5, 5), "useDeviationThresholds": True}, {}, 2, id="deviation-5-5"),
        pytest.param(
            {**node_limits(30, 90), **prod_limits(20, 40)}, {"batch": THREE_BATCH}, 2, id="prod-over-beside-batch"
        ),
        pytest.param(
            {"lowThresholds": both(30), "highThresholds": {"cpu": 70, "pods": 80}, **prod_limits(20, 40)},
            {"batch": ("p4", "p5")},
            1,
            id="node-over-goes-before-prod-over",
        ),
        pytest.param({**node_limits(0, 100), **prod_limits(30, 50)}, {}, 4, id="prod-only"),
        pytest.param(
            {
                "lowThresholds": {"cpu": 30, "pods": 50},
                "highThresholds": {"cpu": 60, "pods": 80},
                "prodLowThresholds": {"cpu": 20, "pods": 30},
                "prodHighThresholds": {"cpu": 30, "pods": 50},
            },
            {"pods": {"p16": 1, "p17": 1, **ON_N3}, "places": (20, 20, 20), "cordoned": False},
            5,
            id="node-high-and-prod-high-share-one-low-node",
        ),
        pytest.param(
            {**node_limits(0, 100), **prod_limits(10, 10), "useDeviationThresholds": True},
            {"pods": {"p10": 3, "p11": 3}, "places": (20, 20, 20), "cordoned": False},
            3,
            id="prod-deviation-10-10",
        ),
        pytest.param(
            {**node_limits(0, 100), **prod_limits(60, 70)}, {"places": (20, 20, 0)}, 1, id="prod-recovers-on-the-way"
        ),
        pytest.param(AROUND_50, {"total": 1}, 1, id="TestMaxEvictionTotal"),
    ],
)
def test_E9_number_of_evictions(args: dict[str, Any], cluster: dict[str, Any], want: int) -> None:  # noqa: N802
    assert len(evictions(args, **cluster)) == want
