"""Devices taken from a list by score: all NICs and FPGAs, and GPUs where nothing better is known (R47 to R49)."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from scheduler.plugins.deviceshare.candidates import Pick, candidates, pick, suits
from scheduler.plugins.deviceshare.request import TypeRequest
from scheduler.plugins.deviceshare.scoring import Scorer
from scheduler.plugins.deviceshare.states import DeviceState


class Ranked(NamedTuple):
    """A device and how well the request suits it; sorts best first."""

    loss: int  # the score, negative
    number: int  # slots are in the order of their minors


def take(
    state: DeviceState,
    request: TypeRequest,
    scorer: Scorer,
    desired: int,
    *,
    near: frozenset[str] = frozenset(),
    template: str = "",
) -> list[Pick] | None:
    """The best `desired` devices, or one for each PCIe switch in `near` if those are more; None if too few suit.

    Devices on those switches come first, by turns.
    """
    scores: dict[tuple[int, tuple[int, ...]], int] = {}  # devices alike score alike
    ranked: list[Ranked] = []
    for number in candidates(state, request):
        if suits(state, number, request):
            alike = (id(state.template.totals[number]), state.used[number])
            score = scores.get(alike)
            if score is None:
                total, free = state.template.totals[number], state.frees[number]
                score = scores[alike] = scorer.score(total, free, request.amounts)
            ranked.append(Ranked(-score, number))
    if len(ranked) < desired:
        return None
    ranked.sort()
    order = [one.number for one in ranked]
    if near:
        order = by_turns(ranked, near, lambda number: _switch(state, number))
    return [pick(state, number, request, template) for number in order[: max(desired, len(near))]]


def _switch(state: DeviceState, number: int) -> str | None:
    place = state.template.slots[number].place
    return place.pcie if place is not None else None


def by_turns(ranked: Iterable[Ranked], near: frozenset[str], switch: Callable[[int], str | None]) -> list[int]:
    """The best device of every switch in `near`, then the second of each, and so on; all others come last.

    Within a turn, and among the others, the order is that of `ranked`, which is sorted.
    """
    turns: dict[str, int] = dict.fromkeys(near, 0)
    keyed: list[tuple[int, Ranked]] = []
    rest: list[int] = []
    for one in ranked:
        where = switch(one.number)
        if where in turns:
            keyed.append((turns[where], one))
            turns[where] += 1
        else:
            rest.append(one.number)
    return [one.number for _, one in sorted(keyed)] + rest
