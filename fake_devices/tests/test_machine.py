"""Machines: places, numbers that must not be confused, links; identities that stay."""

import pytest

from seatrial.fake_devices.machine import from_devices, from_server, identity
from seatrial.fake_devices.models import CatalogError, catalog


def test_cards_described_alone_sit_two_to_a_switch_on_two_numa_nodes() -> None:
    machine = from_devices((("a100-80g", 8), ("connectx-7", 4)), catalog())
    cards = [slot for slot in machine.slots if not slot.model.is_nic]
    assert [slot.numa for slot in cards] == [0, 0, 0, 0, 1, 1, 1, 1]
    by_root = {root: [slot.minor for slot in cards if slot.root == root] for root in {slot.root for slot in cards}}
    assert sorted(sorted(minors) for minors in by_root.values()) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    nics = [slot for slot in machine.slots if slot.model.is_nic]
    assert {nic.root for nic in nics} == set(by_root), "a NIC below each switch"


def test_index_and_minor_are_not_the_same_number() -> None:
    for machine in (from_devices((("a10", 4),), catalog()), from_server("dgx-h100", catalog())):
        cards = [slot for slot in machine.slots if not slot.model.is_nic]
        assert sorted(slot.minor for slot in cards) == list(range(len(cards)))
        assert all(slot.minor != slot.index for slot in cards)


def test_an_index_follows_the_bus_addresses() -> None:
    cards = from_server("atlas-800t-a2", catalog()).slots
    assert [slot.index for slot in cards] == list(range(8))
    assert [slot.bus for slot in cards] == sorted(slot.bus for slot in cards)


def test_two_chips_share_a_card() -> None:
    slots = from_server("ascend-16", catalog()).slots
    assert [(slot.card, slot.chip) for slot in slots[:4]] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_nics_functions_come_after_its_ports() -> None:
    nic = next(slot for slot in from_server("dgx-h100", catalog()).slots if slot.model.is_nic)
    assert nic.vfs[:2] == (nic.bus[:-1] + "2", nic.bus[:-1] + "3")
    assert nic.vfs[6] == nic.bus[:-4] + "01.0"


def test_links_of_a_group_go_both_ways() -> None:
    machine = from_server("atlas-800t-a2", catalog())
    pairs = {(link.slot, link.peer) for link in machine.links}
    assert pairs == {(b, a) for a, b in pairs}
    assert len(pairs) == 2 * 4 * 3


def test_identities_differ_between_nodes_and_seeds_and_stay_otherwise() -> None:
    slot = from_devices((("a10", 1),), catalog()).slots[0]
    one = identity("n1", slot)
    assert one == identity("n1", slot)
    assert len({one.uuid, identity("n2", slot).uuid, identity("n1", slot, seed=1).uuid}) == 3
    assert one.uuid.startswith("GPU-")
    assert len(one.uuid) == 40


def test_equal_machines_are_one_object() -> None:
    assert from_devices((("a10", 2),), catalog()) is from_devices((("a10", 2),), catalog())


def test_more_devices_than_a_tree_has_room_for_are_refused() -> None:
    with pytest.raises(CatalogError, match="at most 25 devices"):
        from_devices((("a10", 1), ("connectx-7", 40)), catalog())


@pytest.mark.parametrize("count", [1001, 10**30])
def test_too_many_devices_are_refused_before_any_is_made(count: int) -> None:
    with pytest.raises(CatalogError, match=f"expected at most 1000 of a10, found {count}"):
        from_devices((("a10", count),), catalog())
