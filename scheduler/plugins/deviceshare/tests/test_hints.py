"""Device hints in annotations: DEV-E5, errors, and effects."""

from typing import Any

import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_JOINT_ALLOCATE,
    FPGA,
    GPU_PARTITION_SPEC,
    RDMA,
    DeviceInfo,
)
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.allocator import allocate
from seatrial.scheduler.plugins.deviceshare.candidates import count, missing
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.hints import NO_HINTS, InvalidHintError, read
from seatrial.scheduler.plugins.deviceshare.states import DeviceState
from seatrial.scheduler.plugins.deviceshare.tests.machines import ask, card, chosen, nic, paired, state, whole
from seatrial.scheduler.tests.rig import Rig

NICS = [nic(minor, labels={"type": "fakeW" if minor else "fakeS"}) for minor in range(5)]


def labelled(**labels: str) -> dict[str, Any]:
    return {"selector": {"matchLabels": labels}}


ALL = {"allocateStrategy": "ApplyForAll"}
BY_COUNT = {"allocateStrategy": "RequestsAsCount"}


@pytest.mark.parametrize(
    ("amount", "hint", "want"),
    [
        pytest.param(100, {}, (1, 100), id="one-whole"),
        pytest.param(1, ALL | labelled(type="fakeW"), (4, 1), id="all-of-one-kind"),
        pytest.param(1, ALL | labelled(type="fakeS"), (1, 1), id="all-of-a-kind-there-is-one-of"),
        pytest.param(
            1, ALL | {"selector": {"matchExpressions": [{"key": "type", "operator": "Exists"}]}}, (5, 1), id="all-typed"
        ),
        pytest.param(1, ALL, (5, 1), id="simply-all"),
        pytest.param(4, BY_COUNT, (4, 1), id="amounts-are-counts"),
        pytest.param(4, BY_COUNT | {"exclusivePolicy": "DeviceLevel"}, (4, 100), id="amounts-are-counts-of-whole-ones"),
        pytest.param(200, BY_COUNT, (2, 100), id="hundreds-are-whole-ones-whatever-the-hint"),
        pytest.param(200, ALL, (2, 100), id="even-if-it-says-all"),
        pytest.param(50, {"exclusivePolicy": "DeviceLevel"}, (1, 50), id="exclusive-means-nothing-without-a-count"),
    ],
)
def test_how_many_nics(amount: int, hint: dict[str, Any], want: tuple[int, int]) -> None:
    (request,) = ask({RDMA: amount}, hint={"rdma": hint}).types
    template = state(NICS).template
    assert missing(template, request) is None
    assert (count(template, request), request.amounts[RDMA]) == want


NO_NICS = Status.unresolvable("Insufficient rdma devices")


@pytest.mark.parametrize(
    ("have", "amounts", "hint", "want"),
    [
        pytest.param(state(NICS), {RDMA: 1}, {"rdma": ALL | labelled(no_device="has")}, NO_NICS, id="all-of-none"),
        pytest.param(
            state(NICS),
            {RDMA: 1},
            {"rdma": labelled(none="has")},
            Status.unschedulable("Insufficient rdma devices"),
            id="one-of-none",
        ),
        pytest.param(
            state([*NICS, DeviceInfo("rdma", 9)]),
            {RDMA: 1},
            {"rdma": ALL},
            Status.unschedulable("Insufficient rdma devices"),
            id="all-when-one-is-sick",
        ),
        pytest.param(
            state(paired()),
            whole(1),
            {"gpu": {"vfSelector": {}}},
            Status.unresolvable("Insufficient gpu VirtualFunctions"),
            id="cards-have-no-virtual-functions",
        ),
        pytest.param(
            state(paired()),
            whole(1),
            {"gpu": labelled(no_device="has")},
            Status.unschedulable("Insufficient GPU Devices"),
            id="a-label-that-no-card-has",
        ),
        pytest.param(
            state(paired()),
            {RDMA: 1},
            {"rdma": {"vfSelector": {"matchLabels": {"no_device": "has"}}}},
            Status.unschedulable("Insufficient rdma devices"),
            id="virtual-functions-of-another-kind",
        ),
        pytest.param(
            state(paired()), {FPGA: 100}, None, Status.unresolvable("Insufficient fpga devices"), id="no-fpga-at-all"
        ),
    ],
)
def test_what_a_hint_rules_out(have: DeviceState, amounts: dict[str, int], hint: Any, want: Status) -> None:
    assert allocate(have, ask(amounts, hint=hint), Policy()) == want


def test_cards_by_label() -> None:
    cards = [
        DeviceInfo("gpu", minor, health=True, labels={"bin": "ab"[minor % 2]}, resources=card(0).resources)
        for minor in range(4)
    ]
    assert chosen(state(cards), ask(whole(2), hint={"gpu": labelled(bin="b")})) == {"gpu": [1, 3]}


def test_whole_switches_must_be_unused() -> None:
    hint = {"gpu": {"exclusivePolicy": "PCIeLevel"}}
    assert chosen(state(paired(), cards={0: 100}), ask(whole(1), hint=hint)) == {"gpu": [2]}
    assert chosen(state(paired(), cards={0: 100}), ask(whole(1))) == {"gpu": [1]}
    crowded = state(paired(), cards={0: 1, 2: 1, 4: 1, 6: 1})
    assert chosen(crowded, ask(whole(1), hint=hint)) == "Insufficient GPU Devices"


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({DEVICE_ALLOCATE_HINT: "{"}, "invalid DeviceAllocateHint annotation, err: ", id="hint"),
        pytest.param({DEVICE_JOINT_ALLOCATE: "[]"}, "invalid DeviceJointAllocate annotation, err: ", id="joint"),
        pytest.param({GPU_PARTITION_SPEC: "7"}, "invalid GPUPartitionSpec annotation, err: ", id="partition"),
        pytest.param(
            {GPU_PARTITION_SPEC: '{"ringBusBandwidth":"fast"}'},
            "invalid GPUPartitionSpec annotation, err: 'fast'",
            id="bandwidth",
        ),
        pytest.param(
            {DEVICE_ALLOCATE_HINT: '{"gpu":{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}}'},
            'invalid Selector of DeviceHint, deviceType: gpu, err: "Is" is not a valid label selector operator',
            id="operator",
        ),
        pytest.param(
            {DEVICE_ALLOCATE_HINT: '{"rdma":{"vfSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}}'},
            "invalid VFSelector of DeviceHint, deviceType: rdma, err: key a: for 'in', 'notin' operators, values set "
            "can't be empty",
            id="values",
        ),
    ],
)
def test_invalid_annotations_are_refused(annotations: dict[str, str], want: str) -> None:
    with pytest.raises(InvalidHintError) as caught:
        read(annotations)
    assert str(caught.value).startswith(want)
    rig = Rig()
    rig.node("n", gpus=1)
    builder = pod("p").gpus(1)
    for name, text in annotations.items():
        builder.annotation(name, text)
    rig.submit(builder)
    rig.run()
    assert rig.message("p").startswith(f"0/1 nodes are available: {want}")


def test_a_pod_without_annotations_has_no_hints() -> None:
    assert read({"app": "x"}) is NO_HINTS
    assert ask(whole(2, rdma=100)).plain
    assert not ask(whole(2, rdma=100), joint={"deviceTypes": ["gpu", "rdma"]}).plain
