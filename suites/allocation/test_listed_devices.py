"""What a Device object lists decides: functions, switches, amounts, ids, labels and NUMA nodes of odd machines."""

import json

import pytest

from seatrial.fixtures.allocated_devices import card_memory, functions, minors, parts, reservation_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, reservation
from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_ALLOCATED,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_MODEL_LABEL,
    GPU_SHARED,
    GPU_VENDOR_LABEL,
    NPU_CORE,
    NVIDIA_GPU,
    RDMA,
    SECONDARY_PLANNED_LABEL,
)
from seatrial.scheduler.api.numa import SINGLE_NUMA_NODE
from seatrial.suites.allocation.listed import DEVICES, Json, place, relist
from seatrial.suites.allocation.reserving import reserved_devices

DEVICE_SHARE = "koordinator pkg/scheduler/plugins/deviceshare"
CARD, NIC = "a10", "connectx-7"

pytestmark = [pytest.mark.needs(Capability.NODES)]


def speed(word: str) -> Json:
    return {"matchLabels": {"speed": word} if word else {}}


def virtual(name: str, word: str) -> PodBuilder:
    return pod(name).rdma(1).hint("rdma", vfSelector=speed(word))


@pytest.mark.feature("DEV-7.vf")
@pytest.mark.case("DS-127", severity="critical", source=f"spec DEV-R48; {DEVICE_SHARE}/device_allocator.go")
def test_functions_of_the_groups_that_match(trial: Trial, expect: Expect) -> None:
    """A NIC has two groups of functions: a pod gets the smallest address of those that its selector matches, and
    waits where only others are left; one that comes back is given again."""
    trial.add(node("n1").nics(NIC, 1))
    (nic,) = trial.device("n1")["spec"]["devices"]
    vfs = sorted((vf for group in nic["vfGroups"] for vf in group["vfs"]), key=lambda vf: vf["busID"])
    buses = [vf["busID"] for vf in vfs]
    groups = [
        {"labels": {"speed": word}, "vfs": [vfs[at] for at in places]}
        for word, places in (("slow", (3, 2)), ("fast", (4, 1, 0)))
    ]
    relist(trial, "n1", lambda _: {"vfGroups": groups})
    for name, word, place_ in (("any", "", 0), ("first", "fast", 1), ("second", "fast", 4), ("slow", "slow", 2)):
        trial.submit(virtual(name, word))
        assert list(functions(expect.bound(name))) == [buses[place_]], name
    trial.submit(virtual("third", "fast"))
    expect.pending("third")
    trial.delete("first")
    assert list(functions(expect.bound("third"))) == [buses[1]]


@pytest.mark.feature("DEV-7.vf")
@pytest.mark.case(
    "DS-250", severity="critical", source="koordinator apis/extension/device_share.go@v1.7.0: DeviceAllocationExtension"
)
def test_each_function_that_a_pod_has_is_in_use(trial: Trial, expect: Expect) -> None:
    """A pod that is there has the first two functions of a NIC, as its annotation says: the next pod gets the third."""
    trial.add(node("n1").nics(NIC, 1))
    (nic,) = trial.device("n1")["spec"]["devices"]
    vfs = sorted((vf for group in nic["vfGroups"] for vf in group["vfs"]), key=lambda vf: vf["busID"])
    extension = {"vfs": [{"minor": vf["minor"], "busID": vf["busID"]} for vf in vfs[:2]]}
    held = {"rdma": [{"minor": nic["minor"], "id": nic["id"], "resources": {RDMA: 2}, "extension": extension}]}
    trial.submit(pod("there").rdma(2).annotation(DEVICE_ALLOCATED, json.dumps(held)).node_name("n1"))
    trial.settle()
    trial.submit(virtual("next", ""))
    got = [
        (vf.bus_id, vf.minor)
        for part in parts(expect.bound("next"), "rdma")
        if part.extension
        for vf in part.extension.vfs
    ]
    assert got == [(vfs[2]["busID"], vfs[2]["minor"])]


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case("DS-128", severity="normal", source=f"spec DEV-R47; {DEVICE_SHARE}/device_allocator.go")
@pytest.mark.parametrize(("rdma", "nics"), [(200, [0, 3]), (300, [0, 1, 3])])
@pytest.mark.parametrize("other", ["b", ""])
def test_nics_of_all_switches_by_turns(trial: Trial, expect: Expect, rdma: int, nics: list[int], other: str) -> None:
    """Three NICs are on the switch of a card, and one on that of the other card: each switch gives one NIC before one
    gives its second."""
    trial.add(node("n1").gpus(CARD, 2).nics(NIC, 4))

    def switch(one: Json) -> Json:
        last = {"gpu": 1, "rdma": 3}[one["type"]]
        return place(0, other if one["minor"] == last else "a")

    relist(trial, "n1", switch)
    trial.submit(pod("a").gpus(2).rdma(rdma).jointly("gpu", "rdma"))
    assert minors(expect.bound("a"), "rdma") == nics


@pytest.mark.feature("DEV-1.once")
@pytest.mark.case("DS-129", severity="critical", source="spec DEV-R48")
def test_an_amount_that_a_card_does_not_list(trial: Trial, expect: Expect) -> None:
    """Of two cards the second alone lists NPU cores: a pod that asks for some gets that one, and the next one waits."""
    trial.add(node("n1").gpus(CARD, 2).extended(NPU_CORE, 40))
    relist(trial, "n1", lambda one: {"resources": {**one["resources"], NPU_CORE: 20}} if one["minor"] else None)
    for name in ("a", "b"):
        trial.submit(pod(name).resources({NPU_CORE: 20, GPU_MEMORY_RATIO: 100}))
        if name == "a":
            assert minors(expect.bound("a")) == [1]
    expect.pending("b")
    expect.stable(seconds=2)


@pytest.mark.feature("DEV-3.annotation")
@pytest.mark.case(
    "DS-130", severity="critical", source=f"spec device-share 10, PreBind fills id; {DEVICE_SHARE}/plugin.go"
)
def test_a_card_is_exchanged(trial: Trial, expect: Expect) -> None:
    """The Device object names another id for the free card: the next pod's annotation has what it lists now."""
    trial.add(node("n1").gpus(CARD, 2))
    trial.submit(pod("first").gpus(1))
    held = minors(expect.bound("first"))
    relist(trial, "n1", lambda one: None if one["minor"] in held else {"id": "GPU-exchanged"})
    trial.submit(pod("second").gpus(1))
    assert [part.id for part in parts(expect.bound("second"))] == ["GPU-exchanged"]


@pytest.mark.feature("DEV-3.annotation")
@pytest.mark.case("DS-272", severity="critical", source=f"spec DEV-R18; {DEVICE_SHARE}/plugin.go@v1.7.0")
def test_an_allocation_that_a_pod_brings(trial: Trial, expect: Expect) -> None:
    """A pod that asks for one card comes with an annotation that names both: it gets one and its annotation says which,
    and the next pod gets the other."""
    trial.add(node("n1").gpus(CARD, 2))
    listed = trial.device("n1")["spec"]["devices"]
    held = {"gpu": [{key: card[key] for key in ("minor", "id", "resources")} for card in listed]}
    trial.submit(pod("a").gpus(1).annotation(DEVICE_ALLOCATED, json.dumps(held)))
    a = minors(expect.bound("a"))
    trial.submit(pod("b").gpus(1))
    b = minors(expect.bound("b"))
    assert (len(a), sorted(a + b)) == (1, [0, 1])


def write(trial: Trial, devices: list[Json]) -> None:
    """Have the Device object of n1 list these devices."""
    assert trial.call("PATCH", f"{DEVICES}/n1", {"spec": {"devices": devices}}).ok
    trial.settle()


@pytest.mark.feature("DEV-2.unhealthy-leaves")
@pytest.mark.case("DS-273", severity="normal", source="koordinator apis/scheduling/v1alpha1/device_types.go@v1.7.0")
def test_a_card_without_a_number(trial: Trial, expect: Expect) -> None:
    """The Device object does not say the number of a card: a pod gets the other card, and the next one waits."""
    trial.add(node("n1").gpus(CARD, 2))
    first, second = trial.device("n1")["spec"]["devices"]
    write(trial, [{name: value for name, value in first.items() if name != "minor"}, second])
    trial.submit(pod("a").gpus(1))
    assert minors(expect.bound("a")) == [1]
    trial.submit(pod("b").gpus(1))
    expect.pending("b")


@pytest.mark.feature("DEV-1.once")
@pytest.mark.case("DS-274", severity="critical", source=f"spec DEV-R19, DEV-R20; {DEVICE_SHARE}/device_cache.go@v1.7.0")
def test_a_card_is_not_listed_for_a_while(trial: Trial, expect: Expect) -> None:
    """The Device object does not list a card that a pod has, and lists it again: it is still that pod's."""
    trial.add(node("n1").gpus(CARD, 2))
    trial.submit(pod("a").gpus(1))
    (held,) = minors(expect.bound("a"))
    listed = trial.device("n1")["spec"]["devices"]
    write(trial, [card for card in listed if card["minor"] != held])
    write(trial, listed)
    trial.submit(pod("b").gpus(1))
    assert minors(expect.bound("b")) == [1 - held]
    trial.submit(pod("c").gpus(1))
    expect.pending("c")


@pytest.mark.feature("RSV-3.ignored", "DEV-1.reserved-cards")
@pytest.mark.case("DS-275", severity="normal", source="spec DEV-R62, RSV-R19")
def test_a_pod_that_ignores_reservations_has_their_devices(trial: Trial, expect: Expect) -> None:
    """The only card and the only NIC are held: a pod that ignores reservations gets both."""
    trial.add(node("n1").gpus(CARD, 1).nics(NIC, 1))
    trial.reserve(reservation("held").like(pod("x").gpus(1).rdma(100)).for_labels(app="owner"))
    expect.available("held")
    trial.submit(pod("ignores").gpus(1).rdma(100).ignores_reservations())
    ignores = expect.bound("ignores")
    assert (minors(ignores), minors(ignores, "rdma")) == ([0], [0])


@pytest.mark.feature("DEV-5.with-cpus")
@pytest.mark.case("DS-182", severity="normal", source=f"spec DEV-R23; {DEVICE_SHARE}/device_allocator.go")
def test_a_nic_without_a_place(trial: Trial, expect: Expect) -> None:
    """On a node that aligns all to one NUMA node a NIC without topology goes with none of them; with one it does."""
    trial.add(node("n1").server("dgx-h100").numa_policy(SINGLE_NUMA_NODE))
    relist(trial, "n1", lambda one: {"topology": None} if one["type"] == "rdma" else None)
    trial.submit(pod("a").request(cpu=4).gpus(1).rdma(100))
    expect.pending("a")
    relist(trial, "n1", lambda one: place(0, "z") if one["type"] == "rdma" else None)
    expect.bound("a")


@pytest.mark.feature("DEV-5.with-cpus")
@pytest.mark.case("DS-131", severity="normal", source=f"spec DEV-R23; {DEVICE_SHARE}/device_allocator.go")
def test_a_nic_of_no_numa_node(trial: Trial, expect: Expect) -> None:
    """On a node that aligns all to one NUMA node a NIC whose NUMA node is not known goes with each of them."""
    trial.add(node("n1").server("dgx-h100").numa_policy(SINGLE_NUMA_NODE))
    relist(trial, "n1", lambda one: place(-1, "z") if one["type"] == "rdma" else None)
    trial.submit(*(pod(name).request(cpu=4).gpus(4).rdma(100) for name in ("a", "b")))
    a, b = expect.bound("a", "b")
    assert sorted(minors(a) + minors(b)) == list(range(8))
    assert minors(a, "rdma") != minors(b, "rdma")


@pytest.mark.profile("plugin-args")
@pytest.mark.feature("DEV-1.refusals")
@pytest.mark.case("DS-132", severity="normal", source=f"spec DEV-R27; {DEVICE_SHARE}/plugin.go")
@pytest.mark.parametrize(("vendor", "fits"), [("nvidia", False), ("other", True)])
def test_a_model_of_another_vendor_is_shared(trial: Trial, expect: Expect, vendor: str, fits: bool) -> None:
    """The profile excludes the model A10 of nvidia; the name alone excludes none."""
    machine = node("n1").gpus(CARD, 1).label("disk", "fast")
    trial.add(machine.label(GPU_VENDOR_LABEL, vendor).label(GPU_MODEL_LABEL, "A10"))
    trial.submit(pod("share").gpu_share(50).scheduler("plugin-args"))
    if fits:
        expect.bound("share")
        expect.refusal()
    else:
        expect.pending("share")


@pytest.mark.profile("spreading")
@pytest.mark.feature("DEV-4.spread-nodes")
@pytest.mark.case("DS-133", severity="normal", source=f"spec DEV-R60; {DEVICE_SHARE}/scoring.go")
def test_the_score_counts_the_devices_that_are_asked_for(trial: Trial, expect: Expect) -> None:
    """Each node has two slow and two fast cards. A pod for a fast one goes where both of them are free, though more
    cards in all are free on the other node."""
    trial.add(*(node(name).gpus(CARD, 4).label("name", name) for name in ("n1", "n2")))
    for name, busy, count in (("n1", "fast", 1), ("n2", "slow", 2)):
        relist(trial, name, lambda one: {"labels": {"speed": "slow" if one["minor"] < 2 else "fast"}})
        for number in range(count):
            holder = f"{name}-{number}"
            trial.submit(pod(holder).gpus(1).on(name=name).hint("gpu", selector=speed(busy)))
            expect.bound(holder)
    trial.submit(pod("a").gpus(1).hint("gpu", selector=speed("fast")).scheduler("spreading"))
    assert expect.bound("a").spec.node_name == "n2"
    expect.refusal()


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case("DS-134", severity="normal", source=f"spec DEV-R58; {DEVICE_SHARE}/plugin.go")
@pytest.mark.parametrize(("planned", "percent"), [("true", 100), ("true", 50), ("false", 100)])
def test_nics_that_follow_the_cards(trial: Trial, expect: Expect, planned: str, percent: int) -> None:
    """Of two nodes the one with more free cards has two NICs, of which each has too little left. NICs are looked for
    with the cards, unless the Device object says "true" and whole cards are asked for: then the cards alone decide,
    and the pod waits for that node."""
    sizes = {"n1": 4, "n2": 1}
    trial.add(*(node(name).gpus(CARD, cards).nics(NIC, 2).label("name", name) for name, cards in sizes.items()))
    for name in sizes:
        relist(trial, name, lambda _: None, **{SECONDARY_PLANNED_LABEL: planned})
    trial.submit(*(pod(name).rdma(60).on(name="n1") for name in ("first", "second")))
    expect.bound("first", "second")
    trial.submit(pod("a").gpu_share(percent).rdma(50).jointly("gpu", "rdma"))
    if planned == "true" and percent == 100:
        expect.pending("a")
    else:
        assert expect.bound("a").spec.node_name == "n2"


@pytest.mark.feature("DEV-7.waits")
@pytest.mark.case("DS-140", severity="normal", source="ours: a pod that fits now is tried now")
def test_a_card_is_taken_from_a_switch_without_nic(trial: Trial, expect: Expect) -> None:
    """The first card's NIC is taken, so that a pod that requires card and NIC on one switch waits; another pod takes
    that card, and the pod gets the second one with its NIC."""
    trial.add(node("n1").gpus(CARD, 2).nics(NIC, 2))
    relist(trial, "n1", lambda one: place(0, "ab"[one["minor"]]))
    trial.submit(pod("taker").rdma(100))
    assert minors(expect.bound("taker"), "rdma") == [0]
    trial.submit(pod("strict").gpus(1).rdma(100).jointly("gpu", "rdma", same_pcie=True))
    expect.pending("strict")
    trial.submit(pod("plain").gpus(1))
    assert minors(expect.bound("plain")) == [0]
    strict = expect.bound("strict")
    assert minors(strict) == minors(strict, "rdma") == [1]


@pytest.mark.feature("DEV-1.once")
@pytest.mark.case("DS-141", severity="blocker", source="spec DEV-R20, DEV-R21")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # in real time the node's end waits for the object that the case wrote
def test_a_pod_is_there_before_the_device_object(trial: Trial, expect: Expect) -> None:
    """A pod with devices runs on a node whose Device object comes later: the next pod gets the other card."""
    trial.add(node("n1").gpus(CARD, 2))
    path = f"{DEVICES}/n1"
    body = trial.device("n1")
    body["metadata"] = {key: body["metadata"].get(key) for key in ("name", "labels", "annotations")}
    assert trial.call("DELETE", path).ok
    trial.settle()
    card = body["spec"]["devices"][0]
    held = {"gpu": [{"minor": card["minor"], "id": card["id"], "resources": card["resources"]}]}
    trial.submit(pod("there").gpus(1).annotation(DEVICE_ALLOCATED, json.dumps(held)).node_name("n1"))
    trial.settle()
    trial.call("POST", DEVICES, body)
    assert trial.reaches(lambda: trial.call("GET", path).ok, within=30)
    trial.settle()
    trial.submit(pod("next").gpus(1), pod("last").gpus(1))
    assert trial.reaches(lambda: any(trial.pod(name).spec.node_name for name in ("next", "last")), within=30)
    expect.stable(seconds=2)
    placed = [one for one in (trial.pod("next"), trial.pod("last")) if one.spec.node_name]
    assert [minors(one) for one in placed] == [[1]]


@pytest.mark.feature("DEV-1.once", "DEV-2.unhealthy-leaves")
@pytest.mark.case("DS-146", severity="critical", source=f"spec DEV-R21; {DEVICE_SHARE}/device_cache.go@v1.7.0")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # in real time the node's end waits for the object that the case wrote
def test_the_device_object_is_away_for_a_while(trial: Trial, expect: Expect) -> None:
    """The Device object is deleted: a pod waits beside the idle cards, and gets one when the object is there again."""
    trial.add(node("n1").gpus(CARD, 2))
    body = trial.device("n1")
    body["metadata"] = {key: body["metadata"].get(key) for key in ("name", "labels", "annotations")}
    assert trial.call("DELETE", f"{DEVICES}/n1").ok
    trial.settle()
    trial.submit(pod("a").gpus(1))
    expect.pending("a")
    expect.stable(seconds=2)
    trial.call("POST", DEVICES, body)
    assert len(minors(expect.bound("a"))) == 1


@pytest.mark.feature("DEV-2.unhealthy-leaves")
@pytest.mark.case("DS-170", severity="normal", source="spec DEV-R21, DEV-R22")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # in real time the node's end waits for the object that the case wrote
def test_a_node_returns_without_its_device_object(trial: Trial, expect: Expect) -> None:
    """The Device object of a node is deleted, and then the node. One of that name comes, without a Device object, and
    offers cards as a plain resource: a pod gets one from the kubelet."""
    trial.add(node("n1").gpus(CARD, 2))
    assert trial.call("DELETE", f"{DEVICES}/n1").ok
    trial.settle()
    trial.submit(pod("a").nvidia(1).tolerate("node.kubernetes.io/not-ready"))
    expect.pending("a")

    trial.cluster.remove_node("n1")
    labels = {"kubernetes.io/hostname": "n1", TRIAL_LABEL: trial.name}
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}
    trial.create(bare, "/api/v1/nodes")
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "10", NVIDIA_GPU: "2"}
    assert trial.call("PATCH", "/api/v1/nodes/n1/status", {"status": {"capacity": amounts, "allocatable": amounts}}).ok

    assert minors(expect.bound("a")) == []


@pytest.mark.feature("RSV-1.held", "DEV-7.held-and-returned")
@pytest.mark.case(
    "DS-142", severity="critical", source="koordinator: apis/scheduling/v1alpha1/reservation_types.go@v1.7.0 (Aligned)"
)
def test_owners_of_two_reservations(trial: Trial, expect: Expect) -> None:
    """Two Aligned reservations of the same owners hold 60 % of a card each. A pod of twice 70 % would need both: it
    waits, and two pods of 60 % have one each."""
    trial.add(node("n1").gpus(CARD, 2))
    relist(trial, "n1", lambda one: {"labels": {"speed": str(one["minor"])}})
    for card in ("0", "1"):
        like = pod("x").gpu_share(60).hint("gpu", selector=speed(card))
        trial.reserve(reservation(f"r{card}").like(like).for_labels(app="owner").policy("Aligned"))
        expect.available(f"r{card}")
    twice = {GPU_SHARED: 2, GPU_CORE: 140, GPU_MEMORY_RATIO: 140}
    trial.submit(pod("two").resources(dict(twice)).label("app", "owner"))
    expect.pending("two")
    expect.stable(seconds=2)
    trial.submit(*(pod(name).gpu_share(60).label("app", "owner") for name in ("a", "b")))
    a, b = expect.bound("a", "b")
    assert sorted(minors(a) + minors(b)) == [0, 1]
    assert {reservation_of(a), reservation_of(b)} == {"r0", "r1"}


@pytest.mark.feature("RSV-1.held")
@pytest.mark.case(
    "RV-340", severity="normal", source="koordinator: pkg/util/reservation/reservation.go@v1.7.0 (NewReservePod)"
)
@pytest.mark.parametrize(("of_template", "own"), [("2", "1"), ("1", "")], ids=["both", "template-alone"])
def test_a_hint_of_a_reservation_and_of_its_template(trial: Trial, expect: Expect, of_template: str, own: str) -> None:
    """Annotations of a reservation go before those of its template: card 1 is held, as its own hint, or the only one,
    says."""
    trial.add(node("n1").gpus(CARD, 3))
    relist(trial, "n1", lambda one: {"labels": {"speed": str(one["minor"])}})
    held = reservation("held").like(pod("x").gpus(1).hint("gpu", selector=speed(of_template))).for_labels(app="owner")
    if own:
        held.annotation(DEVICE_ALLOCATE_HINT, json.dumps({"gpu": {"selector": speed(own)}}))
    trial.reserve(held)
    expect.available("held")
    cards = json.loads(reserved_devices(trial, "held"))["gpu"]
    assert [card["minor"] for card in cards] == [1]


@pytest.mark.feature("DEV-7.held-and-returned")
@pytest.mark.case("DS-143", severity="critical", source="spec DEV-R48, DEV-R62")
def test_owners_of_a_function(trial: Trial, expect: Expect) -> None:
    """A reservation holds the second function of a NIC for many owners, and the first is free again: the first owner
    gets the second function, the next owner another one, or none."""
    trial.add(node("n1").nics(NIC, 1))
    trial.submit(virtual("before", ""))
    before = functions(expect.bound("before"))
    trial.reserve(reservation("held").like(virtual("x", "").rdma(2)).for_labels(app="owner").many())
    expect.available("held")
    trial.delete("before")
    trial.submit(virtual("a", "").label("app", "owner"))
    first = functions(expect.bound("a"))
    assert set(first).isdisjoint(before)
    trial.submit(virtual("b", "").label("app", "owner"))
    trial.reaches(lambda: bool(trial.pod("b").spec.node_name), within=5)
    assert set(first).isdisjoint(functions(trial.pod("b")))
    trial.delete("a")
    trial.submit(virtual("c", "").label("app", "owner"))
    assert functions(expect.bound("c")) == first


@pytest.mark.feature("DEV-7.held-and-returned")
@pytest.mark.case("DS-144", severity="minor", source="spec DEV-R47, DEV-R62")
def test_an_owner_asks_for_more_than_is_held(trial: Trial, expect: Expect) -> None:
    """Card 3 and NIC 1 are held for a pod that asks for two NICs: it gets NIC 1 and the first of the others, whatever
    the number of its card is."""
    trial.add(node("n1").gpus(CARD, 4).nics(NIC, 4))
    relist(trial, "n1", lambda one: {"labels": {"held": str((one["type"], one["minor"]) in {("gpu", 3), ("rdma", 1)})}})
    held = {"matchLabels": {"held": "True"}}
    like = pod("x").gpus(1).rdma(100).hint("gpu", selector=held).hint("rdma", selector=held)
    trial.reserve(reservation("held").like(like).for_labels(app="owner"))
    expect.available("held")
    trial.submit(pod("a").gpus(1).rdma(200).label("app", "owner"))
    assert minors(expect.bound("a"), "rdma") == [0, 1]


@pytest.mark.profile("resizing")
@pytest.mark.feature("RSV-1.held")
@pytest.mark.case("DS-145", severity="normal", source="spec device-share 10, ResizePod")
def test_a_reservation_lists_the_amounts_of_its_cards(trial: Trial, expect: Expect) -> None:
    """Two cards and a NIC are reserved by their number: what is allocatable is their bytes and percent, summed up."""
    trial.add(node("n1").gpus(CARD, 2).nics(NIC, 1))
    like = pod("x").gpus(2).rdma(100).scheduler("resizing")
    trial.reserve(reservation("held").like(like).for_labels(app="owner"))
    expect.available("held")
    held = expect.reservation("held", lambda one: GPU_MEMORY in one.status.allocatable, "to list bytes")
    amounts = {name: units(held.status.allocatable[name]) for name in (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA)}
    assert amounts == {GPU_CORE: 200, GPU_MEMORY: 2 * card_memory(trial, "n1"), GPU_MEMORY_RATIO: 200, RDMA: 100}


@pytest.mark.feature("DEV-1.once")
@pytest.mark.case("DS-290", severity="normal", source="spec DEV-R19: each card that is listed")
def test_more_cards_than_a_machine_usually_has(trial: Trial, expect: Expect) -> None:
    """Nodes have sixteen cards and one: a pod of ten is bound, seven of one have all others, and the next one waits."""
    trial.add(node("n1").gpus(CARD, 16), node("n2").gpus(CARD, 1))
    trial.submit(pod("ten").gpus(10))
    taken = minors(expect.bound("ten"))
    names = [f"one-{number}" for number in range(7)]
    trial.submit(*(pod(name).gpus(1) for name in names))
    others = expect.bound(*names[:2], *names[2:])
    on_n1 = [minor for user in others if user.spec.node_name == "n1" for minor in minors(user)]
    assert sorted(taken + on_n1) == list(range(16))
    trial.submit(pod("next").gpus(1))
    expect.pending("next")
