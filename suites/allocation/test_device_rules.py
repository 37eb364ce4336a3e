"""Rules of devices that one default scenario does not tell apart.

The rules are those of koordinator `pkg/scheduler/plugins/deviceshare`.
"""

import json

import pytest

from seatrial.fixtures.allocated_devices import first_of, minors, switches
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, pods, reservation
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU_CORE, GPU_MEMORY_RATIO, RDMA
from seatrial.suites.allocation.listed import relist

ONE_EACH, PAIRS = "dgx-h100", "hgx-a100"  # a card and a NIC on each switch; two cards on a switch

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("DEV-8.avoids-nodes")
@pytest.mark.case("DS-120", severity="critical", source="koordinator pkg/scheduler/plugins/deviceshare/plugin.go")
@pytest.mark.parametrize(
    ("builder", "provider", "fits"),
    [
        pytest.param(pod("a").gpu_share(50).isolated(), "", False, id="share-without"),
        pytest.param(pod("a").gpu_share(50).isolated(), "another", False, id="share-by-another"),
        pytest.param(pod("a").gpus(1).isolated(), "", True, id="whole-card"),
        pytest.param(pod("a").gpu_share(50), "another", True, id="share-that-names-none"),
    ],
)
def test_who_isolates_shares(trial: Trial, expect: Expect, builder: PodBuilder, provider: str, fits: bool) -> None:
    """A share that names a provider needs a node with that one; whole cards need none."""
    machine = node("n1").gpus("a10", 1)
    trial.add(machine.isolation(provider) if provider else machine)
    trial.submit(builder)
    if fits:
        assert minors(expect.bound("a")) == [0]
        return
    expect.pending("a")
    expect.stable(seconds=2)


@pytest.mark.feature("DEV-1.whole-cards")
@pytest.mark.case("DS-121", severity="critical", source="spec DEV-R12; deviceshare/device_cache.go")
def test_a_pod_that_was_there_keeps_all_its_devices(trial: Trial, expect: Expect) -> None:
    """A pod was placed on two cards and two NICs before: the next ones get the other six of each."""
    trial.add(node("n1").server(ONE_EACH))
    listed = trial.device("n1")["spec"]["devices"]
    held: dict[str, list[dict[str, object]]] = {}
    for kind in ("gpu", "rdma"):
        held[kind] = [
            {"minor": one["minor"], "id": one["id"], "resources": one["resources"]}
            for one in listed
            if one["type"] == kind and one["minor"] in {0, 3}
        ]
    builder = pod("first").gpus(2).rdma(200).annotation(DEVICE_ALLOCATED, json.dumps(held))
    trial.submit(builder.node_name("n1"))
    trial.settle()
    names = [f"a-{number}" for number in range(7)]
    trial.submit(*(one.gpus(1).rdma(100) for one in pods("a", 6)))
    others = expect.bound(names[0], names[1], *names[2:6])
    assert {first_of(one) for one in others} == {first_of(one, "rdma") for one in others} == {1, 2, 4, 5, 6, 7}
    trial.submit(pod(names[6]).gpus(1))
    expect.pending(names[6])


@pytest.mark.feature("DEV-7.nic-per-gpu")
@pytest.mark.case("DS-122", severity="normal", source="spec DEV-R51, DEV-R52")
@pytest.mark.parametrize("primary", ["gpu", "rdma"])
def test_the_first_type_of_the_annotation_is_primary(trial: Trial, expect: Expect, primary: str) -> None:
    """The card of the first switch is taken. The NIC comes from the switch of the pod's card if the card is chosen
    first; a NIC that is chosen first is the first one."""
    trial.add(node("n1").server(ONE_EACH))
    trial.submit(pod("holder").gpus(1))
    taken = switches(trial, expect.running("holder"))
    assert len(taken) == 1
    trial.submit(pod("a").gpus(1).rdma(100).jointly(*(("gpu", "rdma") if primary == "gpu" else ("rdma", "gpu"))))
    a = expect.running("a")
    assert switches(trial, a, "rdma") == (switches(trial, a) if primary == "gpu" else taken)


@pytest.mark.needs(Capability.DEVICE_FAULTS)
@pytest.mark.feature("DEV-5.required-scope")
@pytest.mark.case("DS-123", severity="normal", source="ours: spec DEV-R24")
def test_a_switch_with_an_unhealthy_card_is_not_whole(trial: Trial, expect: Expect) -> None:
    """Of four switches with two cards each one has an unhealthy card: three pods that want a switch for themselves are
    placed, and one that does not mind still gets a card."""
    trial.add(node("n1").server(PAIRS))
    trial.inject({"node": "n1", "verb": "critical", "device": 0, "xid": 79})

    def sick() -> bool:
        devices = trial.device("n1")["spec"]["devices"]
        return any(one["type"] == "gpu" and one["minor"] == 0 and not one.get("health") for one in devices)

    assert trial.wait(sick, within=30), "expected GPU 0 to be unhealthy in the Device object"
    trial.submit(*(one.gpus(1).hint("gpu", exclusivePolicy="PCIeLevel") for one in pods("a", 3)))
    placed = expect.bound("a-0", "a-1", "a-2")
    assert len({switch for one in placed for switch in switches(trial, one)}) == 3
    trial.submit(pod("alone").gpus(1).hint("gpu", exclusivePolicy="PCIeLevel"))
    expect.pending("alone")
    trial.submit(pod("beside").gpus(1))
    expect.bound("beside")


@pytest.mark.feature("DEV-1.refusals")
@pytest.mark.case("DS-124", severity="normal", source="spec DEV-R3 to DEV-R6")
@pytest.mark.parametrize(
    ("resources", "cards"),
    [
        pytest.param({GPU_CORE: 150, GPU_MEMORY_RATIO: 200}, 0, id="core-of-one-and-a-half"),
        pytest.param({GPU_CORE: 200, GPU_MEMORY_RATIO: 150}, 0, id="memory-of-one-and-a-half"),
        pytest.param({GPU_CORE: 200, GPU_MEMORY_RATIO: 200}, 2, id="two"),
        pytest.param({RDMA: 150}, 0, id="nics-one-and-a-half"),
    ],
)
def test_each_amount_is_a_share_or_whole_devices(
    trial: Trial, expect: Expect, resources: dict[str, int], cards: int
) -> None:
    """More than one card is whole cards, of its cores as of its memory."""
    trial.add(node("n1").server(ONE_EACH))
    trial.submit(pod("a").resources(dict(resources)))
    if cards:
        assert len(minors(expect.bound("a"))) == cards
    else:
        expect.pending("a", saying="invalid")


@pytest.mark.feature("RSV-1.held", "DEV-1.share-by-percent")
@pytest.mark.case("DS-125", severity="critical", source="spec DEV-R62")
def test_what_an_owner_uses_of_a_reserved_share_counts_once(trial: Trial, expect: Expect) -> None:
    """Half a card is reserved, and its owner has a fifth of the card: the other half is free, and no more than that."""
    trial.add(node("n1").gpus("a10", 1))
    trial.reserve(reservation("held").like(pod("x").gpu_share(50)).for_labels(app="owner").many())
    expect.available("held")
    trial.submit(pod("owner").gpu_share(20).label("app", "owner"))
    expect.bound("owner")
    trial.submit(pod("large").gpu_share(60))
    expect.pending("large")
    trial.submit(pod("half").gpu_share(50))
    expect.bound("half")
    trial.submit(pod("again").gpu_share(30).label("app", "owner"))
    expect.bound("again")


@pytest.mark.feature("RSV-1.held", "DEV-1.share-by-percent")
@pytest.mark.case("DS-213", severity="critical", source="spec DEV-R62")
def test_what_several_owners_use_of_a_reserved_share_counts_once(trial: Trial, expect: Expect) -> None:
    """Of a card 80 % are reserved, and two owners have 20 and 30 of these: 20 are free for others, 30 for owners."""
    trial.add(node("n1").gpus("a10", 1))
    trial.reserve(reservation("held").like(pod("x").gpu_share(80)).for_labels(app="owner").many())
    expect.available("held")
    for name, percent in (("a", 20), ("b", 30)):
        trial.submit(pod(name).gpu_share(percent).label("app", "owner"))
        expect.bound(name)
    trial.submit(pod("other").gpu_share(20))
    expect.bound("other")
    trial.submit(pod("another").gpu_share(10))
    expect.pending("another")
    trial.submit(pod("c").gpu_share(30).label("app", "owner"))
    expect.bound("c")
    trial.delete("a", "b")
    trial.submit(pod("d").gpu_share(50).label("app", "owner"))
    expect.bound("d")
    expect.stable(seconds=2)
    assert not trial.pod("another").spec.node_name


@pytest.mark.feature("DEV-1.share-by-percent")
@pytest.mark.case("DS-212", severity="normal", source="spec DEV-R1")
@pytest.mark.parametrize("where", ["device", "annotation"])
def test_old_names_in_objects(trial: Trial, expect: Expect, where: str) -> None:
    """A Device object lists amounts by names of kubernetes.io, or the annotation of a running pod does: they count as
    those of koordinator.sh."""
    trial.add(node("n1").gpus("a10", 1))
    (card,) = trial.device("n1")["spec"]["devices"]
    old = {name.replace("koordinator.sh", "kubernetes.io"): amount for name, amount in card["resources"].items()}
    if where == "device":
        relist(trial, "n1", lambda _: {"resources": old})
        trial.submit(pod("there").gpu_share(50))
    else:
        half = {name: units(amount) // 2 for name, amount in old.items()}
        held = {"gpu": [{"minor": card["minor"], "id": card["id"], "resources": half}]}
        trial.submit(pod("there").gpu_share(50).annotation(DEVICE_ALLOCATED, json.dumps(held)).node_name("n1"))
    assert minors(expect.bound("there")) == [0]
    trial.submit(pod("large").gpu_share(60))
    expect.pending("large")
    trial.submit(pod("small").gpu_share(50))
    assert minors(expect.bound("small")) == [0]


@pytest.mark.feature("DEV-1.share-by-percent")
@pytest.mark.case("DS-126", severity="normal", source="spec DEV-R47, DEV-R59")
def test_shares_of_nics_go_to_the_emptier_one(trial: Trial, expect: Expect) -> None:
    """By default the less used NIC is preferred: two shares are on two NICs, and the third joins the smaller one."""
    trial.add(node("n1").nics("connectx-7", 2))
    chosen = []
    for name, share in (("a", 40), ("b", 20), ("c", 10)):
        trial.submit(pod(name).rdma(share))
        chosen.append(first_of(expect.running(name), "rdma"))
    assert chosen[0] != chosen[1] == chosen[2]
