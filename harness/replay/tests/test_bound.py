from itertools import product

import pytest

from seatrial.harness.replay.bound import bound
from seatrial.harness.replay.openb import Node, Trace
from seatrial.scheduler.packing.shapes import CARD, Shape

T4 = Node("a", 4000, 100, 2, "T4")
P100 = Node("b", 4000, 100, 2, "P100")


@pytest.mark.parametrize(
    ("nodes", "pods", "want"),
    [
        pytest.param([T4], [Shape(1000, 10, 1, 500)], 500, id="all-that-arrived"),
        pytest.param([T4], [Shape(100, 10, 1, 1000)] * 3, 2000, id="all-cards"),
        pytest.param([T4], [Shape(4000, 10, 1, 500), Shape(2000, 10, 1, 400)], 650, id="cpu-and-the-last-pod-in-part"),
        pytest.param([T4], [Shape(1, 100, 1, 300), Shape(1, 100, 1, 300)], 300, id="memory"),
        pytest.param([T4, P100], [Shape(1, 1, 2, 1000, ("T4",))] * 2, 2000, id="cards-of-the-required-model"),
        pytest.param([T4], [Shape(9000, 900, 0, 0), Shape(1, 1, 1, 700)], 700, id="pods-without-gpu-can-wait"),
    ],
)
def test_bounds(nodes: list[Node], pods: list[Shape], want: int) -> None:
    assert bound(Trace(tuple(nodes), ()), pods, [len(pods)]) == [want]


def test_no_choice_of_pods_and_cards_exceeds_the_bound() -> None:
    """All ways to place six pods on three nodes, or not, against the bound of the first one, two, … six pods."""
    nodes = (T4, P100, Node("c", 1500, 60, 1, "T4"))
    pods = [
        Shape(1500, 20, 1, 600),
        Shape(1500, 20, 1, 600, ("P100",)),
        Shape(2000, 50, 2, 1000),
        Shape(3000, 10, 0, 0),
        Shape(1000, 50, 1, 1000, ("T4",)),
        Shape(500, 50, 1, 400),
    ]
    for count, most in enumerate(bound(Trace(nodes, ()), pods, range(1, 7)), start=1):
        best = 0
        for places in product((None, *nodes), repeat=count):
            there = {node.name: [p for p, place in zip(pods, places, strict=False) if place is node] for node in nodes}
            if all(_fits(node, there[node.name]) for node in nodes):
                best = max(best, sum(pod.gpu_request for each in there.values() for pod in each))
        assert best <= most, count


def _fits(node: Node, pods: list[Shape]) -> bool:
    """By sums alone, which allow more than cards do."""
    return (
        sum(pod.cpu_milli for pod in pods) <= node.cpu_milli
        and sum(pod.memory for pod in pods) <= node.memory_mib
        and sum(pod.gpu_request for pod in pods) <= CARD * node.gpus
        and all(pod.runs_on(node.model) for pod in pods)
    )
