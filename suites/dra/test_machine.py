"""Claims on this machine as a node: what kubelet and a driver give to containers is what the claims were allocated."""

import re
from collections.abc import Iterator

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import claim, claim_template, pod
from seatrial.scheduler.api.resourceclaims import SLICES_PATH
from seatrial.suites.dra.offers import NVIDIA, Offers, offers

__all__ = ["offers"]

pytestmark = [pytest.mark.needs(Capability.CONTAINERS, Capability.CLAIM_DRIVER)]
KUBELET = "kubernetes 1.37 pkg/kubelet/cm/dra"
PLUGIN = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources"
_CARD = re.compile(r"/dev/nvidia(\d+)")
SOON = 10.0  # seconds in which a driver publishes that a card has failed, or is well again


@pytest.fixture
def cards(trial: Trial) -> Iterator[list[str]]:
    """The names of this machine's cards, as the driver publishes them; their faults are removed afterwards."""
    names = published(trial)
    if not names:
        pytest.skip("needs NVIDIA cards; this machine has none, and --fake stands in for none")
    yield names
    trial.heal(trial.machine()["metadata"]["name"])
    assert trial.wait(lambda: not published(trial, tainted=True), within=SOON), published(trial, tainted=True)


def published(trial: Trial, *, tainted: bool = False) -> list[str]:
    """The names of the cards in the driver's slices, or of those with a taint."""
    slices = orjson.loads(trial.call("GET", SLICES_PATH).body)["items"]
    devices = [each for entry in slices if entry["spec"]["driver"] == NVIDIA for each in entry["spec"]["devices"]]
    return [device["name"] for device in devices if device.get("taints") or not tainted]


def inside(trial: Trial, name: str) -> list[str]:
    """The names of the cards that the pod's container can open."""
    container = trial.container(name)
    paths = {*container.devices, *container.mounts}
    return sorted(f"gpu-{card[1]}" for path in paths if (card := _CARD.fullmatch(path)))


def allocated(offers: Offers, claim: str) -> list[str]:
    """The names of the devices of a claim."""
    allocation = offers.claim(claim).status.allocation
    assert allocation is not None
    return sorted(result.device for result in allocation.devices.results)


@pytest.mark.feature("DRA-1.containers", "HIL-1.kubelet")
@pytest.mark.case("DR-250", severity="blocker", source=f"{KUBELET}; {PLUGIN}")
def test_each_container_has_the_devices_of_its_claim(
    trial: Trial, expect: Expect, offers: Offers, cards: list[str]
) -> None:
    """A pod for each card: each sees the card of its own claim alone. A pod without a claim sees none."""
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    names = [f"a{number}" for number in range(len(cards))]
    trial.submit(pod("none"), *(pod(name).claim("gpu", template="one") for name in names))

    expect.running("none", *names)

    seen = {name: inside(trial, name) for name in names}
    assert seen == {name: allocated(offers, offers.claim_of(name)) for name in names}
    assert sorted(card for each in seen.values() for card in each) == sorted(cards)
    assert inside(trial, "none") == []


@pytest.mark.feature("DRA-1.comes-back", "DRA-2.all", "HIL-1.kubelet")
@pytest.mark.case("DR-251", severity="blocker", source=f"{KUBELET}; {PLUGIN}")
def test_a_machine_is_full_until_the_pod_with_all_cards_is_gone(
    trial: Trial, expect: Expect, offers: Offers, cards: list[str]
) -> None:
    """A request for all devices gets each card; the next pod waits, and starts when the first one is deleted."""
    trial.apply(claim("all").asks("gpu", NVIDIA, allocationMode="All"), claim_template("one").asks("gpu", NVIDIA))
    trial.submit(pod("a").claim("gpu", name="all"))
    expect.running("a")
    assert inside(trial, "a") == allocated(offers, "all") == sorted(cards)
    trial.submit(pod("late").claim("gpu", template="one"))
    expect.pending("late")

    trial.delete("a")

    expect.running("late")
    assert inside(trial, "late") == allocated(offers, offers.claim_of("late"))


@pytest.mark.feature("DRA-1.shared", "HIL-1.kubelet")
@pytest.mark.case("DR-252", severity="critical", source=f"{KUBELET}; {PLUGIN}")
def test_pods_that_share_a_claim_see_one_card(trial: Trial, expect: Expect, offers: Offers, cards: list[str]) -> None:
    """The second pod finds the prepared claim; a third one does after the first is gone."""
    trial.apply(claim("shared").asks("gpu", NVIDIA))
    trial.submit(pod("a").claim("gpu", name="shared"), pod("b").claim("gpu", name="shared"))
    expect.running("a", "b")
    trial.delete("a")
    trial.submit(pod("c").claim("gpu", name="shared"))
    expect.running("c")

    (card,) = allocated(offers, "shared")
    assert card in cards
    assert inside(trial, "b") == inside(trial, "c") == [card]


@pytest.mark.feature("DRA-3.taints", "HIL-1.kubelet", "HIL-4.device-faults-on-machine")
@pytest.mark.case("DR-253", severity="blocker", source=f"{PLUGIN}; spec DRA-R152")
@pytest.mark.needs(Capability.DEVICE_FAULTS)
def test_a_card_that_fails_goes_to_no_container_until_it_is_well(
    trial: Trial, expect: Expect, offers: Offers, cards: list[str]
) -> None:
    """The driver taints the card: of a pod for each card one waits. It starts with that card once this is well."""
    broken = cards[-1]
    name = trial.machine()["metadata"]["name"]
    trial.inject({"node": name, "device": int(broken.removeprefix("gpu-")), "verb": "critical", "xid": 79})
    assert trial.wait(lambda: published(trial, tainted=True) == [broken], within=SOON), published(trial, tainted=True)
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    names = [f"a{number}" for number in range(len(cards))]
    trial.submit(*(pod(name).claim("gpu", template="one") for name in names))

    def waiting() -> list[str]:
        return [pod.metadata.name for pod in trial.pods() if not pod.spec.node_name]

    assert trial.wait(lambda: len(waiting()) == 1, within=30.0), trial.timeline()
    (last,) = waiting()
    expect.pending(last)
    others = [name for name in names if name != last]
    expect.running(*others)
    assert sorted(card for each in others for card in inside(trial, each)) == sorted(cards[:-1])

    trial.heal(name)

    expect.running(last)
    assert inside(trial, last) == allocated(offers, offers.claim_of(last)) == [broken]
