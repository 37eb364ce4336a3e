"""Resources of machines, device IDs, and the IDs that kubelet is told to prefer."""

from dataclasses import replace

import pytest

from seatrial.harness.deviceplugin.resources import ids_of, owner_of, preferred, registered
from seatrial.harness.devices.provider import Device, Health
from seatrial.harness.devices.survey import survey

GPU = "nvidia.com/gpu"
CORE = "koordinator.sh/gpu-core"


@pytest.fixture(scope="module")
def cards() -> list[Device]:
    """Two A10 behind the vendor's library."""
    return sorted(survey("a10:2")[0], key=lambda device: device.minor)


def test_resources_of_nvidia_cards(cards: list[Device]) -> None:
    """Bytes are not among them: they are not counted in IDs."""
    names = ["gpu", "gpu-core", "gpu-memory-ratio", "gpu.shared"]
    assert registered(cards) == (*(f"koordinator.sh/{name}" for name in names), GPU)


def test_resources_of_npus_follow_the_card() -> None:
    """A 910B3 has 20 AI cores; `koordinator.sh/gpu` is not offered for NPUs."""
    npu = survey("ascend-910b3:1")[0][0]
    assert len(ids_of(npu, "huawei.com/npu-core")) == 20
    assert "koordinator.sh/gpu" not in registered([npu])


def test_a_sick_card_keeps_its_ids(cards: list[Device]) -> None:
    """kubelet counts it in the capacity, and not as allocatable."""
    sick = replace(cards[0], health=Health(ok=False, code="Xid79"))
    assert ids_of(sick, CORE) == ids_of(cards[0], CORE)
    assert len(ids_of(sick, CORE)) == 100


def test_every_id_names_its_card(cards: list[Device]) -> None:
    assert {owner_of(identifier) for identifier in ids_of(cards[1], CORE)} == set(ids_of(cards[1], GPU))


def test_half_a_card_comes_from_the_promised_one(cards: list[Device]) -> None:
    """The second card was promised; kubelet's own order would begin with the first."""
    free = [identifier for card in cards for identifier in ids_of(card, CORE)]
    chosen = preferred([cards[1]], CORE, free, [], 50)
    assert len(set(chosen)) == 50
    assert {owner_of(identifier) for identifier in chosen} == set(ids_of(cards[1], GPU))


def test_equal_parts_of_several_cards(cards: list[Device]) -> None:
    free = [identifier for card in cards for identifier in ids_of(card, CORE)]
    chosen = preferred(cards, CORE, free, [], 60)
    owners = [owner_of(identifier) for identifier in chosen]
    assert [owners.count(ids_of(card, GPU)[0]) for card in cards] == [30, 30]


def test_what_must_be_included_comes_first(cards: list[Device]) -> None:
    """IDs of an init container are used again, although they are of another card."""
    must = ids_of(cards[0], CORE)[:3]
    free = [identifier for card in cards for identifier in ids_of(card, CORE)]
    chosen = preferred([cards[1]], CORE, free, must, 10)
    assert chosen[:3] == must
    assert {owner_of(identifier) for identifier in chosen[3:]} == set(ids_of(cards[1], GPU))


def test_others_fill_a_request_that_the_promised_card_cannot(cards: list[Device]) -> None:
    free = [*ids_of(cards[0], CORE), *ids_of(cards[1], CORE)[:4]]
    chosen = preferred([cards[1]], CORE, free, [], 10)
    assert len(set(chosen)) == 10
    assert sum(owner_of(identifier) == ids_of(cards[1], GPU)[0] for identifier in chosen) == 4
