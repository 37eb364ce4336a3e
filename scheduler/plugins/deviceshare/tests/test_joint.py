"""Joint allocation of GPUs and NICs: DEV-E9, and annotations of virtual functions."""

from typing import Any

import pytest

from seatrial.scheduler.api.device import parse_allocations
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.allocator import allocate, verdict
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.scoring import Scorer
from seatrial.scheduler.plugins.deviceshare.shares import Holding, shares_of
from seatrial.scheduler.plugins.deviceshare.states import Choice, DeviceState, Traits
from seatrial.scheduler.plugins.deviceshare.tests.machines import (
    FUNCTIONS,
    JOINT,
    NIC_BUSES,
    ask,
    card,
    chosen,
    functions_chosen,
    nic,
    paired,
    state,
    whole,
)

BUSES = [f"{NIC_BUSES[number]}.2" for number in range(1, 5)]
STARTED = state(paired(), cards={0: 100}, functions={1: [BUSES[0]]})
SAME_PCIE = JOINT | {"requiredScope": "SamePCIe"}

UNSCORED = Policy(Scorer(weights=()))


def devices(gpus: int, *nics: int) -> dict[str, list[int]]:
    return {"gpu": list(range(gpus)), "rdma": list(nics)}


@pytest.mark.parametrize("joint", [pytest.param(JOINT, id="best-effort"), pytest.param(SAME_PCIE, id="same-pcie")])
@pytest.mark.parametrize(
    ("have", "cards", "want", "buses"),
    [
        pytest.param(state(paired()), 0, {"rdma": [1]}, BUSES[:1], id="no-card-at-all"),
        pytest.param(state(paired()), 1, devices(1, 1), BUSES[:1], id="one"),
        pytest.param(state(paired()), 2, devices(2, 1), BUSES[:1], id="two"),
        pytest.param(state(paired()), 3, devices(3, 1, 2), BUSES[:2], id="three"),
        pytest.param(state(paired()), 4, devices(4, 1, 2), BUSES[:2], id="four"),
        pytest.param(state(paired()), 6, devices(6, 1, 2, 3), BUSES[:3], id="six"),
        pytest.param(state(paired()), 8, devices(8, 1, 2, 3, 4), BUSES, id="eight"),
        pytest.param(STARTED, 2, {"gpu": [2, 3], "rdma": [2]}, [BUSES[1]], id="two-more"),
        pytest.param(
            STARTED, 3, {"gpu": [1, 2, 3], "rdma": [1, 2]}, ["0000:1f:00.3", BUSES[1]], id="three-more-and-the-next-vf"
        ),
    ],
)
def test_a_nic_for_each_switch(
    have: DeviceState, cards: int, want: dict[str, list[int]], buses: list[str], joint: Any
) -> None:
    request = ask(whole(cards, rdma=1), hint=FUNCTIONS, joint=joint)
    assert chosen(have, request, UNSCORED) == want
    assert functions_chosen(have, request) == buses


def test_two_nics_a_switch() -> None:
    have = state(paired(2), cards=dict.fromkeys(range(4), 100))
    request = ask(whole(4, rdma=400), joint=SAME_PCIE)
    assert chosen(have, request) == {"gpu": [4, 5, 6, 7], "rdma": [3, 4, 7, 8]}


def test_all_nics_whole_for_a_pod_on_the_host_network() -> None:
    hint = {"rdma": {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"type": "fakeW"}}}}
    request = ask(whole(4, rdma=1), hint=hint, joint=JOINT)
    assert chosen(state(paired()), request) == devices(4, 1, 2, 3, 4)
    assert functions_chosen(state(paired()), request) == []


NO_FUNCTIONS = Status.unresolvable("Insufficient rdma VirtualFunctions")
NO_NICS = Status.unschedulable("Insufficient rdma devices")
VIOLATION = Status.unschedulable("node(s) Device Joint-Allocate rules violation")
BARE = [card(0), nic(1)]
CROSSED = [card(0, switch="a"), nic(1, switch="b")]


@pytest.mark.parametrize(
    ("have", "cards", "hint", "joint", "want"),
    [
        pytest.param(state(BARE), 0, FUNCTIONS, JOINT, NO_FUNCTIONS, id="no-virtual-functions"),
        pytest.param(state(BARE), 1, FUNCTIONS, JOINT, NO_FUNCTIONS, id="no-virtual-functions-beside-a-card"),
        pytest.param(
            state(paired(), cards={0: 100}, nics={1: 100}), 3, FUNCTIONS, SAME_PCIE, VIOLATION, id="a-full-nic"
        ),
        pytest.param(state(CROSSED), 1, None, SAME_PCIE, VIOLATION, id="on-another-switch"),
        pytest.param(
            state([card(0), nic(1, switch="b")]), 1, None, SAME_PCIE, VIOLATION, id="the-card's-place-is-unknown"
        ),
        pytest.param(
            state([card(0, switch="a"), card(1, switch="b"), nic(1, switch="a")]),
            2,
            None,
            SAME_PCIE,
            NO_NICS,
            id="two-switches-and-one-nic",
        ),
        pytest.param(state([card(0), nic(1)], nics={1: 100}), 1, None, None, NO_NICS, id="all-nics-taken"),
        pytest.param(
            state([card(0)]), 1, None, JOINT, Status.unresolvable("Insufficient rdma devices"), id="no-nics-ever"
        ),
    ],
)
def test_joint_requests_that_fail(have: DeviceState, cards: int, hint: Any, joint: Any, want: Status) -> None:
    request = ask(whole(cards, rdma=1), hint=hint, joint=joint)
    assert allocate(have, request, Policy()) == want
    assert verdict(have, request, Policy()) == want


def test_devices_without_topology_pass_as_close() -> None:
    assert chosen(state([card(0), nic(1)]), ask(whole(1, rdma=1), joint=SAME_PCIE)) == {"gpu": [0], "rdma": [1]}


def test_best_effort_spills_to_other_switches() -> None:
    have = state(paired(), nics={1: 100})
    assert chosen(have, ask(whole(2, rdma=100), joint=JOINT)) == {"gpu": [0, 1], "rdma": [2]}


def test_without_the_annotation_nics_go_by_minor() -> None:
    have = state(paired(), cards={0: 100, 1: 100})
    assert chosen(have, ask(whole(2, rdma=100))) == {"gpu": [2, 3], "rdma": [1]}
    assert chosen(have, ask(whole(2, rdma=100), joint=JOINT)) == {"gpu": [2, 3], "rdma": [2]}


def test_a_single_joint_type_is_primary() -> None:
    request = ask(whole(2, rdma=100), joint={"deviceTypes": ["rdma"]})
    assert request.joint == ("rdma",)
    assert chosen(state(paired(), nics={1: 100}), request) == {"gpu": [0, 1], "rdma": [2]}


def test_nics_may_be_primary() -> None:
    request = ask(whole(1, rdma=100), joint={"deviceTypes": ["rdma", "gpu"]})
    have = state(paired(), nics={1: 100})
    assert chosen(have, request) == {"gpu": [0], "rdma": [2]}, "GPUs go their own way even as followers"


def test_well_planned_nics_are_allocated_at_reserve_only() -> None:
    full = dict.fromkeys(range(1, 5), 100)
    planned = Traits(planned=True)
    request = ask(whole(8, rdma=1), joint=JOINT)
    have = state(paired(), nics=full, traits=planned)
    assert verdict(have, request, Policy()).ok, "the node will do"
    assert allocate(have, request, Policy()) == NO_NICS, "but there is nothing to reserve"
    assert chosen(state(paired(), traits=planned), request) == devices(8, 1, 2, 3, 4)
    assert verdict(state(paired(), nics=full), request, Policy()) == NO_NICS, "elsewhere both are looked at"


def test_a_full_physical_function_has_no_virtual_ones() -> None:
    request = ask(whole(1, rdma=100), hint={"rdma": {"vfSelector": {}}}, joint=JOINT)
    first = allocate(state(paired()), request, Policy())
    assert isinstance(first, Choice)
    assert chosen(first.after, request) == {"gpu": [1], "rdma": [2]}


def test_the_annotation_lists_the_virtual_functions() -> None:
    request = ask(whole(1, rdma=1), hint=FUNCTIONS, joint=JOINT)
    allocation = allocate(state(paired()), request, Policy())
    assert isinstance(allocation, Choice)
    text = allocation.holding.annotation({("rdma", 1): '"0000:1f:00.0"'})
    assert text.endswith(
        '"rdma":[{"minor":1,"resources":{"koordinator.sh/rdma":"1"},"id":"0000:1f:00.0",'
        '"extension":{"vfs":[{"minor":2,"busID":"0000:1f:00.2"}]}}]}'
    )
    back = shares_of(parse_allocations({"scheduling.koordinator.sh/device-allocated": text}))
    assert back == allocation.holding.shares


def test_a_virtual_function_of_minor_0_is_written_without_minor() -> None:
    text = (
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"40Gi",'
        '"koordinator.sh/gpu-memory-ratio":"50"},"id":"GPU-aa"}],"rdma":[{"minor":1,'
        '"resources":{"koordinator.sh/rdma":"100"},"id":"0000:1f:00.0","extension":{"vfs":[{"busID":"0000:1f:00.2"}]}}]}'
    )
    shares = shares_of(parse_allocations({"scheduling.koordinator.sh/device-allocated": text}))
    assert Holding(shares).annotation({("gpu", 0): '"GPU-aa"', ("rdma", 1): '"0000:1f:00.0"'}) == text


def test_released_devices_and_virtual_functions_are_free_again() -> None:
    have = state(paired())
    allocation = allocate(have, ask(whole(3, rdma=1), hint=FUNCTIONS, joint=JOINT), Policy())
    assert isinstance(allocation, Choice)
    assert allocation.after is not have
    assert allocation.after.moved(allocation.holding.shares, -1) is have
