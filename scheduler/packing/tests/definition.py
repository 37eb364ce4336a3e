"""The figure of one node straight from its definition; `Fragments` must give the same."""

from collections.abc import Sequence

from seatrial.scheduler.packing.shapes import Typical


def node_fragments(cpu: int, cards: Sequence[int], model: str, pods: Sequence[Typical]) -> float:
    """One node's fragments in thousandths of a GPU.

    Args:
        cpu: CPU left, in thousandths of a core.
        cards: What is left on each card, in thousandths.
        model: The cards' model.
        pods: The typical pods.
    """
    idle = sum(cards)
    total = 0.0
    for pod in pods:
        shape = pod.shape
        usable = [left for left in cards if left >= shape.gpu_milli]
        runs = shape.gpus and shape.runs_on(model) and cpu >= shape.cpu_milli and len(usable) >= shape.gpus
        total += pod.weight * (idle - sum(usable) if runs else idle)
    return total
