"""Cards by topology: DEV-E6 and DEV-E7, and edge cases of required scopes."""

from typing import Any

import pytest

from seatrial.scheduler.framework.status import Code, Status
from seatrial.scheduler.plugins.deviceshare.allocator import allocate, verdict
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.scoring import Scorer
from seatrial.scheduler.plugins.deviceshare.states import DeviceState
from seatrial.scheduler.plugins.deviceshare.tests.machines import (
    FUNCTIONS,
    HALF,
    JOINT,
    ask,
    card,
    chosen,
    functions_chosen,
    paired,
    state,
    whole,
)


def scoped(scope: str | None) -> dict[str, Any]:
    return FUNCTIONS | {"gpu": {"requiredTopologyScope": scope} if scope else {}}


@pytest.mark.parametrize(
    ("have", "cards", "scope", "want", "functions"),
    [
        pytest.param(
            state(paired(), cards={5: 100}, functions={3: ["0000:51:00.2"]}),
            1,
            None,
            {"gpu": [4], "rdma": [3]},
            ["0000:51:00.3"],
            id="a-touched-switch-first",
        ),
        pytest.param(
            state(paired(), cards={5: 100}, functions={3: ["0000:51:00.2"]}),
            2,
            None,
            {"gpu": [6, 7], "rdma": [4]},
            ["0000:b9:00.2"],
            id="a-touched-numa-node-before-an-untouched-one",
        ),
        pytest.param(
            state(paired(), cards={5: 100}),
            2,
            "PCIe",
            {"gpu": [6, 7], "rdma": [4]},
            ["0000:b9:00.2"],
            id="two-on-one-switch",
        ),
        pytest.param(
            state(paired(), cards={5: 100}),
            4,
            "NUMANode",
            {"gpu": [0, 1, 2, 3], "rdma": [1, 2]},
            ["0000:1f:00.2", "0000:90:00.2"],
            id="four-on-one-numa-node",
        ),
    ],
)
def test_the_smallest_scope(
    have: DeviceState, cards: int, scope: str | None, want: dict[str, list[int]], functions: list[str]
) -> None:
    request = ask(whole(cards, rdma=1), hint=scoped(scope), joint=JOINT)
    assert chosen(have, request) == want
    assert functions_chosen(have, request) == functions


@pytest.mark.parametrize(
    ("used", "minor"),
    [
        pytest.param({5: 100}, 4, id="a-touched-switch-an-untouched-card"),
        pytest.param({5: 100, 7: 50}, 7, id="of-two-touched-switches-the-half-used-card"),
        pytest.param({0: 30, 2: 45, 5: 30}, 2, id="of-touched-cards-the-fullest-that-fits"),
    ],
)
def test_shared_cards_are_packed(used: dict[int, int], minor: int) -> None:
    have = state(paired(), cards=used)
    assert chosen(have, ask(HALF), Policy(Scorer("MostAllocated"))) == {"gpu": [minor]}


def test_least_allocated_looks_for_an_untouched_card_on_a_touched_switch() -> None:
    assert chosen(state(paired(), cards={5: 50}), ask(HALF), Policy(Scorer())) == {"gpu": [4]}


NO_SCOPE = Status.unschedulable("Insufficient Topology Scoped GPU Devices")


@pytest.mark.parametrize(
    ("have", "amounts", "scope", "want"),
    [
        pytest.param(state(paired(), cards={0: 100, 5: 100}), whole(4), "NUMANode", NO_SCOPE, id="no-numa-node-has-4"),
        pytest.param(state(paired(), cards={0: 1, 2: 1, 4: 1, 6: 1}), whole(2), "PCIe", NO_SCOPE, id="no-switch-has-2"),
        pytest.param(state(paired()), whole(1), "Device", NO_SCOPE, id="no-scope-is-as-tight-as-a-device"),
        pytest.param(state(paired()), whole(17), None, Status.unschedulable("Insufficient GPU Devices"), id="17-cards"),
        pytest.param(
            state([card(0, switch="s0"), card(1)]),
            whole(1),
            "Node",
            Status.unresolvable("node(s) missing GPU Device Topology Tree"),
            id="a-card-is-nowhere",
        ),
        pytest.param(
            state(paired()),
            {"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-memory-ratio": 100},
            "Node",
            Status.unresolvable("node(s) Unsupported Multi-Shared GPU"),
            id="slices-of-two-cards",
        ),
        pytest.param(
            state([card(0), card(1)], cards={0: 50}),
            whole(2),
            None,
            Status.unschedulable("Insufficient gpu devices"),
            id="no-tree-and-none-asked-for",
        ),
    ],
)
def test_no_scope(have: DeviceState, amounts: dict[str, int], scope: str | None, want: Status) -> None:
    request = ask(amounts, hint={"gpu": {"requiredTopologyScope": scope}} if scope else None)
    assert allocate(have, request, Policy()) == want
    assert verdict(have, request, Policy()) == want


@pytest.mark.parametrize("scope", ["Node", "Rack"])
def test_the_node_scope_accepts_any_cards_of_a_tree(scope: str) -> None:
    request = ask(whole(5), hint={"gpu": {"requiredTopologyScope": scope}})
    assert chosen(state(paired()), request) == {"gpu": [0, 1, 2, 3, 4]}
    assert allocate(state([card(minor) for minor in range(8)]), request, Policy()) == Status.unresolvable(
        "node(s) missing GPU Device Topology Tree"
    )


def test_slices_of_several_cards_come_from_the_list_where_no_scope_is_required() -> None:
    request = ask({"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-memory-ratio": 100})
    assert chosen(state(paired(), cards={0: 10}), request) == {"gpu": [1, 2]}
    short = allocate(state(paired()[:1]), request, Policy())
    assert short == Status.unschedulable("Insufficient gpu devices")


def test_unhealthy_cards_stay_in_the_tree_and_are_never_chosen() -> None:
    cards = [card(minor, switch=f"s{minor // 2}", health=minor != 1) for minor in range(4)]
    assert chosen(state(cards), ask(whole(2), hint={"gpu": {"requiredTopologyScope": "PCIe"}})) == {"gpu": [2, 3]}


def test_a_card_of_no_known_numa_node_still_has_a_switch() -> None:
    cards = [card(0, numa=-1, switch="a"), card(1, numa=-1, switch="b"), card(2, numa=-1, switch="b")]
    assert chosen(state(cards), ask(whole(2))) == {"gpu": [1, 2]}


def test_which_refusals_preemption_can_solve() -> None:
    busy = allocate(state(paired(), cards={0: 100, 5: 100}), ask(whole(7)), Policy())
    nowhere = allocate(state([]), ask(whole(1)), Policy())
    assert isinstance(busy, Status)
    assert isinstance(nowhere, Status)
    assert (busy.code, nowhere.code) == (Code.UNSCHEDULABLE, Code.UNRESOLVABLE)
    assert nowhere.message == "Insufficient gpu devices"
