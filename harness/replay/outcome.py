"""Results of a replay: allocation, fragments and refusals."""

from dataclasses import dataclass

import numpy as np

from seatrial.scheduler.packing.fragments import Fragments
from seatrial.scheduler.packing.shapes import Flags, Floats, Ints, NodeStates

Log = list[tuple[int, int, Ints]]
"""Of each placed pod: its node, and what CPU and cards had left there afterwards."""

SIZES = {0.0: "without_gpu", 0.5: "part_of_a_gpu", 1.0: "1_gpu"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay came to, after each pod; GPU in thousandths of a card, columns as long as there were pods."""

    capacity: int
    arrived: Ints
    allocated: Ints
    fragmented: Floats
    gpus: Floats  # that each pod requests; 0.5 for a part of one
    placed: Flags
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
            "unplaced_pods": int((~self.placed).sum()),
            **self._refusals(),
            "seconds": round(self.seconds, 3),
            "pods_per_second": round(len(self.arrived) / self.seconds) if self.seconds else 0,
        }

    def _refusals(self) -> dict[str, float | int]:
        """Unplaced pods by size, and the percent arrived when one of the largest was refused first, or at the end."""
        percents: dict[str, float | int] = {}
        for size in np.unique(self.gpus).tolist():
            percents[f"unplaced_{SIZES.get(size, f'{size:g}_gpus')}"] = int((~self.placed & (self.gpus == size)).sum())
        large = np.flatnonzero(~self.placed & (self.gpus == self.gpus.max()))
        percents["largest_refused_at_percent"] = self._percent(self.arrived[large[0] if len(large) else -1])
        return percents

    def unplaced(self, percent: int) -> dict[str, int]:
        """Unplaced pods by size among those that arrived until `percent` of the capacity, rounded, had arrived."""
        here = (np.rint(100 * self.arrived / self.capacity) <= percent) & ~self.placed
        return {
            SIZES.get(size, f"{size:g}_gpus"): int((here & (self.gpus == size)).sum())
            for size in np.unique(self.gpus).tolist()
        }

    def counts(self) -> dict[int, int]:
        """Whole percent arrived → number of pods until the last one at whose arrival the figure rounds to it."""
        percent = np.rint(100 * self.arrived / self.capacity).astype(np.int64)
        return {int(each): int(np.flatnonzero(percent == each)[-1]) + 1 for each in np.unique(percent)}

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


def fragmented(log: Log, fragments: Fragments, model: Ints, empty: Floats, placed: Flags) -> Floats:
    """The cluster's fragments after each pod [pod]: all nodes' when empty, and then each placement's change.

    `model`: of all nodes; `empty`: fragments of all nodes before the first pod; `placed` [pod].
    """
    steps = np.zeros(len(placed))
    if log:
        nodes = np.array([node for node, _, _ in log], dtype=np.int64)
        cpu = np.array([left for _, left, _ in log], dtype=np.int64)
        cards = np.array([cards for _, _, cards in log])
        after = fragments.of(NodeStates(model[nodes], cpu, cpu, cards))
        now = empty.copy()
        changes = np.empty(len(nodes))
        for number, node in enumerate(nodes):
            changes[number] = after[number] - now[node]
            now[node] = after[number]
        steps[placed] = changes
    total: Floats = float(empty.sum()) + steps.cumsum()
    return total
