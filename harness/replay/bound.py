"""An upper bound for all policies: the GPU that any placement of the pods so far could allocate.

The cluster is taken as one large node, and pods may be placed in part. So this bounds what sums forbid: GPU, CPU and
memory of all nodes, and the GPUs of the models that some pods require. It ignores cards that parts do not
fill, nodes whose CPU is too small for their GPUs, and the order of pods; so a better policy can gain at most the
distance from a policy to the bound, and usually less.
"""

from collections.abc import Sequence

import numpy as np

from seatrial.harness.replay.openb import Trace
from seatrial.scheduler.packing.shapes import Floats, Ints, Shape


def bound(trace: Trace, order: Sequence[Shape], counts: Sequence[int]) -> list[int]:
    """For the first `count` pods of `order`, for each of `counts`: thousandths of a GPU that no policy exceeds."""
    gpu: Ints = np.array([shape.gpu_request for shape in order], np.int64)
    every = [
        (np.array([shape.cpu_milli for shape in order], np.float64), sum(node.cpu_milli for node in trace.nodes)),
        (np.array([shape.memory for shape in order], np.float64), sum(node.memory_mib for node in trace.nodes)),
    ]
    sets = sorted({shape.models for shape in order if shape.models})
    inside = [np.array([bool(s.models) and set(s.models) <= set(each) for s in order], np.bool_) for each in sets]
    rooms = [sum(1000 * node.gpus for node in trace.nodes if node.model in each) for each in sets]
    mins = []
    for count in counts:
        here = gpu[:count]
        bounds = [trace.gpu_capacity, int(here.sum())]
        bounds += [int(_most(here, amounts[:count], capacity)) for amounts, capacity in every]
        for own, room in zip(inside, rooms, strict=True):
            bounds.append(min(int(here[own[:count]].sum()), room) + int(here[~own[:count]].sum()))
        mins.append(min(bounds))
    return mins


def _most(gpu: Ints, amounts: Floats, capacity: float) -> float:
    """The most GPU of pods whose other amounts sum to `capacity`: the least for each GPU first, the last in part."""
    wants = gpu > 0
    gpu, amounts = gpu[wants], amounts[wants]
    if amounts.sum() <= capacity:
        return float(gpu.sum())
    order = np.argsort(amounts / gpu, kind="stable")
    used = amounts[order].cumsum()
    whole = int(np.searchsorted(used, capacity, side="right"))
    before = used[whole - 1] if whole else 0.0
    last = order[whole]
    return float(gpu[order[:whole]].sum() + gpu[last] * (capacity - before) / amounts[last])
