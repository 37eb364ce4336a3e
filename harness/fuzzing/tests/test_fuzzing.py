"""A slice of the fuzz job with a fixed seed, and what the job finds in readers with faults."""

import warnings
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import strategies as st

from seatrial.harness.cli import app
from seatrial.harness.fuzzing import areas, running
from seatrial.harness.fuzzing.areas import AREAS
from seatrial.harness.fuzzing.long_texts import LongText, check_cost, text_of, text_paths, with_text
from seatrial.harness.fuzzing.running import Area, FaultError, TooSlow, fuzz

pytestmark = pytest.mark.filterwarnings("ignore:The recursion limit will not be reset")


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_no_input_leads_to_a_fault(area: Area, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 inputs of each area, the same each time; `seatrial fuzz` runs more, with its own limit of time."""
    monkeypatch.setattr(running, "LIMIT", 60.0)  # only what does not end: a busy machine is many times slower
    ran, faults = fuzz(area, 60, seed=13)
    assert ran == 60
    assert [(fault.kind, fault.shrunk) for fault in faults] == []


def _fails_above_ten(number: int) -> None:
    if number > 10:
        raise TypeError("a fault")


def _quadratic(run: LongText) -> float:
    """Seconds that the reader of such a text would take."""
    return 1e-9 * run[3] ** 2


def test_a_cost_that_grows_faster_than_the_text_is_a_fault() -> None:
    with pytest.raises(FaultError, match="super-linear: 65536 characters like 'abababababax' take"):
        check_cost(("", "ab", "x", 1 << 16), _quadratic)
    check_cost(("", "ab", "x", 1 << 12), _quadratic)  # too short to tell
    check_cost(("", "ab", "x", 1 << 16), lambda run: 1e-5 * run[3])


def test_texts_inside_of_json_are_places() -> None:
    document = {"a": [1, "b"], "c": '{"d": ["e"]}'}
    assert list(text_paths(document)) == [("a", 1), ("c",), ("c", "(JSON)", "d", 0)]
    assert with_text(document, ("c", "(JSON)", "d", 0), "f") == {"a": [1, "b"], "c": '{"d": ["f"]}'}
    assert with_text(document, ("x", "y"), "f")["x"] == {"y": "f"}
    assert text_of(("[", "a,", "x", 8)) == "[a,a,a,x"


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


def test_an_alarm_that_is_lost_rings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callback of the garbage collector loses what the first one raises."""
    ended: list[int] = []

    def lose_one(_: int) -> None:
        with suppress(TooSlow):
            _never_ends(11)
        for number in range(10_000_000):
            ended[:] = [number]

    monkeypatch.setattr(running, "LIMIT", 0.02)
    with pytest.raises(TooSlow):
        running.run_limited(Area("loops", "", st.just(11), lose_one), 11)
    assert ended < [9_000_000]


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
