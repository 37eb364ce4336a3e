"""Devices chosen from a list by score: NICs, FPGAs, and GPUs without a better method (DEV-R47 to DEV-R49)."""

from collections.abc import Callable, Iterable

from seatrial.scheduler.plugins.deviceshare.candidates import Pick, candidates, free_function, has_room, pick
from seatrial.scheduler.plugins.deviceshare.request import TypeRequest
from seatrial.scheduler.plugins.deviceshare.scoring import Scorer
from seatrial.scheduler.plugins.deviceshare.states import DeviceState, Scores

FIRST = 1 << 32  # above every score
Ranked = tuple[int, int]  # negative score and slot number; slots are ordered by minor


def take(
    state: DeviceState,
    request: TypeRequest,
    scorer: Scorer,
    desired: int,
    *,
    near: frozenset[str] = frozenset(),
    template: str = "",
) -> list[Pick] | None:
    """The best `desired` devices, or one for each PCIe switch in `near` if those are more; None if too few fit.

    Devices on those switches come first, in rounds.
    """
    # Equal devices have equal scores. Scores are not kept for a request with NUMA nodes or preferred devices:
    # it is a new object each time.
    passing = request.numa is not None or request.preferred
    scores: Scores = {} if passing else state.template.scores((request, scorer))
    ranked: list[Ranked] = []
    functions = request.hint.vf_selector is not None
    totals, frees = state.template.totals, state.frees  # equal amounts are one object
    for number in candidates(state, request):
        alike = (id(totals[number]), id(frees[number]))
        known = scores.get(alike)
        if known is None:
            fits = has_room(state, number, request)
            score = scorer.score(totals[number], frees[number], request.amounts) if fits else -1
            scores[alike] = (score, frees[number])
        else:
            score = known[0]
        if score >= 0 and (not functions or free_function(state, number, request) is not None):
            first = FIRST if request.preferred and state.template.slots[number].minor in request.preferred else 0
            ranked.append((-score - first, number))
    if len(ranked) < desired:
        return None
    ranked.sort()
    order = [number for _, number in ranked]
    if near:
        order = by_turns(ranked, near, lambda number: _switch(state, number))
    return [pick(state, number, request, template) for number in order[: max(desired, len(near))]]


def _switch(state: DeviceState, number: int) -> str | None:
    place = state.template.slots[number].place
    return place.pcie if place is not None else None


def by_turns(ranked: Iterable[Ranked], near: frozenset[str], switch: Callable[[int], str | None]) -> list[int]:
    """The best device of every switch in `near`, then the second of each, and so on; all others follow.

    Within a round, and among the others, the order is that of `ranked`, which is sorted.
    """
    turns: dict[str, int] = dict.fromkeys(near, 0)
    keyed: list[tuple[int, Ranked]] = []
    rest: list[int] = []
    for slot in ranked:
        where = switch(slot[1])
        if where in turns:
            keyed.append((turns[where], slot))
            turns[where] += 1
        else:
            rest.append(slot[1])
    return [number for _, (_, number) in sorted(keyed)] + rest
