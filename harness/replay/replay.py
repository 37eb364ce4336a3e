"""One replay: pods arrive one after the other, each is placed once or fails once, none leaves."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from seatrial.harness.replay.cluster import Cluster
from seatrial.harness.replay.openb import Trace, arrivals, preference
from seatrial.harness.replay.policies import Policy, policy_named
from seatrial.scheduler.packing.fragments import INFEASIBLE, Fragments
from seatrial.scheduler.packing.shapes import Flags, Floats, Ints, NodeStates
from seatrial.scheduler.packing.strategies import Outlook

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay came to, after each pod; GPU in thousandths of a card, columns as long as there were pods."""

    capacity: int
    arrived: Ints
    allocated: Ints
    fragmented: Floats
    unplaced: int
    seconds: float

    def figures(self) -> dict[str, float | int]:
        """The documented fields, at the end of the replay; percentages are of the GPU capacity."""
        idle = self.capacity - int(self.allocated[-1])
        return {
            "arrived_percent": self._percent(self.arrived[-1]),
            "gpu_allocated_percent": self._percent(self.allocated[-1]),
            "fragmented_percent": self._percent(self.fragmented[-1]),
            "fragmented_of_idle_percent": round(100 * float(self.fragmented[-1]) / idle, 3) if idle else 0.0,
            "pods": len(self.arrived),
            "unplaced_pods": self.unplaced,
            "seconds": round(self.seconds, 3),
        }

    def curve(self) -> list[dict[str, float | int]]:
        """A row per whole percent arrived: means over the pods at whose arrival the figure rounds to that percent."""
        percent = np.rint(100 * self.arrived / self.capacity).astype(np.int64)
        idle = self.capacity - self.allocated
        share = np.divide(self.fragmented, idle, out=np.zeros(len(idle)), where=idle > 0)
        rows: list[dict[str, float | int]] = []
        for each in np.unique(percent):
            here = percent == each
            rows.append(
                {
                    "arrived_percent": int(each),
                    "gpu_allocated_percent": self._percent(self.allocated[here].mean()),
                    "fragmented_percent": self._percent(self.fragmented[here].mean()),
                    "fragmented_of_idle_percent": round(100 * float(share[here].mean()), 3),
                }
            )
        return rows

    def _percent(self, milli: float) -> float:
        return round(100 * float(milli) / self.capacity, 3)


def replay(trace: Trace, policy: str, *, load: float, seed: int, clock: Clock = time.perf_counter) -> Outcome:
    """Replay a trace until `load` times the GPU capacity has arrived.

    The outcome's seconds, read from `clock`, are those from setting up the empty cluster to the last pod.

    Raises:
        UsageError: there is no such policy.
    """
    wanted = policy_named(policy)
    order = arrivals(trace, load, seed)
    start = clock()
    cluster = Cluster(preference(trace, seed), order)
    outlook = Outlook.of(Counter(pod.shape for pod in trace.pods), cluster.models, cluster.cards.shape[1])
    empty = outlook.fragments.of(cluster.states())
    rng = random.Random(f"{seed} placements")  # noqa: S311 for a policy that draws
    run = Run(cluster, wanted(cluster, outlook, rng))
    steps = [run.arrive(cluster.number[shape]) for shape in order]
    seconds = clock() - start
    placed = np.array(steps, dtype=np.bool_)
    request = np.array([shape.gpu_request for shape in order], dtype=np.int64)
    return Outcome(
        capacity=trace.gpu_capacity,
        arrived=request.cumsum(),
        allocated=(request * placed).cumsum(),
        fragmented=_fragmented(run, outlook.fragments, empty, placed),
        unplaced=int((~placed).sum()),
        seconds=seconds,
    )


class Run:
    """A cluster, and scores that are kept true to it: a placement has one node scored again, for all shapes."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self.cluster, self.policy = cluster, policy
        self.log: list[tuple[int, int, Ints]] = []
        """Of each placed pod: its node, and what CPU and cards had left there afterwards."""
        self.scores: Floats = np.empty((len(cluster.shapes), len(cluster.cpu)))
        """[shape, node]: INFEASIBLE where the shape does not fit."""
        self._score_all()

    def scored(self, nodes: Ints) -> Floats:
        """[node, shape]: scores of nodes as they are now."""
        return np.where(self.cluster.feasible(nodes), self.policy.scores(nodes), INFEASIBLE)

    def arrive(self, shape: int) -> bool:
        """Place a pod; False if it fits nowhere."""
        node = self.policy.choose(self.scores[shape])
        if node is None:
            return False
        card = self.policy.card(node, shape) if self.cluster.shapes.part[shape] else 0
        self.cluster.place(node, shape, card)
        self.log.append((node, int(self.cluster.cpu[node]), self.cluster.cards[node].copy()))
        if self.policy.placed(node):
            self._score_all()
        else:
            self.scores[:, node] = self.scored(np.array([node]))[0]
        return True

    def _score_all(self) -> None:
        cluster = self.cluster
        state = np.column_stack((cluster.model, cluster.gpus, cluster.cpu, cluster.memory, cluster.cards))
        _, first, same = np.unique(state, axis=0, return_index=True, return_inverse=True)
        self.scores[:] = self.scored(first)[same.ravel()].T  # nodes that are alike score alike


def _fragmented(run: Run, fragments: Fragments, empty: Floats, placed: Flags) -> Floats:
    """The cluster's fragments after each pod: all nodes' when empty, and then each placement's change."""
    steps = np.zeros(len(placed))
    if run.log:
        nodes = np.array([node for node, _, _ in run.log], dtype=np.int64)
        cpu = np.array([left for _, left, _ in run.log], dtype=np.int64)
        cards = np.array([cards for _, _, cards in run.log])
        after = fragments.of(NodeStates(run.cluster.model[nodes], cpu, cpu, cards))
        now = empty.copy()
        changes = np.empty(len(nodes))
        for number, node in enumerate(nodes):
            changes[number] = after[number] - now[node]
            now[node] = after[number]
        steps[placed] = changes
    total: Floats = float(empty.sum()) + steps.cumsum()
    return total
