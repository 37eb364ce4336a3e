"""Merging of the hints of all resources into one set of NUMA nodes, or a reason (NUMA-R43 to NUMA-R46).

Upstream tries every combination of one hint for each resource. The result depends only on the sets that every resource
prefers or, without any, on the sets that are an intersection of some combination. Both are computed resource by
resource: eight NUMA nodes and four resources take thousands of steps, not billions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from seatrial.scheduler.api.numa import RESTRICTED, SINGLE_NUMA_NODE
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.numahints import Hint, Hints, Mask

Lists = Mapping[str, Sequence[Hint] | None]  # None: the resource has no preference
Barred = Callable[[Mask], bool]  # whether exclusivity excludes these NUMA nodes from preferred hints


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged hint; no mask: the pod is held to no NUMA node."""

    mask: Mask | None
    preferred: bool


def merge(policy: str, ids: Sequence[int], hints: Lists, barred: Barred = lambda _: False) -> Merged | Status:
    """Merge hints under a policy: the pod's NUMA nodes, a subset of `ids`, or the refusal."""
    everything = frozenset(ids)
    if policy in {RESTRICTED, SINGLE_NUMA_NODE}:
        unsatisfied = [name for name, listed in hints.items() if listed is not None and not listed]
        if unsatisfied:
            return Status.unschedulable(*(f"Unsatisfied NUMA {name}" for name in sorted(unsatisfied)))
    if policy == SINGLE_NUMA_NODE:
        return _merge_single(everything, hints, barred)
    cared = [listed for listed in hints.values() if listed is not None]
    if not cared:
        return Merged(everything, preferred=True)
    best = _agreed(cared, barred)
    if best is not None:
        return Merged(best, preferred=True)
    if policy == RESTRICTED:
        return _unaligned(hints, " & ")
    return Merged(_intersection(cared, everything), preferred=False)


def _merge_single(everything: Mask, hints: Lists, barred: Barred) -> Merged | Status:
    cared = [
        [hint for hint in listed if hint.preferred and len(hint.mask) == 1]
        for listed in hints.values()
        if listed is not None
    ]
    best = _agreed(cared, barred) if cared else everything
    if best is None:
        return _unaligned(hints, ",")
    return Merged(None if best == everything else best, preferred=True)


def _agreed(lists: Sequence[Sequence[Hint]], barred: Barred) -> Mask | None:
    """The best set that every resource prefers: the smallest, then the best score, then the first."""
    scores: dict[Mask, int] = {hint.mask: hint.score for hint in lists[0] if hint.preferred}
    for listed in lists[1:]:
        theirs = {hint.mask: hint.score for hint in listed if hint.preferred}
        scores = {mask: score + theirs[mask] for mask, score in scores.items() if mask in theirs}
    return _best({mask: score for mask, score in scores.items() if not barred(mask)})


def _intersection(lists: Sequence[Sequence[Hint]], everything: Mask) -> Mask:
    """The result of a policy that admits every pod, for hints that do not agree."""
    if not all(lists):
        return everything  # one resource has no set at all
    meets = {hint.mask for hint in lists[0]}
    for listed in lists[1:]:
        meets = {mask & hint.mask for mask in meets for hint in listed}
    by_mask = [{hint.mask: hint.score for hint in listed} for listed in lists]
    scores = {mask: sum(theirs.get(mask, 0) for theirs in by_mask) for mask in meets if mask}
    best = _best(scores)
    # Unless every resource names this very set, one of them gets less than it needs there.
    return best if best is not None and all(best in theirs for theirs in by_mask) else everything


def _best(scores: Mapping[Mask, int]) -> Mask | None:
    return min(scores, key=lambda mask: (len(mask), -scores[mask], sorted(mask)), default=None)


def _unaligned(hints: Lists, separator: str) -> Status:
    items = sorted(
        f"{name} prefer [{_masks(hint.mask for hint in listed if hint.preferred)}]"
        f" among [{_masks(hint.mask for hint in listed)}]"
        for name, listed in hints.items()
        if listed is not None
    )
    return Status.unschedulable(f"Unaligned NUMA Hint cause {separator.join(items)}")


def _masks(masks: Iterable[Mask]) -> str:
    return " ".join(map(binary, masks))


def binary(mask: Mask) -> str:
    """NUMA nodes in upstream's format: two binary digits at least; powers of four keep their own width (NUMA-R45)."""
    number = sum(1 << node for node in mask)
    digits = 2
    while number > 1 << digits:
        digits += 2
    return f"{number:0{digits}b}"


def with_preferences(hints: Hints, *, all_preferred: bool) -> dict[str, Sequence[Hint]]:
    """The hints unchanged, or all of them preferred under Restricted (NUMA-R42)."""
    if not all_preferred:
        return dict(hints)
    return {name: [Hint(hint.mask, True, hint.score) for hint in listed] for name, listed in hints.items()}


def widened(hints: Hints, ids: Sequence[int]) -> Hints:
    """Add to each set the sets extended by NUMA nodes that no hint names: nothing is taken from these.

    Where all cards are on one NUMA node, a pod may still have CPUs of both.
    """
    named = frozenset[int]().union(*(hint.mask for listed in hints.values() for hint in listed))
    empty = [number for number in ids if number not in named]
    if not empty or not named:
        return hints
    more = [frozenset(chosen) for size in range(1, len(empty) + 1) for chosen in combinations(empty, size)]
    return {
        name: sorted(
            [*listed, *(Hint(hint.mask | added, False, hint.score) for hint in listed for added in more)],
            key=lambda hint: (len(hint.mask), sorted(hint.mask)),
        )
        for name, listed in hints.items()
    }
