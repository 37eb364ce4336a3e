"""Measures one LowNodeLoad round: `python -m seatrial.scheduler.descheduler.tests.measure_round [NODES [PODS]]`."""

import random
import sys
import time

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.descheduler.args import read_args
from seatrial.scheduler.descheduler.plugins.low_node_load import LowNodeLoad, LowNodeLoadArgs
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import RecordingEvictor, handle_of, node, pod, usage

ARGS = {
    "lowThresholds": {"cpu": 45, "memory": 55},
    "highThresholds": {"cpu": 75, "memory": 80},
    "anomalyCondition": {"consecutiveAbnormalities": 1},
}


def main(nodes: int = 5000, pods: int = 100_000) -> None:
    """A tenth of the nodes is hot, half of them are low."""
    state, clock, chance = ClusterState(), SimClock(), random.Random(1)  # noqa: S311
    each = pods // nodes
    for number in range(nodes):
        name = f"n{number}"
        state.set_node(node(name, cpu="64", memory="256Gi"))
        share = 0.9 if number % 10 == 0 else chance.uniform(0.1, 0.7)
        used = {}
        for index in range(each):
            state.set_pod(pod(f"p{number}-{index}", name))
            milli = int(64000 * share / each * chance.uniform(0.9, 1.1))
            used[f"p{number}-{index}"] = {"cpu": f"{milli}m", "memory": f"{256 * 1024 // each // 3}Mi"}
        state.set_metric(usage(name, used, at=clock.now()))
    strategy = LowNodeLoad(read_args(LowNodeLoadArgs, ARGS))
    for number in range(3):
        handle = handle_of(state, clock)
        began, busy = time.perf_counter(), time.process_time()
        strategy.run(handle, list(state.nodes.values()))
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        evictor = handle.evictor
        assert isinstance(evictor, RecordingEvictor)
        print(f"round {number + 1}: {seconds:.3f} s ({busy:.3f} s of CPU), {len(evictor.evicted)} evictions")  # noqa: T201


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
