"""Slices of cards at the vendors' boundaries: created and read by providers, refused, timed out."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.fake_devices import mailbox, slices
from seatrial.fake_devices.slices import SliceError
from seatrial.fake_devices.table import DeviceTable
from seatrial.harness.devices.provider import Device, DeviceProvider, FailureKind, ProviderError, Slice
from seatrial.harness.devices.tests.boundaries import Way, cndev_library, dcmi_library, nvml_library
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.nodes.slices import offers

GIB = 1 << 30
CUTTABLE = [
    pytest.param(dcmi_library, "vir05_1c_16g", 4, (16 * GIB, 5), id="vnpu"),
    pytest.param(cndev_library, f"30:{8 * GIB}", 3, (8 * GIB, 30), id="smlu"),
]


@contextmanager
def attended(table: DeviceTable) -> Iterator[None]:
    """Answer the mailbox in a thread, as the node agent does."""
    over = threading.Event()

    def attend() -> None:
        while not over.wait(0.005):
            mailbox.answer(table)

    thread = threading.Thread(target=attend)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(("way", "template", "room", "size"), CUTTABLE)
def test_slices_are_created_until_the_card_is_full_and_removed(
    way: Way, template: str, room: int, size: tuple[int, int], tmp_path: Path
) -> None:
    with way(tmp_path) as boundary, attended(boundary.table), boundary.provider() as provider:
        uuid = provider.devices()[0].uuid
        cut = [provider.slice(uuid, template) for _ in range(room)]
        assert len({part.id for part in cut}) == room
        assert {(part.memory, part.cores) for part in cut} == {size}
        assert _seen(provider, uuid) == {part.id for part in cut}
        with pytest.raises(ProviderError) as full:
            provider.slice(uuid, template)
        assert full.value.kind is FailureKind.BUSY
        provider.unslice(uuid, cut[0].id)
        assert _seen(provider, uuid) == {part.id for part in cut[1:]}
        provider.slice(uuid, template)
        others = [device for device in provider.devices() if device.uuid != uuid]
        assert not any(other.slices for other in others), "only the card that was meant is cut"


def _seen(provider: DeviceProvider, uuid: str) -> set[str]:
    (device,) = (candidate for candidate in provider.devices() if candidate.uuid == uuid)
    return {part.id for part in device.slices}


def _offered(device: Device) -> list[str]:
    """The names under which claims may ask for a card."""
    return [offer.name for offer in offers(VENDORS[device.vendor].claim_driver, [device], "whole")]


def test_a_slice_in_use_cannot_be_removed(tmp_path: Path) -> None:
    with dcmi_library(tmp_path) as boundary, attended(boundary.table), boundary.provider() as provider:
        uuid = provider.devices()[0].uuid
        part = provider.slice(uuid, "vir10_3c_32g")
        next(record for record in boundary.table.slices if record.id == int(part.id)).memory_used = GIB
        with pytest.raises(ProviderError) as refused:
            provider.unslice(uuid, part.id)
        assert refused.value.kind is FailureKind.BUSY
        assert _seen(provider, uuid) == {part.id}


def test_a_request_without_a_writer_times_out(tmp_path: Path) -> None:
    with dcmi_library(tmp_path) as boundary, boundary.provider() as provider:
        uuid = provider.devices()[0].uuid
        with pytest.raises(ProviderError) as silent:
            provider.slice(uuid, "vir05_1c_16g")
        assert silent.value.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize("cut", [("4g.40gb", "3g.40gb"), ("2g.20gb",) * 3, ("1g.20gb",) * 4, ("7g.80gb",)])
def test_mig_devices_do_not_overlap(cut: tuple[str, ...], tmp_path: Path) -> None:
    """They begin where NVIDIA's driver lets them begin: a larger one at a multiple of its size."""
    with nvml_library(tmp_path) as boundary, boundary.provider() as provider:
        at = boundary.position(0)
        slices.set_mig_mode(boundary.table, at, on=True)
        for template in cut:
            slices.cut_mig(boundary.table, at, template)
        with pytest.raises(SliceError, match="no room"):
            slices.cut_mig(boundary.table, at, cut[-1])
        places = [entry.places for entry in provider.devices()[0].slices]
        taken = [place for own in places for place in own]
        assert len(set(taken)) == len(taken)
        assert set(taken) <= set(range(8))
        assert all(own.start % len(own) == 0 for own in places)


@pytest.mark.parametrize(
    ("template", "profile", "offered"),
    [
        pytest.param("1g.10gb+me", 20, ["gpu-0-mig-1g10gb-me-20-6"], id="media-extensions"),
        pytest.param("1c.3g.40gb", 9, [], id="a-part-of-a-gpu-instance"),
        pytest.param("1g.10gb", -1, [], id="a-library-that-does-not-know-its-place"),
    ],
)
def test_names_of_mig_devices_are_dns_labels(template: str, profile: int, offered: list[str], tmp_path: Path) -> None:
    """What NVIDIA's driver could not name is not offered."""
    with nvml_library(tmp_path) as boundary, boundary.provider() as provider:
        made = Slice("MIG-1", "mig", template, GIB, profile=profile, places=range(6, 7))
        assert _offered(replace(provider.devices()[0], minor=0, divided=True, slices=(made,))) == offered


def test_an_unknown_template_is_refused(tmp_path: Path) -> None:
    with dcmi_library(tmp_path) as boundary, attended(boundary.table), boundary.provider() as provider:
        uuid = provider.devices()[0].uuid
        with pytest.raises(ProviderError, match="-8001"):
            provider.slice(uuid, "vir99")


def test_mig_devices_are_read_as_slices_of_their_card(tmp_path: Path) -> None:
    """Created by the table's owner, as an administrator does with nvidia-smi; read through NVML."""
    with nvml_library(tmp_path) as boundary, boundary.provider() as provider:
        at = boundary.position(0)
        before = provider.devices()[0]
        assert before.slices == ()
        assert _offered(before) == [f"gpu-{before.minor}"]
        with pytest.raises(SliceError, match="expected MIG mode on, found off"):
            slices.cut_mig(boundary.table, at, "1g.10gb")
        slices.set_mig_mode(boundary.table, at, on=True)
        assert _offered(provider.devices()[0]) == []  # the mode counts, not whether there are MIG devices already
        uuids = [slices.cut_mig(boundary.table, at, name) for name in ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")]
        result = provider.devices()[0].slices
        assert [(entry.id, entry.kind, entry.template) for entry in result] == [
            (uuid, "mig", name) for uuid, name in zip(uuids, ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"), strict=True)
        ]
        assert result[0].memory == 40448 << 20
        assert [(entry.profile, list(entry.places)) for entry in result] == [
            (9, [4, 5, 6, 7]),
            (14, [2, 3]),
            (19, [1]),
            (19, [0]),
        ]
        assert dict(result[1].engines) == {
            "multiprocessors": 132 * 2 // 7,
            "copyEngines": 2,
            "decoders": 2,
            "encoders": 0,
            "jpegEngines": 2,
            "ofaEngines": 0,
        }
        assert before.minor == 1
        assert [entry.nodes for entry in result[:2]] == [  # 135 for each card, 9 for each GPU instance
            ("/dev/nvidia-caps/nvidia-cap147", "/dev/nvidia-caps/nvidia-cap148"),
            ("/dev/nvidia-caps/nvidia-cap156", "/dev/nvidia-caps/nvidia-cap157"),
        ]
        assert _offered(provider.devices()[0]) == [
            f"gpu-{before.minor}-mig-{name}" for name in ("3g40gb-9-4", "2g20gb-14-2", "1g10gb-19-1", "1g10gb-19-0")
        ]
        with pytest.raises(SliceError, match="no room"):
            slices.cut_mig(boundary.table, at, "1g.10gb")
        slices.set_mig_mode(boundary.table, at, on=False)
        assert provider.devices()[0] == before
