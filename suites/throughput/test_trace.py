"""A recorded trace on a cluster: pods are created at its times, and run for its durations after their binding."""

import heapq
from pathlib import Path

import pytest

from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.load.trace import load_trace
from seatrial.scheduler.api.builders import node

RECORDED = Path(__file__).parent / "recorded.csv"
LATE = 5.0  # seconds in which a pod that fits must be bound
FASTER = 5  # in real time the trace is replayed this many times faster

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("HIL-8.trace-replay")
@pytest.mark.case("TP-020", severity="critical")
@pytest.mark.long(seconds=22)
def test_who_waits_gets_the_room_of_who_leaves(trial: Trial) -> None:
    """One node with four cards. Each pod is bound in the trace's order of room, not before and at most 5 s later.

    The first pod has all cards for 40 s; meanwhile only the pod without GPU fits. Then pods of 1, 0.5 and 2 cards
    share the node, and a pod of four cards waits until they are gone. In real time a fifth of these times.
    """
    trial.add(node("n1").cpu(64).memory("256Gi").gpus("a100-80g", 4))
    speed = 1 if Capability.VIRTUAL_TIME in trial.cluster.capabilities else FASTER
    trace = load_trace(RECORDED, speed=speed)
    begun = trial.cluster.clock.monotonic()
    due = [(pod.at, "create", number) for number, pod in enumerate(trace.pods)]
    heapq.heapify(due)
    waiting: set[int] = set()
    bound: dict[int, float] = {}

    def now() -> float:
        return trial.cluster.clock.monotonic() - begun

    def see() -> None:
        """Note which pods were bound meanwhile, and when they leave."""
        for number in sorted(waiting):
            if trial.pod(f"p{number}").spec.node_name:
                waiting.discard(number)
                bound[number] = now()
                stay = trace.pods[number].stay
                assert stay is not None
                heapq.heappush(due, (now() + stay, "delete", number))

    while due or waiting:
        assert now() < 2 * trace.seconds + 4 * LATE, f"never bound: {sorted(waiting)}"
        while due and due[0][0] <= now():
            _, verb, number = heapq.heappop(due)
            if verb == "create":
                shape = trace.shapes[trace.pods[number].shape]
                trial.submit(shape.pod(f"p{number}"))
                waiting.add(number)
            else:
                trial.delete(f"p{number}")
        trial.pass_time(1 / speed)
        see()

    room = {0: 0.0, 3: 25.0, 1: 40.0, 2: 40.0, 4: 40.0, 5: 80.0}  # when each can be bound at the earliest, in the trace
    for number, recorded in room.items():
        earliest = recorded / speed
        chained = LATE * (number in {1, 2, 4, 5}) + LATE * (number == 5)  # a late binding delays who waits for its end
        assert earliest - 1 / speed <= bound[number] <= earliest + LATE + chained, (number, bound)
