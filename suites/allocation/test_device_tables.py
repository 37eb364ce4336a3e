"""Tables of the rules of devices: which cards and NICs are chosen beside others in use.

The tables are those of koordinator's own tests where these have some (specification of devices, chapter 15).
"""

import json
from typing import Any

import pytest

from seatrial.fixtures.allocated_devices import functions, minors, numa_nodes
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, reservation
from seatrial.scheduler.api.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_MODEL_LABEL,
    GPU_PARTITION_POLICY_LABEL,
    GPU_PARTITIONS,
    GPU_SHARED,
    GPU_VENDOR_LABEL,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    RDMA,
    DeviceType,
)
from seatrial.scheduler.api.numa import SINGLE_NUMA_NODE
from seatrial.suites.allocation.listed import DEVICES, Json, occupy, place, relist

DEVICE_SHARE = "koordinator pkg/scheduler/plugins/deviceshare"
CARD, NIC = "a10", "connectx-7"
AMOUNTS = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: "16Gi", NPU_CORE: 20, NPU_CPU: 8, NPU_DVPP: 100}
LOCKS = {"cambricon.com/dsmlu.lock": "cambricon", "hami.io/mutex.lock": "metax"}  # of nodes, by vendors' plugins

pytestmark = [pytest.mark.needs(Capability.NODES)]


def paired(trial: Trial, **labels: str) -> None:
    """A node n1 with two cards and a NIC on each of four switches, two switches on each NUMA node."""
    machine = node("n1").gpus(CARD, 8).nics(NIC, 4)
    for key, value in labels.items():
        machine.label(key, value)
    trial.add(machine)
    per_switch = {"gpu": 2, "rdma": 1}

    def switch(one: Json) -> Json:
        at = one["minor"] // per_switch[one["type"]]
        return place(at // 2, f"p{at}")

    relist(trial, "n1", switch)


@pytest.mark.feature("DEV-5.nearest", "DEV-7.nic-per-gpu")
@pytest.mark.case(
    "DS-194",
    severity="critical",
    source=f"{DEVICE_SHARE}/allocator_gpu_test.go TestAllocateByTopology; device_allocator_test.go; E6, E9",
)
@pytest.mark.parametrize(
    ("used", "cards", "scope", "chosen", "nics"),
    [
        pytest.param([], 1, "", [0], [0], id="the-first"),
        pytest.param([], 2, "", [0, 1], [0], id="the-first-switch"),
        pytest.param([], 3, "", [0, 1, 2], [0, 1], id="the-first-numa-node"),
        pytest.param([], 6, "", [0, 1, 2, 3, 4, 5], [0, 1, 2], id="both-numa-nodes"),
        pytest.param([5], 1, "", [4], [2], id="a-switch-in-use"),
        pytest.param([5], 2, "", [6, 7], [3], id="a-numa-node-in-use"),
        pytest.param([5], 2, "PCIe", [6, 7], [3], id="one-switch"),
        pytest.param([1, 3, 5, 7], 2, "PCIe", None, None, id="no-switch"),
        pytest.param([1, 3, 5, 7], 2, "", [0, 2], [0, 1], id="no-switch-is-required"),
        pytest.param([1, 2, 5], 2, "", [6, 7], [3], id="a-switch-before-two"),
        pytest.param([1, 2, 5, 7], 2, "", [0, 3], [0, 1], id="the-first-of-equal-numa-nodes"),
        pytest.param([5], 4, "NUMANode", [0, 1, 2, 3], [0, 1], id="one-numa-node"),
        pytest.param([0, 5], 4, "NUMANode", None, None, id="no-numa-node"),
        pytest.param([0, 5], 4, "Node", [1, 2, 3, 4], [0, 1, 2], id="the-node-will-do"),
        pytest.param([0], 2, "", [2, 3], [1], id="the-other-switch"),
        pytest.param([0], 3, "", [1, 2, 3], [0, 1], id="three-of-a-numa-node"),
    ],
)
@pytest.mark.parametrize("percent", [100, 30])
def test_cards_and_nics_beside_those_in_use(  # noqa: PLR0917 a case and its row
    trial: Trial,
    expect: Expect,
    used: list[int],
    cards: int,
    scope: str,
    chosen: list[int] | None,
    nics: list[int],
    percent: int,
) -> None:
    """The smallest scope that has the cards, of those the one most in use, and a function of a NIC of each switch."""
    paired(trial)
    if used:
        occupy(trial, "holder", gpu=dict.fromkeys(used, percent))
    builder = pod("a").gpus(cards).rdma(1).hint("rdma", vfSelector={}).jointly("gpu", "rdma")
    trial.submit(builder.hint("gpu", requiredTopologyScope=scope) if scope else builder)
    if chosen is None:
        expect.pending("a", saying="Insufficient Topology Scoped GPU Devices")
        return
    a = expect.bound("a")
    assert (minors(a), minors(a, "rdma")) == (chosen, nics)
    assert len(functions(a)) == len(nics)


@pytest.mark.feature("DEV-7.nic-per-gpu", "DEV-7.waits")
@pytest.mark.case("DS-195", severity="critical", source="spec DEV-R52, DEV-R53, E9")
@pytest.mark.parametrize(
    ("busy", "cards", "nics", "required"),
    [
        pytest.param([1], 3, [0, 2], None, id="a-switch-without-nic"),
        pytest.param([], 3, [0, 1], [0, 1], id="a-nic-for-each-switch"),
        pytest.param([0, 1, 2, 3], 1, None, None, id="none-left"),
        pytest.param([0], 2, [1], None, id="the-only-switch-has-none"),
        pytest.param([2], 2, [0], [0], id="another-switch-has-none"),
    ],
)
def test_each_switch_of_the_cards_has_a_nic_for_the_pod(  # noqa: PLR0917 a case and its row
    trial: Trial, expect: Expect, busy: list[int], cards: int, nics: list[int] | None, required: list[int] | None
) -> None:
    """A pod gets a NIC for each switch of its cards, near ones first; one that requires those switches may wait."""
    paired(trial)
    if busy:
        occupy(trial, "holder", rdma=dict.fromkeys(busy, 100))
    for name, same, expected in (("strict", True, required), ("any", False, nics)):
        trial.submit(pod(name).gpus(cards).rdma(100).jointly("gpu", "rdma", same_pcie=same))
        if expected is None:
            expect.pending(name)
            expect.stable(seconds=2)
        else:
            assert minors(expect.bound(name), "rdma") == expected
        trial.delete(name)


@pytest.mark.feature("DEV-7.nic-per-gpu", "DEV-7.waits")
@pytest.mark.case("DS-205", severity="normal", source="spec DEV-R52, DEV-R53")
def test_two_nics_of_one_switch_are_not_one_of_each(trial: Trial, expect: Expect) -> None:
    """Of two switches of a pod's cards one has two NICs, the other none: these do, unless each switch is required."""
    trial.add(node("n1").gpus(CARD, 2).nics(NIC, 2))
    relist(trial, "n1", lambda one: place(0, "b" if (one["type"], one["minor"]) == ("gpu", 1) else "a"))
    trial.submit(pod("strict").gpus(2).rdma(100).jointly("gpu", "rdma", same_pcie=True))
    expect.pending("strict")
    trial.submit(pod("any").gpus(2).rdma(100).jointly("gpu", "rdma"))
    assert minors(expect.bound("any"), "rdma") == [0, 1]


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case(
    "DS-211", severity="normal", source="spec DEV-R47, E10: those of no near switch by score, then number"
)
def test_the_emptier_of_the_nics_that_are_far(trial: Trial, expect: Expect) -> None:
    """The NIC beside the cards is taken, and a part of the next one: of the others the first empty one is given."""
    paired(trial)
    occupy(trial, "holder", rdma={0: 100, 1: 40})
    trial.submit(pod("a").gpus(2).rdma(50).jointly("gpu", "rdma"))
    assert minors(expect.bound("a"), "rdma") == [2]


@pytest.mark.feature("DEV-5.required-scope", "DEV-5.scope-chooses-node")
@pytest.mark.case("DS-196", severity="normal", source="spec DEV-R42, DEV-R43, edge case 13")
@pytest.mark.parametrize(
    ("scope", "shares", "known", "saying"),
    [
        ("Rack", 0, False, "missing GPU Device Topology Tree"),
        ("Node", 0, False, "missing GPU Device Topology Tree"),
        ("", 0, False, ""),
        ("Rack", 0, True, ""),
        ("Node", 0, True, ""),
        ("Device", 0, True, "Insufficient Topology Scoped GPU Devices"),
        ("Node", 2, True, "Unsupported Multi-Shared GPU"),
        ("", 2, True, ""),
        ("PCIe", 1, True, ""),
    ],
)
def test_what_a_required_scope_asks_of_a_node(  # noqa: PLR0917 a case and its row
    trial: Trial, expect: Expect, scope: str, shares: int, known: bool, saying: str
) -> None:
    """Any scope that is named needs the places of all cards, and whole cards or one share."""
    trial.add(node("n1").gpus(CARD, 2))
    relist(trial, "n1", lambda one: place(0, "a") if known or one["minor"] else {"topology": None})
    amount = 50 * shares
    builder = pod("a").resources({GPU_SHARED: shares, GPU_CORE: amount, GPU_MEMORY_RATIO: amount}) if shares else None
    builder = builder or pod("a").gpus(1)
    trial.submit(builder.hint("gpu", requiredTopologyScope=scope) if scope else builder)
    if saying:
        expect.pending("a", saying=saying)
    else:
        assert len(minors(expect.bound("a"))) == max(shares, 1)


@pytest.mark.feature("DEV-6.table", "DEV-6.scores")
@pytest.mark.case("DS-197", severity="critical", source=f"{DEVICE_SHARE}/allocator_gpu_test.go; spec DEV-R39, E8")
@pytest.mark.parametrize(
    ("policy", "used", "cards", "chosen"),
    [
        ("Honor", [], 1, [0]),
        ("Honor", [], 2, [0, 1]),
        ("Honor", [], 4, [0, 1, 2, 3]),
        ("Honor", [], 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("Honor", [], 3, None),
        ("Honor", [], 6, None),
        ("Honor", [2, 3], 2, [0, 1]),
        ("Honor", [4], 2, [6, 7]),
        ("Honor", [4], 1, [5]),
        ("Honor", [0, 4], 2, [2, 3]),
        ("Honor", [3, 4], 4, None),
        ("Prefer", [2, 3], 3, [4, 5, 6]),
        ("Prefer", [4], 2, [6, 7]),
    ],
)
def test_partitions_beside_cards_in_use(  # noqa: PLR0917 a case and its row
    trial: Trial, expect: Expect, policy: str, used: list[int], cards: int, chosen: list[int] | None
) -> None:
    """The table of a known machine: of the free partitions the one that keeps most larger ones whole."""
    paired(trial, **{GPU_MODEL_LABEL: "H800", GPU_PARTITION_POLICY_LABEL: policy})
    if used:
        occupy(trial, "holder", gpu=dict.fromkeys(used, 100))
    trial.submit(pod("a").gpus(cards))
    if chosen is None:
        expect.pending("a", saying="GPU")
    else:
        assert minors(expect.bound("a")) == chosen


@pytest.mark.feature("DEV-6.scores")
@pytest.mark.case("DS-198", severity="normal", source="spec DEV-R39")
@pytest.mark.parametrize(
    ("rows", "of_a_pair", "cards", "chosen"),
    [
        pytest.param({1: [[0], [4]], 2: [[4, 5]], 4: [[0, 1, 2, 3]]}, 1, 1, [4], id="a-four-is-worth-more"),
        pytest.param({1: [[0], [4]], 2: [[4, 5]], 4: [[0, 1, 2, 3]]}, 1000, 1, [0], id="than-a-pair"),
        pytest.param({2: [[1, 2], [0, 1], [2, 3], [2, 5]]}, 1, 2, [0, 1], id="pairs-of-common-cards"),
    ],
)
def test_what_a_partition_that_stays_whole_is_worth(  # noqa: PLR0917 a case and its row
    trial: Trial, expect: Expect, rows: dict[int, list[list[int]]], of_a_pair: int, cards: int, chosen: list[int]
) -> None:
    """Card 0 breaks a partition of four cards, card 4 one of two; at equal scores the four are worth more. Of pairs
    with common cards the one that leaves most others whole is taken."""
    table = {
        str(count): [
            {"minors": own, "gpuLinkType": "NVLink", "allocationScore": of_a_pair if count == 2 else 1}
            for own in listed
        ]
        for count, listed in rows.items()
    }
    paired(trial)
    known(trial, table, "Honor")
    trial.submit(pod("a").gpus(cards))
    assert minors(expect.bound("a")) == chosen


def known(trial: Trial, table: Json, policy: str) -> None:
    """Have the Device object of n1 list a partition table and a policy."""
    labels = {GPU_PARTITION_POLICY_LABEL: policy} if policy else {}
    patch = {"metadata": {"annotations": {GPU_PARTITIONS: json.dumps(table)}, "labels": labels}}
    answer = trial.call("PATCH", f"{DEVICES}/n1", patch)
    assert answer.ok, answer.body.decode()
    trial.settle()


@pytest.mark.feature("DEV-6.no-table", "DEV-6.honor")
@pytest.mark.case("DS-199", severity="normal", source="spec DEV-R34, DEV-R35")
@pytest.mark.parametrize(
    ("labels", "listed", "on_device", "honoured"),
    [
        pytest.param({"model": "H100", "policy": "Honor"}, False, "", True, id="known-model"),
        pytest.param({"model": "H100", "vendor": "", "policy": "Honor"}, False, "", True, id="no-vendor"),
        pytest.param({"model": "H20", "vendor": "nvidia", "policy": "Honor"}, False, "", True, id="known-vendor"),
        pytest.param({"model": "H100", "vendor": "other", "policy": "Honor"}, False, "", True, id="other-vendor"),
        pytest.param({"model": "H200", "policy": "Honor"}, False, "", True, id="other-model"),
        pytest.param({"model": "H100"}, False, "Honor", False, id="built-in-and-the-device-says"),
        pytest.param({"model": "H100", "policy": "honor"}, False, "", False, id="another-word"),
        pytest.param({}, True, "Honor", True, id="table-and-the-device-says"),
        pytest.param({"model": "H100", "policy": "Honor"}, True, "", False, id="table-and-the-node-says"),
    ],
)
def test_who_says_that_a_table_is_mandatory(  # noqa: PLR0917 a case and its row
    trial: Trial, expect: Expect, labels: dict[str, str], listed: bool, on_device: str, honoured: bool
) -> None:
    """Where the Device object has the table it is that one, else the node. Three cards are no row of any table."""
    keys = {"model": GPU_MODEL_LABEL, "vendor": GPU_VENDOR_LABEL, "policy": GPU_PARTITION_POLICY_LABEL}
    paired(trial, **{keys[name]: value for name, value in labels.items()})
    row = {"minors": [0, 7], "gpuLinkType": "NVLink", "allocationScore": 1}
    if listed:
        known(trial, {"2": [row]}, on_device)
    elif on_device:
        relist(trial, "n1", lambda _: None, **{GPU_PARTITION_POLICY_LABEL: on_device})
    known_model = labels.get("model") in {"H100", "H20"} and labels.get("vendor", "") in {"", "nvidia"}
    has_table = listed or known_model
    trial.submit(pod("pair").gpus(2).partition())
    if has_table:
        assert minors(expect.bound("pair")) == ([0, 7] if listed else [0, 1])
    else:
        expect.pending("pair", saying="missing GPU Partition Table")
    trial.submit(pod("three").gpus(3))
    if honoured:
        expect.pending("three", saying="Unsupported number of GPU requests" if has_table else "missing GPU Partition")
    else:
        expect.bound("three")


@pytest.mark.feature("DEV-6.honor")
@pytest.mark.case("DS-200", severity="normal", source="spec DEV-R34")
def test_the_labels_of_a_node_change(trial: Trial, expect: Expect) -> None:
    """A node becomes a known model whose table is mandatory, no longer is, and is again: each time it counts."""
    paired(trial)
    labels = {GPU_MODEL_LABEL: "H100", GPU_PARTITION_POLICY_LABEL: "Honor"}
    for turn in range(2):
        assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": labels}}).ok
        trial.settle()
        before, after = f"before-{turn}", f"after-{turn}"
        trial.submit(pod(before).gpus(3))
        expect.pending(before, saying="Unsupported number of GPU requests")
        trial.delete(before)

        none = dict.fromkeys(labels) if turn else {GPU_MODEL_LABEL: "A10", GPU_PARTITION_POLICY_LABEL: "Prefer"}
        assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": none}}).ok

        trial.settle()
        trial.submit(pod(after).gpus(3))
        assert len(minors(expect.bound(after))) == 3
        trial.delete(after)


@pytest.mark.feature("RSV-1.held", "DEV-7.held-and-returned")
@pytest.mark.case("DS-201", severity="critical", source="spec DEV-R62")
@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_an_owner_has_the_devices_of_all_types_that_are_held(trial: Trial, expect: Expect, policy: str) -> None:
    """Cards 2 and 3 and NIC 1 are held: owners get those, others the rest; what an owner gives back is held again."""
    trial.add(node("n1").gpus(CARD, 4).nics(NIC, 2))
    held = {("gpu", 2), ("gpu", 3), ("rdma", 1)}
    relist(trial, "n1", lambda one: {"labels": {"held": str((one["type"], one["minor"]) in held)}})
    chosen = {"matchLabels": {"held": "True"}}
    like = pod("x").gpus(2).rdma(100).hint("gpu", selector=chosen).hint("rdma", selector=chosen)
    builder = reservation("held").like(like).for_labels(app="owner").many()
    trial.reserve(builder.policy(policy) if policy else builder)
    expect.available("held")
    for turn in range(2):
        first, second = f"first-{turn}", f"second-{turn}"
        trial.submit(pod(first).gpus(1).rdma(100).label("app", "owner"))
        a = expect.bound(first)
        assert (minors(a), minors(a, "rdma")) == ([2], [1])
        trial.submit(pod(second).gpus(1).label("app", "owner"))
        assert minors(expect.bound(second)) == [3]
        other = f"other-{turn}"
        trial.submit(pod(other).gpus(2).rdma(100))
        b = expect.bound(other)
        assert (minors(b), minors(b, "rdma")) == ([0, 1], [0])
        trial.delete(first)
        trial.submit(pod("waits").gpus(1))
        expect.pending("waits")
        expect.stable(seconds=2)
        trial.delete("waits", second, other)


@pytest.mark.profile("spreading")
@pytest.mark.feature("DEV-4.spread-nodes")
@pytest.mark.case("DS-202", severity="normal", source=f"{DEVICE_SHARE}/scoring.go; spec DEV-R60")
@pytest.mark.parametrize("scope", ["", "Node"])
def test_a_node_is_scored_for_one_card(trial: Trial, expect: Expect, scope: str) -> None:
    """Two cards of a node are free, four of eight of another one: by one card the first has the larger part free, by
    both cards that the pod asks for the second would have."""
    trial.add(node("n1").gpus(CARD, 8), node("n2").gpus(CARD, 2))
    occupy(trial, "holder", gpu=dict.fromkeys(range(4), 100))
    builder = pod("a").gpus(2).scheduler("spreading")
    trial.submit(builder.hint("gpu", requiredTopologyScope=scope) if scope else builder)
    assert expect.bound("a").spec.node_name == "n2"
    expect.refusal()


@pytest.mark.profile("vendor-plugins")
@pytest.mark.feature("DEV-3.annotation")
@pytest.mark.case(
    "DS-203", severity="normal", source=f"{DEVICE_SHARE}/device_plugin_adapter_test.go; spec DEV-R71, E15"
)
@pytest.mark.parametrize(
    ("labels", "resources", "shown"),
    [
        pytest.param(
            {GPU_VENDOR_LABEL: "huawei", GPU_MODEL_LABEL: "Ascend-310P3-300I-DUO"},
            {GPU: 200},
            {"huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1"},
            id="two-chips",
        ),
        pytest.param({GPU_VENDOR_LABEL: "huawei"}, {GPU: 200}, {"huawei.com/npu-core": "0,1"}, id="whole"),
        pytest.param(
            {GPU_VENDOR_LABEL: "metax"},
            {GPU_SHARED: 2, GPU_CORE: 10, GPU_MEMORY: "2Gi"},
            {
                "metax-tech.com/gpu-devices-allocated": [
                    [{"uuid": f"CARD-{minor}", "compute": 5, "vRam": 1024} for minor in range(2)]
                ]
            },
            id="metax",
        ),
        pytest.param({GPU_VENDOR_LABEL: "metax"}, {GPU_MEMORY: "2Gi"}, "gpu core resource is required", id="no-core"),
        pytest.param(
            {GPU_VENDOR_LABEL: "metax"},
            {GPU_CORE: 5, GPU_MEMORY: "1000Ki"},
            "gpu memory must not be less than 1048576 bytes",
            id="too-little",
        ),
        pytest.param(
            {GPU_VENDOR_LABEL: "cambricon"},
            {GPU_SHARED: 1, GPU_CORE: 5, GPU_MEMORY: "700Mi"},
            {"CAMBRICON_DSMLU_ASSIGHED": "false", "CAMBRICON_DSMLU_PROFILE": "0_5_2"},
            id="cambricon",
        ),
        pytest.param(
            {GPU_VENDOR_LABEL: "cambricon"},
            {GPU_SHARED: 2, GPU_CORE: 10, GPU_MEMORY: "2Gi"},
            "multiple gpu share is not supported on device side",
            id="cambricon-of-two-cards",
        ),
        pytest.param({GPU_VENDOR_LABEL: "nvidia"}, {GPU: 200}, {}, id="nothing-more"),
        pytest.param({GPU_VENDOR_LABEL: "huawei"}, {RDMA: 100}, {}, id="no-card"),
    ],
)
def test_what_plugins_of_vendors_read(
    trial: Trial, expect: Expect, labels: dict[str, str], resources: Json, shown: Any
) -> None:
    """All vendors' pods say their cards and when; the vendor and the model in the Device object say what else. Pods
    without cards say when."""
    trial.add(node("n1").gpus(CARD, 2).nics(NIC, 1))

    def card(one: Json) -> Json | None:
        return {"id": f"CARD-{one['minor']}", "resources": AMOUNTS} if one["type"] == "gpu" else None

    relist(trial, "n1", card, **labels)
    trial.submit(pod("a").resources(dict(resources)).scheduler("vendor-plugins"))
    if isinstance(shown, str):
        expect.pending("a", saying=shown)
        return
    a = expect.bound("a")
    annotations = a.metadata.annotations
    assert annotations.get("scheduling.koordinator.sh/gpu-minors", "") == ",".join(map(str, minors(a)))
    stamps = ["scheduling.koordinator.sh/bind-timestamp"]
    if labels[GPU_VENDOR_LABEL] == "huawei" and minors(a):
        stamps.append("predicate-time")
    for stamp in stamps:
        moment = int(annotations.get(stamp, 0)) / 1e9  # of nanoseconds
        assert abs(moment - trial.cluster.clock.now()) < 300, stamp
    own = {
        key: value
        for key, value in annotations.items()
        if key.startswith(("huawei.com/", "metax-tech.com/", "CAMBRICON"))
    }
    assert {key: json.loads(value) if key.startswith("metax") else value for key, value in own.items()} == shown
    assert "hami.io/vgpu-node" not in a.metadata.labels
    held = {key: value for key, value in trial.node("n1")["metadata"].get("annotations", {}).items() if key in LOCKS}
    assert {key: value.split(",")[1:] for key, value in held.items()} == {
        key: [trial.name, "a"] for key, vendor in LOCKS.items() if vendor == labels[GPU_VENDOR_LABEL]
    }


@pytest.mark.feature("DEV-4.spread-nodes")
@pytest.mark.case(
    "DS-204", severity="normal", source=f"{DEVICE_SHARE}/scoring_test.go; spec DEV-R60, E12: 186 = 94 + 92"
)
@pytest.mark.parametrize("kind", ["gpu", "rdma"])
@pytest.mark.parametrize("busy", ["n1", "n2"])
def test_each_type_of_a_request_scores(trial: Trial, expect: Expect, kind: str, busy: str) -> None:
    """More of a card, or of a NIC, of one node is in use: pods that ask for both go to the other node."""
    trial.add(*(node(name).gpus(CARD, 2).nics(NIC, 2) for name in ("n1", "n2")))
    for name in ("n1", "n2"):
        occupy(trial, f"on-{name}", on=name, **{kind: {0: 60 if name == busy else 1}})
    for name in ("a", "b", "c"):
        trial.submit(pod(name).gpu_share(10).rdma(10))
        assert expect.bound(name).spec.node_name == ("n2" if busy == "n1" else "n1")


@pytest.mark.feature("DEV-6.honor")
@pytest.mark.case("DS-206", severity="normal", source="spec DEV-R35: shared requests skip the step; edge case 11")
@pytest.mark.parametrize("insists", [False, True])
def test_shares_need_no_partition(trial: Trial, expect: Expect, insists: bool) -> None:
    """The mandatory table has pairs alone: a whole card is refused, and a share of one is given."""
    paired(trial)
    known(trial, {"2": [{"minors": [0, 7], "gpuLinkType": "NVLink", "allocationScore": 1}]}, "Honor")
    for name, percent in (("whole", 100), ("share", 50)):
        builder = pod(name).gpu_share(percent)
        trial.submit(builder.partition() if insists else builder)
    expect.pending("whole", saying="Unsupported number of GPU requests")
    expect.bound("share")


@pytest.mark.feature("RSV-1.held", "DEV-7.held-and-returned")
@pytest.mark.case("DS-207", severity="critical", source="spec DEV-R62: free is capped by what remains")
def test_each_card_of_a_restricted_reservation_is_a_limit(trial: Trial, expect: Expect) -> None:
    """60 % of two cards each are held: no owner that requires the reservation has more than that of one card, and
    what remains of the second card is not taken from the first."""
    trial.add(node("n1").gpus(CARD, 3))
    like = pod("x").resources({GPU_SHARED: 2, GPU_CORE: 120, GPU_MEMORY_RATIO: 120})
    trial.reserve(reservation("held").like(like).for_labels(app="owner").many().policy("Restricted"))
    expect.available("held")
    owners = {name: pod(name).gpu_share(percent) for name, percent in (("large", 80), ("a", 60), ("b", 40), ("c", 20))}
    for builder in owners.values():
        trial.submit(builder.label("app", "owner").into_reservation())
        if builder.name == "large":
            expect.pending("large")
        else:
            expect.bound(builder.name)
    a, b, c = (minors(trial.pod(name)) for name in ("a", "b", "c"))
    assert a != b == c
    trial.delete("a", "b", "c")
    expect.stable(seconds=2)
    assert not trial.pod("large").spec.node_name


@pytest.mark.feature("DEV-5.with-cpus")
@pytest.mark.case("DS-208", severity="normal", source=f"{DEVICE_SHARE}/topology_hint.go; spec DEV-R55")
@pytest.mark.parametrize(("nics", "fits"), [(1, True), (2, False)])
def test_nics_of_no_numa_node_do_not_fill_one_up(trial: Trial, expect: Expect, nics: int, fits: bool) -> None:
    """On a node that aligns all to one NUMA node each has one NIC; of the others nothing is known: a pod gets one."""
    trial.add(node("n1").server("dgx-h100").numa_policy(SINGLE_NUMA_NODE))
    known_places = {0: place(0, "a"), 4: place(1, "b")}
    relist(trial, "n1", lambda one: known_places.get(one["minor"], place(-1, "c")) if one["type"] == "rdma" else None)
    trial.submit(pod("a").request(cpu=4).gpus(1).rdma(100 * nics))
    if fits:
        assert len(minors(expect.bound("a"), "rdma")) == nics
    else:
        expect.pending("a")


@pytest.mark.feature("DEV-5.with-cpus")
@pytest.mark.case("DS-209", severity="normal", source=f"{DEVICE_SHARE}/topology_hint.go; spec DEV-R41, DEV-R56")
def test_cards_choose_the_numa_node_before_cpus(trial: Trial, expect: Expect) -> None:
    """A pod has a card and CPUs of a NUMA node: the next one joins it for its cards, though more CPUs are free on the
    other one."""
    trial.add(node("n1").server("dgx-h100").numa_policy(SINGLE_NUMA_NODE))
    trial.submit(pod("first").request(cpu=60, memory="64Gi").gpus(1))
    first = numa_nodes(trial, expect.bound("first"))
    assert len(first) == 1
    for name in ("second", "third"):
        trial.submit(pod(name).request(cpu=10, memory="8Gi").gpus(1))
        assert numa_nodes(trial, expect.bound(name)) == first


@pytest.mark.profile("plugin-args")
@pytest.mark.feature("DEV-4.spread-nodes")
@pytest.mark.case("DS-210", severity="normal", source=f"{DEVICE_SHARE}/scoring.go; spec DEV-R59")
def test_resources_of_cards_have_weights(trial: Trial, expect: Expect) -> None:
    """Most cores of one card are in use, and most memory of the other: by the profile cores count three times."""
    trial.add(node("n1").gpus("h100-80g", 2).label("disk", "fast"))
    relist(trial, "n1", lambda one: {"labels": {"card": str(one["minor"])}, "topology": None})
    for card, (core, ratio) in (("0", (60, 10)), ("1", (10, 80))):
        share = pod(f"on-{card}").resources({GPU_CORE: core, GPU_MEMORY_RATIO: ratio})
        trial.submit(share.hint("gpu", selector={"matchLabels": {"card": card}}))
        expect.bound(f"on-{card}")
    trial.submit(pod("a").gpu_share(10).scheduler("plugin-args"))
    assert minors(expect.bound("a")) == [1]
    expect.refusal()


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case("DS-264", severity="normal", source="spec DEV-R17, DEV-R50, edge cases 15, 16")
@pytest.mark.parametrize(
    ("types", "nic"), [(("gpu", "rdma"), 1), (("fpga", "gpu", "rdma"), 1), ((), 0), (("rdma",), 0), (("gpu",), 0)]
)
def test_types_that_are_joint(trial: Trial, expect: Expect, types: tuple[DeviceType, ...], nic: int) -> None:
    """The cards of the first switch are taken. Only a pod that names cards and NICs as joint has the NIC of the switch
    of its card, whatever else it names: another one has the first NIC."""
    paired(trial)
    occupy(trial, "holder", gpu={0: 100, 1: 100})
    builder = pod("a").gpus(1).rdma(100)
    trial.submit(builder.jointly(*types) if types else builder)
    a = expect.bound("a")
    assert (minors(a), minors(a, "rdma")) == ([2], [nic])


@pytest.mark.feature("DEV-7.waits")
@pytest.mark.case("DS-265", severity="normal", source="spec DEV-R53, edge case 17")
def test_cards_whose_switch_is_not_known(trial: Trial, expect: Expect) -> None:
    """Of cards without a place no NIC is on the same switch: a pod that requires it waits, another one has a NIC."""
    trial.add(node("n1").gpus(CARD, 1).nics(NIC, 1))
    relist(trial, "n1", lambda one: {"topology": None} if one["type"] == "gpu" else None)
    trial.submit(pod("strict").gpus(1).rdma(100).jointly("gpu", "rdma", same_pcie=True))
    expect.pending("strict", saying="Joint-Allocate rules violation")
    trial.submit(pod("any").gpus(1).rdma(100).jointly("gpu", "rdma"))
    assert minors(expect.bound("any"), "rdma") == [0]


@pytest.mark.profile("packing")
@pytest.mark.feature("DEV-4.binpack-cards")
@pytest.mark.case("DS-266", severity="normal", source=f"{DEVICE_SHARE}/allocator_gpu_test.go TestAllocateSharedGPU; E7")
@pytest.mark.parametrize(("used", "card"), [({5: 100}, 4), ({5: 100, 7: 50}, 7)])
def test_shares_beside_cards_in_use(trial: Trial, expect: Expect, used: dict[int, int], card: int) -> None:
    """A card of the switch in use is taken; of two such switches packing prefers the one whose card is partly used."""
    paired(trial)
    occupy(trial, "holder", gpu=used)
    trial.submit(pod("a").gpu_share(50).scheduler("packing"))
    assert minors(expect.bound("a")) == [card]


@pytest.mark.feature("DEV-6.table", "DEV-6.scores")
@pytest.mark.case("DS-267", severity="normal", source="spec DEV-R33, DEV-R39")
@pytest.mark.parametrize("fours", [{}, {9: [2, 3, 4, 7], 5: [4, 5, 6, 7], 1: [0, 1, 5, 6]}], ids=["pairs", "fours"])
def test_the_order_of_a_table(trial: Trial, expect: Expect, fours: dict[int, list[int]]) -> None:
    """Of two equal pairs the one that the table lists first is taken, also where it breaks a partition of four cards
    whose score is neither the highest nor the lowest."""
    paired(trial)
    rows = {"2": [(1, [5, 6]), (1, [0, 1])], "4": list(fours.items())}
    table = {
        count: [{"minors": cards, "gpuLinkType": "NVLink", "allocationScore": score} for score, cards in listed]
        for count, listed in rows.items()
    }
    known(trial, table, "Honor")
    trial.submit(pod("a").gpus(2))
    assert minors(expect.bound("a")) == [5, 6]


@pytest.mark.feature("DEV-5.nearest")
@pytest.mark.case("DS-268", severity="normal", source="spec DEV-R40, DEV-R41")
def test_of_equal_places_the_first(trial: Trial, expect: Expect) -> None:
    """The last cards are on the first NUMA node, the last of these on its first switch: a pod gets one of those."""
    trial.add(node("n1").gpus(CARD, 8))
    relist(trial, "n1", lambda one: place(1 - one["minor"] // 4, f"p{3 - one['minor'] // 2}"))
    trial.submit(pod("a").gpus(1))
    assert minors(expect.bound("a")) == [6]


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case("DS-269", severity="normal", source=f"{DEVICE_SHARE}/device_resources_test.go; spec DEV-R47, E10")
def test_the_emptier_of_the_nics_of_a_switch(trial: Trial, expect: Expect) -> None:
    """Two NICs are beside each of two cards, and a part of the first of all is in use: a pod has the other one there,
    and the first one of the second card."""
    trial.add(node("n1").gpus(CARD, 2).nics(NIC, 4))
    relist(trial, "n1", lambda one: place(0, "ab"[one["minor"] // (1 if one["type"] == "gpu" else 2)]))
    occupy(trial, "holder", rdma={0: 40})
    trial.submit(pod("a").gpus(2).rdma(50).jointly("gpu", "rdma"))
    assert minors(expect.bound("a"), "rdma") == [1, 2]


@pytest.mark.feature("DEV-4.spread-nodes")
@pytest.mark.case("DS-270", severity="normal", source=f"{DEVICE_SHARE}; koordinator DeviceShareArgs defaults; spec 2.6")
def test_cores_do_not_score_by_default(trial: Trial, expect: Expect) -> None:
    """Most cores of one card are in use, and some more of the memory of the other: the first has the next share."""
    trial.add(node("n1").gpus(CARD, 2))
    relist(trial, "n1", lambda one: {"labels": {"card": str(one["minor"])}, "topology": None})
    for card, (core, ratio) in (("1", (80, 10)), ("0", (10, 20))):
        share = pod(f"on-{card}").resources({GPU_CORE: core, GPU_MEMORY_RATIO: ratio})
        trial.submit(share.hint("gpu", selector={"matchLabels": {"card": card}}))
        expect.bound(f"on-{card}")
    trial.submit(pod("a").gpu_share(10))
    assert minors(expect.bound("a")) == [1]
