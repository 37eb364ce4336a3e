"""How many states of cards are kept, and that this changes no placement."""

import gc
import random
from typing import Any

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU_CORE
from seatrial.scheduler.engine import signatures
from seatrial.scheduler.plugins.deviceshare import states
from seatrial.scheduler.plugins.deviceshare.shares import Share
from seatrial.scheduler.plugins.deviceshare.states import Choice, DeviceState, StateCache
from seatrial.scheduler.plugins.deviceshare.tests.machines import card
from seatrial.scheduler.tests.rig import Rig

SHAPES: list[dict[str, Any]] = [
    {"nvidia.com/gpu": 1},
    {"koordinator.sh/gpu-core": 30, "koordinator.sh/gpu-memory-ratio": 30},
    {"koordinator.sh/gpu-core": 60, "koordinator.sh/gpu-memory-ratio": 50},
    {"koordinator.sh/gpu-core": 20, "koordinator.sh/gpu-memory-ratio": 10},
]


def test_a_node_that_is_never_touched_does_not_keep_what_followed_from_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of 100 states is what an allocation leads to from the one before; only the first is a node's."""
    monkeypatch.setattr(states, "MAX_STATES", 10)
    gc.collect()
    before = number_of_states()
    cache = StateCache()
    template, _ = cache.template([card(0)])
    state = first = cache.untouched(template)
    shares = (Share("gpu", 0, ((GPU_CORE, 1),)),)
    for _ in range(100):
        choice = state.choices["1 % of a card"] = Choice(shares, state.moved(shares, 1))
        state = choice.after
    del choice, state
    gc.collect()
    assert not first.touched(0)
    assert number_of_states() - before <= 1 + 10


def test_dropped_states_change_no_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes and devices of 120 pods, of which 24 are there at a time, with all states kept and with 3."""
    usual = placements()
    monkeypatch.setattr(states, "MAX_STATES", 3)
    assert placements() == usual
    assert len({devices for _, devices in usual}) > 12  # different cards and shares


def placements() -> list[tuple[str, str]]:
    rig = Rig()
    for number in range(4):
        rig.node(f"n{number}", gpus=8)
    placements = []
    for number in range(120):
        shape = SHAPES[number * 7 % 11 % len(SHAPES)]
        rig.submit(PodBuilder(f"p{number}").resources({"cpu": "1", "memory": "1Gi", **shape}))
        rig.run()
        placements.append((rig.where(f"p{number}"), rig.binding(f"p{number}").annotations[DEVICE_ALLOCATED]))
        if number >= 24:
            rig.delete(f"p{number - 24}")
    return placements


def test_kept_objects_do_not_become_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """All objects after 1,500 and after 3,000 placements, with room for 32 states of cards and 32 signatures.

    More than every third placement brings a node's cards into a new state, which is about eight objects.
    """
    monkeypatch.setattr(states, "MAX_STATES", 32)
    monkeypatch.setattr(signatures, "MAX_NUMBERS", 0)
    monkeypatch.setattr(signatures, "MIN_SIGNATURES", 32)
    rig, draw = Rig(), random.Random(1)  # noqa: S311 - a fixed sequence of shapes
    for number in range(8):
        rig.node(f"n{number}", gpus=8)
    examples = [
        rig.pod(PodBuilder(f"example-{at}").resources({"cpu": "1", "memory": "1Gi", **shape}))
        for at, shape in enumerate(SHAPES)
    ]
    kept = []
    for number in range(3000):
        pod = rig.pod(PodBuilder(f"p{number}"))
        rig.core.intake.set_pod(replace(pod, spec=draw.choice(examples).spec))  # pods of one template share their spec
        rig.run()
        rig.decisions.clear()
        if number >= 48:
            rig.delete(f"p{number - 48}")
            del rig.pods[f"p{number - 48}"]
        if number in {1499, 2999}:
            gc.collect()
            kept.append(len(gc.get_objects()))
    assert kept[1] - kept[0] < 32 * 8


def number_of_states() -> int:
    """All that exist in this process."""
    return sum(isinstance(each, DeviceState) for each in gc.get_objects())
