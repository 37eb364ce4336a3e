"""Pods by domain, counted node by node: the reference for the arrays of a cycle."""

from collections.abc import Iterator, Mapping, Sequence

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.tallies import Tallies
from seatrial.scheduler.plugins.node_selection import Selection
from seatrial.scheduler.plugins.podtopologyspread.constraints import Constraint, counts_node


def counted_on(
    cache: Cache, tallies: Tallies, pod: Pod, constraint: Constraint, labels_of: Sequence[Constraint]
) -> Iterator[tuple[str | None, int]]:
    """Domain and number of pods of every node that counts and has all labels of `labels_of`."""
    selection = Selection(pod)
    tally = tallies.of(constraint.matcher, staying=True) if constraint.matcher is not None else None
    for node in cache:
        labels = node.known.metadata.labels
        carrying = all(other.key in labels for other in labels_of)
        if carrying and counts_node(constraint, selection, pod, node.known):
            yield labels.get(constraint.key), int(tally.rows[node.row]) if tally is not None else 0


class DomainCounts:
    """The number of pods in each domain of each hard constraint.

    `simulated` are the changes of a dry run, by number of the constraint and domain.
    """

    def __init__(self, cache: Cache, tallies: Tallies, pod: Pod, constraints: Sequence[Constraint]) -> None:
        self._constraints = constraints
        self._counts: list[dict[str, int]] = []
        for constraint in constraints:
            counts: dict[str, int] = {}
            for value, count in counted_on(cache, tallies, pod, constraint, constraints):
                if value is not None:
                    counts[value] = counts.get(value, 0) + count
            self._counts.append(counts)

    def at(self, number: int, value: str, simulated: Mapping[tuple[int, str], int]) -> int:
        """The number of pods in one domain."""
        return self._counts[number].get(value, 0) + simulated.get((number, value), 0)

    def least(self, number: int, simulated: Mapping[tuple[int, str], int]) -> int:
        """The number of pods in the emptiest domain; 0 while there are fewer domains than `minDomains`."""
        counts = self._counts[number]
        if len(counts) < self._constraints[number].min_domains:
            return 0
        return min((count + simulated.get((number, value), 0) for value, count in counts.items()), default=0)
