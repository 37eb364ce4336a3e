"""How many states of cards are kept."""

import gc

import pytest

from seatrial.scheduler.api.device import GPU_CORE
from seatrial.scheduler.plugins.deviceshare import states
from seatrial.scheduler.plugins.deviceshare.shares import Share
from seatrial.scheduler.plugins.deviceshare.states import Choice, DeviceState, StateCache
from seatrial.scheduler.plugins.deviceshare.tests.machines import card


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


def number_of_states() -> int:
    """All that exist in this process."""
    return sum(isinstance(each, DeviceState) for each in gc.get_objects())
