"""NUMA hints for a pod's CPUs and memory (NUMA-R42)."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from seatrial.scheduler.api.numa import RESTRICTED
from seatrial.scheduler.api.quantity import CPU
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.nodenuma.allocation import Need, allocate, offers
from seatrial.scheduler.plugins.nodenuma.options import amplify
from seatrial.scheduler.plugins.nodenuma.scoring import Scorer
from seatrial.scheduler.plugins.nodenuma.states import NumaState
from seatrial.scheduler.plugins.numahints import Hint, Hints, Mask


def masks(ids: Sequence[int]) -> Iterator[Mask]:
    """Every set of NUMA nodes, by size, then by ids."""
    for size in range(1, len(ids) + 1):
        yield from map(frozenset, combinations(ids, size))


def hints(state: NumaState, need: Need, policy: str, scorer: Scorer) -> Hints:
    """For each requested resource that NUMA nodes have, the sets of NUMA nodes that can serve the whole pod."""
    offered = offers(state, need)
    known = {name for amounts in state.totals.values() for name in amounts}
    by_name: dict[str, list[Hint]] = {name: [] for name, _ in need.requests if name in known}
    for mask in masks(list(state.totals)) if by_name else ():
        if isinstance(allocate(state, need, mask), Status):
            continue
        score = mask_score(state, need, mask, scorer)
        for name, listed in by_name.items():
            if all(offered[node].get(name, 0) for node in mask):
                listed.append(Hint(mask, policy == RESTRICTED or not listed or len(mask) == len(listed[0].mask), score))
    return by_name


def mask_score(state: NumaState, need: Need, mask: Mask, scorer: Scorer) -> int:
    """The score of placing the pod on these NUMA nodes."""
    capacity: dict[str, int] = {}
    used: dict[str, int] = {}
    for node in mask:
        for name, total in state.totals[node].items():
            capacity[name] = capacity.get(name, 0) + total
            used[name] = used.get(name, 0) + total - state.available[node][name]
    return scorer.score(capacity, used, counted(state, need))


def counted(state: NumaState, need: Need) -> dict[str, int]:
    """The request as scores and checks count it: bound CPUs are real CPUs, amplified for the comparison (NUMA-R48)."""
    requests = dict(need.requests)
    if need.preference is not None and CPU in requests:
        requests[CPU] = amplify(requests[CPU], state.options.ratio(CPU))
    return requests
