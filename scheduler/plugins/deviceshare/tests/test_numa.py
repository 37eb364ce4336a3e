"""NUMA hints: example DEV-E14."""

from typing import Any

import pytest

from seatrial.scheduler.api.device import FPGA, RDMA
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.allocator import allocate
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.numa import TOO_FEW_THERE, hints
from seatrial.scheduler.plugins.deviceshare.states import Choice, DeviceState
from seatrial.scheduler.plugins.deviceshare.tests.machines import JOINT, ask, card, paired, state, whole
from seatrial.scheduler.plugins.numahints import Hint

FIRST, SECOND, BOTH = frozenset({0}), frozenset({1}), frozenset({0, 1})
COUNTED = {"rdma": {"allocateStrategy": "RequestsAsCount"}}
COUNTED_FUNCTIONS = {"rdma": {"allocateStrategy": "RequestsAsCount", "vfSelector": {}}}
EITHER = [Hint(FIRST, True, 500), Hint(SECOND, True, 500), Hint(BOTH, False, 500)]


@pytest.mark.parametrize(
    ("have", "amounts", "hint", "types", "want"),
    [
        pytest.param(
            state(paired()),
            whole(1, rdma=2),
            None,
            ["gpu", "rdma"],
            [Hint(FIRST, True, 500), Hint(SECOND, True, 0), Hint(BOTH, False, 500)],
            id="the-cards-one-would-choose",
        ),
        pytest.param(
            state(paired(), cards={0: 100}),
            whole(4),
            None,
            ["gpu"],
            [Hint(SECOND, True, 500), Hint(BOTH, False, 500)],
            id="only-one-has-four",
        ),
        pytest.param(state(paired()), {RDMA: 2}, COUNTED, ["rdma"], EITHER, id="nics-alone-are-all-alike"),
        pytest.param(state(paired()), {RDMA: 2}, COUNTED_FUNCTIONS, ["rdma"], EITHER, id="and-so-are-functions"),
        pytest.param(
            state(paired()), {RDMA: 4}, COUNTED_FUNCTIONS, ["rdma"], [Hint(BOTH, True, 500)], id="all-nics-take-both"
        ),
        pytest.param(state([card(0)]), whole(1), None, [], [], id="devices-that-are-nowhere-give-no-hints"),
    ],
)
def test_hints(have: DeviceState, amounts: dict[str, int], hint: Any, types: list[str], want: list[Hint]) -> None:
    assert hints(have, ask(amounts, hint=hint), Policy()) == dict.fromkeys(types, want)


@pytest.mark.parametrize(
    ("amounts", "want"),
    [
        pytest.param(whole(17), TOO_FEW_THERE, id="more-cards-than-there-are"),
        pytest.param({FPGA: 100}, Status.unresolvable("Insufficient fpga devices"), id="no-fpga"),
    ],
)
def test_no_numa_nodes_will_do(amounts: dict[str, int], want: Status) -> None:
    assert hints(state(paired()), ask(amounts), Policy()) == want


def test_a_card_of_no_known_numa_node_goes_with_any_and_keeps_its_switch() -> None:
    cards = [card(0, numa=0, switch="a"), card(1, numa=-1, switch="b"), card(2, numa=1, switch="b")]
    allocation = allocate(state(cards), ask(whole(2)), Policy(), SECOND)
    assert isinstance(allocation, Choice)
    assert [share.minor for share in allocation.holding.shares] == [1, 2]


def test_nics_stay_on_the_numa_nodes_too() -> None:
    allocation = allocate(state(paired()), ask(whole(2, rdma=100), joint=JOINT), Policy(), SECOND)
    assert isinstance(allocation, Choice)
    assert [(share.type, share.minor) for share in allocation.holding.shares] == [("gpu", 4), ("gpu", 5), ("rdma", 3)]
