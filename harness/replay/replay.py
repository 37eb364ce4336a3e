"""One replay: pods arrive one after the other, each is placed once or fails once, none leaves."""

import random
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from seatrial.harness.replay.cluster import Cluster
from seatrial.harness.replay.openb import Trace, arrivals, preference
from seatrial.harness.replay.outcome import Log, Outcome, fragmented
from seatrial.harness.replay.policies import Policy, policy_named
from seatrial.scheduler.packing.fragments import INFEASIBLE
from seatrial.scheduler.packing.shapes import Floats, Ints
from seatrial.scheduler.packing.strategies import Outlook

Clock = Callable[[], float]


def replay(trace: Trace, policy: str, *, load: float, seed: int, clock: Clock = time.perf_counter) -> Outcome:
    """Replay a trace until `load` times the GPU capacity has arrived.

    The seconds of the outcome are measured with `clock`, from the empty cluster to the last pod.

    Raises:
        UsageError: there is no such policy.
    """
    target = policy_named(policy)
    order = arrivals(trace, load, seed)
    start = clock()
    cluster = Cluster(preference(trace, seed), order)
    outlook = Outlook.of(Counter(pod.shape for pod in trace.pods), cluster.models, cluster.cards.shape[1])
    empty = outlook.fragments.of(cluster.states())
    rng = random.Random(f"{seed} placements")  # noqa: S311 for a policy that draws
    run = Run(cluster, target(cluster, outlook, rng))
    steps = [run.arrive(cluster.number[shape]) for shape in order]
    seconds = clock() - start
    placed = np.array(steps, dtype=np.bool_)
    request = np.array([shape.gpu_request for shape in order], dtype=np.int64)
    return Outcome(
        capacity=trace.gpu_capacity,
        arrived=request.cumsum(),
        allocated=(request * placed).cumsum(),
        fragmented=fragmented(run.log, outlook.fragments, cluster.model, empty, placed),
        gpus=np.array([0.5 if shape.shares else shape.gpus for shape in order]),
        placed=placed,
        seconds=seconds,
    )


class Run:
    """A cluster and its scores: after a placement one node is scored again, for all shapes."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self.cluster, self.policy = cluster, policy
        self.log: Log = []
        """Of each placed pod: its node, and what CPU and cards had left there afterwards."""
        self.scores: Floats = np.empty((len(cluster.shapes), len(cluster.cpu)))
        """[shape, node]: INFEASIBLE where the shape does not fit."""
        self._score_all()

    def scored(self, nodes: Ints) -> Floats:
        """Scores for the present state of the nodes, [node, shape]."""
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
