"""A slice of the fuzz job with a fixed seed, and what the job finds in readers with faults."""

import warnings
from pathlib import Path

import pytest
from hypothesis import strategies as st

from seatrial.harness.cli import app
from seatrial.harness.fuzzing import areas
from seatrial.harness.fuzzing.areas import AREAS
from seatrial.harness.fuzzing.running import Area, fuzz

pytestmark = pytest.mark.filterwarnings("ignore:The recursion limit will not be reset")


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_no_input_leads_to_a_fault(area: Area) -> None:
    """60 inputs of each area, the same each time; `seatrial fuzz` runs more."""
    ran, faults = fuzz(area, 60, seed=13)
    assert ran == 60
    assert [(fault.kind, fault.shrunk) for fault in faults] == []


def _fails_above_ten(number: int) -> None:
    if number > 10:
        raise TypeError("a fault")


def _never_ends(number: int) -> None:
    while number > 10:
        pass


def test_the_input_of_a_fault_is_shrunk() -> None:
    _, (fault,) = fuzz(Area("numbers", "", st.integers(0, 1000), _fails_above_ten), 100, seed=1)
    assert fault.shrunk == 11
    assert fault.kind.startswith("TypeError")
    assert "a fault" in fault.text


def test_an_input_that_never_ends_is_a_fault() -> None:
    """Each try takes a second of processor time, so the first input is the one that fails."""
    _, (fault,) = fuzz(Area("loops", "", st.just(11), _never_ends), 1, seed=1)
    assert fault.kind == "TooSlow"


def test_the_command_writes_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(areas, "AREAS", (Area("numbers", "", st.integers(0, 1000), _fails_above_ten),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert app(["fuzz", "--inputs", "50", "--seed", "3", "--out", str(tmp_path / "faults")]) == 1
    (written,) = (tmp_path / "faults").iterdir()
    assert "input: 11" in written.read_text()
    assert '"faults": 1' in capsys.readouterr().out
