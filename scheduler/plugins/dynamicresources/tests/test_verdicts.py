"""Nodes that are alike are searched once, with the solutions of a search on each node."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from seatrial.scheduler.api.resourceclaims import ResourceClaim
from seatrial.scheduler.plugins.dynamicresources import verdicts as verdicts_module
from seatrial.scheduler.plugins.dynamicresources.allocator import Search, Solution
from seatrial.scheduler.plugins.dynamicresources.tests.test_allocation import DRIVER, World, cel, device, exactly
from seatrial.scheduler.plugins.dynamicresources.verdicts import VerdictCache
from seatrial.scheduler.plugins.dynamicresources.wants import AllocationError, Want, compiled

ROOT, MODEL = f"{DRIVER}/root", f"device.attributes['{DRIVER}'].model"
SAME_ROOT = {"requests": ["gpu"], "matchAttribute": ROOT}
SPECS: tuple[tuple[tuple[dict[str, Any], ...], dict[str, Any]], ...] = (
    ((exactly(),), {}),
    ((exactly(count=2),), {"constraints": [SAME_ROOT]}),
    ((exactly(selectors=[cel(f"{MODEL} == 'big'")]), exactly("other")), {}),
    ((exactly(allocationMode="All"),), {}),
    ((exactly(selectors=[cel("device.attributes['x'].none == 'big'")]),), {}),
)


def card(number: int, chance: random.Random) -> dict[str, Any]:
    """A device with a model and a root, and a name and a UUID of its own; some are tainted or shared."""
    attributes = {"model": chance.choice(("big", "big", "small")), "root": str(chance.randrange(2))}
    more: dict[str, Any] = {"taints": [{"key": "k", "effect": "NoSchedule"}]} if chance.random() < 0.05 else {}
    more |= {"allowMultipleAllocations": True} if chance.random() < 0.05 else {}
    values = {name: {"string": value} for name, value in attributes.items()}
    return device(
        f"gpu-{number}-{chance.randrange(9)}", attributes={**values, "uuid": {"string": str(chance.random())}}, **more
    )


def on_node(world: World, wants: Sequence[Want], name: str) -> tuple[Solution | None, str]:
    """What a search on the node gives, and the error."""
    node = world.core.cache.nodes[name].known
    search = Search(wants, world.claims.inventory.view(node), world.claims.ledger, name)
    try:
        return search.run(), ""
    except AllocationError as error:
        return None, str(error)


@pytest.mark.parametrize("seed", range(12))
def test_verdicts_are_those_of_a_search_on_each_node(seed: int) -> None:
    chance, world = random.Random(seed), World()  # noqa: S311 a test's shuffle
    for number in range(6):
        world.node(f"n{number}", *(card(each, chance) for each in range(4)))
    cache, columns = VerdictCache(world.claims, world.core.handle), world.core.handle.columns
    kinds = []
    for number, (requests, devices) in enumerate(SPECS):
        world.claim(f"kind-{number}", *requests, **devices)
        claim = world.claims.find(("default", f"kind-{number}"))
        assert isinstance(claim, ResourceClaim)
        kinds.append([compiled(claim, world.claims.classes, world.claims.expressions)])
    for number in range(16):
        requests, devices = chance.choice(SPECS[:3])
        world.claim(f"c{number}", *requests, **devices)
        world.pod(f"p{number}", f"c{number}")
        for kind, wants in enumerate(kinds):
            verdicts = cache.of(str(kind).encode(), wants.copy)
            verdicts.refresh(columns.count, lambda row: world.core.cache.nodes[columns.names[row]].known)
            for name, row in columns.rows.items():
                solution, error = on_node(world, wants, name)
                status = verdicts.statuses[int(verdicts.codes[row])]
                assert verdicts.solution(row, world.core.cache.nodes[name].known) == solution
                assert status.ok == (solution is not None)
                assert error in status.reasons if error else status.code.name != "ERROR"


def test_nodes_that_are_alike_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty nodes: one search for the free ones, and one for each state that a decision makes for the first time."""
    searches: list[str] = []

    class Counted(Search):
        def __init__(self, *arguments: Any) -> None:
            searches.append(arguments[-1])
            super().__init__(*arguments)

    monkeypatch.setattr(verdicts_module, "Search", Counted)
    world = World()
    for number in range(20):
        uuids = ({"uuid": {"string": f"{number} {each}"}} for each in range(2))
        world.node(f"n{number}", *(device(f"gpu-{each}", attributes=own) for each, own in enumerate(uuids)))
    for number in range(40):
        world.claim(f"c{number}", exactly())
        assert world.pod(f"p{number}", f"c{number}")
    assert len(searches) == 3  # none, the first, and both devices in use


def test_a_long_search_goes_on_in_the_next_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The UUID of a device on the last of twelve nodes: each decision evaluates a few devices, and one finds it."""
    monkeypatch.setattr(verdicts_module, "MAX_WORK", 100)
    world = World()
    for number in range(12):
        uuids = ({"uuid": {"string": f"{number}-{each}"}} for each in range(4))
        world.node(f"n{number}", *(device(f"gpu-{each}", attributes=own) for each, own in enumerate(uuids)))
    world.claim("c", exactly(selectors=[cel(f"device.attributes['{DRIVER}'].uuid == '11-3'")]))
    claim, columns = world.claims.find(("default", "c")), world.core.handle.columns
    assert isinstance(claim, ResourceClaim)
    wants = [compiled(claim, world.claims.classes, world.claims.expressions)]
    verdicts = VerdictCache(world.claims, world.core.handle).of(b"", wants.copy)
    known: list[int] = []
    while True:
        for _ in range(3):  # the second and the third one of a moment search nothing
            verdicts.refresh(columns.count, lambda row: world.core.cache.nodes[columns.names[row]].known)
        known.append(wants[0].requests[0][0].selectors[0]._size)
        if verdicts_module.LATER not in [verdicts.statuses[code] for code in verdicts.codes]:
            break
        world.core.handle.wakes.wake = False
        world.clock.advance(verdicts_module.PAUSE)
        assert world.core.handle.wakes.wake
    assert len(known) > 2
    assert max(after - before for before, after in itertools.pairwise([0, *known])) < 30
    assert {name for name, row in columns.rows.items() if verdicts.statuses[int(verdicts.codes[row])].ok} == {"n11"}
