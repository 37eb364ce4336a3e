"""Ledgers in files: reboots, other machines, other labs, damage."""

from pathlib import Path

import msgspec
import pytest

from seatrial.harness.lab import stores
from seatrial.harness.lab.errors import LabError
from seatrial.harness.lab.lab import Lab
from seatrial.harness.lab.ledger import PlaceRequest
from seatrial.harness.lab.stores import FileStore
from seatrial.harness.lab.tests.inventories import inventory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger in which one holder has a card, without renewing, for an hour."""
    path = tmp_path / "ledger.json"
    Lab(inventory(tmp_path), FileStore(path, "shelf"), holder="a").acquire_for(PlaceRequest("a10"), 3600, wait=0)
    return path


def altered(path: Path, **changes: str) -> None:
    content = msgspec.json.decode(path.read_bytes(), type=stores._Content)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(content, **changes)))


def test_nobody_holds_a_device_after_the_machine_was_booted(path: Path) -> None:
    assert len(FileStore(path, "shelf").read().ledger.leases) == 1
    altered(path, boot="earlier")
    ledger = FileStore(path, "shelf").read().ledger
    assert ledger.leases == ()
    assert ledger.tokens == 1  # goes on from there


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"boot": "x", "machine": "another"}, r"written on another machine \(another\), whose clock cannot be read"),
        (None, "expected a file that seatrial wrote, found another"),
    ],
)
def test_files_that_cannot_be_used_are_refused(path: Path, changes: dict[str, str] | None, words: str) -> None:
    if changes is None:
        path.write_text("{}")
    else:
        altered(path, **changes)
    with pytest.raises(LabError, match=words):
        FileStore(path, "shelf").read()


def test_the_ledger_of_another_lab_is_refused(path: Path) -> None:
    with pytest.raises(LabError, match="expected the ledger of lab 'rack', found that of 'shelf'"):
        FileStore(path, "rack").read()


def test_a_newer_ledger_is_not_overwritten(path: Path) -> None:
    store = FileStore(path, "shelf")
    before = store.read()
    Lab(inventory(path.parent), store, holder="b").acquire_for(PlaceRequest("h100"), 60, wait=0)
    assert not store.write(before.ledger, before)
    assert len(store.read().ledger.leases) == 2


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "missing" / "ledger.json", "shelf")
    with pytest.raises(LabError, match="its lock file cannot be opened: No such file"):
        store.write(store.read().ledger, store.read())
